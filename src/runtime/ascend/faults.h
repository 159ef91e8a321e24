// How a kernel finds the lowest faulty row of its core and reports it.
//
// Vector functions keep, lane by lane, the lowest faulty item, counted in 31 bits from the core's
// own first; the core's end turns the lowest of them into its error word.
#pragma once

#include "numerics/fault.h"
#include "runtime/ascend/ring.h"

namespace tilekernels::ascend {

constexpr int32 kNoFaultItem = 0x7FFFFFFF;
/// Bytes of UB that the buffers for faults take, readable tails included.
constexpr int64 kFaultUbBytes = 3 * kVectorBytes + kBlockBytes;

TILEKERNELS_VF void clear_faults(Ub<int32> faults) {
  const Mask all = pset<int32>();
  Reg<int32> none;
  vdup(none, kNoFaultItem, all);
  vsts(faults, none, all);
}

/// The buffer of a core's faults, by lane; none yet.
TILEKERNELS_CORE Ub<int32> alloc_faults() {
  const Ub<int32> faults = ub_alloc<int32>("faults", kF32Lanes);
  vf_call<clear_faults>("clear_faults", faults);
  return faults;
}

/// Lowers the lanes of `faults` to their `item` where `is_bad`. Nothing else touches `faults` in
/// the same vector function.
TILEKERNELS_CALLEE void note_faults(Ub<int32> faults, const Reg<int32>& item, const Mask& is_bad,
                                    const Mask& all) {
  Reg<int32> known;
  Reg<int32> mine;
  vlds(known, faults);
  vsel(mine, item, known, is_bad);
  vmin(known, known, mine, all);
  mem_bar<Bar::kVldVst>();
  vsts(faults, known, all);
}

/// For a vector function that goes through items 64 at a time, from `item` on: the lanes' places,
/// and the lowest faulty one that each lane has met.
TILEKERNELS_CALLEE void start_places(Reg<int32>& place, Reg<int32>& worst, int32 item,
                                     const Mask& all) {
  vdup(worst, kNoFaultItem, all);
  vci(place, item);
}

/// Judges the items at hand, and goes on to the next ones.
TILEKERNELS_CALLEE void judge_places(Reg<int32>& place, Reg<int32>& worst, const Mask& is_bad,
                                     const Mask& all) {
  Reg<int32> mine;
  vsel(mine, place, worst, is_bad);
  vmin(worst, worst, mine, all);
  vadds(place, place, kF32Lanes, all);
}

/// At the function's end.
TILEKERNELS_CALLEE void note_places(Ub<int32> faults, const Reg<int32>& worst, const Mask& all) {
  Mask is_bad;
  vcmps<Cmp::kLt>(is_bad, worst, kNoFaultItem, all);
  note_faults(faults, worst, is_bad, all);
}

TILEKERNELS_VF void lowest_fault(Ub<int32> lowest, Ub<int32> faults) {
  const Mask all = pset<int32>();
  Reg<int32> items;
  vlds(items, faults);
  vcmin(items, items, all);
  vst_first(lowest, items);
}

/// Lowers this core's error word to `fault`; what a kernel before this one has left there may be
/// lower. `word` is a data block of UB that no queue but the scalar unit's works on.
TILEKERNELS_CORE void lower_word(uint64* words, Ub<int32> word, uint64 fault) {
  const Gm<uint64> mine = gm(words + block_idx() * kFaultPitch);
  copy_in(word, mine, {1, 8});
  wait_for<Pipe::kMte2, Pipe::kS>();
  const uint64 known = static_cast<uint64>(static_cast<uint32>(get_value(word, 0))) |
                       static_cast<uint64>(static_cast<uint32>(get_value(word, 1))) << 32;
  if (known <= fault) return;
  set_value(word, 0, static_cast<int32>(fault & 0xFFFFFFFF));
  set_value(word, 1, static_cast<int32>(fault >> 32));
  wait_for<Pipe::kS, Pipe::kMte3>(5);
  copy_out(mine, word, {1, 8});
}

/// At the end of a kernel whose scalar unit looks for faults: reports one, unless it is kNoFault.
TILEKERNELS_CORE void report_fault(uint64* words, uint64 fault) {
  if (fault == numerics::kNoFault) return;
  lower_word(words, ub_alloc<int32>("fault word", kBlockBytes / 4), fault);
}

/// At the end of a kernel: lowers this core's error word if one of its items is faulty, of those in
/// `faults` and `known`, the lowest that its scalar unit has found. word_of(item) is the error word
/// that stands for the core's item.
template <class WordOf>
TILEKERNELS_CORE void report_fault_words(uint64* words, Ub<int32> faults, int32 known,
                                         const WordOf& word_of) {
  const Ub<int32> word = ub_alloc<int32>("fault word", kBlockBytes / 4);
  vf_call<lowest_fault>("lowest_fault", word, faults);
  wait_for<Pipe::kV, Pipe::kS>();
  const int32 item = numerics::min_of(get_value(word, 0), known);
  if (item == kNoFaultItem) return;
  wait_for<Pipe::kS, Pipe::kMte2>();
  lower_word(words, word, word_of(item));
}

/// The same for one kind of fault: row_of(item) is the row of the core's item.
template <class RowOf>
TILEKERNELS_CORE void report_faults(uint64* words, Ub<int32> faults, int32 op, int32 kind,
                                    const RowOf& row_of) {
  report_fault_words(words, faults, kNoFaultItem,
                     [&](int32 item) { return numerics::fault_word(row_of(item), op, kind); });
}

}  // namespace tilekernels::ascend
