// Runs a case on a backend and judges it by the reference.
#include "cases/verify.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <stdexcept>

#include "tilekernels/error.h"

namespace tilekernels::cases {
namespace {

constexpr int64_t kGuardBytes = 64;
constexpr uint8_t kGuard = 0xC3;
// What outputs held before: another byte for the reference, so that one which nobody writes shows.
constexpr uint8_t kReferencePrefill = 0x3C;
struct Pass {
  uint8_t prefill;
  int64_t offset;  // elements that every tensor lies off an aligned place
};
constexpr Pass kPasses[] = {{0x5A, 0}, {0xA5, 1}};

uint8_t* bytes(const Tensor& tensor) { return static_cast<uint8_t*>(tensor.data()); }

// The storage bytes of a tensor, wherever it lies.
std::vector<uint8_t> storage_of(const TensorView& view) {
  const int64_t size = view.storage_bytes();
  std::vector<uint8_t> storage(static_cast<size_t>(size));
  copy({storage.data(), TensorSpec({size}, DType::kU8)},
       {view.data, TensorSpec({size}, DType::kU8, view.device)});
  return storage;
}

// Where a backend wants its tensors.
Device device_of(Backend backend) {
  return {backend == Backend::kCuda ? DeviceType::kCuda : DeviceType::kCpu, 0};
}

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
  Views outputs(test.outputs.size());
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (start_of(test, i) >= 0) outputs[i] = views[static_cast<size_t>(start_of(test, i))];
  }
  expect_error([&] { test.out(outputs, views, Call{.backend = backend}); }, "_out", test.error);
  if (test.alloc) {
    expect_error([&] { test.alloc(views, Call{.backend = backend}); }, "the allocating form",
                 test.error);
  }
}

struct Outcome {
  std::vector<std::vector<uint8_t>> outputs;
  std::string fault;
};

// The `_out` form on `backend`, into memory that held `pass.prefill`.
Outcome run_out(const Case& test, Backend backend, const Pass& pass) {
  const Buffers buffers(test, pass.prefill, device_of(backend), pass.offset);
  // Another value, so that a call which runs nothing shows; an op returns early when empty.
  const auto other = static_cast<Backend>((static_cast<int>(backend) + 1) % kNumBackends);
  Backend ran = other;
  Call call{.backend = backend, .ran = &ran};
  Outcome outcome;
  outcome.fault = fault_of([&] {
    test.out(buffers.outputs(), buffers.inputs(), call);
    check_errors(call.stream);
  });
  const bool empty = std::all_of(buffers.outputs().begin(), buffers.outputs().end(),
                                 [](const TensorView& view) { return view.numel() == 0; });
  require(ran == (empty ? other : backend), "ran on " + std::string(name(ran)));
  const std::string damaged = buffers.damaged();
  require(damaged.empty(), damaged + " was written outside its bytes");
  for (size_t i = 0; i < test.outputs.size(); ++i)
    outcome.outputs.push_back(buffers.output_bytes(i));
  return outcome;
}

}  // namespace

void Judge::run_reference() {
  Outcome outcome = run_out(test_, Backend::kReference, {kReferencePrefill, 0});
  outputs_ = std::move(outcome.outputs);
  fault_ = std::move(outcome.fault);
  has_run_ = true;
}

void Judge::verify_results(Backend backend, Verdict& verdict) {
  if (!has_run_) run_reference();
  const Buffers buffers(test_, 0, device_of(backend));
  require(fault_ == test_.fault,
          "reference reports: \"" + fault_ + "\", want: \"" + test_.fault + "\"");
  for (size_t i = 0; i < test_.expected.size(); ++i) {
    if (test_.expected[i].empty()) continue;
    const std::string text = difference("hand-worked " + test_.outputs[i], buffers.outputs()[i],
                                        outputs_[i], test_.expected[i], verdict.mismatches);
    require(text.empty(), text);
  }
  for (const Pass& pass : kPasses) {
    const Outcome got = run_out(test_, backend, pass);
    require(got.fault == fault_, "reports: \"" + got.fault + "\", want: \"" + fault_ + "\"");
    for (size_t i = 0; i < test_.outputs.size(); ++i) {
      const std::string text = difference(test_.outputs[i], buffers.outputs()[i], got.outputs[i],
                                          outputs_[i], verdict.mismatches);
      require(text.empty(), text);
      verdict.elements += buffers.outputs()[i].numel();
    }
  }
  if (!test_.alloc) return;
  std::vector<Tensor> allocated;
  const std::string fault = fault_of([&] {
    allocated = test_.alloc(buffers.inputs(), Call{.backend = backend});
    check_errors();
  });
  require(fault == fault_, "the allocating form reports: \"" + fault + "\"");
  if (!fault.empty()) return;
  require(allocated.size() == test_.outputs.size(), "the allocating form returns another count");
  for (size_t i = 0; i < allocated.size(); ++i) {
    const TensorView& view = allocated[i].view();
    require(matches(view, buffers.outputs()[i]),
            test_.outputs[i] + ": the allocating form returns " + to_string(view) + ", want " +
                to_string(buffers.outputs()[i]));
    const std::string text = difference(test_.outputs[i] + " (allocated)", view, storage_of(view),
                                        outputs_[i], verdict.mismatches);
    require(text.empty(), text);
  }
}

