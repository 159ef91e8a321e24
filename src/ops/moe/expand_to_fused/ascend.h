// expand_to_fused on the vector core: every core has a range of positions. From all entries it
// picks those of its range, which the vector unit finds 64 at a time; then rows go from memory to
// memory through the buffer, and zeros wherever nothing belongs.
#pragma once

#include "ops/moe/expand_to_fused/op.h"
#include "runtime/ascend/composites.h"
#include "runtime/ascend/faults.h"
#include "runtime/ascend/ring.h"

namespace tilekernels::ascend::expand_to_fused_kernel {

constexpr int32 kPositions = 2048;  // of a core at a time
constexpr int32 kBatch = 2048;      // entries at a time
constexpr int32 kSlotBytes = 32 * 1024;
constexpr int32 kStages = 4;
constexpr int32 kSlotWords = kSlotBytes / kBlockBytes;  // of scaling factors, a data block each
constexpr int32 kNoEntry = 0x7FFFFFFF;

// Bytes of UB that the kernel takes, readable tails included.
constexpr int64 ub_bytes() {
  constexpr int64 kTail = kVectorBytes;
  constexpr int64 kTables = 2 * (kPositions * 4 + kTail) + 2 * (kBatch * 4 + kTail);
  constexpr int64 kCounts = kBatch / kF32Lanes * 4 + kTail + 2 * (kBlockBytes + kTail);
  return kTables + kCounts + kSlotBytes + kTail + kStages * (kSlotBytes + kTail);
}

// Of every 64 positions those in [low, high): how many, and their places in the batch.
TILEKERNELS_VF void pick(Ub<int32> picked, Ub<int32> counts, Ub<int32> positions, int32 low,
                         int32 high, uint32 count) {
  const Mask all = pset<int32>();
  Reg<int32> position;
  Reg<int32> place;
  Mask above;
  Mask inside;
  const auto turns = static_cast<uint16>((count + kF32Lanes - 1) / kF32Lanes);
  for (uint16 i = 0; i < turns; ++i) {
    const Mask valid = plt<int32>(count);
    vlds(position, positions + i * kF32Lanes);
    vcmps<Cmp::kGe>(above, position, low, valid);
    vcmps<Cmp::kLt>(inside, position, high, above);
    vci(place, i * kF32Lanes);
    vsqz(place, place, inside);
    vsts(picked + i * kF32Lanes, place, all);
    vdup(place, 1, inside);
    vcadd(place, place, all);
    vst_first(counts + i, place);
  }
}

// The first place of a position that is not below `limit`, or kNoEntry.
TILEKERNELS_VF void find_bad(Ub<int32> first, Ub<int32> positions, int32 limit, uint32 count) {
  const Mask all = pset<int32>();
  Reg<int32> position;
  Reg<int32> place;
  Reg<int32> none;
  Reg<int32> lowest;
  Mask is_bad;
  vdup(none, kNoEntry, all);
  vdup(lowest, kNoEntry, all);
  const auto turns = static_cast<uint16>((count + kF32Lanes - 1) / kF32Lanes);
  for (uint16 i = 0; i < turns; ++i) {
    const Mask valid = plt<int32>(count);
    vlds(position, positions + i * kF32Lanes);
    vcmps<Cmp::kGe>(is_bad, position, limit, valid);
    vci(place, i * kF32Lanes);
    vsel(place, place, none, is_bad);
    vmin(lowest, lowest, place, all);
  }
  vcmin(lowest, lowest, all);
  vst_first(first, lowest);
}

struct Expansion {
  const ExpandToFusedArgs& args;
  const ExpandToFusedShape& shape;
  Ub<int32> owners;     // of the positions at hand: an entry, or -1
  Ub<int32> experts;    // of the same
  Ub<int32> positions;  // of a batch of entries
  Ub<int32> picked;
  Ub<int32> counts;
  Ub<int32> bad;
  Ub<uint8> zeros;
  Ring<uint8, Pipe::kMte2, Pipe::kMte3>& slots;
  int64 begin;    // positions at hand
  int64 end;      // where their rows end …
  int64 sf_end;   // … and their scaling factors, padding included
  bool is_first;  // whether this core reads the entries for the first time
  uint64 fault = numerics::kNoFault;

  TILEKERNELS_CORE void find_owners() {
    if (!is_first) hand_back();
    vf_call<fill<int32>>("fill", owners, -1, static_cast<uint32>(sf_end - begin));
    if (end > begin) copy_in(experts, gm(args.pos_to_expert + begin), {1, (end - begin) * 4});
    const int64 entries = args.num_tokens * shape.num_topk;
    if (entries == 0) {
      wait_for<Pipe::kV, Pipe::kS>();
    }
    for (int64 first = 0; first < entries; first += kBatch) {
      if (first > 0) hand_back();
      const int64 count = numerics::min_of<int64>(kBatch, entries - first);
      copy_in(positions, gm(args.token_topk_to_pos + first), {1, count * 4});
      wait_for<Pipe::kMte2, Pipe::kV>();
      const auto lanes = static_cast<uint32>(count);
      vf_call<pick>("pick", picked, counts, positions, static_cast<int32>(begin),
                    static_cast<int32>(end), lanes);
      const bool judges = is_first && first / kBatch % block_num() == block_idx();
      if (judges) {
        vf_call<find_bad>("find_bad", bad, positions, static_cast<int32>(args.num_expanded), lanes);
      }
      wait_for<Pipe::kV, Pipe::kS>();
      if (judges) judge(first);
      for (int64 i = 0; i < numerics::ceil_div(count, kF32Lanes); ++i) {
        const int32 found = get_value(counts, i);
        for (int32 k = 0; k < found; ++k) {
          const int32 place = get_value(picked, i * kF32Lanes + k);
          const int64 at = get_value(positions, place) - begin;
          if (get_value(experts, at) >= 0) {
            set_value(owners, at, static_cast<int32>(first) + place);
          }
        }
      }
    }
  }

