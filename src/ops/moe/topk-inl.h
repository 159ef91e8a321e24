// The largest scores of a row on SIMD lanes: a lower bound of the row's K-th best score leaves few
// candidates, and each candidate's rank among them is its slot.
//
// The columns of a row fall into groups, by column modulo the number of groups. The K-th largest
// of the group maxima is a bound: K groups hold a score that is not below it. With twice as many
// groups as slots about 1.4 K scores pass. Rows with many more (long ties), and rows with a score
// that is not finite, go through an insertion that assumes nothing.
#include <algorithm>
#include <cstddef>
#include <limits>

#if defined(TILEKERNELS_OPS_MOE_TOPK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TILEKERNELS_OPS_MOE_TOPK_INL_H_
#undef TILEKERNELS_OPS_MOE_TOPK_INL_H_
#else
#define TILEKERNELS_OPS_MOE_TOPK_INL_H_
#endif

#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "numerics/topk_key.h"
#include "ops/moe/common.h"

HWY_BEFORE_NAMESPACE();
namespace tilekernels::cpu::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

static_assert(HWY_NATIVE_FMA);

constexpr int32 kMaxLanes = 16;
using DF = hn::CappedTag<float, kMaxLanes>;
using DI = hn::RebindToSigned<DF>;
constexpr DF kF;
constexpr DI kI;
using VF = hn::Vec<DF>;
using VI = hn::Vec<DI>;
constexpr int32 kLanes = static_cast<int32>(hn::MaxLanes(kF));

// Columns compared with the bound in one step: whole bytes of bits.
constexpr int32 kStep = kLanes < 8 ? 8 : kLanes;
// Candidates are ranked by batches of kStep when one is enough, of kBatch otherwise: trip counts
// that hardly vary are predicted branches.
constexpr int32 kBatch = 16;
static_assert(kBatch % kStep == 0);
// Beyond so many candidates the row is inserted.
constexpr int32 kMaxCandidates = 6 * kBatch;
// Columns that one pass compares: those of a few short rows, or a strip of a long one.
constexpr int32 kStrip = 4096;
constexpr int32 kMaxRows = 8;
// A candidate's key where there is none: below every finite score's.
constexpr int32 kNoKey = numerics::kTopkNan;

struct Row {
  const float* scores;
  int64* topk_idx;
  bool is_finite;        // set by selections that check
  int32 num_candidates;  // more than kMaxCandidates: not to be ranked
  float bound;
  // A word of up to 64 columns, and its last kAtOnce entries, are appended unchecked.
  int32 candidates[kMaxCandidates + 64 + 8];
  alignas(64) float candidate_scores[kMaxCandidates];
  alignas(64) int32 ranks[kMaxCandidates];
  int64 by_rank[kMaxCandidates];
};

struct Scratch {
  uint64 passing[kStrip / 64];
  Row rows[kMaxRows];
};

// The first num elements, which may be none or more than there are lanes; touches no others.
VF load_tail(const float* from, int64 num, float otherwise) {
#if HWY_MEM_OPS_MIGHT_FAULT && HWY_TARGET != HWY_AVX2  // which masks loads of 4 bytes
  float tail[kLanes];
  for (int32 i = 0; i < kLanes; ++i) tail[i] = i < num ? from[i] : otherwise;
  return hn::LoadU(kF, tail);
#else
  const auto valid = hn::FirstN(kF, static_cast<size_t>(std::max<int64>(num, 0)));
  return hn::IfThenElse(valid, hn::MaskedLoad(valid, kF, from), hn::Set(kF, otherwise));
#endif
}

VI keys_of(VF scores) {
  const VI bits = hn::BitCast(kI, hn::Add(scores, hn::Zero(kF)));  // -0 becomes +0
  return hn::Xor(bits, hn::And(hn::ShiftRight<31>(bits), hn::Set(kI, 0x7FFFFFFF)));
}

// Adds one where the mask holds.
VI count(VI num, hn::Mask<DI> mask) {
  // AVX-512 adds under a mask in one instruction; elsewhere a mask is a vector of minus ones.
  if constexpr (kLanes == 16) return hn::IfThenElse(mask, hn::Add(num, hn::Set(kI, 1)), num);
  return hn::Sub(num, hn::VecFromMask(kI, mask));
}

