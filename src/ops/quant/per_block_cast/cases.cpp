// per_block_cast: cases as data.
#include "cases/case.h"

namespace tilekernels::cases {

OpCases per_block_cast() { return {"per_block_cast", {}}; }

}  // namespace tilekernels::cases
