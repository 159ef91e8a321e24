// The support table: op x dtypes x backend, found by running cases.
#pragma once

#include <string>

namespace tilekernels::tool {

/// docs/support.md as this build and this machine find it. A backend that is absent here but has a
/// kernel is shown as "not run here".
std::string support_page();

}  // namespace tilekernels::tool
