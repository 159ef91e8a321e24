// Warnings: what the user may want to know though the call is right.
#pragma once

#include <string>

namespace tilekernels {

/// Hands the sentence to the hook of `set_log_hook`, the first time that it is said.
void warn_once(const std::string& sentence);

}  // namespace tilekernels
