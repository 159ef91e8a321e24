// The CUDA kernel of both casts: every thread keeps its part of x in registers between the search
// for the largest magnitude and the cast, so that memory is read and written once.
#pragma once

#include "ops/quant/cast_tile.h"
#include "runtime/cuda/device/convert.cuh"
#include "runtime/cuda/device/grid.cuh"
#include "runtime/cuda/device/memory.cuh"
#include "runtime/cuda/device/warp.cuh"

namespace tilekernels {

constexpr CastShape kShape = TILEKERNELS_SHAPE;
constexpr CastTile kTile = TILEKERNELS_TILE;

constexpr bool kIsE2M1 = kShape.fmt == numerics::kDTypeE2M1x2;
constexpr bool kIsGiven = kShape.mode == kCastGivenSf;
constexpr bool kIsQuantized = is_quantized(kShape.x_dtype);
constexpr bool kIsHalf = kShape.x_dtype == numerics::kDTypeBF16 ||  //
                         kShape.x_dtype == numerics::kDTypeF16;
constexpr bool kIsE4M3Sf = kShape.sf_kind == numerics::kSfE4M3;
constexpr bool kByRow = kShape.block_rows == 1;

constexpr int32 kRows = kTile.rows;
constexpr int32 kGroups = kByRow ? kRows : 1;  // scaling blocks that a thread takes part in
constexpr int32 kRowStep = row_step(kShape, kTile);
constexpr int32 kTeam = team_of(kShape, kTile);
constexpr int32 kLanes = kTeam / kRowStep;  // across the columns of a scaling block
constexpr int32 kColBlocks = static_cast<int32>(col_blocks(kShape));
constexpr int32 kColumns = kColBlocks * kTeam;  // threads from one row of teams to the next

constexpr int32 kChunk = chunk_of(kShape.x_dtype);
constexpr int32 kXUnits = elements_per_unit(kShape.x_dtype);
constexpr int32 kOutUnits = elements_per_unit(kShape.fmt);
constexpr int32 kXBytes = bytes_per_unit(kShape.x_dtype);
constexpr int32 kChunkBytes = kChunk / kXUnits * kXBytes;
constexpr int32 kOutBytes = kChunk / kOutUnits;
// Whether the elements of a chunk share the scaling factor of a quantized x
constexpr bool kIsUniform = !kIsQuantized || kShape.x_block_cols % kChunk == 0;

using Chunk = device::Words<kChunkBytes>;
// A chunk as it is kept in registers: codes of a quantized x as f16, which spares a second
// decoding.
using Held = device::Words<kIsQuantized ? 2 * kChunk : kChunkBytes>;
using Codes = device::Words<kOutBytes>;

// Where a chunk of a thread lies.
struct Spot {
  int64 m;  // its scaling block
  int32 k;
  int64 row;
  int32 col;
  int32 count;  // columns of it that exist, or more; 0 or less: none
  const uint8* x;
  uint8* out;
};

// What a thread takes part in.
struct CastPlace {
  int32 member;    // of its team
  Spot first;      // chunk
  int32 num_rows;  // of its rows that exist
};

inline CastPlace cast_place(const CastArgs& args) {
  const device::GridPlace at = device::thread_place<kColumns, kTile.threads>();
  CastPlace place;
  place.member = at.column % kTeam;
  Spot& spot = place.first;
  spot.k = at.column / kTeam;
  spot.col = spot.k * kShape.block_cols + place.member % kLanes * kChunk;
  spot.m = at.row * kGroups;
  spot.row = kByRow ? spot.m : spot.m * kShape.block_rows + place.member / kLanes;
  spot.count = spot.row < args.num_tokens ? kShape.hidden - spot.col : 0;
  spot.x = args.x + spot.row * args.x_pitch_bytes + int64{spot.col} / kXUnits * kXBytes;
  spot.out = args.out + spot.row * (kShape.hidden / kOutUnits) + spot.col / kOutUnits;
  const int64 rows = numerics::ceil_div(args.num_tokens - place.first.row, kRowStep);
  place.num_rows = static_cast<int32>(numerics::min_of(rows, int64{kRows}));
  return place;
}

// The thread's chunk j.
inline Spot spot_of(const CastArgs& args, const CastPlace& place, int32 j) {
  Spot spot = place.first;
  if constexpr (kByRow) spot.m += j;
  spot.row += j * kRowStep;
  if (j >= place.num_rows) spot.count = 0;
  spot.x += j * (kRowStep * args.x_pitch_bytes);
  spot.out += int64{j} * kRowStep * (kShape.hidden / kOutUnits);
  return spot;
}

inline Chunk load_chunk(const Spot& spot) {
  if constexpr (kTile.wide) return device::load<kChunkBytes>(spot.x);
  return device::load_units<kChunkBytes, kXBytes>(spot.x, spot.count / kXUnits);
}

inline void store_codes(const Spot& spot, const Codes& codes) {
  if constexpr (kTile.wide) {
    device::store(spot.out, codes);
  } else {
    device::store_units<kOutBytes, 1>(spot.out, codes, spot.count / kOutUnits);
  }
}

// A quantized chunk is held as pairs, in an order of its own.
inline Held hold(const Chunk& x) {
  Held held;
#pragma unroll
  for (int32 i = 0; i < Chunk::kCount; ++i) {
    if constexpr (!kIsQuantized) {
      held.words[i] = x.words[i];
    } else if constexpr (kXUnits == 1) {
      held.words[2 * i] = device::e4m3x2_to_f16x2(x.words[i]);
      held.words[2 * i + 1] = device::e4m3x2_to_f16x2(x.words[i] >> 16);
    } else {
#pragma unroll
      for (int32 k = 0; k < 4; ++k) {
        held.words[4 * i + k] = device::e2m1_pair_to_f16x2(x.words[i], k);
      }
    }
  }
  return held;
}

// The elements of a chunk in order.
inline void widen(const Held& x, float* elements) {
  if constexpr (kIsQuantized) {
#pragma unroll
    for (int32 i = 0; i < Held::kCount; ++i) {
      const device::Pair pair = device::widen_f16x2(x.words[i]);
      elements[kXUnits == 1 ? 2 * i : i / 4 * 8 + i % 4] = pair.even;
      elements[kXUnits == 1 ? 2 * i + 1 : i / 4 * 8 + i % 4 + 4] = pair.odd;
    }
    return;
  }
#pragma unroll
  for (int32 i = 0; i < Held::kCount; ++i) {
    const uint32 word = x.words[i];
    if constexpr (!kIsHalf) {
      elements[i] = numerics::bit_cast<float>(word);
    } else {
      device::Pair pair = kShape.x_dtype == numerics::kDTypeBF16 ? device::widen_bf16x2(word)
                                                                 : device::widen_f16x2(word);
      if constexpr (kIsGiven && kIsE2M1) {  // the one cast that shows a NaN's sign
        pair.even = numerics::with_sign(fabsf(pair.even), word << 16);
        pair.odd = numerics::with_sign(fabsf(pair.odd), word);
      }
      elements[2 * i] = pair.even;
      elements[2 * i + 1] = pair.odd;
    }
  }
}

// The larger magnitudes among the pairs of a chunk, as numbers of 16 bits.
inline uint32 half_magnitudes(const uint32* pairs, int32 count) {
  uint32 larger = pairs[0];
#pragma unroll
  for (int32 i = 1; i < count; ++i) {
    larger = kShape.x_dtype == numerics::kDTypeBF16
                 ? device::larger_magnitudes_bf16x2(larger, pairs[i])
                 : device::larger_magnitudes_f16x2(larger, pairs[i]);
  }
  return larger & 0x7FFF7FFF;
}

inline uint32 larger_half(uint32 pair) { return numerics::max_of(pair & 0xFFFF, pair >> 16); }

// fp32 bits of a 16-bit magnitude of x, or of a quantized element.
inline uint32 half_bits(uint32 half) {
  if constexpr (kShape.x_dtype == numerics::kDTypeBF16) return half << 16;
  return numerics::abs_bits(device::widen_f16x2(half).even);
}

inline float x_scale(const CastArgs& args, int64 row, int32 col) {
  const int64 m = row / kShape.x_block_rows;
  const int32 k = col / kShape.x_block_cols;
  if constexpr (kShape.x_sf_kind == numerics::kSfUE8M0) {
    return load_scale(kShape.x_sf_kind, args.x_sf.at(m, k));
  }
  const numerics::SfMap& map = args.x_sf.map;  // not packed
  return load_scale(kShape.x_sf_kind, args.x_sf.base + m * map.stride_m + k * map.stride_k);
}

// fp32 bits of the largest magnitude of a chunk; `scale`: that of a quantized chunk, if uniform.
inline uint32 chunk_amax(const CastArgs& args, const Held& x, float scale, const Spot& spot) {
  if constexpr (kIsQuantized && kIsUniform) {
    const uint32 half = larger_half(half_magnitudes(x.words, Held::kCount));
    return numerics::abs_bits(device::widen_f16x2(half).even * scale);
  }
  float elements[kChunk];
  widen(x, elements);
  uint32 amax = 0;
#pragma unroll
  for (int32 i = 0; i < kChunk; ++i) {
    float element = elements[i];
    if constexpr (kIsQuantized) {
      element *= i < spot.count ? x_scale(args, spot.row, spot.col + i) : 0.0f;
    }
    amax = numerics::amax_update(amax, element);
  }
  return amax;
}

// The maximum over the team.
inline uint32 team_max(uint32 x) {
  if constexpr (kTeam <= device::kWarpLanes) {
    return device::group_max<kTeam>(x);
  } else {
    constexpr int32 kWarps = kTeam / device::kWarpLanes;  // a power of two, at most 32
    __shared__ uint32 maxima[kTile.threads / device::kWarpLanes];
    const uint32 warp = threadIdx.x / device::kWarpLanes;
    x = device::group_max<device::kWarpLanes>(x);
    if (device::lane_id() == 0) maxima[warp] = x;
    __syncthreads();
    x = maxima[warp / kWarps * kWarps + device::lane_id() % kWarps];
    return device::group_max<device::kWarpLanes>(x);
  }
}

// fp32 bits of the largest magnitude of every scaling block that the thread takes part in.
inline void find_amax(const CastArgs& args, const CastPlace& place, const Held* x,
                      const float* x_scales, uint32* amax) {
  if constexpr (kIsHalf) {
    uint32 halves[kRows];
#pragma unroll
    for (int32 j = 0; j < kRows; ++j) halves[j] = half_magnitudes(x[j].words, Held::kCount);
    if constexpr (!kByRow) {
      amax[0] = half_bits(team_max(larger_half(half_magnitudes(halves, kRows))));
    } else if constexpr (kRows % 2 == 0) {
#pragma unroll
      for (int32 j = 0; j < kRows; j += 2) {  // two blocks a word
        const uint32 low = __byte_perm(halves[j], halves[j + 1], 0x5410);
        const uint32 high = __byte_perm(halves[j], halves[j + 1], 0x7632);
        const uint32 both = device::group_max_u16x2<kTeam>(device::max_u16x2(low, high));
        amax[j] = half_bits(both & 0xFFFF);
        amax[j + 1] = half_bits(both >> 16);
      }
    } else {
#pragma unroll
      for (int32 j = 0; j < kRows; ++j) amax[j] = half_bits(team_max(larger_half(halves[j])));
    }
    return;
  }
  uint32 bits[kRows];
#pragma unroll
  for (int32 j = 0; j < kRows; ++j) {
    bits[j] = chunk_amax(args, x[j], x_scales[j], spot_of(args, place, j));
  }
  if constexpr (kByRow) {
#pragma unroll
    for (int32 j = 0; j < kRows; ++j) amax[j] = team_max(bits[j]);
  } else {
#pragma unroll
    for (int32 j = 1; j < kRows; ++j) bits[0] = numerics::max_of(bits[0], bits[j]);
    amax[0] = team_max(bits[0]);
  }
}

// The scale of a block. The conversions to and from e4m3 by the machine.
inline numerics::Scale scale_of(const CastArgs& args, uint32 amax) {
  if constexpr (!kIsE4M3Sf) {
    return numerics::compute_scale(kShape.sf_kind, kIsE2M1, amax, args.amax_clamp);
  }
  const uint32 bits = numerics::max_of(amax, numerics::bit_cast<uint32>(args.amax_clamp));
  const bool is_bad = bits >= numerics::kInfBits;
  const float ratio = numerics::bit_cast<float>(bits) / numerics::max_magnitude(kIsE2M1);
  const uint32 byte = device::narrow_e4m3x2(is_bad ? numerics::kScaleNan : ratio, 0.0f);
  const float sf = device::widen_f16x2(device::e4m3x2_to_f16x2(byte)).even;
  return {sf, 1.0f / sf, static_cast<uint8>(byte)};
}

inline uint8* sf_at(const CastArgs& args, int64 m, int32 k) {
  const numerics::SfMap& map = args.out_sf.map;
  return args.out_sf.base + m * map.stride_m + k / kTile.pack * map.stride_k + k % kTile.pack;
}

// The padding beside the blocks of a team of the last column and below those of the last row.
inline void store_padding(const CastArgs& args, const CastPlace& place, int64 rows) {
  const int64 m = place.first.m;
  const int32 k = place.first.k;
  const auto end_k = k == kColBlocks - 1 ? static_cast<int32>(args.out_sf.padded_k) : k + 1;
  const int64 end_m = m + kGroups < rows ? m + kGroups : args.out_sf.padded_m;
#pragma unroll 1
  for (int64 pad_m = m + place.member; pad_m < end_m; pad_m += kTeam) {
#pragma unroll 1
    for (int32 pad_k = pad_m < rows ? k + 1 : k; pad_k < end_k; ++pad_k) {
      store_zero_scale(kShape.sf_kind, sf_at(args, pad_m, pad_k));
    }
  }
}

// Stores the scaling factors of the thread's blocks and returns their inverses. Each of the first
// members of a team computes and stores those of a block, the others get the inverse from it.
inline void scale_blocks(const CastArgs& args, const CastPlace& place, const uint32* amax,
                         float* inv) {
  constexpr int32 kStorers = numerics::min_of(kTeam, kGroups);
  const int64 rows = row_blocks(args, kShape);
#pragma unroll
  for (int32 first = 0; first < kGroups; first += kStorers) {
    uint32 mine = amax[first];
#pragma unroll
    for (int32 i = 1; i < kStorers; ++i) {
      if (place.member % kStorers == i) mine = amax[first + i];
    }
    const numerics::Scale scale = scale_of(args, mine);
    const int64 m = place.first.m + first + place.member;
    if (place.member < kStorers && m < rows) {
      store_scale(kShape.sf_kind, scale, sf_at(args, m, place.first.k));
    }
#pragma unroll
    for (int32 i = 0; i < kStorers; ++i) {
      inv[first + i] =
          kStorers == 1 ? scale.inv : __shfl_sync(device::kAllLanes, scale.inv, i, kStorers);
    }
  }
  if (place.first.m + kGroups >= rows || place.first.k == kColBlocks - 1) {
    store_padding(args, place, rows);
  }
}

// Only scales computed from data, and not rounded to e4m3, keep scaled elements in range; they are
// positive, too.
constexpr bool kIsOpen = kIsGiven || kIsQuantized || kIsE4M3Sf;
// Scales that are given can change the sign of an element, or make it a NaN.
constexpr bool kSignsChange = kIsGiven || kIsQuantized;
// Products with a power of two are exact in bf16, or too small for any code but 0.
constexpr bool kIsPacked = kIsE2M1 && !kIsOpen && kShape.x_dtype == numerics::kDTypeBF16 &&
                           kShape.sf_kind != numerics::kSfF32;

// The codes of the scaled elements y of x, under the inverse scale `inv`.
inline Codes narrow(const float* x, const float* y, float inv) {
  Codes codes;
  if constexpr (!kIsE2M1) {
#pragma unroll
    for (int32 i = 0; i < kChunk / 4; ++i) codes.words[i] = device::narrow_e4m3x4(y + 4 * i);
    return codes;
  }
  const uint32 mask = numerics::is_nan(inv) ? 0 : 0xFFFFFFFF;
#pragma unroll
  for (int32 i = 0; i < Codes::kCount; ++i) {
    float magnitudes[8] = {};
    float signs[8] = {};
#pragma unroll
    for (int32 j = 0; j < numerics::min_of(8, kChunk); ++j) {
      const int32 at = 8 * i + j;
      magnitudes[j] = kIsOpen ? fminf(fabsf(y[at]), numerics::kE2M1Max) : y[at];  // NaN: 6
      signs[j] = kSignsChange && !numerics::is_nan(y[at]) ? y[at] : x[at];
    }
    codes.words[i] = device::narrow_e2m1x8(magnitudes, signs) & mask;
  }
  return codes;
}

inline Codes cast_chunk(const CastArgs& args, const Held& chunk, float x_scaling, float inv,
                        const Spot& spot) {
  if constexpr (kIsPacked) {
    Codes codes;
    codes.words[0] = numerics::is_nan(inv) ? 0 : device::narrow_bf16_to_e2m1x8(chunk.words, inv);
    return codes;
  }
  float x[kChunk];
  widen(chunk, x);
  float y[kChunk];
#pragma unroll
  for (int32 i = 0; i < kChunk; ++i) {
    float factor = inv;
    if constexpr (kIsQuantized) {
      if constexpr (!kIsUniform) {
        x_scaling = i < spot.count ? x_scale(args, spot.row, spot.col + i) : 0.0f;
      }
      factor = numerics::fused_factor(x_scaling, inv);
    }
    y[i] = (kIsE2M1 && !kIsOpen ? fabsf(x[i]) : x[i]) * factor;
  }
  return narrow(x, y, inv);
}

inline void cast_blocks(const CastArgs& args) {
  device::wait_for_predecessor();
  const CastPlace place = cast_place(args);
  Chunk chunks[kRows];
  float x_scales[kRows] = {};
#pragma unroll
  for (int32 j = 0; j < kRows; ++j) {
    const Spot spot = spot_of(args, place, j);
    chunks[j] = spot.count > 0 ? load_chunk(spot) : Chunk{};
  }
  if constexpr (kIsQuantized && kIsUniform) {
#pragma unroll
    for (int32 j = 0; j < kRows; ++j) {
      const Spot spot = spot_of(args, place, j);
      x_scales[j] = spot.count > 0 ? x_scale(args, spot.row, spot.col) : 0.0f;
    }
  }
  Held x[kRows];
#pragma unroll
  for (int32 j = 0; j < kRows; ++j) x[j] = hold(chunks[j]);
  float inv[kGroups];
  if constexpr (kIsGiven) {
#pragma unroll
    for (int32 g = 0; g < kGroups; ++g) {
      const Spot spot = spot_of(args, place, g);
      const bool is_block = spot.m < row_blocks(args, kShape);
      inv[g] = numerics::inverse_of_scale(
          is_block ? load_scale(kShape.sf_kind, args.given_sf.at(spot.m, spot.k)) : 1.0f);
    }
  } else {
    uint32 amax[kGroups];
    find_amax(args, place, x, x_scales, amax);
    scale_blocks(args, place, amax, inv);
    if constexpr (kShape.mode == kCastSfOnly) return;
  }
#pragma unroll
  for (int32 j = 0; j < kRows; ++j) {
    const Spot spot = spot_of(args, place, j);
    const Codes codes = cast_chunk(args, x[j], x_scales[j], inv[kByRow ? j : 0], spot);
    if (spot.count > 0) store_codes(spot, codes);
  }
}

}  // namespace tilekernels