// The K-th largest of the maxima of kVectors * kLanes groups of columns. False when there is none:
// with kCheck where a score is not finite; without it, where no score may be NaN, when it is -Inf.
template <bool kCheck, int32 kVectors>
bool find_bound(const float* scores, int32 num_experts, int32 num_topk, float* bound) {
  const VF lowest = hn::Set(kF, -std::numeric_limits<float>::infinity());
  const VI magnitude = hn::Set(kI, 0x7FFFFFFF);
  VF maxima[kVectors];
  VI largest[2] = {hn::Zero(kI), hn::Zero(kI)};
  for (VF& maximum : maxima) maximum = lowest;

  int64 column = 0;
  for (; column + kVectors * kLanes <= num_experts; column += kVectors * kLanes) {
    for (int32 v = 0; v < kVectors; ++v) {
      const VF x = hn::LoadU(kF, scores + column + v * kLanes);
      maxima[v] = hn::Max(maxima[v], x);
      if (kCheck) largest[v % 2] = hn::Max(largest[v % 2], hn::And(hn::BitCast(kI, x), magnitude));
    }
  }
  for (int32 v = 0; v < kVectors && column < num_experts; ++v, column += kLanes) {
    const int64 num = num_experts - column;
    // Padding is the lowest finite number for the test of magnitudes, and harmless as a maximum:
    // a group that holds nothing else is not counted among num_topk <= num_experts groups.
    const VF x = num >= kLanes ? hn::LoadU(kF, scores + column)
                               : load_tail(scores + column, num, -numerics::kFloatMax);
    maxima[v] = hn::Max(maxima[v], x);
    if (kCheck) largest[0] = hn::Max(largest[0], hn::And(hn::BitCast(kI, x), magnitude));
  }
  const VI inf = hn::Set(kI, static_cast<int32>(numerics::kInfBits));
  if (kCheck && !hn::AllTrue(kI, hn::Lt(hn::Max(largest[0], largest[1]), inf))) return false;

  alignas(64) float values[kVectors * kLanes];
  for (int32 v = 0; v < kVectors; ++v) hn::Store(maxima[v], kF, values + v * kLanes);
  VI num_greater[kVectors];
  for (VI& num : num_greater) num = hn::Zero(kI);
  for (int32 i = 0; i < kVectors * kLanes; ++i) {
    const VF value = hn::Set(kF, values[i]);
    for (int32 v = 0; v < kVectors; ++v) {
      num_greater[v] = count(num_greater[v], hn::RebindMask(kI, hn::Gt(value, maxima[v])));
    }
  }
  VF least = hn::Set(kF, std::numeric_limits<float>::infinity());
  for (int32 v = 0; v < kVectors; ++v) {
    const auto is_top = hn::Lt(num_greater[v], hn::Set(kI, num_topk));
    least = hn::Min(least, hn::IfThenElse(hn::RebindMask(kF, is_top), maxima[v],
                                          hn::Set(kF, std::numeric_limits<float>::infinity())));
  }
  *bound = hn::GetLane(hn::MinOfLanes(kF, least));
  return kCheck || *bound >= -numerics::kFloatMax;
}

// Notes kStep columns; x_upper are the upper ones when a vector holds fewer.
void note_vectors(VF x, VF x_upper, VF bound, uint8* bits) {
  hn::StoreMaskBits(kF, hn::Ge(x, bound), bits);
  if constexpr (kLanes == 4) {
    uint8 upper = 0;
    hn::StoreMaskBits(kF, hn::Ge(x_upper, bound), &upper);
    *bits = static_cast<uint8>(*bits | upper << 4);
  }
}

// Notes in one bit a column which of num_columns <= kStrip scores are not below the bound.
void note_passing(const float* scores, int32 num_columns, float bound, uint64* passing) {
  constexpr float kLowest = -std::numeric_limits<float>::infinity();
  constexpr int32 kUpper = kStep - kLanes;
  const VF least = hn::Set(kF, bound);
  uint8* bits = reinterpret_cast<uint8*>(passing);
  if (num_columns % 64 != 0) passing[num_columns / 64] = 0;
  int32 column = 0;
#pragma GCC unroll 4
  for (; column + kStep <= num_columns; column += kStep) {
    const float* at = scores + column;
    note_vectors(hn::LoadU(kF, at), hn::LoadU(kF, at + kUpper), least, bits + column / 8);
  }
  if (const int32 num = num_columns - column; num > 0) {
    const float* at = scores + column;
    note_vectors(load_tail(at, num, kLowest), load_tail(at + kUpper, num - kUpper, kLowest), least,
                 bits + column / 8);
  }
}

