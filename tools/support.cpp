// Finds out by calling, never by declaration, which dtypes each op supports on each backend.
#include "support.h"

#include <map>
#include <set>
#include <vector>

#include "cases/case.h"
#include "cases/verify.h"
#include "select.h"
#include "tilekernels/device.h"

namespace tilekernels::tool {
namespace {

constexpr char kHead[] =
    R"(# Support

Which op runs on which backend, for which element types. Written by `tilekernels verify --support`,
without a GPU by `scripts/emulate.sh verify --support`, from cases that were run and compared with
the reference byte for byte, and tested against it: the test fails when a kernel or a type vanishes,
and when one is missing here.

* **inputs**: the element types of the tensors that go in, in the order of the arguments.
* **outputs**: those that come out, `+` between the tensors of one result, `,` between results.
  e2m1 is two FP4 codes a byte; i32 and i16 scales are packed exponents.
* **yes**: every case of the row passes. A list: of these results. **–**: there is no kernel.
* **on the emulator**: yes, but the device text ran on the host ([cuda.md](cuda.md)), not on a GPU.
* **not run here**: there is a kernel, but the machine that wrote the table lacks the backend.

)";

const std::string kEmulated = "on the emulator";

// "f32 + f32" in, "e4m3 + f32" out.
struct Signature {
  std::string inputs;
  std::string outputs;
  auto operator<=>(const Signature&) const = default;
};

template <class Parts>
std::string join(const Parts& parts, const char* between) {
  std::string text;
  for (const std::string& part : parts) text += (text.empty() ? "" : between) + part;
  return text;
}

Signature signature(const cases::Case& test) {
  cases::Specs inputs;
  std::vector<std::string> input_names;
  std::vector<std::string> output_names;
  for (const cases::Input& input : test.inputs) {
    inputs.push_back(input.spec);
    input_names.emplace_back(name(input.spec.dtype));
  }
  for (const TensorSpec& output : test.spec(inputs)) output_names.emplace_back(name(output.dtype));
  return {join(input_names, " + "), join(output_names, " + ")};
}

// Whether all cases of a signature pass on one backend.
using Passes = std::map<Signature, bool>;

// By backend; empty where a backend is absent or has no kernel.
std::vector<Passes> run_cases(const cases::OpCases& op, const std::vector<bool>& runs) {
  std::vector<Passes> passes(runs.size());
  for (const cases::Case& test : op.cases) {
    if (test.bench || !test.error.empty()) continue;
    cases::Judge judge(test);
    for (size_t i = 0; i < runs.size(); ++i) {
      if (!runs[i]) continue;
      const bool passed = judge.verify(static_cast<Backend>(i)).passed;
      const auto [entry, is_new] = passes[i].emplace(signature(test), passed);
      if (!is_new) entry->second = entry->second && passed;
    }
  }
  return passes;
}

std::string cell(const Passes& passes, const std::string& inputs,
                 const std::set<std::string>& outputs) {
  std::set<std::string> passed;
  for (const std::string& output : outputs) {
    const auto entry = passes.find({inputs, output});
    if (entry != passes.end() && entry->second) passed.insert(output);
  }
  if (passed.empty()) return "fails";
  return passed.size() == outputs.size() ? "yes" : join(passed, ", ");
}

std::string rows(const cases::OpCases& op) {
  std::map<std::string, std::set<std::string>> outputs_of_inputs;
  for (const cases::Case& test : op.cases) {
    if (test.bench || !test.error.empty()) continue;
    const Signature found = signature(test);
    outputs_of_inputs[found.inputs].insert(found.outputs);
  }
  std::map<std::string, std::string> line;
  for (const auto& [inputs, outputs] : outputs_of_inputs) {
    line[inputs] = "| " + std::string(op.op) + " | " + inputs + " | " + join(outputs, ", ") + " |";
  }
  const std::vector<BackendStatus> all = backends();
  std::vector<bool> kernels;
  std::vector<bool> runs;
  for (const BackendStatus& status : all) {
    kernels.push_back(has_kernel(op, status.backend));
    runs.push_back(kernels.back() && status.available);
  }
  const std::vector<Passes> passes = run_cases(op, runs);
  for (const auto& [inputs, outputs] : outputs_of_inputs) {
    for (size_t i = 0; i < all.size(); ++i) {
      std::string text = "–";
      if (kernels[i]) text = runs[i] ? cell(passes[i], inputs, outputs) : "not run here";
      // Right or wrong: this is no "yes" of a device.
      if (runs[i] && is_emulated(all[i]))
        text = text == "yes" ? kEmulated : kEmulated + (": " + text);
      line[inputs] += " " + text + " |";
    }
  }
  std::string text;
  for (const auto& [inputs, of_inputs] : line) text += of_inputs + "\n";
  return text;
}

}  // namespace

std::string support_page() {
  std::string page = kHead;
  std::string rule = "|---|---|---|";
  page += "| op | inputs | outputs |";
  for (const BackendStatus& status : backends()) {
    page += " " + std::string(name(status.backend)) + " |";
    rule += "---|";
  }
  page += "\n" + rule + "\n";
  for (const cases::OpCases& op : cases::all_ops()) page += rows(op);
  return page;
}

}  // namespace tilekernels::tool
