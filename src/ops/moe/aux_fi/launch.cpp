// aux_fi: launch plans of the compiled backends.
#include "ops/moe/aux_fi/op.h"
#include "runtime/ascend/text.h"
#include "runtime/cuda/text.h"

namespace tilekernels {
namespace cuda {

extern const Text aux_fi_text;

void aux_fi(const AuxFiArgs& args, const AuxFiShape& shape, const Launch& launch) {
  histogram(args, shape, launch, aux_fi_text);
}

}  // namespace cuda

namespace ascend {

extern const Text aux_fi_text;

void aux_fi(const AuxFiArgs& args, const AuxFiShape& shape, const Launch& launch) {
  histogram(args, shape, launch, aux_fi_text);
}

}  // namespace ascend
}  // namespace tilekernels