// Appends the noted columns, first_column and up, to the row's candidates. kAtOnce columns of a
// word are appended whether there are as many or not, so that few branches are mispredicted.
template <int32 kAtOnce>
void gather_candidates(const uint64* passing, int32 num_columns, int64 first_column, Row& row) {
  int32 num = row.num_candidates;
  for (int32 column = 0; column < num_columns && num <= kMaxCandidates; column += 64) {
    uint64 word = passing[column / 64];
    int32* to = row.candidates + num;
    const int32 base = static_cast<int32>(first_column) + column;
    num += __builtin_popcountl(word);
    do {
      for (int32 i = 0; i < kAtOnce; ++i) {
        // The highest bit keeps the count of an empty word defined.
        to[i] = base + __builtin_ctzl(word | uint64{1} << 63);
        word &= word - 1;
      }
      to += kAtOnce;
    } while (word != 0);
  }
  row.num_candidates = num;
}

// Fetches the candidates' scores; the last batch is filled up with column 0.
template <int32 kSize>
void fetch_scores(Row& row) {
  for (int32 i = 0; i < kSize; ++i) row.candidates[row.num_candidates + i] = 0;
  for (int32 i = 0; i < row.num_candidates; i += kSize) {
    for (int32 k = i; k < i + kSize; ++k) {
      row.candidate_scores[k] = row.scores[row.candidates[k]];
    }
  }
}

// From element 15 - k on: -1 where the lane's number is greater than k.
alignas(64) constexpr int32 kIsLater[32] = {0,  0,  0,  0,  0,  0,  0,  0,  0,  0,  0,
                                            0,  0,  0,  0,  0,  -1, -1, -1, -1, -1, -1,
                                            -1, -1, -1, -1, -1, -1, -1, -1, -1, -1};

// Each candidate's rank among them is its slot: keys descending, then columns ascending.
template <int32 kSize>
void rank_candidates(Row& row) {
  constexpr int32 kVectors = kSize / kLanes;
  alignas(64) int32 keys[kMaxCandidates];
  const VI lane = hn::Iota(kI, 0);
  const VI num_candidates = hn::Set(kI, row.num_candidates);
  const int32 num = static_cast<int32>(numerics::align_up(row.num_candidates, kSize));
  for (int32 i = 0; i < num; i += kLanes) {
    const auto is_there = hn::Lt(hn::Add(lane, hn::Set(kI, i)), num_candidates);
    const VI key = keys_of(hn::Load(kF, row.candidate_scores + i));
    hn::Store(hn::IfThenElse(is_there, key, hn::Set(kI, kNoKey)), kI, keys + i);
  }
  for (int32 i = 0; i < num; i += kSize) {
    VI key[kVectors];
    VI rank[kVectors];
    for (int32 v = 0; v < kVectors; ++v) {
      key[v] = hn::Load(kI, keys + i + v * kLanes);
      rank[v] = hn::Zero(kI);
    }
    for (int32 batch = 0; batch < num; batch += kSize) {
      // Candidates of earlier columns go before equal keys, those of later ones after them.
      const VI before = hn::Set(kI, batch < i ? -1 : 0);
#pragma GCC unroll 16
      for (int32 k = 0; k < kSize; ++k) {
        const VI other = hn::Set(kI, keys[batch + k]);
        for (int32 v = 0; v < kVectors; ++v) {
          const VI later = batch == i ? hn::LoadU(kI, kIsLater + 15 - k + v * kLanes) : before;
          rank[v] = count(rank[v], hn::Gt(other, hn::Add(key[v], later)));
        }
      }
    }
    for (int32 v = 0; v < kVectors; ++v) hn::Store(rank[v], kI, row.ranks + i + v * kLanes);
  }
}

// Asks for a row that comes later, while there is other work than loading.
void prefetch_row(const float* scores, int32 num_experts) {
  constexpr int32 kLineFloats = 16;
  for (int32 i = 0; i < num_experts; i += kLineFloats) hwy::Prefetch(scores + i);
}

void sort_candidates(Row& row) {
  for (int32 i = 0; i < row.num_candidates; i += kStep) {
    for (int32 k = i; k < i + kStep; ++k) row.by_rank[row.ranks[k]] = row.candidates[k];
  }
}

