// get_fused_mapping on host threads: parts of the entries are counted apart, so that each part
// knows its positions and all can be placed at once.
#include <algorithm>
#include <cstddef>
#include <vector>

#include "ops/moe/get_fused_mapping/op.h"
#include "runtime/cpu/fault.h"
#include "runtime/cpu/parallel.h"

namespace tilekernels::cpu {
namespace {

constexpr int64 kPartEntries = 1 << 14;
constexpr double kNanosecondsPerEntry = 1.5;

struct Mapping {
  const GetFusedMappingArgs& args;
  const GetFusedMappingShape& shape;
  int64 part;  // entries
  int64 num_parts;
  std::vector<int64> places;  // by part and expert: entries, then the next position

  int64* of_part(int64 i) { return places.data() + i * shape.num_experts; }
  int64 end_of(int64 i) const { return std::min(args.num_entries, (i + 1) * part); }

  void report(int64 entry, int32 kind) const {
    note_fault(args.fault, entry / shape.num_topk, kGetFusedMappingId, kind);
  }

  void count(int64 which) {
    int64* counts = of_part(which);
    int64 bad = args.num_entries;
    for (int64 i = end_of(which) - 1; i >= which * part; --i) {
      const int32 expert = routed_expert(args.topk_idx[i], shape.num_experts);
      if (expert >= 0) {
        ++counts[expert];
      } else if (is_bad_index(args.topk_idx[i], shape.num_experts)) {
        bad = i;
      }
    }
    if (bad < args.num_entries) report(bad, numerics::kFaultIndexOutOfRange);
  }

  void pad(int64 begin, int64 end) const {
    begin = std::min(begin, args.num_expanded);
    end = std::min(end, args.num_expanded);
    for (int32* of : {args.pos_to_expert, args.pos_to_token, args.pos_to_token_topk}) {
      std::fill(of + begin, of + end, -1);
    }
  }

  // Lays the segments out; returns where the last one ends, and the first expert whose segment does
  // not fit in `first_cut`.
  int64 lay_out(int32& first_cut) {
    int64 start = 0;
    first_cut = shape.num_experts;
    for (int32 expert = 0; expert < shape.num_experts; ++expert) {
      int64 next = start;
      for (int64 which = 0; which < num_parts; ++which) {
        int64& place = of_part(which)[expert];
        const int64 count = place;
        place = next;
        next += count;
      }
      const int64 end = start + numerics::align_up(next - start, args.alignment);
      args.expert_start[expert] = clipped(start, args.num_expanded);
      args.expert_end[expert] = clipped(end, args.num_expanded);
      args.num_tokens_per_expert[expert] = static_cast<int32>(end - start);
      args.psum_num_tokens_per_expert[expert] = clipped(next, args.num_expanded);
      pad(next, end);
      if (end > args.num_expanded) first_cut = std::min(first_cut, expert);
      start = end;
    }
    return start;
  }

  // Scatters into one array alone, of which the lines in use stay in the nearest cache.
  void place(int64 which, int32 first_cut) {
    int64* next = of_part(which);
    int64 bad = args.num_entries;
    for (int64 i = which * part; i < end_of(which); ++i) {
      const int32 expert = routed_expert(args.topk_idx[i], shape.num_experts);
      args.token_topk_to_pos[i] = -1;
      if (expert < 0) continue;
      const int64 pos = next[expert]++;
      if (expert >= first_cut) bad = std::min(bad, i);
      if (pos >= args.num_expanded) continue;
      args.token_topk_to_pos[i] = static_cast<int32>(pos);
      args.pos_to_token_topk[pos] = static_cast<int32>(i);
    }
    if (bad < args.num_entries) report(bad, numerics::kFaultPositionOutOfRange);
  }

  // The other arrays of an expert's positions follow.
  void complete(int32 expert) const {
    const auto topk = static_cast<uint32>(shape.num_topk);
    for (int64 pos = args.expert_start[expert]; pos < args.psum_num_tokens_per_expert[expert];
         ++pos) {
      args.pos_to_expert[pos] = expert;
      args.pos_to_token[pos] =
          static_cast<int32>(static_cast<uint32>(args.pos_to_token_topk[pos]) / topk);
    }
  }
};

}  // namespace

void get_fused_mapping(const GetFusedMappingArgs& args, const GetFusedMappingShape& shape,
                       const Launch&) {
  // Counts weigh less than entries.
  const int64 part = std::max<int64>(kPartEntries, 4 * int64{shape.num_experts});
  const int64 num_parts = std::max<int64>(1, numerics::ceil_div(args.num_entries, part));
  Mapping mapping{args, shape, part, num_parts,
                  std::vector<int64>(static_cast<std::size_t>(num_parts * shape.num_experts))};
  const int64 parts_per_thread = items_per_thread(kNanosecondsPerEntry * static_cast<double>(part));
  parallel_for(num_parts, parts_per_thread, [&](int64 begin, int64 end) {
    for (int64 which = begin; which < end; ++which) mapping.count(which);
  });
  int32 first_cut = 0;
  const int64 used = mapping.lay_out(first_cut);
  parallel_for(num_parts, parts_per_thread, [&](int64 begin, int64 end) {
    for (int64 which = begin; which < end; ++which) mapping.place(which, first_cut);
  });
  const double nanoseconds = 5.0 + static_cast<double>(args.num_entries) / shape.num_experts;
  parallel_for(shape.num_experts, items_per_thread(nanoseconds), [&](int64 begin, int64 end) {
    for (int64 expert = begin; expert < end; ++expert) {
      mapping.complete(static_cast<int32>(expert));
    }
  });
  const int64 tail = std::max<int64>(0, args.num_expanded - used);
  parallel_for(tail, items_per_thread(1.0),
               [&](int64 begin, int64 end) { mapping.pad(used + begin, used + end); });
}

}  // namespace tilekernels::cpu
