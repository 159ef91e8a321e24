// Checks of the lane conversions against the scalar ones, on every target of the machine.
#pragma once

#include <gtest/gtest.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "numerics/exact.h"
#include "numerics/formats.h"
#include "numerics/lanes.h"

namespace tilekernels::test {

/// The targets that are compiled in and run here.
inline std::vector<int64_t> lane_targets() {
  std::vector<int64_t> targets;
  const int64_t both = hwy::SupportedTargets() & HWY_TARGETS;
  for (int64_t left = both; left != 0; left &= left - 1) targets.push_back(left & -left);
  return targets;
}

/// Runs `check(short_vectors)` on each target, with whole vectors and with those of 128 bits.
template <class Check>
void for_each_target(Check check) {
  for (int64_t target : lane_targets()) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    for (bool short_vectors : {false, true}) {
      SCOPED_TRACE(std::string(hwy::TargetName(target)) + (short_vectors ? ", 128 bits" : ""));
      check(short_vectors);
    }
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

inline uint32_t widen_scalar(Conversion conversion, uint32_t code) {
  using namespace numerics;  // NOLINT: the functions that define the result
  switch (conversion) {
    case Conversion::kWidenBF16:
      return to_bits(load_bf16(static_cast<uint16_t>(code)));
    case Conversion::kWidenF16:
      return to_bits(load_f16(static_cast<uint16_t>(code)));
    case Conversion::kWidenE4M3:
      return to_bits(e4m3_to_f32(static_cast<uint8_t>(code)));
    default:
      return to_bits(e2m1_to_f32(static_cast<uint8_t>(code)));
  }
}

/// Bytes of an element on the narrow side, times two: e2m1 takes half a byte.
inline size_t half_bytes(Conversion conversion) {
  switch (conversion) {
    case Conversion::kNarrowBF16:
    case Conversion::kNarrowF16:
      return 4;
    case Conversion::kNarrowE4M3:
    case Conversion::kNarrowE4M3Numbers:
      return 2;
    case Conversion::kNarrowE2M1:
    case Conversion::kNarrowE2M1Numbers:
      return 1;
    default:
      return 8;
  }
}

/// The scalar results of x, as they lie in memory.
inline void narrow_scalar(Conversion conversion, const float* x, size_t count, uint8_t* out) {
  using namespace numerics;  // NOLINT: the functions that define the result
  const auto fill = [&](auto narrow) {
    for (size_t i = 0; i < count; ++i) {
      const auto code = narrow(x[i]);
      std::memcpy(out + i * sizeof(code), &code, sizeof(code));
    }
  };
  switch (conversion) {
    case Conversion::kNarrowBF16:
      return fill([](float y) { return f32_to_bf16(y); });
    case Conversion::kNarrowF16:
      return fill([](float y) { return f32_to_f16(y); });
    case Conversion::kNarrowE4M3:
    case Conversion::kNarrowE4M3Numbers:
      return fill([](float y) { return f32_to_e4m3(y); });
    case Conversion::kNarrowE2M1:
    case Conversion::kNarrowE2M1Numbers:
      for (size_t i = 0; i < count; i += 2) {
        out[i / 2] = pack_e2m1(f32_to_e2m1(x[i]), f32_to_e2m1(x[i + 1]));
      }
      return;
    default:
      return fill([](float y) { return to_bits(canonical(y)); });
  }
}

inline uint32_t element(const uint8_t* out, size_t i, Conversion conversion) {
  uint32_t code = 0;
  const size_t halves = half_bytes(conversion);
  if (halves == 1) return i % 2 == 0 ? out[i / 2] & 15u : out[i / 2] >> 4u;
  std::memcpy(&code, out + i * halves / 2, halves / 2);
  return code;
}

/// Whether the conversion takes this element: some leave codes open from 2^100.
inline bool takes(Conversion conversion, float x) {
  const bool for_numbers =
      conversion == Conversion::kNarrowE4M3Numbers || conversion == Conversion::kNarrowE2M1Numbers;
  return !for_numbers || std::fabs(x) < 0x1p100f;
}

/// Narrows x and compares every element; `out_shift` bytes of misalignment, a guard byte behind.
template <class Convert>
void check_narrowing_lanes(Conversion conversion, bool short_vectors, const float* x, size_t count,
                           size_t out_shift, Convert convert) {
  const size_t out_bytes = count * half_bytes(conversion) / 2;
  static std::vector<uint8_t> expected;
  static std::vector<uint8_t> memory;
  expected.resize(out_bytes);
  narrow_scalar(conversion, x, count, expected.data());
  memory.assign(out_shift + out_bytes + 1, 0xA5);
  uint8_t* out = memory.data() + out_shift;
  convert(conversion, short_vectors, x, out, count);
  ASSERT_EQ(out[out_bytes], 0xA5);
  if (std::memcmp(out, expected.data(), out_bytes) == 0) return;
  for (size_t i = 0; i < count; ++i) {
    const uint32_t want = element(expected.data(), i, conversion);
    const uint32_t got = element(out, i, conversion);
    if (got != want && takes(conversion, x[i])) {
      FAIL() << std::hex << "conversion " << static_cast<int>(conversion) << " of fp32 0x"
             << to_bits(x[i]) << " at element " << i << ": got 0x" << got << ", expected 0x"
             << want;
    }
  }
}

inline constexpr Conversion kNarrowings[] = {
    Conversion::kNarrowBF16,        Conversion::kNarrowF16,  Conversion::kNarrowE4M3,
    Conversion::kNarrowE4M3Numbers, Conversion::kNarrowE2M1, Conversion::kNarrowE2M1Numbers,
    Conversion::kCanonical};

/// Every `stride`-th fp32 pattern of both signs, from `first`, through all narrowings.
template <class Convert>
void sweep_lanes(uint32_t first, uint32_t stride, bool short_vectors, Convert convert) {
  constexpr size_t kChunk = 4096;
  std::vector<float> x(kChunk);
  uint64_t bits = first;
  while (bits <= 0x7FFFFFFF) {
    for (size_t i = 0; i < kChunk; i += 2, bits += stride) {
      const auto abs = static_cast<uint32_t>(std::min<uint64_t>(bits, 0x7FFFFFFF));
      x[i] = from_bits(abs);
      x[i + 1] = from_bits(abs | 0x80000000u);
    }
    for (Conversion conversion : kNarrowings) {
      check_narrowing_lanes(conversion, short_vectors, x.data(), kChunk, 0, convert);
      if (::testing::Test::HasFatalFailure()) return;
    }
  }
}

template <class Convert>
void check_midpoint_lanes(bool short_vectors, Convert convert) {
  for (Conversion conversion : kNarrowings) {
    std::vector<float> x;
    const auto add = [&](const Format& format) {
      for (uint32_t code = 0; code <= format.max_code; ++code) {
        for (double value :
             {format.value(code), (format.value(code) + format.value(code + 1)) / 2}) {
          const auto magnitude = static_cast<float>(value);
          for (float y :
               {magnitude, std::nextafter(magnitude, 0.0f), std::nextafter(magnitude, HUGE_VALF)}) {
            x.push_back(y);
            x.push_back(-y);
          }
        }
      }
    };
    if (conversion == Conversion::kNarrowBF16) add(kBF16);
    if (conversion == Conversion::kNarrowF16) add(kF16);
    add(kE4M3);
    add(kE2M1);
    for (uint32_t bits : {0x7F800000u, 0x7F800001u, 0x7FC00000u, 0x7FFFFFFFu, 1u, 0x7FFFFFu}) {
      x.push_back(from_bits(bits));
      x.push_back(from_bits(bits | 0x80000000u));
    }
    std::shuffle(x.begin(), x.end(), std::mt19937(7));
    while (x.size() % kMaxQuad != 0) x.push_back(1.0f);
    const size_t count = x.size();
    x.insert(x.end(), x.begin(), x.begin() + kMaxQuad);  // room to start anywhere
    const size_t shifts = count > 10000 ? 8 : kMaxQuad;
    for (size_t shift = 0; shift < shifts; ++shift) {
      const size_t out_shift =
          half_bytes(conversion) > 2 ? shift * half_bytes(conversion) / 2 : shift;
      check_narrowing_lanes(conversion, short_vectors, x.data() + shift, count, out_shift, convert);
      if (::testing::Test::HasFatalFailure()) return;
    }
  }
}

/// Every code of T, beginning `shift` elements into memory; pairs of e2m1 codes count as one.
template <class T, class Convert>
void check_widening(Conversion conversion, bool short_vectors, size_t shift, Convert convert) {
  const size_t per_code = conversion == Conversion::kWidenE2M1 ? 2 : 1;
  const size_t codes = size_t{1} << (8 * sizeof(T));
  std::vector<T> x(codes + shift);
  for (size_t i = 0; i < codes; ++i) x[shift + i] = static_cast<T>(i * 0x9E35);
  const size_t count = codes * per_code;
  std::vector<float> out(shift + count + 1, 42.0f);
  convert(conversion, short_vectors, x.data() + shift, out.data() + shift, count);
  ASSERT_EQ(out[shift + count], 42.0f);
  for (size_t i = 0; i < count; ++i) {
    const uint32_t code = per_code == 1 ? x[shift + i]
                          : i % 2 == 0  ? x[shift + i / 2] & 15u
                                        : x[shift + i / 2] >> 4u;
    const uint32_t expected = widen_scalar(conversion, code);
    const uint32_t got = to_bits(out[shift + i]);
    const bool is_bf16_nan =  // of e4m3, so that narrow_bf16_nan finds it
        conversion == Conversion::kWidenE4M3 && (code & 0x7F) == 0x7F && got == 0x7FFF0000u;
    if (got != expected && !is_bf16_nan) {
      FAIL() << std::hex << "conversion " << static_cast<int>(conversion) << " of code 0x" << code
             << " at element " << i << ": got 0x" << got << ", expected 0x" << expected;
    }
  }
}

}  // namespace tilekernels::test
