// get_fused_mapping on the vector core: a stable counting sort in two launches. A core has a part
// of the entries, or only padding to write: first it counts them by expert, then it knows from all
// parts' counts where its own go. The scalar unit sorts; entries of one expert leave together.
#pragma once

#include "ops/moe/get_fused_mapping/op.h"
#include "runtime/ascend/composites.h"
#include "runtime/ascend/faults.h"
#include "runtime/ascend/ring.h"

namespace tilekernels::ascend::get_fused_mapping_kernel {

constexpr int32 kBatch = 512;        // entries at a time
constexpr int32 kLayOutBatch = 256;  // experts whose results are written at a time
constexpr int32 kPadBatch = 1024;    // -1 of one copy
constexpr int32 kBlockWords = kBlockBytes / 4;

// Entries of one expert start at a data block, for the copies.
constexpr int64 sorted_words(int64 num_experts) {
  return kBatch + (kBlockWords - 1) * numerics::min_of<int64>(num_experts, kBatch);
}

// Bytes of UB that `place` takes, readable tails included.
constexpr int64 ub_bytes(int64 num_experts) {
  constexpr int64 kTail = kVectorBytes;
  const int64 by_expert = numerics::align_up(num_experts * 4, kBlockBytes) + kTail;
  const int64 sorted = numerics::align_up(sorted_words(num_experts) * 4, kBlockBytes) + kTail;
  constexpr int64 kBatches = kBatch * (8 + 4) + 4 * kLayOutBatch * 4 + kPadBatch * 4 + kBlockBytes;
  return 5 * by_expert + 3 * sorted + kBatches + 8 * kTail;
}

// Adds a row of counts to the totals.
TILEKERNELS_VF void add(Ub<int32> totals, Ub<int32> counts, uint32 count) {
  Reg<int32> total;
  Reg<int32> more;
  const auto turns = static_cast<uint16>((count + kF32Lanes - 1) / kF32Lanes);
  for (uint16 i = 0; i < turns; ++i) {
    const Mask valid = plt<int32>(count);
    vlds(total, totals + i * kF32Lanes);
    vlds(more, counts + i * kF32Lanes);
    vadd(total, total, more, valid);
    mem_bar<Bar::kVldVst>();
    vsts(totals + i * kF32Lanes, total, valid);
  }
}

TILEKERNELS_CORE void add_one(Ub<int32> at, int64 i) { set_value(at, i, get_value(at, i) + 1); }

// ------------------------------ first launch

TILEKERNELS_CORE void count(const GetFusedMappingArgs& args, const GetFusedMappingShape& shape) {
  prologue();
  const Ub<int64> indices = ub_alloc<int64>("topk_idx", kBatch);
  const Ub<int32> counts = ub_alloc<int32>("counts", shape.num_experts);
  vf_call<fill<int32>>("fill", counts, 0, static_cast<uint32>(shape.num_experts));
  wait_for<Pipe::kV, Pipe::kS>();
  const int64 begin = block_idx() * args.part;
  const int64 end = numerics::min_of(args.num_entries, begin + args.part);
  for (int64 first = begin; first < end; first += kBatch) {
    const int64 size = numerics::min_of<int64>(kBatch, end - first);
    if (first != begin) {
      wait_for<Pipe::kS, Pipe::kMte2>();
    }
    copy_in(indices, gm(args.topk_idx + first), {1, size * 8});
    wait_for<Pipe::kMte2, Pipe::kS>();
    for (int64 i = 0; i < size; ++i) {
      const int32 expert = routed_expert(get_value(indices, i), shape.num_experts);
      if (expert >= 0) add_one(counts, expert);
    }
  }
  wait_for<Pipe::kS, Pipe::kMte3>();
  copy_out(gm(args.counts + block_idx() * shape.num_experts), counts,
           {1, shape.num_experts * int64{4}});
  barrier_all();
}

// ------------------------------ second launch

struct Placing {
  const GetFusedMappingArgs& args;
  const GetFusedMappingShape& shape;
  Ub<int32> totals;  // later: entries of a batch
  Ub<int32> next;    // position of this core's next entry; counts of the cores before at first
  Ub<int32> slots;   // where a batch's entries of an expert begin, then end
  Ub<int32> minus_one;
  int32 first_cut;
  uint64 fault;

  TILEKERNELS_CORE void report(int64 entry, int32 kind) {
    note_fault(&fault, entry / shape.num_topk, kGetFusedMappingId, kind);
  }

