// Chooses cases and backends.
#include "select.h"

#include <algorithm>
#include <stdexcept>

#include "cases/verify.h"
#include "tilekernels/config.h"
#include "tilekernels/error.h"

namespace tilekernels::tool {
namespace {

bool is_selected(const std::string& selector, std::string_view op, const cases::Case& test) {
  return selector == op || test.id.rfind(selector, 0) == 0;
}

// An op's name selects that op alone, even where another op's name begins with it.
bool names_an_op(const std::string& selector) {
  const auto& ops = cases::all_ops();
  return std::any_of(ops.begin(), ops.end(),
                     [&](const cases::OpCases& op) { return op.op == selector; });
}

std::string op_names() {
  std::string text;
  for (const cases::OpCases& op : cases::all_ops()) {
    text += (text.empty() ? "" : ", ") + std::string(op.op);
  }
  return text;
}

Device device_of(Backend backend) {
  return {backend == Backend::kCuda ? DeviceType::kCuda : DeviceType::kCpu, 0};
}

// Calls the case on an absent backend, with tensors that are only said to lie in its memory.
void call_on_absent(const cases::Case& test, Backend backend) {
  const cases::Buffers buffers(test, 0);
  cases::Views inputs = buffers.inputs();
  cases::Views outputs = buffers.outputs();
  for (TensorView& view : inputs) view.device = device_of(backend);
  for (TensorView& view : outputs) view.device = device_of(backend);
  test.out(outputs, inputs, Call{.backend = backend});
}

bool is_available(Backend backend) { return backends()[static_cast<size_t>(backend)].available; }

bool is_empty(const cases::Case& test) {
  return std::any_of(test.inputs.begin(), test.inputs.end(),
                     [](const cases::Input& input) { return input.spec.numel() == 0; });
}

// Whether the call of a case runs on a backend that is here.
bool is_supported(const cases::Case& test, Backend backend) {
  try {
    const cases::Buffers buffers(test, 0, device_of(backend));
    test.out(buffers.outputs(), buffers.inputs(), Call{.backend = backend});
    check_errors();
  } catch (const Unsupported&) {
    return false;
  } catch (const DataError&) {
  }
  return true;
}

}  // namespace

std::vector<Selection> select_cases(const std::vector<std::string>& selectors, bool bench) {
  std::vector<bool> matched(selectors.size(), false);
  std::vector<Selection> selections;
  for (const cases::OpCases& op : cases::all_ops()) {
    Selection selection{&op, {}};
    for (const cases::Case& test : op.cases) {
      if (test.bench != bench) continue;
      bool selected = selectors.empty();
      for (size_t i = 0; i < selectors.size(); ++i) {
        const bool fits = names_an_op(selectors[i]) ? selectors[i] == op.op
                                                    : is_selected(selectors[i], op.op, test);
        if (!fits) continue;
        matched[i] = true;
        selected = true;
      }
      if (selected) selection.cases.push_back(&test);
    }
    if (!selection.cases.empty()) selections.push_back(std::move(selection));
  }
  for (size_t i = 0; i < selectors.size(); ++i) {
    if (matched[i]) continue;
    throw std::invalid_argument("no " + std::string(bench ? "bench " : "") + "case matches \"" +
                                selectors[i] + "\": give an op (" + op_names() +
                                ") or the beginning of a case id");
  }
  if (selections.empty()) throw std::invalid_argument("there are no cases");
  return selections;
}

BackendChoice choose_backends(const std::vector<std::string>& names) {
  std::vector<Backend> forced;
  for (const std::string& text : names) forced.push_back(backend_from_name(text));
  if (names.empty() && get_backend()) forced.push_back(*get_backend());
  BackendChoice choice;
  for (const BackendStatus& status : backends()) {
    const bool wanted =
        forced.empty() || std::find(forced.begin(), forced.end(), status.backend) != forced.end();
    if (!wanted) continue;
    if (status.available) {
      choice.here.push_back(status.backend);
    } else if (forced.empty()) {
      choice.absent.push_back(status);
    } else {
      throw BackendError("backend " + std::string(name(status.backend)) +
                         " is not available: " + status.detail);
    }
  }
  return choice;
}

bool is_emulated(const BackendStatus& status) {
  return status.detail.find("CUDA emulator (host)") != std::string::npos;
}

void refuse_emulator(const std::vector<Backend>& chosen, const std::string& what) {
  for (const BackendStatus& status : backends()) {
    if (is_emulated(status) &&
        std::find(chosen.begin(), chosen.end(), status.backend) != chosen.end()) {
      throw std::invalid_argument(what + ", and the device of " +
                                  std::string(name(status.backend)) +
                                  " is the CUDA emulator (host)");
    }
  }
}

bool has_kernel(const cases::OpCases& op, Backend backend) {
  const bool available = is_available(backend);
  for (const cases::Case& test : op.cases) {
    // Empty calls return, and bad ones throw, before a kernel is looked for.
    if (test.bench || !test.error.empty() || is_empty(test)) continue;
    if (available) {
      if (is_supported(test, backend)) return true;
      continue;
    }
    try {
      call_on_absent(test, backend);
    } catch (const Unsupported&) {
      continue;
    } catch (const BackendError&) {
      return true;
    }
  }
  return false;
}

}  // namespace tilekernels::tool