  // What the scalar unit has read may be written again.
  TILEKERNELS_CORE void hand_back() {
    wait_for<Pipe::kS, Pipe::kMte2>();
    wait_for<Pipe::kS, Pipe::kV>();
  }

  TILEKERNELS_CORE void judge(int64 first) {
    const int32 place = get_value(bad, 0);
    if (place == kNoEntry) return;
    const int64 token = (first + place) / shape.num_topk;
    note_fault(&fault, token, expand_op_id(shape), numerics::kFaultPositionOutOfRange);
  }

  TILEKERNELS_CORE int64 token_of(int64 pos) {
    const int32 owner = get_value(owners, pos - begin);
    return owner < 0 ? -1 : owner / shape.num_topk;
  }

  TILEKERNELS_CORE void zero(uint8* to, int64 bytes) {
    for (int64 done = 0; done < bytes; done += kSlotBytes) {
      copy_out(gm(to + done), zeros, {1, numerics::min_of<int64>(kSlotBytes, bytes - done)});
    }
  }

  TILEKERNELS_CORE void move(uint8* to, const uint8* from, int64 bytes) {
    for (int64 done = 0; done < bytes; done += kSlotBytes) {
      const CopyShape piece{1, numerics::min_of<int64>(kSlotBytes, bytes - done)};
      copy_in(slots.fill(), gm(from + done), piece);
      slots.filled();
      copy_out(gm(to + done), slots.empty(), piece);
      slots.emptied();
    }
  }

  // Rows that follow each other, of any token or of none.
  TILEKERNELS_CORE void move_rows() {
    for (int64 pos = begin; pos < end;) {
      const int64 token = token_of(pos);
      uint8* const to = args.out + pos * shape.row_bytes;
      if (token >= 0) {
        move(to, args.x + token * args.x_stride, shape.row_bytes);
        ++pos;
        continue;
      }
      int64 last = pos + 1;
      while (last < end && get_value(owners, last - begin) < 0) ++last;
      zero(to, (last - pos) * shape.row_bytes);
      pos = last;
    }
  }

  TILEKERNELS_CORE void move_sf() {
    const int64 word_bytes = shape.sf_word_bytes;
    const bool in_rows = args.sf.col_stride == word_bytes && args.out_sf.col_stride == word_bytes;
    for (int64 pos = begin; pos < sf_end; ++pos) {
      const int64 token = token_of(pos);
      uint8* const to = args.out_sf.base + pos * args.out_sf.row_stride;
      const uint8* const from = args.sf.base + token * args.sf.row_stride;
      if (in_rows && token >= 0) {
        move(to, from, shape.sf_words * word_bytes);
        continue;
      }
      for (int64 done = 0; done < shape.sf_words; done += kSlotWords) {
        const int64 count = numerics::min_of<int64>(kSlotWords, shape.sf_words - done);
        const CopyShape out{count, word_bytes, args.out_sf.col_stride, kBlockBytes};
        uint8* const there = to + done * args.out_sf.col_stride;
        if (token < 0) {
          copy_out(gm(there), zeros, out);
          continue;
        }
        copy_in(slots.fill(), gm(from + done * args.sf.col_stride),
                {count, word_bytes, args.sf.col_stride, kBlockBytes});
        slots.filled();
        copy_out(gm(there), slots.empty(), out);
        slots.emptied();
      }
    }
  }
};

TILEKERNELS_CORE void run(const ExpandToFusedArgs& args, const ExpandToFusedShape& shape) {
  prologue();
  MutexPool pool;
  Ring<uint8, Pipe::kMte2, Pipe::kMte3> slots(pool, "rows", kStages, kSlotBytes);
  const Ub<uint8> zeros = ub_alloc<uint8>("zeros", kSlotBytes);
  const Ub<int32> owners = ub_alloc<int32>("owners", kPositions);
  const Ub<int32> experts = ub_alloc<int32>("pos_to_expert", kPositions);
  const Ub<int32> positions = ub_alloc<int32>("token_topk_to_pos", kBatch);
  const Ub<int32> picked = ub_alloc<int32>("picked", kBatch);
  const Ub<int32> counts = ub_alloc<int32>("counts", kBatch / kF32Lanes);
  const Ub<int32> bad = ub_alloc<int32>("bad", kBlockBytes / 4);
  vf_call<fill<int32>>("fill", as_ub<int32>(zeros), 0, static_cast<uint32>(kSlotBytes / 4));
  wait_for<Pipe::kV, Pipe::kMte3>();
  const int64 share = numerics::ceil_div(args.padded_expanded, block_num());
  const int64 first = numerics::min_of(args.padded_expanded, block_idx() * share);
  const int64 last = numerics::min_of(args.padded_expanded, first + share);
  Expansion expansion{args, shape, owners, experts, positions, picked, counts,
                      bad,  zeros, slots,  first,   first,     first,  true};
  do {
    const int64 begin = expansion.sf_end;
    expansion.begin = begin;
    expansion.sf_end = numerics::min_of(last, begin + kPositions);
    expansion.end = numerics::max_of(begin, numerics::min_of(args.num_expanded, expansion.sf_end));
    expansion.find_owners();
    expansion.move_rows();
    if (shape.sf_words > 0) expansion.move_sf();
    expansion.is_first = false;
  } while (expansion.sf_end < last);
  report_fault(args.fault, expansion.fault);
  barrier_all();
}

}  // namespace tilekernels::ascend::expand_to_fused_kernel