// Any row: each column in turn is inserted into the sorted slots, if it is better than the last.
void insert_row(const Row& row, int32 num_experts, int32 num_topk) {
  int32 keys[kWeightSlots];
  for (int32 slot = 0; slot < num_topk; ++slot) keys[slot] = numerics::kTopkTaken;
  for (int32 column = 0; column < num_experts; ++column) {
    const int32 key = numerics::topk_key(row.scores[column]);
    int32 slot = num_topk - 1;
    if (key <= keys[slot]) continue;
    for (; slot > 0 && key > keys[slot - 1]; --slot) {
      keys[slot] = keys[slot - 1];
      row.topk_idx[slot] = row.topk_idx[slot - 1];
    }
    keys[slot] = key;
    row.topk_idx[slot] = column;
  }
}

// How many rows are selected together: several, so that the processor has them to overlap.
int64 rows_at_once(int32 num_experts) {
  const int64 words = numerics::ceil_div(std::min(num_experts, kStrip), 64);
  return std::min<int64>(kMaxRows, kStrip / 64 / words);
}

// Each kind of work over all rows. `to_prefetch` elements behind a row lies the one to ask for, 0
// for none.
template <bool kCheck, int32 kVectors, int32 kAtOnce>
void select_by(Scratch& scratch, int32 num_rows, int32 num_experts, int32 num_topk,
               int64 to_prefetch) {
  const int32 words = static_cast<int32>(numerics::ceil_div(std::min(num_experts, kStrip), 64));
  for (int32 r = 0; r < num_rows; ++r) {
    Row& row = scratch.rows[r];
    row.num_candidates = 0;
    row.is_finite = find_bound<kCheck, kVectors>(row.scores, num_experts, num_topk, &row.bound);
    if (!row.is_finite) {
      row.num_candidates = kMaxCandidates + 1;
      row.bound = 0;
    }
  }
  for (int64 strip = 0; strip < num_experts; strip += kStrip) {
    const int32 num_columns = static_cast<int32>(std::min<int64>(num_experts - strip, kStrip));
    for (int32 r = 0; r < num_rows; ++r) {
      const Row& row = scratch.rows[r];
      note_passing(row.scores + strip, num_columns, row.bound, scratch.passing + r * words);
    }
    for (int32 r = 0; r < num_rows; ++r) {
      if (to_prefetch > 0) prefetch_row(scratch.rows[r].scores + to_prefetch, num_experts);
      gather_candidates<kAtOnce>(scratch.passing + r * words, num_columns, strip, scratch.rows[r]);
    }
  }
  for (int32 r = 0; r < num_rows; ++r) {
    Row& row = scratch.rows[r];
    // Where scores are -Inf, padding may have been the bound.
    if (!kCheck && row.num_candidates < num_topk) row.num_candidates = kMaxCandidates + 1;
    if (row.num_candidates <= kStep) {
      fetch_scores<kStep>(row);
    } else if (row.num_candidates <= kMaxCandidates) {
      fetch_scores<kBatch>(row);
    }
  }
  for (int32 r = 0; r < num_rows; ++r) {
    Row& row = scratch.rows[r];
    if (row.num_candidates <= kStep) {
      rank_candidates<kStep>(row);
    } else if (row.num_candidates <= kMaxCandidates) {
      rank_candidates<kBatch>(row);
    }
  }
  for (int32 r = 0; r < num_rows; ++r) {
    Row& row = scratch.rows[r];
    if (row.num_candidates <= kMaxCandidates) sort_candidates(row);
  }
  for (int32 r = 0; r < num_rows; ++r) {
    const Row& row = scratch.rows[r];
    if (row.num_candidates <= kMaxCandidates) {
      std::copy_n(row.by_rank, num_topk, row.topk_idx);
    } else {
      insert_row(row, num_experts, num_topk);
    }
  }
}

// The num_topk best columns of the first num_rows <= rows_at_once(num_experts) rows, whose scores
// and topk_idx are set.
template <bool kCheck>
void select_rows(Scratch& scratch, int32 num_rows, int32 num_experts, int32 num_topk,
                 int64 to_prefetch) {
  const auto select = num_topk > 16       ? select_by<kCheck, 64 / kLanes, 4>
                      : num_topk > 8      ? select_by<kCheck, 32 / kLanes, 4>
                      : num_experts > 128 ? select_by<kCheck, 16 / kLanes, 4>
                                          : select_by<kCheck, 16 / kLanes, 8>;
  select(scratch, num_rows, num_experts, num_topk, to_prefetch);
}

}  // namespace
// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace tilekernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
