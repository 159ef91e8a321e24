// get_fused_mapping on host threads: parts of the entries are counted apart, so that each part
// knows its positions and all can be placed at once.
#include <algorithm>
#include <cstddef>
#include <vector>

#include "numerics/divide.h"
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
  numerics::Divisor topk;
  // By part and slot: entries, then the next position. Slot 0 is that of -1, then come those of the
  // experts, the last one is that of all that is out of range: so no entry needs a branch, which
  // nobody could predict.
  std::vector<int64> places;

  std::size_t num_slots() const { return static_cast<std::size_t>(shape.num_experts) + 2; }
  static std::size_t slot(int64 index, std::size_t last) {
    return std::min(static_cast<std::size_t>(index) + 1, last);
  }
  int64* of_part(int64 i) { return places.data() + static_cast<std::size_t>(i) * num_slots(); }
  int64 end_of(int64 i) const { return std::min(args.num_entries, (i + 1) * part); }

  void report(int64 entry, int32 kind) const {
    note_fault(args.fault, entry / shape.num_topk, kGetFusedMappingId, kind);
  }

  void count(int64 which) {
    int64* const counts = of_part(which);
    // Copies, which no store may have changed.
    const int64* const topk_idx = args.topk_idx;
    const int64 begin = which * part;
    const int64 end = end_of(which);
    const std::size_t last = num_slots() - 1;
    for (int64 i = begin; i < end; ++i) ++counts[slot(topk_idx[i], last)];
    if (counts[last] == 0) return;
    int64 bad = begin;
    while (slot(topk_idx[bad], last) < last) ++bad;
    report(bad, numerics::kFaultIndexOutOfRange);
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
        int64& place = of_part(which)[expert + 1];
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
    int64* const next = of_part(which);
    const int64* const topk_idx = args.topk_idx;
    int32* const token_topk_to_pos = args.token_topk_to_pos;
    int32* const pos_to_token_topk = args.pos_to_token_topk;
    const int64 num_expanded = args.num_expanded;
    const int64 end = end_of(which);
    const std::size_t last = num_slots() - 1;
    next[0] = next[last] = num_expanded;  // no position
    int32 nowhere = 0;
    for (int64 i = which * part; i < end; ++i) {
      const int64 pos = next[slot(topk_idx[i], last)]++;
      const bool has_place = pos < num_expanded;
      token_topk_to_pos[i] = has_place ? static_cast<int32>(pos) : -1;
      int32* const entry = has_place ? pos_to_token_topk + pos : &nowhere;
      *entry = static_cast<int32>(i);
    }
    if (first_cut < shape.num_experts) report_cut(which, first_cut);
  }

  // The first entry of a segment that does not fit.
  void report_cut(int64 which, int32 first_cut) const {
    for (int64 i = which * part; i < end_of(which); ++i) {
      if (routed_expert(args.topk_idx[i], shape.num_experts) < first_cut) continue;
      return report(i, numerics::kFaultPositionOutOfRange);
    }
  }

  // The other arrays of an expert's positions follow.
  void complete(int32 expert) const {
    const int64 end = args.psum_num_tokens_per_expert[expert];
    for (int64 pos = args.expert_start[expert]; pos < end; ++pos) {
      args.pos_to_expert[pos] = expert;
      args.pos_to_token[pos] = static_cast<int32>(
          numerics::quotient(static_cast<uint32>(args.pos_to_token_topk[pos]), topk));
    }
  }
};

}  // namespace

void get_fused_mapping(const GetFusedMappingArgs& args, const GetFusedMappingShape& shape,
                       const Launch&) {
  // Counts weigh less than entries.
  const int64 part = std::max<int64>(kPartEntries, 4 * int64{shape.num_experts});
  const int64 num_parts = std::max<int64>(1, numerics::ceil_div(args.num_entries, part));
  Mapping mapping{args, shape, part, num_parts, numerics::divisor_of(shape.num_topk), {}};
  mapping.places.resize(static_cast<std::size_t>(num_parts) * mapping.num_slots());
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