TensorView Buffers::add_block(const std::string& name, const TensorSpec& spec,
                              const std::vector<uint8_t>& content, bool is_input) {
  const auto size = static_cast<int64_t>(content.size());
  const int64_t begin = kGuardBytes + offset_ * size_bytes(spec.dtype);
  std::vector<uint8_t> guarded(static_cast<size_t>(begin + size + kGuardBytes), kGuard);
  std::copy(content.begin(), content.end(), guarded.begin() + begin);
  const auto total = static_cast<int64_t>(guarded.size());
  const Tensor memory(TensorSpec({total}, DType::kU8, spec.device));
  copy(memory, {guarded.data(), TensorSpec({total}, DType::kU8)});
  blocks_.push_back({name, memory, begin, size, is_input ? content : std::vector<uint8_t>()});
  return {bytes(memory) + begin, spec};
}

// What output i holds before the call.
std::vector<uint8_t> Buffers::start_of_output(size_t i, const TensorSpec& spec,
                                              uint8_t prefill) const {
  const auto size = static_cast<size_t>(spec.storage_bytes());
  const int input = start_of(test_, i);
  if (input < 0) return std::vector<uint8_t>(size, prefill);
  const std::vector<uint8_t>& bytes = blocks_[static_cast<size_t>(input)].before;
  require(bytes.size() == size, test_.outputs[i] + " starts as an input of another size");
  return bytes;
}

Buffers::Buffers(const Case& test, uint8_t prefill, Device device, int64_t offset)
    : test_(test), offset_(offset) {
  Specs specs;
  for (const Input& input : test.inputs) {
    TensorSpec spec = input.spec;
    spec.device = device;
    specs.push_back(spec);
    inputs_.push_back(add_block(input.name, spec, make_bytes(input), true));
  }
  const Specs outputs = test.spec(specs);
  for (size_t i = 0; i < outputs.size(); ++i) {
    const std::vector<uint8_t> content = start_of_output(i, outputs[i], prefill);
    outputs_.push_back(add_block(test.outputs[i], outputs[i], content, false));
  }
}

void Buffers::refill(uint8_t prefill) const {
  for (size_t i = 0; i < outputs_.size(); ++i) {
    std::vector<uint8_t> content = start_of_output(i, outputs_[i], prefill);
    const TensorSpec bytes({static_cast<int64_t>(content.size())}, DType::kU8);
    copy({outputs_[i].data, TensorSpec(bytes.shape, DType::kU8, outputs_[i].device)},
         {content.data(), bytes});
  }
}

std::vector<uint8_t> Buffers::output_bytes(size_t i) const { return storage_of(outputs_[i]); }

std::string Buffers::damaged() const {
  for (const Block& block : blocks_) {
    const std::vector<uint8_t> now = storage_of(block.memory);
    const auto is_guard = [](uint8_t byte) { return byte == kGuard; };
    const auto content = now.begin() + block.begin;
    if (!std::all_of(now.begin(), content, is_guard) ||
        !std::all_of(content + block.size_bytes, now.end(), is_guard) ||
        !std::equal(block.before.begin(), block.before.end(), content)) {
      return block.name;
    }
  }
  return "";
}

Verdict Judge::verify(Backend backend) {
  Verdict verdict;
  try {
    if (test_.error.empty()) {
      verify_results(backend, verdict);
    } else {
      verify_error(test_, backend);
    }
  } catch (const std::exception& error) {
    verdict.passed = false;
    verdict.failure = test_.id + " on " + std::string(name(backend)) + "\n  " + error.what() +
                      "\n  again: tilekernels verify " + test_.id + " --backend " +
                      std::string(name(backend));
  }
  return verdict;
}

}  // namespace tilekernels::cases
