// Casts: from the maxima of groups, or given scaling factors, to what is stored and to inverses.
#pragma once

#include "ops/quant/cast_tile_ascend.h"

namespace tilekernels::ascend::cast_kernel {

// From the groups' maxima (the element type's absolute bits) to what is stored (`words`, one
// uint32 a group), to inverses and to `marks`: of e4m3, what the codes of bad groups are, else 0;
// of e2m1 and fp32 maxima, 0 for bad groups, else ones. Lanes beyond `count` store 0. Every inverse
// is stored kTimes times.
template <int32 kSfKind, bool kIsE2M1, int32 kDType, int32 kTimes = 1>
TILEKERNELS_VF void make_scales(Ub<uint32> words, Ub<float> inverses, Ub<uint32> marks,
                                Ub<uint8> amax, uint32 count, float amax_clamp) {
  constexpr float kMax = numerics::max_magnitude(kIsE2M1);
  const Mask all = pset<uint32>();
  const auto clamp = numerics::bit_cast<uint32>(amax_clamp);
  Reg<uint32> a;
  Reg<uint32> sf;
  Reg<float> inverse;
  Reg<float> limit;
  Reg<uint32> special;
  Mask is_bad;
  const auto turns = static_cast<uint16>((count + kF32Lanes - 1) / kF32Lanes);
  for (uint16 i = 0; i < turns; ++i) {
    const Mask valid = plt<uint32>(count);
    if constexpr (kDType == kDTypeF16) {
      const Mask halves = pset<uint8>();
      Reg<F16> half;
      vlds<Dist::kUnpack>(half, as_ub<F16>(amax) + i * kF32Lanes);
      vcvt<0, Round::kNone, Saturate::kNo>(as<float>(a), half, halves);
    } else if constexpr (kDType == kDTypeBF16) {
      vlds<Dist::kUnpack>(as<uint16>(a), as_ub<uint16>(amax) + i * kF32Lanes);
      vshls(a, a, 16, valid);
    } else {
      vlds(a, as_ub<uint32>(amax) + i * kF32Lanes);
    }
    vmaxs(a, a, clamp, valid);
    vcmps<Cmp::kGe>(is_bad, a, numerics::kInfBits, valid);
    if constexpr (kSfKind == kSfF32 || kSfKind == kSfE4M3) {
      vdup(limit, kMax, all);
      vdiv<Precision::kExact>(as<float>(sf), as<float>(a), limit, valid);
      if constexpr (kSfKind == kSfF32) {
        vdiv<Precision::kExact>(inverse, limit, as<float>(a), valid);
        vdup(special, kScaleNanBits, all);
      } else {
        const Mask bytes = pset<uint8>();
        Reg<E4M3> code;
        vcvt<0, Round::kRint, Saturate::kYes>(code, as<float>(sf), valid);
        vcvt<0, Round::kNone, Saturate::kNo>(as<float>(sf), code, bytes);
        vdup(limit, 1.0f, all);
        vdiv<Precision::kExact>(inverse, limit, as<float>(sf), valid);
        vdup(special, 0x7Fu, all);
        vand(sf, as<uint32>(code), as<uint32>(code), valid);
      }
    } else {
      // The exponent of the smallest power of two that is not below a / kMax
      constexpr uint32 kRoundUp = kIsE2M1 ? 0x3FFFFF : 0x1FFFFF;
      constexpr uint32 kDown = kIsE2M1 ? 2 : 8;
      Reg<uint32> exponent;
      vadds(exponent, a, kRoundUp, valid);
      vshrs(exponent, exponent, 23, valid);
      vadds(exponent, exponent, 0u - kDown, valid);
      vdup(special, 254u, all);
      vsub(as<uint32>(inverse), special, exponent, valid);
      vshls(as<uint32>(inverse), as<uint32>(inverse), 23, valid);
      if constexpr (kSfKind == numerics::kSfUE8M0) {
        vand(sf, exponent, exponent, valid);
        vdup(special, 0xFFu, all);
      } else {
        vshls(sf, exponent, 23, valid);
        vdup(special, kScaleNanBits, all);
      }
    }
    vsel(sf, special, sf, is_bad);
    vsts(words + i * kF32Lanes, sf, all);
    vdup(special, kScaleNanBits, all);
    vsel(as<uint32>(inverse), special, as<uint32>(inverse), is_bad);
    store_repeated<kTimes>(as_ub<uint32>(inverses + i * kTimes * kF32Lanes), as<uint32>(inverse),
                           all);
    if constexpr (!kIsE2M1 || kDType == kDTypeF32) {
      vdup(sf, kIsE2M1 ? ~0u : 0u, all);
      vdup(special, kIsE2M1 ? 0u : kNanCodes, all);
      vsel(sf, special, sf, is_bad);
      vsts(marks + i * kF32Lanes, sf, all);
    }
  }
}

// The inverses of all e4m3 scaling factors, by their code; NaN for NaN.
TILEKERNELS_VF void make_inverse_table(Ub<float> table) {
  const Mask all = pset<float>();
  Reg<int32> code;
  Reg<float> value;
  Reg<float> one;
  vdup(one, 1.0f, all);
  for (uint16 i = 0; i < 2; ++i) {
    vci(code, 0);
    vadds(code, code, i * kF32Lanes, all);
    vcvt<0, Round::kNone, Saturate::kNo>(value, as<E4M3>(code), pset<uint8>());
    vdiv<Precision::kExact>(value, one, value, all);
    vsts(table + i * kF32Lanes, value, all);
  }
}

// make_scales for FP4 codes of bf16 under e4m3 scaling factors, which go to `words` or to `bytes`;
// inverses come from `table` and are stored twice, one every 8 columns. Of bf16 maxima the product
// with 1/6, though itself not the quotient, rounds to the same e4m3. Larger maxima have no smaller
// scaling factors, so that of the clamp is a lower bound of theirs.
TILEKERNELS_VF void make_e4m3_scales(Ub<uint32> words, Ub<uint8> bytes, uint16 as_words,
                                     uint16 as_bytes, Ub<uint32> inverses, Ub<uint16> amax,
                                     Ub<float> table, uint16 code_of_clamp, uint32 count) {
  constexpr int32 kLanes = Reg<uint16>::kLanes;
  constexpr float kSixth = 1.0f / numerics::kE2M1Max;
  const Mask all = pset<uint8>();
  Reg<uint32> upper;
  Reg<uint16> zero;
  Reg<uint16> nan;
  vdup(upper, 0xFFFF0000u, all);
  vdup(zero, uint16{0}, all);
  vdup(nan, uint16{0x7F}, all);
  const auto turns = static_cast<uint16>((count + kLanes - 1) / kLanes);
  for (uint16 i = 0; i < turns; ++i) {
    const auto has_second = static_cast<uint16>(count > static_cast<uint32>(kF32Lanes) ? 1 : 0);
    const Mask valid = plt<uint16>(count);
    Reg<uint16> a;
    Reg<float> value;
    Reg<uint16> code;
    Reg<uint32> index;
    Reg<uint32> second;
    Mask is_bad;
    vlds(a, amax + i * kLanes);
    vcmps<Cmp::kGe>(is_bad, a, uint16{0x7F80}, valid);
    vshls(as<uint32>(value), as<uint32>(a), 16, all);
    vmuls(value, value, kSixth, all);
    vcvt<0, Round::kRint, Saturate::kYes>(as<E4M3>(code), value, all);
    vand(as<uint32>(value), as<uint32>(a), upper, all);
    vmuls(value, value, kSixth, all);
    vcvt<2, Round::kRint, Saturate::kYes>(as<E4M3>(value), value, all);
    vor(code, code, as<uint16>(value), valid);
    vmaxs(code, code, code_of_clamp, valid);
    vsel(code, nan, code, is_bad);
    vintlv(as<uint16>(index), as<uint16>(second), code, zero);
    for (uint16 once = 0; once < as_bytes; ++once) {
      vsts_pack<StoreDist::kPack>(bytes + i * kLanes, code, all);
    }
    for (uint16 once = 0; once < as_words; ++once) {
      vsts(words + i * kLanes, index, all);
      vsts(words + (i * kLanes + kF32Lanes), second, all);
    }
    vgather(value, table, index, all);
    store_repeated<2>(inverses + 2 * i * kLanes, as<uint32>(value), all);
    for (uint16 once = 0; once < has_second; ++once) {
      vgather(value, table, second, all);
      store_repeated<2>(inverses + (2 * i + 1) * kLanes, as<uint32>(value), all);
    }
  }
}

// Inverses of given scaling factors; `keep` is 0 where the factor is NaN.
template <bool kIsE2M1>
TILEKERNELS_VF void invert(Ub<float> inverses, Ub<uint32> keep, Ub<float> table, uint32 count) {
  const Mask all = pset<uint32>();
  Reg<float> one;
  Reg<float> value;
  Reg<uint32> none;
  Reg<uint32> ones;
  Mask is_nan;
  vdup(one, 1.0f, all);
  vdup(none, 0u, all);
  vdup(ones, ~0u, all);
  const auto turns = static_cast<uint16>((count + kF32Lanes - 1) / kF32Lanes);
  for (uint16 i = 0; i < turns; ++i) {
    const Mask valid = plt<float>(count);
    vlds(value, table + i * kF32Lanes);
    vdiv<Precision::kExact>(value, one, value, valid);
    vsts(inverses + i * kF32Lanes, value, all);
    if constexpr (kIsE2M1) {
      Reg<uint32> mine;
      vcmp<Cmp::kNe>(is_nan, value, value, valid);
      vsel(mine, none, ones, is_nan);
      vsts(keep + i * kF32Lanes, mine, all);
    }
  }
}

// Zeros of padding.
TILEKERNELS_VF void make_zeros(Ub<uint32> words, uint16 turns) {
  const Mask all = pset<uint32>();
  Reg<uint32> zero;
  vdup(zero, 0u, all);
  for (uint16 i = 0; i < turns; ++i) vsts(words + i * kF32Lanes, zero, all);
}

// The low bytes of words, back to back.
TILEKERNELS_VF void pack_bytes(Ub<uint8> bytes, Ub<uint32> words, uint16 turns) {
  const Mask all = pset<uint32>();
  Reg<uint32> word;
  for (uint16 i = 0; i < turns; ++i) {
    vlds(word, words + i * kF32Lanes);
    vsts_pack<StoreDist::kPack4>(bytes + i * kF32Lanes, word, all);
  }
}

// Every word to a block of its own, for copies out by column.
template <class T>
TILEKERNELS_VF void spread(Ub<uint8> blocks, Ub<T> words, uint16 turns) {
  constexpr int32 kBlocks = kVectorBytes / kBlockBytes;
  const Mask all = pset<T>();
  Reg<T> word;
  for (uint16 i = 0; i < turns; ++i) {
    vlds<Dist::kE2b>(word, words + i * kBlocks);
    vsts(as_ub<T>(blocks + i * kVectorBytes), word, all);
  }
}

}  // namespace tilekernels::ascend::cast_kernel
