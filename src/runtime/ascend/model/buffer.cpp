// The on-core buffer: what is where, which bytes are defined, and who may touch them when.
#include <algorithm>
#include <cstring>

#include "runtime/ascend/model/core.h"

namespace tilekernels::ascend::model {
namespace {

constexpr uint32 kSequenceMask = (1u << kSequenceBits) - 1;

uint32 stamp(Pipe pipe, uint32 sequence) {
  return static_cast<uint32>(pipe) << kSequenceBits | sequence;
}
Pipe pipe_of(uint32 stamp) { return static_cast<Pipe>(stamp >> kSequenceBits); }

bool all_equal(const uint32* words, int32 count) {
  uint32 different = 0;
  for (int32 i = 1; i < count; ++i) different |= words[i] ^ words[0];
  return different == 0;
}

}  // namespace

const Core::Allocation& Core::allocation(UbPlace place) const {
  if (place.buffer < 0 || place.buffer >= static_cast<int32>(allocations_.size())) {
    throw Hazard(HazardKind::kOutOfBounds, kernel_, index_, "", place.offset,
                 "a UB pointer that comes from no allocation");
  }
  return allocations_[static_cast<size_t>(place.buffer)];
}

UbPlace Core::allocate(const char* name, int64 bytes, int32 readable_tail_bytes) {
  const int64 whole = numerics::align_up(bytes, kBlockBytes);
  const int64 tail = numerics::align_up(readable_tail_bytes, kBlockBytes);
  if (ub_used_ + whole + tail > kUbBytes) {
    fail(HazardKind::kOutOfBounds, "allocating \"" + std::string(name) + "\" takes UB to " +
                                       std::to_string(ub_used_ + whole + tail) + " bytes of " +
                                       std::to_string(kUbBytes));
  }
  const int32 offset = ub_used_;
  // The declared tail and what rounds the size up to blocks: readable, never written.
  const auto readable = static_cast<int32>(whole - bytes + tail);
  allocations_.push_back({name, offset, static_cast<int32>(bytes), readable});
  set_undefined(offset, whole + tail, true);
  std::memset(data_.data() + offset, 0xCD, static_cast<size_t>(whole + tail));
  ub_used_ += static_cast<int32>(whole + tail);
  return {static_cast<int32>(allocations_.size()) - 1, offset};
}

int32 Core::checked_offset(UbPlace place, int64 bytes, int32 align, bool write) const {
  const Allocation& of = allocation(place);
  const int64 first = place.offset - of.offset;
  const int64 end = first + bytes;
  const int64 limit = of.bytes + (write ? 0 : of.tail);
  if (first < 0 || end > limit) {
    fail(HazardKind::kOutOfBounds, place,
         std::string(write ? "a write of " : "a read of ") + std::to_string(bytes) +
             " bytes ends at byte " + std::to_string(end) + " of " + std::to_string(of.bytes) +
             (write ? "" : " and " + std::to_string(of.tail) + " readable ones"));
  }
  if (place.offset % align != 0) {
    fail(HazardKind::kMisaligned, place,
         "the address must be a multiple of " + std::to_string(align) + " bytes");
  }
  return place.offset;
}

void Core::fail_order(Pipe pipe, Pipe before, bool write, bool after_read, UbPlace place,
                      int32 byte) const {
  const UbPlace at = place_at(place, byte);
  const std::string who = name(pipe);
  const std::string other = name(before);
  if (pipe == before) {
    if (pipe == Pipe::kV) {
      const char* const bar = !write ? "kVstVld" : after_read ? "kVldVst" : "kVstVst";
      const char* const what = !write       ? "a vector load reads what a vector store wrote"
                               : after_read ? "a vector store writes what a vector load read"
                                            : "a vector store writes what another one wrote";
      fail(HazardKind::kMissingMemBar, at,
           std::string(what) + " in the same vector function: mem_bar<Bar::" + bar +
               "> is missing between them");
    }
    fail(HazardKind::kCopyOverlap, at,
         "two copies of " + who + " write the same bytes and may overlap: pipe_barrier<Pipe::k" +
             (pipe == Pipe::kMte2 ? "Mte2" : "Mte3") + "> is missing between them");
  }
  const std::string event = event_name(before, pipe);
  const bool scalar = pipe == Pipe::kS || before == Pipe::kS;
  const HazardKind kind = scalar  ? HazardKind::kScalarAccess
                          : write ? HazardKind::kEarlyReuse
                                  : HazardKind::kMissingFlag;
  const std::string sentence = !write ? who + " reads bytes that " + other + " writes"
                               : after_read
                                   ? who + " overwrites bytes that " + other + " still reads"
                                   : who + " overwrites bytes that " + other + " still writes";
  fail(kind, at, sentence + ": the event " + event + " is missing");
}

// Checks a range against who wrote it last.
void Core::check_writers(Pipe pipe, UbPlace place, int32 offset, int32 bytes, bool write) {
  const Clock& clock = clocks_[static_cast<int32>(pipe)];
  const auto is_ordered = [&](uint32 word) {
    const uint32 sequence = word & kSequenceMask;
    if (sequence == 0) return true;
    const Pipe by = pipe_of(word);
    if (by == pipe) {
      if (pipe == Pipe::kS || (pipe == Pipe::kMte3 && !write)) return true;
      if (pipe == Pipe::kV) {
        return sequence <= bars_[static_cast<int32>(write ? Bar::kVstVst : Bar::kVstVld)];
      }
    }
    return sequence <= clock.seen[static_cast<int32>(by)];
  };
  const uint32* const words = writer_.data() + offset;
  if (all_equal(words, bytes)) {
    if (!is_ordered(words[0])) fail_order(pipe, pipe_of(words[0]), write, false, place, offset);
    return;
  }
  uint32 good = words[0];
  if (!is_ordered(good)) fail_order(pipe, pipe_of(good), write, false, place, offset);
  for (int32 i = 1; i < bytes; ++i) {
    if (words[i] == good) continue;
    if (!is_ordered(words[i])) {
      fail_order(pipe, pipe_of(words[i]), write, false, place, offset + i);
    }
    good = words[i];
  }
}

void Core::check_read(Pipe pipe, UbPlace place, int32 offset, int32 bytes) {
  if (options_.check_order) check_writers(pipe, place, offset, bytes, false);
  uint32* const words = reader_[static_cast<int32>(pipe)].data() + offset;
  std::fill(words, words + bytes, now_[static_cast<int32>(pipe)]);
}

void Core::check_write(Pipe pipe, UbPlace place, int32 offset, int32 bytes) {
  if (options_.check_order) {
    check_writers(pipe, place, offset, bytes, true);
    for (Pipe reader : {Pipe::kS, Pipe::kV, Pipe::kMte3}) {
      if (reader == pipe && reader != Pipe::kV) continue;
      const uint32 known = reader == pipe
                               ? bars_[static_cast<int32>(Bar::kVldVst)]
                               : clocks_[static_cast<int32>(pipe)].seen[static_cast<int32>(reader)];
      const uint32* const words = reader_[static_cast<int32>(reader)].data() + offset;
      uint32 late = 0;
      for (int32 i = 0; i < bytes; ++i) late |= words[i] > known ? 1u : 0u;
      if (late == 0) continue;
      for (int32 i = 0; i < bytes; ++i) {
        if (words[i] > known) fail_order(pipe, reader, true, true, place, offset + i);
      }
    }
  }
  uint32* const words = writer_.data() + offset;
  std::fill(words, words + bytes, stamp(pipe, now_[static_cast<int32>(pipe)]));
}

void Core::set_undefined(int64 first, int64 count, bool value) {
  uint64* const bits = poison_.data();
  for (int64 i = first; i < first + count;) {
    if (i % 64 == 0 && first + count - i >= 64) {
      bits[i / 64] = value ? ~uint64{0} : 0;
      i += 64;
      continue;
    }
    const uint64 bit = uint64{1} << (i % 64);
    if (value) {
      bits[i / 64] |= bit;
    } else {
      bits[i / 64] &= ~bit;
    }
    ++i;
  }
}

int64 Core::first_undefined(int64 first, int64 count) const {
  const uint64* const bits = poison_.data();
  for (int64 i = first; i < first + count;) {
    if (i % 64 == 0 && bits[i / 64] == 0) {
      i += 64;
      continue;
    }
    if ((bits[i / 64] >> (i % 64) & 1) != 0) return i;
    ++i;
  }
  return -1;
}

void Core::vector_read(UbPlace place, int32 bytes, int32 align, uint8* to, uint64* poison) {
  const int32 offset = checked_offset(place, bytes, align, false);
  check_read(Pipe::kV, place, offset, bytes);
  std::memcpy(to, data_.data() + offset, static_cast<size_t>(bytes));
  for (int32 i = 0; i < (bytes + 63) / 64; ++i) poison[i] = 0;
  for (int32 i = 0; i < bytes;) {
    const int32 at = offset + i;
    const int32 count = std::min({64 - i % 64, 64 - at % 64, bytes - i});
    uint64 bits = poison_[static_cast<size_t>(at / 64)] >> (at % 64);
    if (count < 64) bits &= (uint64{1} << count) - 1;
    poison[i / 64] |= bits << (i % 64);
    i += count;
  }
}

void Core::vector_write(UbPlace place, int32 bytes, int32 align, const uint8* from,
                        const uint8* active) {
  // Inactive bytes at the end need not exist.
  int32 used = bytes;
  if (active != nullptr) {
    while (used > 0 && active[used - 1] == 0) --used;
  }
  checked_offset(place, used, align, true);
  const int32 offset = place.offset;
  for (int32 i = 0; i < used;) {
    if (active != nullptr && active[i] == 0) {
      ++i;
      continue;
    }
    int32 end = i + 1;
    while (end < used && (active == nullptr || active[end] != 0)) ++end;
    check_write(Pipe::kV, place, offset + i, end - i);
    i = end;
  }
  if (num_stores_ == stores_.size()) stores_.emplace_back();
  PendingStore& store = stores_[num_stores_++];
  store.offset = offset;
  store.bytes = used;
  std::memcpy(store.value, from, static_cast<size_t>(used));
  if (active != nullptr) {
    std::memcpy(store.active, active, static_cast<size_t>(used));
  } else {
    std::memset(store.active, 1, static_cast<size_t>(used));
  }
}

// Stores become visible as late as the barriers allow.
void Core::apply_stores() {
  for (size_t i = 0; i < num_stores_; ++i) {
    const PendingStore& store = stores_[i];
    for (int32 k = 0; k < store.bytes;) {
      if (store.active[k] == 0) {
        ++k;
        continue;
      }
      int32 end = k + 1;
      while (end < store.bytes && store.active[end] != 0) ++end;
      std::memcpy(data_.data() + store.offset + k, store.value + k, static_cast<size_t>(end - k));
      set_undefined(store.offset + k, end - k, false);
      k = end;
    }
  }
  num_stores_ = 0;
}

bool Core::contains(UbPlace place, int64 bytes) const {
  const Allocation& of = allocation(place);
  return place.offset >= of.offset && place.offset + bytes <= of.offset + of.bytes;
}

}  // namespace tilekernels::ascend::model
