// per_token_cast: cases as data.
#include "cases/case.h"

namespace tilekernels::cases {

OpCases per_token_cast() { return {"per_token_cast", {}}; }

}  // namespace tilekernels::cases
