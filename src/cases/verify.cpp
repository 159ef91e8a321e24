// Runs a case on a backend and judges it by the reference.
#include "cases/verify.h"

#include <cstdio>
#include <cstring>
#include <stdexcept>

#include "tilekernels/error.h"

namespace tilekernels::cases {
namespace {

constexpr int64_t kGuardBytes = 64;
constexpr uint8_t kGuard = 0xC3;
constexpr uint8_t kPrefills[] = {0x5A, 0xA5};

uint8_t* bytes(const Tensor& tensor) { return static_cast<uint8_t*>(tensor.data()); }

std::string hex(const uint8_t* value, int64_t size) {
  std::string text = "0x";
  char digits[3];
  for (int64_t i = size - 1; i >= 0; --i) {
    std::snprintf(digits, sizeof(digits), "%02X", value[i]);
    text += digits;
  }
  return text;
}

// "out: 3 of 512 elements differ, the first at storage element 17: 0x7E, want 0x7F". Adds to
// `mismatches`.
std::string difference(const std::string& name, const TensorSpec& spec,
                       const std::vector<uint8_t>& got, const std::vector<uint8_t>& want,
                       int64_t& mismatches) {
  const int64_t size = size_bytes(spec.dtype);
  const auto count = static_cast<int64_t>(want.size()) / size;
  if (got.size() != want.size()) {
    return name + ": " + std::to_string(got.size()) + " bytes, want " + std::to_string(want.size());
  }
  int64_t different = 0;
  int64_t first = -1;
  for (int64_t i = 0; i < count; ++i) {
    if (std::memcmp(got.data() + i * size, want.data() + i * size, static_cast<size_t>(size)) !=
        0) {
      if (different++ == 0) first = i;
    }
  }
  if (different == 0) return "";
  mismatches += different;
  return name + " " + to_string(spec) + ": " + std::to_string(different) + " of " +
         std::to_string(count) + " elements differ, the first at storage element " +
         std::to_string(first) + ": " + hex(got.data() + first * size, size) + ", want " +
         hex(want.data() + first * size, size);
}

// Calls `form`; the message of a DataError, or "" when it throws none.
template <class Form>
std::string fault_of(const Form& form) {
  try {
    form();
  } catch (const DataError& error) {
    return error.what();
  }
  return "";
}

template <class Form>
void expect_error(const Form& form, const std::string& form_name, const std::string& error) {
  try {
    form();
  } catch (const std::invalid_argument& thrown) {
    if (thrown.what() == error) return;
    throw std::logic_error(form_name + " says: " + thrown.what() + "\n  want: " + error);
  }
  throw std::logic_error(form_name + " does not throw; want: " + error);
}

// Throws std::logic_error with what is wrong.
void require(bool holds, const std::string& what) {
  if (!holds) throw std::logic_error(what);
}

void verify_error(const Case& test, Backend backend) {
  Specs specs;
  Views views;
  for (const Input& input : test.inputs) {
    specs.push_back(input.spec);
    views.emplace_back(nullptr, input.spec);
  }
  expect_error([&] { test.spec(specs); }, "_spec", test.error);
  if (test.alloc) {
    expect_error([&] { test.alloc(views, Call{.backend = backend}); }, "the allocating form",
                 test.error);
  }
}

struct Outcome {
  std::vector<std::vector<uint8_t>> outputs;
  std::string fault;
};

// The `_out` form on `backend`, into memory that held `prefill`.
Outcome run_out(const Case& test, Backend backend, uint8_t prefill) {
  const Buffers buffers(test, prefill);
  Backend ran = backend;
  Call call{.backend = backend, .ran = &ran};
  Outcome outcome;
  outcome.fault = fault_of([&] { test.out(buffers.outputs(), buffers.inputs(), call); });
  require(ran == backend, "ran on " + std::string(name(ran)));
  const std::string damaged = buffers.damaged();
  require(damaged.empty(), damaged + " was written outside its bytes");
  for (size_t i = 0; i < test.outputs.size(); ++i)
    outcome.outputs.push_back(buffers.output_bytes(i));
  return outcome;
}

void verify_results(const Case& test, Backend backend, Verdict& verdict) {
  const Buffers buffers(test, 0);
  const Outcome want = run_out(test, Backend::kReference, kPrefills[0]);
  require(want.fault == test.fault,
          "reference reports: \"" + want.fault + "\", want: \"" + test.fault + "\"");
  for (size_t i = 0; i < test.expected.size(); ++i) {
    if (test.expected[i].empty()) continue;
    const std::string text = difference("hand-worked " + test.outputs[i], buffers.outputs()[i],
                                        want.outputs[i], test.expected[i], verdict.mismatches);
    require(text.empty(), text);
  }
  for (uint8_t prefill : kPrefills) {
    const Outcome got = run_out(test, backend, prefill);
    require(got.fault == want.fault,
            "reports: \"" + got.fault + "\", want: \"" + want.fault + "\"");
    for (size_t i = 0; i < test.outputs.size(); ++i) {
      const std::string text = difference(test.outputs[i], buffers.outputs()[i], got.outputs[i],
                                          want.outputs[i], verdict.mismatches);
      require(text.empty(), text);
      verdict.elements += buffers.outputs()[i].numel();
    }
  }
  if (!test.alloc) return;
  std::vector<Tensor> allocated;
  const std::string fault =
      fault_of([&] { allocated = test.alloc(buffers.inputs(), Call{.backend = backend}); });
  require(fault == want.fault, "the allocating form reports: \"" + fault + "\"");
  if (!fault.empty()) return;
  require(allocated.size() == test.outputs.size(), "the allocating form returns another count");
  for (size_t i = 0; i < allocated.size(); ++i) {
    const TensorView& view = allocated[i].view();
    require(matches(view, buffers.outputs()[i]),
            test.outputs[i] + ": the allocating form returns " + to_string(view) + ", want " +
                to_string(buffers.outputs()[i]));
    const auto* begin = bytes(allocated[i]);
    const std::string text =
        difference(test.outputs[i] + " (allocated)", view, {begin, begin + view.storage_bytes()},
                   want.outputs[i], verdict.mismatches);
    require(text.empty(), text);
  }
}

}  // namespace

Buffers::Block Buffers::make_block(const std::string& block_name, const TensorSpec& spec) {
  const int64_t size = spec.storage_bytes();
  const Tensor memory(TensorSpec({size + 2 * kGuardBytes}, DType::kU8));
  std::memset(memory.data(), kGuard, static_cast<size_t>(size + 2 * kGuardBytes));
  return {block_name, memory, size, {}};
}

Buffers::Buffers(const Case& test, uint8_t prefill) {
  Specs specs;
  for (const Input& input : test.inputs) {
    specs.push_back(input.spec);
    Block block = make_block(input.name, input.spec);
    block.before = make_bytes(input);
    uint8_t* begin = bytes(block.memory) + kGuardBytes;
    if (block.size_bytes > 0) std::memcpy(begin, block.before.data(), block.before.size());
    inputs_.emplace_back(begin, input.spec);
    blocks_.push_back(std::move(block));
  }
  const Specs outputs = test.spec(specs);
  for (size_t i = 0; i < outputs.size(); ++i) {
    Block block = make_block(test.outputs[i], outputs[i]);
    uint8_t* begin = bytes(block.memory) + kGuardBytes;
    if (block.size_bytes > 0) std::memset(begin, prefill, static_cast<size_t>(block.size_bytes));
    outputs_.emplace_back(begin, outputs[i]);
    blocks_.push_back(std::move(block));
  }
}

std::vector<uint8_t> Buffers::output_bytes(size_t i) const {
  const auto* begin = static_cast<const uint8_t*>(outputs_[i].data);
  return {begin, begin + outputs_[i].storage_bytes()};
}

std::string Buffers::damaged() const {
  for (const Block& block : blocks_) {
    const uint8_t* begin = bytes(block.memory);
    for (int64_t i = 0; i < kGuardBytes; ++i) {
      if (begin[i] != kGuard || begin[kGuardBytes + block.size_bytes + i] != kGuard) {
        return block.name;
      }
    }
    if (!block.before.empty() &&
        std::memcmp(begin + kGuardBytes, block.before.data(), block.before.size()) != 0) {
      return block.name;
    }
  }
  return "";
}

Verdict verify(const Case& test, Backend backend) {
  Verdict verdict;
  try {
    if (test.error.empty()) {
      verify_results(test, backend, verdict);
    } else {
      verify_error(test, backend);
    }
  } catch (const std::exception& error) {
    verdict.passed = false;
    verdict.failure = test.id + " on " + std::string(name(backend)) + "\n  " + error.what() +
                      "\n  again: tilekernels verify " + test.id + " --backend " +
                      std::string(name(backend));
  }
  return verdict;
}

}  // namespace tilekernels::cases
