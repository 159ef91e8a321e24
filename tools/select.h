// Which cases and which backends a command line means, and which kernels there are.
#pragma once

#include <string>
#include <vector>

#include "cases/case.h"
#include "tilekernels/device.h"

namespace tilekernels::tool {

/// Chosen cases of one op.
struct Selection {
  const cases::OpCases* op;
  std::vector<const cases::Case*> cases;
};

/// The cases that `selectors` name: an op's name, or the beginning of a case id. No selector takes
/// every case. `bench` chooses between the shapes to be timed and those to be checked.
/// Errors: std::invalid_argument for a selector that matches no case.
std::vector<Selection> select_cases(const std::vector<std::string>& selectors, bool bench);

struct BackendChoice {
  std::vector<Backend> here;
  std::vector<BackendStatus> absent;
};

/// The backends by name; without names the one that TILEKERNELS_BACKEND forces, else all.
/// Errors: std::invalid_argument for an unknown name; BackendError for one that was asked for and
/// is absent.
BackendChoice choose_backends(const std::vector<std::string>& names);

/// Whether a device of the backend is the emulator of the tests: what runs there says nothing about
/// a machine, and is kept nowhere as if it did.
bool is_emulated(const BackendStatus& status);

/// Errors: std::invalid_argument when one of the backends is emulated; `what` begins the sentence.
void refuse_emulator(const std::vector<Backend>& chosen, const std::string& what);

/// Whether an op has a kernel for a backend, be the backend available or not: an op without one
/// throws Unsupported before the machine is asked.
bool has_kernel(const cases::OpCases& op, Backend backend);

}  // namespace tilekernels::tool
