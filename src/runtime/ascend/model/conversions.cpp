// Conversions of the machine model.
#include <cmath>
#include <cstring>

#include "numerics/formats.h"
#include "runtime/ascend/model/register_lanes.h"

namespace tilekernels::ascend::model {
namespace {

using numerics::bit_cast;

uint8 to_e4m3(float x) {
  if (numerics::is_nan(x) && !core().ctrl(50)) return 0;
  return numerics::f32_to_e4m3(x);
}
uint8 to_e2m1(float x) { return numerics::is_nan(x) ? uint8{0} : numerics::f32_to_e2m1(x); }

uint16 to_half(Lane to, bool saturate, float x) {
  if (numerics::is_nan(x)) {
    // The bits of a NaN are the hardware's own: its upper half, quiet.
    return saturate ? uint16{0}
                    : static_cast<uint16>((bit_cast<uint32>(x) >> 16 & 0x8000) |
                                          (to == Lane::kBF16 ? 0x7FC1 : 0x7E01));
  }
  const uint16 code = to == Lane::kBF16 ? numerics::f32_to_bf16(x) : numerics::f32_to_f16(x);
  const uint16 inf = to == Lane::kBF16 ? 0x7F80 : 0x7C00;
  return saturate && (code & 0x7FFF) == inf ? static_cast<uint16>(code - 1) : code;
}

int32 to_i32(Round round, bool saturate, float x) {
  double v = static_cast<double>(x);
  if (numerics::is_nan(x)) return 0;
  switch (round) {
    case Round::kRint:
      v = std::nearbyint(v);
      break;
    case Round::kRound:
      v = std::round(v);
      break;
    case Round::kFloor:
      v = std::floor(v);
      break;
    case Round::kCeil:
      v = std::ceil(v);
      break;
    default:
      v = std::trunc(v);
  }
  const bool inf = !numerics::is_finite(x);
  if (v >= 2147483648.0 && (saturate || inf)) return 2147483647;
  if (v < -2147483648.0 && (saturate || inf)) return -2147483647 - 1;
  return static_cast<int32>(static_cast<uint32>(static_cast<int64>(std::fmod(v, 4294967296.0))));
}

}  // namespace

void convert(Lane to, Lane from, int32 part, Round round, Saturate saturate, RegBits& d,
             const RegBits& s, const Mask& m) {
  core().require_vf(name(Inst::kVcvt));
  core().add_cost(Inst::kVcvt, cycles_of_cast(to, from));
  const int32 from_width = lane_bytes(from);
  const int32 to_width = lane_bytes(to);
  check_mask(m, from_width);
  // The control register may overrule what the instruction says.
  const bool narrows_float = to == Lane::kF16 || to == Lane::kBF16 || to == Lane::kE4M3;
  const bool wanted = saturate == Saturate::kYes;
  if (core().ctrl(60) && (narrows_float || (to == Lane::kI32 && from == Lane::kF32)) &&
      wanted == core().ctrl(narrows_float ? 48 : 59)) {
    core().fail(HazardKind::kControlState,
                "control bit 60 is 1, as after a reset, and overrules the saturation of this "
                "conversion: prologue() is missing");
  }
  uint8 out[kVectorBytes] = {};
  uint64 poison[kWords] = {};
  const auto undefined = [&](int32 at, int32 width) {
    for (int32 k = 0; k < width; ++k) {
      if (bit(s.poison, at + k)) return true;
    }
    return false;
  };
  const auto mark = [&](int32 at, int32 width) {
    for (int32 k = 0; k < width; ++k) set_bit(poison, at + k);
  };
  const auto read = [&](int32 at) {
    uint32 bits = 0;
    if (from_width == 4) {
      std::memcpy(&bits, s.bytes + at, 4);
    } else if (from_width == 2) {
      std::memcpy(&bits, s.bytes + at, 2);
    } else {
      bits = s.bytes[at];
    }
    return bits;
  };
  if (to == Lane::kE2M1x2) {
    for (int32 i = 0; i < kF32Lanes; ++i) {
      if (!bit(m.bits, 4 * i)) continue;
      const float even = numerics::load_bf16(static_cast<uint16>(read(4 * i)));
      const float odd = numerics::load_bf16(static_cast<uint16>(read(4 * i + 2)));
      out[4 * i + part] = numerics::pack_e2m1(to_e2m1(even), to_e2m1(odd));
      if (undefined(4 * i, 4)) mark(4 * i + part, 1);
    }
    return put_bytes(d, out, poison);
  }
  if (from == Lane::kE2M1x2) {
    for (int32 i = 0; i < kF32Lanes; ++i) {
      if (!bit(m.bits, 4 * i + part)) continue;
      const uint8 pair = s.bytes[4 * i + part];
      for (int32 k = 0; k < 2; ++k) {
        const uint8 code = k == 0 ? numerics::even_e2m1(pair) : numerics::odd_e2m1(pair);
        const uint16 value = numerics::f32_to_bf16(numerics::e2m1_to_f32(code));
        std::memcpy(out + 4 * i + 2 * k, &value, 2);
      }
      if (undefined(4 * i + part, 1)) mark(4 * i, 4);
    }
    return put_bytes(d, out, poison);
  }
  const int32 wide = from_width > to_width ? from_width : to_width;
  const int32 from_part = from_width < to_width ? part * from_width : 0;
  const int32 to_part = to_width < from_width ? part * to_width : 0;
  const bool plain = !any_poison(s) && is_full(m, from_width);
  const auto convert_lanes = [&](const auto& converted) {
    for (int32 at = 0; at < kVectorBytes; at += wide) {
      const int32 source = at + from_part;
      const int32 target = at + to_part;
      if (!plain) {
        if (!bit(m.bits, source)) continue;
        if (undefined(source, from_width)) {
          mark(target, to_width);
          continue;
        }
      }
      const uint32 result = converted(read(source));
      if (to_width == 4) {
        std::memcpy(out + target, &result, 4);
      } else if (to_width == 2) {
        std::memcpy(out + target, &result, 2);
      } else {
        out[target] = static_cast<uint8>(result);
      }
    }
    put_bytes(d, out, poison);
  };
  if (from == Lane::kF32 && to == Lane::kE4M3) {
    return convert_lanes([](uint32 bits) -> uint32 { return to_e4m3(bit_cast<float>(bits)); });
  }
  if (from == Lane::kF32 && to == Lane::kI32) {
    return convert_lanes([&](uint32 bits) {
      return static_cast<uint32>(to_i32(round, wanted, bit_cast<float>(bits)));
    });
  }
  if (from == Lane::kF32) {
    return convert_lanes(
        [&](uint32 bits) -> uint32 { return to_half(to, wanted, bit_cast<float>(bits)); });
  }
  if (from == Lane::kI32) {
    return convert_lanes(
        [](uint32 bits) { return bit_cast<uint32>(static_cast<float>(static_cast<int32>(bits))); });
  }
  if (from == Lane::kBF16) {
    return convert_lanes([](uint32 bits) { return bits << 16; });
  }
  if (from == Lane::kF16) {
    return convert_lanes([](uint32 bits) {
      return bit_cast<uint32>(numerics::load_f16(static_cast<uint16>(bits)));
    });
  }
  convert_lanes([](uint32 bits) {
    // Some NaN, of the code's sign: kernels must not rely on its bits.
    const bool is_nan = (bits & 0x7F) == 0x7F;
    return is_nan ? 0x7FC00000u | (bits & 0x80) << 24
                  : bit_cast<uint32>(numerics::e4m3_to_f32(static_cast<uint8>(bits)));
  });
}

}  // namespace tilekernels::ascend::model
