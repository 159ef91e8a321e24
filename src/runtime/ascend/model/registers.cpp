// Registers, masks and streams of the machine model.
#include "runtime/ascend/model/register_lanes.h"

namespace tilekernels::ascend::model {

RegBits::RegBits() {
  core().require_vf("a vector register");
  core().add_register(1);
  std::memset(bytes, 0xCD, sizeof(bytes));
  std::memset(poison, 0xFF, sizeof(poison));
}
RegBits::~RegBits() { core().add_register(-1); }

Mask::Mask() { core().add_mask(1); }
Mask::~Mask() { core().add_mask(-1); }
Mask::Mask(const Mask& other) : lane_bytes(other.lane_bytes) {
  core().add_mask(1);
  std::memcpy(bits, other.bits, sizeof(bits));
}

Stream::Stream() { core().add_stream(1); }
Stream::~Stream() {
  core().add_stream(-1);
  if (count > 0) core().stream_lost = true;
}

Mask pset(int32 lane_bytes, int32 lanes) {
  count(Inst::kPset);
  Mask m;
  m.lane_bytes = lane_bytes;
  for (int32 i = 0; i < lanes && i * lane_bytes < kVectorBytes; ++i)
    set_bit(m.bits, i * lane_bytes);
  return m;
}

Mask plt(int32 lane_bytes, uint32& lanes) {
  count(Inst::kPlt);
  Mask m;
  m.lane_bytes = lane_bytes;
  const auto all = static_cast<uint32>(kVectorBytes / lane_bytes);
  const uint32 active = lanes < all ? lanes : all;
  for (uint32 i = 0; i < active; ++i) set_bit(m.bits, static_cast<int32>(i) * lane_bytes);
  lanes -= active;
  return m;
}

namespace {
template <class F>
void mask_logic(Mask& d, const Mask& a, const Mask& b, const Mask& m, const F& f) {
  count(Inst::kPlogic);
  check_mask(m, m.lane_bytes);
  check_mask(a, m.lane_bytes);
  check_mask(b, m.lane_bytes);
  for (int32 i = 0; i < kWords; ++i) d.bits[i] = f(a.bits[i], b.bits[i]) & m.bits[i];
  d.lane_bytes = m.lane_bytes;
}
}  // namespace

void mask_and(Mask& d, const Mask& a, const Mask& b, const Mask& m) {
  mask_logic(d, a, b, m, [](uint64 x, uint64 y) { return x & y; });
}
void mask_or(Mask& d, const Mask& a, const Mask& b, const Mask& m) {
  mask_logic(d, a, b, m, [](uint64 x, uint64 y) { return x | y; });
}
void mask_not(Mask& d, const Mask& a, const Mask& m) {
  mask_logic(d, a, a, m, [](uint64 x, uint64) { return ~x; });
}

}  // namespace tilekernels::ascend::model
