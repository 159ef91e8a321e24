// Loops over plain numbers of a block: conversion, counting, measuring of errors, digests.
#include "checkpoint/values.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>
#include <cstring>

#include "checkpoint/values_lanes.h"
#include "numerics/formats.h"

namespace tilekernels::checkpoint {
namespace {

using io::StDType;
__extension__ typedef unsigned __int128 uint128;

template <StDType kType>
struct Plain;
template <>
struct Plain<StDType::kF32> {
  using Bits = uint32_t;
  static constexpr Bits kInf = 0x7F800000;
  static float widen(Bits bits) { return numerics::bit_cast<float>(bits); }
  static float canonical(Bits bits) { return numerics::canonical(widen(bits)); }
  static Bits narrow(float value) { return numerics::bit_cast<uint32_t>(value); }
};
template <>
struct Plain<StDType::kF16> {
  using Bits = uint16_t;
  static constexpr Bits kInf = 0x7C00;
  static float widen(Bits bits) { return numerics::load_f16(bits); }
  static float canonical(Bits bits) { return numerics::f16_to_f32(bits); }
  static Bits narrow(float value) { return numerics::f32_to_f16(value); }
};
template <>
struct Plain<StDType::kBF16> {
  using Bits = uint16_t;
  static constexpr Bits kInf = 0x7F80;
  static float widen(Bits bits) { return numerics::load_bf16(bits); }
  static float canonical(Bits bits) { return numerics::bf16_to_f32(bits); }
  static Bits narrow(float value) { return numerics::f32_to_bf16(value); }
};

// Calls act with the traits of a plain format.
template <class Act>
void with_plain(StDType dtype, Act&& act) {
  switch (dtype) {
    case StDType::kF32:
      return act(Plain<StDType::kF32>{});
    case StDType::kF16:
      return act(Plain<StDType::kF16>{});
    default:
      assert(dtype == StDType::kBF16);
      return act(Plain<StDType::kBF16>{});
  }
}

// Whether any number's magnitude reaches the exponent of Inf: two or four to a 64-bit word.
template <class P>
bool any_non_finite(const typename P::Bits* in, int64_t count) {
  constexpr int64_t kLanes = 8 / sizeof(typename P::Bits);
  constexpr int kWidth = 8 * sizeof(typename P::Bits);
  uint64_t ones = 0;
  for (int i = 0; i < 64; i += kWidth) ones |= uint64_t{1} << i;
  const uint64_t signs = ones << (kWidth - 1);
  const uint64_t carry = signs - ones * P::kInf;  // pushes Inf and NaN into the sign bit
  uint64_t seen = 0;
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    uint64_t word;
    std::memcpy(&word, in + i, 8);
    seen |= (word & ~signs) + carry;
  }
  bool any = (seen & signs) != 0;
  for (; i < count; ++i) any |= (in[i] & (P::kInf | (P::kInf - 1))) >= P::kInf;
  return any;
}

template <class P>
NonFinite non_finite(const typename P::Bits* in, int64_t count) {
  NonFinite found;
  if (!any_non_finite<P>(in, count)) return found;
  constexpr auto kMagnitude =
      static_cast<typename P::Bits>(~(typename P::Bits{1} << (8 * sizeof(typename P::Bits) - 1)));
  for (int64_t i = 0; i < count; ++i) {
    const auto magnitude = static_cast<typename P::Bits>(in[i] & kMagnitude);
    found.num_inf += magnitude == P::kInf;
    found.num_nan += magnitude > P::kInf;
  }
  return found;
}

template <class P>
void count_plain(const typename P::Bits* in, int64_t count, ValueCounts* counts) {
  const NonFinite found = non_finite<P>(in, count);
  counts->num_nan += found.num_nan;
  counts->num_inf += found.num_inf;
  constexpr auto kMagnitude =
      static_cast<typename P::Bits>(~(typename P::Bits{1} << (8 * sizeof(typename P::Bits) - 1)));
  typename P::Bits largest = 0;
  int64_t num_zero = 0;
  for (int64_t i = 0; i < count; ++i) {
    const auto magnitude = static_cast<typename P::Bits>(in[i] & kMagnitude);
    num_zero += magnitude == 0;
    largest = std::max(largest, magnitude < P::kInf ? magnitude : typename P::Bits{0});
  }
  counts->num_zero += num_zero;
  counts->max_abs = std::max(counts->max_abs, static_cast<double>(P::widen(largest)));
}

// Formats of one byte: a histogram, then 256 looks.
void count_bytes(const uint8_t* in, int64_t count, float (*widen)(uint8_t), ValueCounts* counts) {
  std::array<int64_t, 256> histogram{};
  for (int64_t i = 0; i < count; ++i) ++histogram[in[i]];
  for (size_t code = 0; code < histogram.size(); ++code) {
    if (histogram[code] == 0) continue;
    const float value = widen(static_cast<uint8_t>(code));
    if (std::isnan(value)) {
      counts->num_nan += histogram[code];
    } else if (std::isinf(value)) {
      counts->num_inf += histogram[code];
    } else {
      if (value == 0) counts->num_zero += histogram[code];
      counts->max_abs = std::max(counts->max_abs, static_cast<double>(std::fabs(value)));
    }
  }
}

}  // namespace