  TILEKERNELS_CORE void pad(int64 begin, int64 end) {
    for (int64 pos = begin; pos < end; pos += kPadBatch) {
      const CopyShape piece{1, numerics::min_of<int64>(kPadBatch, end - pos) * 4};
      copy_out(gm(args.pos_to_expert + pos), minus_one, piece);
      copy_out(gm(args.pos_to_token + pos), minus_one, piece);
      copy_out(gm(args.pos_to_token_topk + pos), minus_one, piece);
    }
  }

  TILEKERNELS_CORE void add_counts() {
    MutexPool pool;
    InRing<int32> rows(pool, "counts", 2, shape.num_experts);
    const auto experts = static_cast<uint32>(shape.num_experts);
    vf_call<fill<int32>>("fill", totals, 0, experts);
    vf_call<fill<int32>>("fill", next, 0, experts);
    vf_call<fill<int32>>("fill", minus_one, -1, static_cast<uint32>(kPadBatch));
    const int64 parts = numerics::max_of(int64{1}, numerics::ceil_div(args.num_entries, args.part));
    pipeline(
        2, 0, parts, 1,
        [&](int64 part) {
          copy_in(rows.fill(), gm(args.counts + part * shape.num_experts),
                  {1, shape.num_experts * int64{4}});
          rows.filled();
        },
        [&](int64 part) {
          const Ub<int32> row = rows.empty();
          vf_call<add>("add", totals, row, experts);
          if (part < block_idx()) vf_call<add>("add", next, row, experts);
          rows.emptied();
        });
    wait_for<Pipe::kV, Pipe::kS>();
    wait_for<Pipe::kV, Pipe::kMte3>();
  }

  // Lays the segments out: positions of all cores, and by turns padding; the first core writes what
  // belongs to experts.
  TILEKERNELS_CORE void lay_out() {
    const Ub<int32> starts = ub_alloc<int32>("expert_start", kLayOutBatch);
    const Ub<int32> ends = ub_alloc<int32>("expert_end", kLayOutBatch);
    const Ub<int32> sizes = ub_alloc<int32>("num_tokens_per_expert", kLayOutBatch);
    const Ub<int32> psums = ub_alloc<int32>("psum_num_tokens_per_expert", kLayOutBatch);
    const bool writes = block_idx() == 0;
    int64 start = 0;
    first_cut = shape.num_experts;
    for (int32 first = 0; first < shape.num_experts; first += kLayOutBatch) {
      const int32 size = numerics::min_of(kLayOutBatch, shape.num_experts - first);
      if (writes && first != 0) {
        wait_for<Pipe::kMte3, Pipe::kS>();
      }
      for (int32 i = 0; i < size; ++i) {
        const int32 expert = first + i;
        const int64 entries = get_value(totals, expert);
        const int64 end = start + numerics::align_up(entries, args.alignment);
        set_value(next, expert, clipped(start + get_value(next, expert), args.num_expanded));
        if (end > args.num_expanded) first_cut = numerics::min_of(first_cut, expert);
        if (writes) {
          set_value(starts, i, clipped(start, args.num_expanded));
          set_value(ends, i, clipped(end, args.num_expanded));
          set_value(sizes, i, static_cast<int32>(end - start));
          set_value(psums, i, clipped(start + entries, args.num_expanded));
        }
        if (expert % block_num() == block_idx()) {
          pad(clipped(start + entries, args.num_expanded), clipped(end, args.num_expanded));
        }
        start = end;
      }
      if (!writes) continue;
      wait_for<Pipe::kS, Pipe::kMte3>();
      const CopyShape batch{1, size * int64{4}};
      copy_out(gm(args.expert_start + first), starts, batch);
      copy_out(gm(args.expert_end + first), ends, batch);
      copy_out(gm(args.num_tokens_per_expert + first), sizes, batch);
      copy_out(gm(args.psum_num_tokens_per_expert + first), psums, batch);
    }
    const int64 rest = args.num_expanded - clipped(start, args.num_expanded);
    const int64 share = numerics::ceil_div(rest, block_num());
    const int64 from = numerics::min_of(rest, block_idx() * share);
    pad(args.num_expanded - rest + from,
        args.num_expanded - rest + numerics::min_of(rest, from + share));
  }

  // Of a batch, how many entries every expert has and where its sorted ones begin.
  TILEKERNELS_CORE void sort_out(Ub<int64> indices, int64 first, int64 size) {
    for (int32 expert = 0; expert < shape.num_experts; ++expert) set_value(totals, expert, 0);
    for (int64 i = 0; i < size; ++i) {
      const int64 index = get_value(indices, i);
      const int32 expert = routed_expert(index, shape.num_experts);
      if (expert >= 0) {
        add_one(totals, expert);
      } else if (is_bad_index(index, shape.num_experts)) {
        report(first + i, numerics::kFaultIndexOutOfRange);
      }
    }
    int32 slot = 0;
    for (int32 expert = 0; expert < shape.num_experts; ++expert) {
      set_value(slots, expert, slot);
      slot += static_cast<int32>(numerics::align_up(get_value(totals, expert), kBlockWords));
    }
  }

