// Loads and stores of the machine model.
#include <cstring>
#include <string>

#include "runtime/ascend/model/register_lanes.h"

namespace tilekernels::ascend::model {

void load(int32 dist, int32 width, RegBits& d, UbPlace ub) {
  count(Inst::kVlds);
  uint8 bytes[2 * kVectorBytes] = {};
  uint64 poison[2 * kWords] = {};
  const auto read = [&](int32 size, int32 align) {
    core().vector_read(ub, size, align, bytes, poison);
  };
  if (dist == 0) {
    read(kVectorBytes, kBlockBytes);
    return put_bytes(d, bytes, poison);
  }
  int32 factor = 1;  // register bytes that one byte in memory stands for
  switch (dist) {
    case 1:
      read(width, width);
      break;
    case 2:
      read(kBlockBytes, kBlockBytes);
      break;
    case 3:
      read(8 * width, 8 * width < kBlockBytes ? 8 * width : kBlockBytes);
      break;
    case 5:
      factor = 4;
      read(kVectorBytes / 4, kBlockBytes);
      break;
    default:
      factor = 2;
      read(kVectorBytes / 2, kBlockBytes);
  }
  uint8 out[kVectorBytes] = {};
  uint64 out_poison[kWords] = {};
  for (int32 at = 0; at < kVectorBytes; at += width) {
    int32 from = 0;
    bool used = true;
    if (dist == 2) {
      from = at % kBlockBytes;
    } else if (dist == 3) {
      from = at / kBlockBytes * width;
    } else if (dist == 4 || dist == 5) {
      used = at % (factor * width) == 0;
      from = at / factor;
    } else if (dist == 6) {
      from = at / width / 2 * width;
    }
    if (!used) continue;
    for (int32 i = 0; i < width; ++i) {
      out[at + i] = bytes[from + i];
      if (bit(poison, from + i)) set_bit(out_poison, at + i);
    }
  }
  put_bytes(d, out, out_poison);
}

void load_deintlv(int32 width, RegBits& d0, RegBits& d1, UbPlace ub) {
  count(Inst::kVldDeintlv);
  uint8 bytes[2 * kVectorBytes];
  uint64 poison[2 * kWords];
  core().vector_read(ub, 2 * kVectorBytes, kBlockBytes, bytes, poison);
  std::memset(d0.poison, 0, sizeof(d0.poison));
  std::memset(d1.poison, 0, sizeof(d1.poison));
  for (int32 at = 0; at < kVectorBytes; at += width) {
    for (int32 i = 0; i < width; ++i) {
      d0.bytes[at + i] = bytes[2 * at + i];
      d1.bytes[at + i] = bytes[2 * at + width + i];
      if (bit(poison, 2 * at + i)) set_bit(d0.poison, at + i);
      if (bit(poison, 2 * at + width + i)) set_bit(d1.poison, at + i);
    }
  }
}

void load_unaligned(int32 width, RegBits& d, UbPlace ub) {
  count(Inst::kVldu);
  // Whole blocks are read.
  const int32 skip = ub.offset % kBlockBytes;
  const auto size = static_cast<int32>(numerics::align_up(skip + kVectorBytes, kBlockBytes));
  if (ub.offset % width != 0)
    core().fail(HazardKind::kMisaligned, ub, "the address splits an element");
  uint8 bytes[2 * kVectorBytes];
  uint64 poison[2 * kWords];
  core().vector_read(moved(ub, -skip), size, kBlockBytes, bytes, poison);
  std::memcpy(d.bytes, bytes + skip, kVectorBytes);
  std::memset(d.poison, 0, sizeof(d.poison));
  for (int32 i = 0; i < kVectorBytes; ++i) {
    if (bit(poison, skip + i)) set_bit(d.poison, i);
  }
}

namespace {
// The place of an indexed element; fails where it lies outside of the buffer.
UbPlace indexed(UbPlace ub, const RegBits& idx, int32 i, int32 width) {
  uint32 index = 0;
  std::memcpy(&index, idx.bytes + i * width, static_cast<size_t>(width));
  const UbPlace place = moved(ub, static_cast<int64>(index) * width);
  if (!core().contains(place, width)) {
    core().fail(HazardKind::kBadIndex, ub,
                "lane " + std::to_string(i) + " has the index " + std::to_string(index) +
                    ", which lies outside of the buffer");
  }
  return place;
}
}  // namespace

void gather(int32 width, RegBits& d, UbPlace ub, const RegBits& idx, const Mask& m) {
  count(Inst::kVgather);
  check_mask(m, width);
  check_defined(idx, m, width, "an address");
  if (ub.offset % kBlockBytes != 0) {
    core().fail(HazardKind::kMisaligned, ub, "a gather starts at a multiple of 32 bytes");
  }
  uint8 out[kVectorBytes] = {};
  uint64 poison[kWords] = {};
  for (int32 i = 0; i < kVectorBytes / width; ++i) {
    if (!bit(m.bits, i * width)) continue;
    uint64 undefined[1];
    core().vector_read(indexed(ub, idx, i, width), width, width, out + i * width, undefined);
    for (int32 k = 0; k < width; ++k) {
      if ((undefined[0] >> k & 1) != 0) set_bit(poison, i * width + k);
    }
  }
  // What inactive lanes hold is not stated.
  for (int32 i = 0; i < kVectorBytes / width; ++i) {
    if (bit(m.bits, i * width)) continue;
    for (int32 k = 0; k < width; ++k) set_bit(poison, i * width + k);
  }
  put_bytes(d, out, poison);
}

void store(int32 dist, int32 width, UbPlace ub, const RegBits& s, const Mask& m) {
  count(Inst::kVsts);
  check_mask(m, width);
  const int32 kept = dist == 0 ? width : dist == 1 ? width / 2 : width / 4;
  uint8 value[kVectorBytes];
  uint8 active[kVectorBytes];
  bool seen_inactive = false;
  for (int32 i = 0; i < kVectorBytes / width; ++i) {
    const bool on = bit(m.bits, i * width);
    if (dist != 0 && on && seen_inactive) {
      core().fail(HazardKind::kIgnoredMask, ub,
                  "a packed store under a mask with holes: whether they close is not stated");
    }
    seen_inactive = seen_inactive || !on;
    for (int32 k = 0; k < kept; ++k) {
      value[i * kept + k] = s.bytes[i * width + k];
      active[i * kept + k] = on ? 1 : 0;
      if (on && bit(s.poison, i * width + k)) {
        core().fail(HazardKind::kUndefined, moved(ub, i * kept + k),
                    "a store of lanes that are undefined");
      }
    }
  }
  const bool all = !seen_inactive;
  core().vector_write(ub, kVectorBytes / width * kept, kBlockBytes, value, all ? nullptr : active);
}

void store_first(int32 width, UbPlace ub, const RegBits& s) {
  count(Inst::kVstFirst);
  for (int32 k = 0; k < width; ++k) {
    if (bit(s.poison, k)) {
      core().fail(HazardKind::kUndefined, ub, "a store of a lane that is undefined");
    }
  }
  core().vector_write(ub, width, width, s.bytes, nullptr);
}

void store_intlv(int32 width, UbPlace ub, const RegBits& a, const RegBits& b) {
  count(Inst::kVstIntlv);
  uint8 value[2 * kVectorBytes];
  for (int32 at = 0; at < kVectorBytes; at += width) {
    for (int32 k = 0; k < width; ++k) {
      if (bit(a.poison, at + k) || bit(b.poison, at + k)) {
        core().fail(HazardKind::kIgnoredMask, moved(ub, 2 * at),
                    "an interleaving store writes all lanes, undefined ones among them");
      }
      value[2 * at + k] = a.bytes[at + k];
      value[2 * at + width + k] = b.bytes[at + k];
    }
  }
  core().vector_write(ub, 2 * kVectorBytes, kBlockBytes, value, nullptr);
}

void store_unaligned(int32 width, UbPlace ub, const RegBits& s, uint32 lanes) {
  count(Inst::kVstu);
  if (int64{lanes} * width > kVectorBytes) {
    core().fail(HazardKind::kOutOfBounds, ub, "an unaligned store of more lanes than there are");
  }
  const auto bytes = static_cast<int32>(lanes) * width;
  for (int32 k = 0; k < bytes; ++k) {
    if (bit(s.poison, k)) {
      core().fail(HazardKind::kUndefined, moved(ub, k), "a store of lanes that are undefined");
    }
  }
  core().vector_write(ub, bytes, width, s.bytes, nullptr);
}

void scatter(int32 width, UbPlace ub, const RegBits& s, const RegBits& idx, const Mask& m) {
  count(Inst::kVscatter);
  check_mask(m, width);
  check_defined(idx, m, width, "an address");
  check_defined(s, m, width, "a scattered store");
  int32 places[kVectorBytes / 2];
  int32 num = 0;
  for (int32 i = 0; i < kVectorBytes / width; ++i) {
    if (!bit(m.bits, i * width)) continue;
    const UbPlace place = indexed(ub, idx, i, width);
    for (int32 k = 0; k < num; ++k) {
      if (places[k] == place.offset) {
        core().fail(HazardKind::kBadIndex, place,
                    "two lanes of a scatter have one index: which of them wins is not stated");
      }
    }
    places[num++] = place.offset;
    core().vector_write(place, width, width, s.bytes + i * width, nullptr);
  }
}

void mem_bar(Bar bar) {
  count(Inst::kMemBar);
  core().vector_bar(bar);
}

void stream_store(UbPlace ub, const RegBits& s, Stream& stream) {
  count(Inst::kVstur);
  if (core().ar != Core::Ar::kFilled) {
    core().fail(HazardKind::kStreamMisuse, ub, "vstur without a vsqz_count before it");
  }
  core().ar = Core::Ar::kClear;
  const int32 bytes = core().ar_bytes;
  for (int32 k = 0; k < bytes; ++k) {
    if (bit(s.poison, k)) {
      core().fail(HazardKind::kUndefined, ub, "a store of lanes that are undefined");
    }
  }
  // A block that is not full stays in the stream.
  for (int32 k = 0; k < bytes; ++k) {
    stream.bytes[stream.count] = s.bytes[k];
    if (stream.count == 0) stream.place = moved(ub, k);
    ++stream.count;
    if ((ub.offset + k + 1) % kBlockBytes == 0) stream_flush(stream);
  }
}

void stream_flush(Stream& stream) {
  if (stream.count == 0) return;
  core().vector_write(stream.place, stream.count, 1, stream.bytes, nullptr);
  stream.count = 0;
}

}  // namespace tilekernels::ascend::model