void BlockFigures::add(const BlockFigures& other) {
  max_abs = std::max(max_abs, other.max_abs);
  sum_error_squares += other.sum_error_squares;
  sum_squares += other.sum_squares;
  num_saturated += other.num_saturated;
  num_nan += other.num_nan;
  num_bad_blocks += other.num_bad_blocks;
  digest = digest_bytes(&other.digest, sizeof other.digest, digest);
}

void convert_plain(StDType from, const void* in, StDType to, void* out, int64_t count) {
  const int64_t done = convert_on_lanes(from, in, to, out, count);
  with_plain(from, [&]<class From>(From) {
    with_plain(to, [&]<class To>(To) {
      const auto* source = static_cast<const typename From::Bits*>(in);
      auto* target = static_cast<typename To::Bits*>(out);
      for (int64_t i = done; i < count; ++i) target[i] = To::narrow(From::canonical(source[i]));
    });
  });
}

void count_values(StDType dtype, const void* in, int64_t count, ValueCounts* counts) {
  const auto* bytes = static_cast<const uint8_t*>(in);
  if (dtype == StDType::kF8E4M3) {
    return count_bytes(
        bytes, count, [](uint8_t code) { return numerics::e4m3_to_f32(code); }, counts);
  }
  if (dtype == StDType::kF8E5M2) {
    return count_bytes(
        bytes, count, [](uint8_t code) { return numerics::e5m2_to_f32(code); }, counts);
  }
  with_plain(dtype, [&]<class P>(P) {
    count_plain<P>(static_cast<const typename P::Bits*>(in), count, counts);
  });
}

NonFinite count_non_finite(StDType dtype, const void* in, int64_t count) {
  NonFinite found;
  with_plain(dtype, [&]<class P>(P) {
    found = non_finite<P>(static_cast<const typename P::Bits*>(in), count);
  });
  return found;
}

void measure_error(StDType dtype, const void* before, const float* after, int64_t count,
                   BlockFigures* figures) {
  ErrorSums sums;
  const int64_t done = measure_on_lanes(dtype, before, after, count, &sums);
  with_plain(dtype, [&]<class P>(P) {
    const auto* source = static_cast<const typename P::Bits*>(before);
    for (int64_t i = done; i < count; ++i) {
      const float x = P::widen(source[i]);
      const float difference = after[i] - x;
      if (!std::isfinite(difference)) continue;
      const double e = difference;
      const double v = x;
      sums.errors += e * e;
      sums.squares += v * v;
      sums.max_abs = std::max(sums.max_abs, std::fabs(difference));
    }
  });
  figures->sum_error_squares += sums.errors;
  figures->sum_squares += sums.squares;
  figures->max_abs = std::max(figures->max_abs, static_cast<double>(sums.max_abs));
}

uint64_t digest_bytes(const void* bytes, int64_t count, uint64_t seed) {
  constexpr uint64_t kKeys[4] = {0x9E3779B97F4A7C15u, 0xC2B2AE3D27D4EB4Fu, 0x165667B19E3779F9u,
                                 0xD6E8FEB86659FD93u};
  const auto fold = [](uint64_t a, uint64_t b) {
    const uint128 product = static_cast<uint128>(a) * b;
    return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
  };
  const char* cursor = static_cast<const char*>(bytes);
  // Four independent chains: each word is mixed with a key and its predecessors in the chain.
  uint64_t chains[4];
  for (size_t i = 0; i < 4; ++i) chains[i] = seed ^ kKeys[i];
  int64_t left = count;
  for (; left >= 64; left -= 64, cursor += 64) {
    uint64_t words[8];
    std::memcpy(words, cursor, 64);
    for (size_t i = 0; i < 4; ++i) {
      chains[i] = fold(words[2 * i] ^ chains[i], words[2 * i + 1] ^ kKeys[i]) + chains[i];
    }
  }
  uint64_t digest = seed ^ static_cast<uint64_t>(count);
  for (const uint64_t chain : chains) digest = fold(digest ^ chain, kKeys[0]) + chain;
  while (left > 0) {
    uint64_t word = 0;
    const int64_t step = std::min<int64_t>(left, 8);
    std::memcpy(&word, cursor, static_cast<size_t>(step));
    digest = fold(digest ^ word, kKeys[1]) + digest;
    cursor += step;
    left -= step;
  }
  return fold(digest ^ kKeys[2], kKeys[3]);
}

}  // namespace tilekernels::checkpoint