  TILEKERNELS_CORE void place_entries() {
    const int64 words = sorted_words(shape.num_experts);
    const Ub<int64> indices = ub_alloc<int64>("topk_idx", kBatch);
    const Ub<int32> places = ub_alloc<int32>("token_topk_to_pos", kBatch);
    const Ub<int32> experts = ub_alloc<int32>("pos_to_expert", words);
    const Ub<int32> tokens = ub_alloc<int32>("pos_to_token", words);
    const Ub<int32> entries = ub_alloc<int32>("pos_to_token_topk", words);
    const int64 begin = block_idx() * args.part;
    const int64 end = numerics::min_of(args.num_entries, begin + args.part);
    for (int64 first = begin; first < end; first += kBatch) {
      const int64 size = numerics::min_of<int64>(kBatch, end - first);
      if (first != begin) {
        wait_for<Pipe::kS, Pipe::kMte2>();
        wait_for<Pipe::kMte3, Pipe::kS>(1);
      }
      copy_in(indices, gm(args.topk_idx + first), {1, size * 8});
      wait_for<Pipe::kMte2, Pipe::kS>();
      sort_out(indices, first, size);
      for (int64 i = 0; i < size; ++i) {
        const int32 expert = routed_expert(get_value(indices, i), shape.num_experts);
        if (expert < 0) {
          set_value(places, i, -1);
          continue;
        }
        const int64 pos = static_cast<uint32>(get_value(next, expert));  // below 2^32
        const int32 slot = get_value(slots, expert);
        add_one(slots, expert);
        set_value(next, expert, static_cast<int32>(static_cast<uint32>(pos) + 1));
        set_value(places, i, pos < args.num_expanded ? static_cast<int32>(pos) : -1);
        set_value(experts, slot, expert);
        set_value(tokens, slot, static_cast<int32>((first + i) / shape.num_topk));
        set_value(entries, slot, static_cast<int32>(first + i));
        if (expert >= first_cut) report(first + i, numerics::kFaultPositionOutOfRange);
      }
      wait_for<Pipe::kS, Pipe::kMte3>(1);
      copy_out(gm(args.token_topk_to_pos + first), places, {1, size * 4});
      for (int32 expert = 0; expert < shape.num_experts; ++expert) {
        const int32 of_batch = get_value(totals, expert);
        if (of_batch == 0) continue;
        const int64 pos = static_cast<uint32>(get_value(next, expert)) - int64{of_batch};
        const int64 fit = numerics::min_of<int64>(of_batch, args.num_expanded - pos);
        if (fit <= 0) continue;
        const int32 slot = get_value(slots, expert) - of_batch;
        const CopyShape run{1, fit * 4};
        copy_out(gm(args.pos_to_expert + pos), experts + slot, run);
        copy_out(gm(args.pos_to_token + pos), tokens + slot, run);
        copy_out(gm(args.pos_to_token_topk + pos), entries + slot, run);
      }
    }
  }
};

TILEKERNELS_CORE void place(const GetFusedMappingArgs& args, const GetFusedMappingShape& shape) {
  prologue();
  const Ub<int32> totals = ub_alloc<int32>("totals", shape.num_experts);
  const Ub<int32> next = ub_alloc<int32>("next positions", shape.num_experts);
  const Ub<int32> slots = ub_alloc<int32>("slots", shape.num_experts);
  const Ub<int32> minus_one = ub_alloc<int32>("minus one", kPadBatch);
  Placing placing{args, shape, totals, next, slots, minus_one, 0, numerics::kNoFault};
  placing.add_counts();
  placing.lay_out();
  placing.place_entries();
  report_fault(args.fault, placing.fault);
  barrier_all();
}

// What a launch does
constexpr int32 kCount = 0;
constexpr int32 kPlace = 1;

struct Tile {
  int32 phase;  // one of the above
};

TILEKERNELS_CORE void run(const GetFusedMappingArgs& args, const GetFusedMappingShape& shape,
                          const Tile& tile) {
  if (tile.phase == kCount) {
    count(args, shape);
  } else {
    place(args, shape);
  }
}

}  // namespace tilekernels::ascend::get_fused_mapping_kernel
