// Asks an NPU what the vendor's pages leave open or contradict each other on.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "numerics/types.h"
#include "runtime/ascend/launch.h"
#include "runtime/ascend/npu/device.h"
#include "runtime/ascend/npu/questions.h"
#include "runtime/ascend/runtime.h"
#include "tilekernels/ascend.h"
#include "tilekernels/error.h"

namespace tilekernels::ascend {

extern const Text selftest_text;

namespace {

using namespace selftest_kernel;
using Row = std::vector<uint32_t>;
using numerics::bit_cast;

constexpr const char* kOp = "selftest";

// The kernel's launch; `run` itself exists in the text alone.
void launch_question(int32_t question, const Args& args, int64_t items, int device) {
  Args mine = args;
  jit::KernelId id;
  jit::set_constants(id, Shape{question}, NoTile{});
  npu::launch_raw(selftest_text, items, id, &mine, sizeof(mine), nullptr,
                  {{DeviceType::kAscend, device}, {}});
}

struct Buffer {
  Buffer(int64_t words, int on) : device(on), memory(allocate(words * 4, on, {})) {}
  uint32_t* words() const { return static_cast<uint32_t*>(memory.get()); }
  void write(const Row& from) const {
    copy(words(), true, from.data(), false, static_cast<int64_t>(from.size()) * 4, device, {});
  }
  Row read(size_t size) const {
    Row to(size);
    copy(to.data(), false, words(), true, static_cast<int64_t>(size) * 4, device, {});
    return to;
  }
  int device;
  std::shared_ptr<void> memory;
};

// What the kernel leaves for rows of a and b.
Row ask(int32_t question, const Row& a, const Row& b, int device) {
  const auto size = static_cast<int64_t>(a.size());
  const Buffer in_a(size, device);
  const Buffer in_b(size, device);
  const Buffer out(size, device);
  in_a.write(a);
  in_b.write(b);
  out.write(Row(a.size(), kUntouched));
  launch_question(question, {in_a.words(), in_b.words(), out.words(), size / kWords}, size / kWords,
                  device);
  return out.read(a.size());
}

std::string hex(uint32_t word) {
  char text[16];
  std::snprintf(text, sizeof(text), "0x%08X", word);
  return text;
}

uint32_t bits(float x) { return bit_cast<uint32_t>(x); }

Row repeated(uint32_t word) { return Row(static_cast<size_t>(kWords), word); }
Row numbered() {
  Row row;
  for (uint32_t i = 0; i < kWords; ++i) row.push_back(i + 1);
  return row;
}

// Values at which division and square root are hard, and their neighbours.
std::vector<float> corners() {
  std::vector<float> values;
  for (uint32_t word : {0u, 1u, 2u, 0x007FFFFFu, 0x00800000u, 0x00800001u, 0x3EAAAAABu, 0x3F7FFFFFu,
                        0x3F800000u, 0x3F800001u, 0x3FC00000u, 0x40400000u, 0x40490FDBu,
                        0x4B7FFFFFu, 0x7F000000u, 0x7F7FFFFFu, 0x7F800000u, 0x7FC00000u}) {
    values.push_back(bit_cast<float>(word));
    values.push_back(bit_cast<float>(word | 0x80000000u));
  }
  return values;
}

// "equal on all 1296", or how many differ and the first.
std::string compare(const Row& got, const Row& want, const Row& a, const Row& b) {
  size_t differ = 0;
  size_t first = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    const bool both_nan =
        std::isnan(bit_cast<float>(got[i])) && std::isnan(bit_cast<float>(want[i]));
    if (got[i] == want[i] || both_nan) continue;
    if (differ++ == 0) first = i;
  }
  if (differ == 0) return "equal to IEEE on all " + std::to_string(want.size());
  return std::to_string(differ) + " of " + std::to_string(want.size()) + " differ, first of " +
         hex(a[first]) + ", " + hex(b[first]) + ": " + hex(got[first]) + ", IEEE " +
         hex(want[first]);
}

std::string ask_exact(int32_t question, int device) {
  Row a;
  Row b;
  Row want;
  for (float x : corners()) {
    for (float y : corners()) {
      a.push_back(bits(x));
      b.push_back(bits(y));
      want.push_back(bits(question == kDivision ? x / y : std::sqrt(x)));
    }
  }
  const size_t count = want.size();
  while (a.size() % kWords != 0) {
    a.push_back(bits(1));
    b.push_back(bits(1));
  }
  Row got = ask(question, a, b, device);
  if (got[0] == kUntouched) return "";
  got.resize(count);
  return compare(got, want, a, b);
}

std::string ask_bandwidth(int device) {
  constexpr int64_t kPieces = 4096;  // 128 MiB
  const Buffer from(kPieces * kPieceWords, device);
  const Buffer to(kPieces * kPieceWords, device);
  from.write(Row(64, 1));
  to.write(Row(64, kUntouched));
  const auto now = [] { return std::chrono::steady_clock::now(); };
  double best = 0;
  for (int i = 0; i < 5; ++i) {
    const auto begin = now();
    launch_question(kCopy, {from.words(), from.words(), to.words(), kPieces}, kPieces, device);
    const bool wrote = to.read(1)[0] == 1;  // waits
    if (!wrote) return "";
    const double seconds = std::chrono::duration<double>(now() - begin).count();
    best = std::max(best, 2.0 * kPieces * kPieceWords * 4 / seconds / 1e9);
  }
  char text[64];
  std::snprintf(text, sizeof(text), "%.0f GB/s, reads and writes, by the host's clock", best);
  return text;
}

struct Question {
  const char* text;
  const char* relied_on;  // the answer that kernels rely on; empty: none
  std::function<std::string(int device)> ask;
};

// A question whose answer is a word, in words of its own for those that were expected.
std::function<std::string(int)> word_of(int32_t question, Row a, Row b, size_t place,
                                        std::vector<std::pair<uint32_t, const char*>> names,
                                        uint32_t mask = ~0u) {
  return [=](int device) -> std::string {
    const Row got = ask(question, a, b, device);
    const bool untouched =
        std::all_of(got.begin(), got.end(), [](uint32_t word) { return word == kUntouched; });
    if (untouched) return "";
    for (const auto& [word, name] : names) {
      if ((got[place] & mask) == word) return name;
    }
    return hex(got[place] & mask);
  };
}

std::vector<Question> questions() {
  const Row zeros = repeated(0);
  Row odd = numbered();
  for (uint32_t& word : odd) word = (word - 1) % 2;
  const uint32_t half_max = 0x7BFF7BFFu;
  return {
      {"fp32 NaN to e4m3 under saturation", "",
       word_of(kNanToE4m3, repeated(0x7FC00000u), zeros, 0, {{0, "0"}, {0x7F, "NaN"}}, 0xFF)},
      {"bf16 -0 to e2m1", "keeps its sign",
       word_of(kNegativeZeroToE2m1, repeated(0x80008000u), zeros, 0,
               {{0x88, "keeps its sign"}, {0, "loses its sign"}}, 0xFF)},
      {"the even element of a pair of e2m1", "low nibble",
       word_of(kNibbleOrder, repeated(0x40003F80u), zeros, 0,
               {{0x42, "low nibble"}, {0x24, "high nibble"}}, 0xFF)},
      {"division, PRECISION_0ULP_FTZ_FALSE", "equal to IEEE on all 1296",
       [](int device) { return ask_exact(kDivision, device); }},
      {"square root, PRECISION_0ULP_FTZ_FALSE", "equal to IEEE on all 1296",
       [](int device) { return ask_exact(kSquareRoot, device); }},
      {"a packed store under a mask with holes", "",
       word_of(kPackedStoreHoles, numbered(), odd, 0,
               {{0x0002A5A5u, "holes stay"}, {0x00040002u, "holes close"}})},
      {"lanes above 8 after a block maximum", "",
       word_of(kBlockMaximumRest, numbered(), zeros, 8,
               {{0, "0"}, {kUntouched, "as they were"}, {9, "the source's"}})},
      {"inactive lanes of a gather", "",
       word_of(kGatherInactive, numbered(), zeros, 8, {{0, "0"}, {kUntouched, "as they were"}})},
      {"the other half after Pack", "",
       word_of(kPackOtherHalf, numbered(), zeros, 40, {{0, "0"}, {kUntouched, "as it was"}})},
      {"fp32 maximum under an empty mask", "",
       word_of(kEmptyMaximum, numbered(), zeros, 0,
               {{0xFF800000u, "-inf"}, {0xFF7FFFFFu, "-FLT_MAX"}, {0, "0"}})},
      {"half 65504 + 65504 after a reset", "",
       word_of(kHalfOverflow, repeated(half_max), repeated(half_max), 0,
               {{0x7C007C00u, "inf"}, {half_max, "saturates"}})},
      {"ExpSub(inf, 1)", "",
       word_of(kExpSubInfinity, repeated(0x7F800000u), repeated(bits(1)), 0,
               {{0x7F800000u, "inf"}, {0, "0"}})},
      {"accumulating histogram of 128..255", "",
       // All bytes are 1: bin 0 is 256 if it counts the lower half too.
       word_of(kUpperBinsAccumulate, repeated(0x01010101u), zeros, 0,
               {{0, "does not count below 128"}, {256, "counts below 128"}}, 0xFFFF)},
      {"bf16 3e38 to e8m0, rounded up", "",
       word_of(kE8m0Overflow, repeated(0x7F7F7F7Fu), zeros, 0, {{0xFE, "0xFE"}, {0xFF, "NaN"}},
               0xFF)},
      {"copy through the on-core buffer", "", ask_bandwidth},
  };
}

}  // namespace
}  // namespace tilekernels::ascend

namespace tilekernels {

std::vector<AscendAnswer> ascend_selftest(int device) {
  using namespace ascend;
  const npu::DeviceState& state = npu::device_state(kOp, device);
  std::vector<AscendAnswer> answers = {{"vector cores", std::to_string(state.num_cores), "", true}};
  for (const Question& question : questions()) {
    AscendAnswer answer{question.text, "", question.relied_on, true};
    try {
      answer.answer = question.ask(device);
      if (answer.answer.empty()) answer.answer = "none: the kernel wrote nothing";
    } catch (const BackendError& error) {
      answer.answer = std::string("none: ") + error.what();
    }
    answer.agrees = answer.relied_on.empty() || answer.answer == answer.relied_on;
    answers.push_back(std::move(answer));
  }
  return answers;
}

}  // namespace tilekernels
