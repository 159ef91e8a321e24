// The lane types of the vector core and what may be done with them: one whitelist that the machine
// model and the mapping to a real core share. Device-safe.
#pragma once

#include "numerics/types.h"

namespace tilekernels::ascend {

constexpr int32 kVectorBytes = 256;             // one register
constexpr int32 kUbBytes = 248 * 1024;          // of the on-core buffer (UB) for kernels
constexpr int32 kBlockBytes = 32;               // a data block of UB
constexpr int64 kFaultPitch = kBlockBytes / 8;  // uint64s from one core's error word to the next
constexpr int32 kF32Lanes = kVectorBytes / 4;
constexpr int32 kMaxCopyRows = 4095;         // blocks of one GM <-> UB copy
constexpr int32 kMaxCopyRowBytes = 2097151;  // bytes of such a block
constexpr int32 kMaxTrips = 65535;           // of a loop in a vector function

// Lane types that are no arithmetic types of C++
struct F16 {
  uint16 bits;
};
struct BF16 {
  uint16 bits;
};
struct E4M3 {
  uint8 bits;
};
struct E2M1x2 {
  uint8 bits;
};

enum class Lane : int32 { kU8, kU16, kU32, kI32, kF32, kF16, kBF16, kE4M3, kE2M1x2 };

template <class T>
struct LaneOf;
// clang-format off
template <> struct LaneOf<uint8> { static constexpr Lane kLane = Lane::kU8; };
template <> struct LaneOf<uint16> { static constexpr Lane kLane = Lane::kU16; };
template <> struct LaneOf<uint32> { static constexpr Lane kLane = Lane::kU32; };
template <> struct LaneOf<int32> { static constexpr Lane kLane = Lane::kI32; };
template <> struct LaneOf<float> { static constexpr Lane kLane = Lane::kF32; };
template <> struct LaneOf<F16> { static constexpr Lane kLane = Lane::kF16; };
template <> struct LaneOf<BF16> { static constexpr Lane kLane = Lane::kBF16; };
template <> struct LaneOf<E4M3> { static constexpr Lane kLane = Lane::kE4M3; };
template <> struct LaneOf<E2M1x2> { static constexpr Lane kLane = Lane::kE2M1x2; };
// clang-format on
template <class T>
constexpr Lane kLaneOf = LaneOf<T>::kLane;

constexpr int32 lane_bytes(Lane lane) {
  switch (lane) {
    case Lane::kU8:
    case Lane::kE4M3:
    case Lane::kE2M1x2:
      return 1;
    case Lane::kU16:
    case Lane::kF16:
    case Lane::kBF16:
      return 2;
    default:
      return 4;
  }
}
constexpr bool is_integer(Lane lane) { return lane <= Lane::kI32; }

// Vector instructions, as the cost table and the diagnoses name them
enum class Inst : int32 {
  kPset,
  kPlt,
  kPlogic,
  kVlds,
  kVldDeintlv,
  kVldu,
  kVgather,
  kVsts,
  kVstFirst,
  kVstIntlv,
  kVstu,
  kVscatter,
  kVstur,
  kMemBar,
  kVadd,
  kVsub,
  kVmul,
  kVmax,
  kVmin,
  kVmula,
  kVmull,
  kVabs,
  kVneg,
  kVdiv,
  kVsqrt,
  kVexp,
  kVln,
  kVand,
  kVor,
  kVxor,
  kVnot,
  kVshl,
  kVshr,
  kVcmp,
  kVsel,
  kVdup,
  kVmov,
  kVci,
  kVcadd,
  kVcmax,
  kVcmin,
  kVcgmax,
  kVintlv,
  kVdintlv,
  kVselr,
  kVsqz,
  kVhist,
  kVcvt,
  kCount,
};
constexpr int32 kNumInsts = static_cast<int32>(Inst::kCount);

/// Whether the vector core has the instruction for lanes of that type.
constexpr bool has_inst(Inst inst, Lane lane) {
  const bool is_float = lane == Lane::kF32 || lane == Lane::kF16;
  const bool is_signed = lane == Lane::kI32 || is_float;
  const bool is_wide_int = is_integer(lane) && lane != Lane::kU8;
  switch (inst) {
    case Inst::kVadd:
    case Inst::kVsub:
    case Inst::kVmax:
    case Inst::kVmin:
    case Inst::kVcmp:
      return is_float || lane == Lane::kBF16 || is_integer(lane);
    case Inst::kVmul:
    case Inst::kVmula:
      return is_float || lane == Lane::kBF16 || is_wide_int;
    case Inst::kVmull:
      return lane == Lane::kU32;
    case Inst::kVabs:
    case Inst::kVneg:
      return is_signed;
    case Inst::kVdiv:
    case Inst::kVsqrt:
    case Inst::kVexp:
    case Inst::kVln:
      return lane == Lane::kF32;
    case Inst::kVand:
    case Inst::kVor:
    case Inst::kVxor:
    case Inst::kVnot:
    case Inst::kVshl:
    case Inst::kVshr:
      return is_integer(lane);
    case Inst::kVcadd:
    case Inst::kVcmax:
    case Inst::kVcmin:
    case Inst::kVcgmax:
      return is_float || is_wide_int;
    case Inst::kVci:
      return lane == Lane::kF32 || lane == Lane::kI32;
    case Inst::kVgather:
    case Inst::kVscatter:
    case Inst::kVselr:
      return lane_bytes(lane) >= 2;
    case Inst::kVsqz:
      return lane != Lane::kBF16;
    default:
      return true;
  }
}

enum class Round { kNone, kRint, kRound, kFloor, kCeil, kTrunc };
enum class Saturate { kNo, kYes };

/// What is wrong with a conversion, null if the vector core has it. `part` picks, of every wide
/// lane, one of the narrow ones that share its bytes.
constexpr const char* cast_problem(Lane to, Lane from, int32 part, Round round, Saturate saturate) {
  const int32 wide = numerics::max_of(lane_bytes(to), lane_bytes(from));
  const int32 narrow = numerics::min_of(lane_bytes(to), lane_bytes(from));
  // Pairs of FP4 codes: two bf16 lanes share one byte of four.
  const bool is_pair = to == Lane::kE2M1x2 || from == Lane::kE2M1x2;
  const int32 parts = is_pair ? 4 : wide / narrow;
  if (part < 0 || part >= parts) return "the part lies beyond the wide lane";
  const auto is = [&](Lane t, Lane f) { return to == t && from == f; };
  if (is(Lane::kF32, Lane::kBF16) || is(Lane::kF32, Lane::kF16) || is(Lane::kF32, Lane::kE4M3) ||
      is(Lane::kBF16, Lane::kE2M1x2)) {
    return round == Round::kNone && saturate == Saturate::kNo ? nullptr
                                                              : "a widening conversion is exact";
  }
  if (is(Lane::kBF16, Lane::kF32) || is(Lane::kF16, Lane::kF32)) {
    return round == Round::kRint ? nullptr : "this conversion rounds by kRint here";
  }
  if (is(Lane::kE4M3, Lane::kF32) || is(Lane::kE2M1x2, Lane::kBF16)) {
    if (saturate == Saturate::kNo) return "this conversion must saturate";
    return round == Round::kRint ? nullptr : "this conversion rounds by kRint";
  }
  if (is(Lane::kI32, Lane::kF32) || is(Lane::kF32, Lane::kI32)) {
    return round == Round::kNone ? "this conversion needs a rounding" : nullptr;
  }
  return "the vector core has no such conversion, and its headers would emit nothing";
}

}  // namespace tilekernels::ascend
