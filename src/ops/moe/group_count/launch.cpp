// group_count: launch plans of the compiled backends.
#include "ops/moe/group_count/op.h"
#include "runtime/ascend/text.h"
#include "runtime/cuda/text.h"

namespace tilekernels {
namespace cuda {

extern const Text group_count_text;

void group_count(const GroupCountArgs& args, const GroupCountShape& shape, const Launch& launch) {
  histogram(args, shape, launch, group_count_text);
}

}  // namespace cuda

namespace ascend {

extern const Text group_count_text;

void group_count(const GroupCountArgs& args, const GroupCountShape& shape, const Launch& launch) {
  histogram(args, shape, launch, group_count_text);
}

}  // namespace ascend
}  // namespace tilekernels
