// moe_topk_gate on CUDA: a warp a row. Scores that need not be stored are approximated first; the
// few experts that may be among the best by them are scored exactly, and each counts those that
// rank before it, which is its place in the result.
#include "ops/moe/moe_topk_gate/op.h"
#include "ops/moe/moe_topk_gate/tile.h"
#include "runtime/cuda/device/fault.cuh"
#include "runtime/cuda/device/grid.cuh"
#include "runtime/cuda/device/math.cuh"
#include "runtime/cuda/device/memory.cuh"
#include "runtime/cuda/device/topk.cuh"

namespace tilekernels {

constexpr MoeTopkGateShape kShape = TILEKERNELS_SHAPE;
constexpr MoeTopkGateTile kTile = TILEKERNELS_TILE;

constexpr int32 kExperts = kShape.num_experts;
constexpr int32 kTopk = kShape.num_topk;
constexpr int32 kSlots = kTopk + kShape.num_shared;
constexpr int32 kLogical = kExperts + kShape.num_shared;
constexpr bool kIsSoftmax = kShape.scoring == kScoringSoftmax;
constexpr bool kIsSigmoid = kShape.scoring == kScoringSigmoid;
constexpr bool kHasBias = kShape.has_bias || kShape.has_image_bias;

constexpr int32 kWidth = kTile.width;
constexpr int32 kStep = kWidth * device::kWarpLanes;
constexpr int32 kLoads = static_cast<int32>(numerics::ceil_div(kExperts, kStep));
// Longer rows are loaded again for every look.
constexpr bool kIsHeld = kLoads * kWidth <= 32;
constexpr int32 kHeld = kIsHeld ? kLoads : 1;
constexpr int32 kHeldUnroll = kIsHeld ? kLoads : 1;

// Room for candidates: random scores have about kTopk of them.
constexpr int32 kRoom = kTopk <= 8 ? 64 : 192;
constexpr int32 kUnroll = 4;  // of the comparisons
// A warp that has its multiprocessor for itself: few steps in a row rather than few instructions.
constexpr bool kIsAlone = kTile.warps == 1;

constexpr int32 kGroups = kShape.num_groups;
constexpr int32 kGroupSize = kGroups > 0 ? kExperts / kGroups : 1;
constexpr int32 kGroupLanes = numerics::max_of(kGroupSize / kWidth, 1);
// A group is some neighbouring lanes of one load; or of several, over which it goes on.
constexpr bool kGroupsAreLanes = kIsHeld && kGroupSize % kWidth == 0 && kGroupSize <= kStep &&
                                 (kGroupSize & (kGroupSize - 1)) == 0;
constexpr bool kGroupsAreRuns =
    kGroups > 0 && kIsHeld && !kGroupsAreLanes && kGroupSize % kWidth == 0 && kLoads <= 8;

// The first look takes approximate scores. They err by kError at most, and what is added to them
// rounds: the threshold of the first look is lower by that, twice.
constexpr bool kIsApproximate = !kIsSoftmax && !kShape.has_scores && kGroups == 0;
constexpr float kError =
    kIsSigmoid ? device::kSigmoidApproxError : device::kSqrtSoftplusApproxError;
constexpr float kMargin = kIsApproximate ? 2 * kError : 0x1p-30f;
constexpr float kRelativeMargin = 0x1p-20f;
constexpr float kUnit =  // of the scores of the first look
    kIsApproximate && !kIsSigmoid ? device::kSqrtSoftplusApproxUnit : 1.0f;
// Only rows with lesser squares of logits, added up in a lane, are in the range of the first look.
constexpr float kMaxSquares = !kIsApproximate && kIsSigmoid
                                  ? device::kSigmoidRange * device::kSigmoidRange
                                  : numerics::kFloatMax;

// Blocks of a multiprocessor: with 64 registers a thread short rows need no more than they get.
constexpr int32 kMinBlocks = kTile.warps > 1 && kLoads* kWidth <= 16 ? 4 : 1;

constexpr float kInf = numerics::bit_cast<float>(numerics::kInfBits);

using Scores = device::Words<kWidth * 4>;

struct alignas(16) Room {
  uint64 rankings[kRoom + kUnroll];   // of the candidates; or, of few, what ranks them
  uint32 elements[kRoom];             // the candidates, by element of a lane and lane
  uint64 chosen[device::kWarpLanes];  // expert and score by slot; or sums of groups
  // The two largest z of each lane and load
  float largest[kGroupsAreRuns ? kLoads * device::kWarpLanes : 1][2];
};

// A token of its own expert selection.
struct Row {
  const float* logits;
  const float* bias;  // may be null
  int64 token;
  float largest;  // logit, and the sum of exponentials: of kScoringSoftmax
  float sum;
};

inline bool has_bias(const Row& row) {
  return kShape.has_bias || (kShape.has_image_bias && row.bias != nullptr);
}

// The first expert of load `i` of this lane.
inline uint32 first_expert(uint32 i) { return i * kStep + device::lane_id() * kWidth; }

inline bool exists(uint32 i) {
  return kExperts % kStep == 0 || first_expert(i) < static_cast<uint32>(kExperts);
}

inline float number(const Scores& scores, int32 j) {
  return numerics::bit_cast<float>(scores.words[j]);
}

// Experts beyond the row read as 0.
inline Scores load(const float* row, uint32 i) {
  if (exists(i)) return device::load<kWidth * 4>(row + first_expert(i));
  return {};
}

inline Scores load_bias(const Row& row, uint32 i) {
  if (has_bias(row)) return load(row.bias, i);
  return {};
}

// ------------------------------ exact, for any logit

inline float score_of(const Row& row, float logit) {
  if (kIsSoftmax) return numerics::exp_f32(logit - row.largest) / row.sum;
  return kIsSigmoid ? numerics::sigmoid(logit) : numerics::sqrt_softplus(logit);
}

// What selection sees of an expert.
inline float ranked(const Row& row, float logit, float score, uint32 expert) {
  const float x = kIsSoftmax ? logit : score;
  return has_bias(row) ? x + row.bias[expert] : x;
}

// score_of for the logits of a regular row.
inline float regular_score_of(const Row& row, float logit) {
  if (kIsSoftmax) return device::exp_of_small(logit - row.largest) / row.sum;
  if (!kIsSigmoid) return device::sqrt_softplus(logit);
  return fabsf(logit) <= device::kSigmoidRange ? device::sigmoid(logit) : numerics::sigmoid(logit);
}

inline float ranked(const Row& row, uint32 expert) {
  const float logit = row.logits[expert];
  return ranked(row, logit, kIsSoftmax ? 0.0f : score_of(row, logit), expert);
}

// ------------------------------ sums of rows (numerics/row_sum.h)

constexpr int32 kBlockLoads = numerics::min_of(kLoads, numerics::kRowPartials / kStep);

// Neighbours are added pairwise, level by level.
template <int32 kCount>
inline float sum_of_neighbours(const float* x) {
  if constexpr (kCount == 1) {
    return x[0];
  } else {
    return sum_of_neighbours<kCount / 2>(x) + sum_of_neighbours<kCount / 2>(x + kCount / 2);
  }
}

// Largest logit and sum of exponentials; `kIsRegular`: all logits are finite.
template <bool kIsRegular>
inline void add_up(Row& row, const Scores* held) {
  int32 key = numerics::kTopkTaken;
  if constexpr (kIsRegular) {
    float largest = -kInf;
#pragma unroll(kHeldUnroll)
    for (int32 i = 0; i < kLoads; ++i) {
      const Scores logits = kIsHeld ? held[i] : load(row.logits, i);
      if (!exists(i)) continue;
#pragma unroll
      for (int32 j = 0; j < kWidth; ++j) largest = fmaxf(largest, number(logits, j));
    }
    key = numerics::topk_key_of_number(largest);
  } else {
#pragma unroll 1
    for (uint32 e = device::lane_id(); e < kExperts; e += device::kWarpLanes) {
      key = numerics::max_of(key, numerics::topk_key(row.logits[e]));
    }
  }
  key = __reduce_max_sync(device::kAllLanes, key);
  row.largest =
      key == numerics::kTopkNan ? numerics::kCanonicalNan : numerics::number_of_topk_key(key);

  float partials[kBlockLoads][kWidth] = {};
#pragma unroll 1
  for (int32 first = 0; first < kLoads; first += kBlockLoads) {
#pragma unroll
    for (int32 i = 0; i < kBlockLoads; ++i) {
      if (kLoads % kBlockLoads != 0 && first + i >= kLoads) break;
      if (!exists(first + i)) continue;
      const Scores logits = kIsHeld && kIsRegular ? held[i] : load(row.logits, first + i);
#pragma unroll
      for (int32 j = 0; j < kWidth; ++j) {
        const float x = number(logits, j) - row.largest;
        partials[i][j] += kIsRegular ? device::exp_of_small(x) : numerics::exp_f32(x);
      }
    }
  }
  constexpr int32 kSums = power_of_two_from(kBlockLoads);
  float sums[kSums] = {};
#pragma unroll
  for (int32 i = 0; i < kBlockLoads; ++i) sums[i] = sum_of_neighbours<kWidth>(partials[i]);
#pragma unroll
  for (int32 step = 1; step < device::kWarpLanes; step *= 2) {
#pragma unroll
    for (int32 i = 0; i < kBlockLoads; ++i) {
      sums[i] += __shfl_xor_sync(device::kAllLanes, sums[i], step);
    }
  }
  row.sum = sum_of_neighbours<kSums>(sums) + 0.0f;
}

// ------------------------------ groups

// Bit g: group g takes part, from the key of the sum of each group in the lane of its number.
inline uint32 best_groups(int32 key) {
  const uint32 lane = device::lane_id();
  int32 before = 0;
#pragma unroll
  for (int32 g = 0; g < kGroups; ++g) {
    const int32 other = __shfl_sync(device::kAllLanes, key, g);
    before += other > key || (other == key && g < static_cast<int32>(lane));
  }
  return __ballot_sync(device::kAllLanes,
                       static_cast<int32>(lane) < kGroups && before < kShape.num_topk_groups);
}

inline bool is_in(uint32 groups, uint32 expert) {
  return kGroups == 0 || (groups >> (expert / kGroupSize) & 1) != 0;
}

// Any row: a lane a group.
inline uint32 best_groups_of_any(const Row& row) {
  int32 key = numerics::kTopkTaken;
  if (static_cast<int32>(device::lane_id()) < kGroups) {
    const uint32 begin = device::lane_id() * kGroupSize;
    float first = ranked(row, begin);
    float second = ranked(row, begin + 1);
    if (numerics::topk_key(second) > numerics::topk_key(first)) {
      const float swapped = first;
      first = second;
      second = swapped;
    }
#pragma unroll 1
    for (uint32 e = begin + 2; e < begin + kGroupSize; ++e) {
      const float next = ranked(row, e);
      const int32 next_key = numerics::topk_key(next);
      if (next_key > numerics::topk_key(first)) {
        second = first;
        first = next;
      } else if (next_key > numerics::topk_key(second)) {
        second = next;
      }
    }
    key = numerics::topk_key(first + second);
  }
  return best_groups(key);
}

// The two largest of some values.
struct Pair {
  float first;
  float second;
};

inline Pair larger(Pair a, Pair b) {
  return {fmaxf(a.first, b.first), fmaxf(fminf(a.first, b.first), fmaxf(a.second, b.second))};
}

inline Pair largest_of(const float (&z)[kWidth]) {
  Pair pair{z[0], -kInf};
#pragma unroll
  for (int32 j = 1; j < kWidth; ++j) {
    pair = {fmaxf(pair.first, z[j]), fmaxf(pair.second, fminf(pair.first, z[j]))};
  }
  return pair;
}

// The values z of a regular row in the order of its loads.
inline uint32 best_groups_of_held(const float (&z)[kHeld][kWidth], Room& room) {
  const uint32 lane = device::lane_id();
  int32 key = numerics::kTopkTaken;
  if constexpr (kGroupsAreLanes) {
    float* sums = reinterpret_cast<float*>(room.chosen);
#pragma unroll
    for (uint32 i = 0; i < kHeld; ++i) {
      Pair pair = largest_of(z[i]);
#pragma unroll
      for (int32 step = 1; step < kGroupLanes; step *= 2) {
        pair = larger(pair, {__shfl_xor_sync(device::kAllLanes, pair.first, step),
                             __shfl_xor_sync(device::kAllLanes, pair.second, step)});
      }
      if (lane % kGroupLanes == 0 && exists(i)) {
        sums[first_expert(i) / kGroupSize] = pair.first + pair.second;
      }
    }
    __syncwarp();
    if (static_cast<int32>(lane) < kGroups) key = numerics::topk_key(sums[lane]);
  } else {
#pragma unroll
    for (uint32 i = 0; i < kHeld; ++i) {
      const Pair pair = largest_of(z[i]);
      room.largest[i * device::kWarpLanes + lane][0] = pair.first;
      room.largest[i * device::kWarpLanes + lane][1] = pair.second;
    }
    __syncwarp();
    if (static_cast<int32>(lane) < kGroups) {
      Pair pair{-kInf, -kInf};
#pragma unroll 4
      for (uint32 i = lane * kGroupLanes; i < (lane + 1) * kGroupLanes; ++i) {
        pair = larger(pair, {room.largest[i][0], room.largest[i][1]});
      }
      key = numerics::topk_key(pair.first + pair.second);
    }
  }
  __syncwarp();
  return best_groups(key);
}

// ------------------------------ selection

// Any row: the expert that ranks next after the last one, kTopk times. Lane k gets the k-th.
inline uint32 select_one_by_one(const Row& row, uint32 groups) {
  uint32 chosen = 0;
  uint64 last = ~uint64{0};
#pragma unroll 1
  for (int32 k = 0; k < kTopk; ++k) {
    uint64 next = 0;
#pragma unroll 1
    for (uint32 e = device::lane_id(); e < kExperts; e += device::kWarpLanes) {
      if (!is_in(groups, e)) continue;
      const uint64 ranking = device::ranking(numerics::topk_key(ranked(row, e)), e);
      if (ranking < last && ranking > next) next = ranking;
    }
    last = device::warp_max(next);
    if (static_cast<int32>(device::lane_id()) == k) chosen = device::ranked_index(last);
  }
  return chosen;
}

// What a lane knows of the row after the first look.
struct Look {
  float largest;  // of z; NaN if one is
  float squares;  // of logits
};

// z of one load: by approximate scores, or by exact ones, which go to `scores`. All logits are in
// range, or the result is not used.
inline void look(const Scores& logits, const Scores& bias, uint32 i, float (&z)[kWidth],
                 float (&scores)[kWidth]) {
#pragma unroll
  for (int32 j = 0; j < kWidth; ++j) {
    const float x = number(logits, j);
    if constexpr (kIsSoftmax) {
      scores[j] = x;
    } else if constexpr (kIsApproximate) {
      scores[j] = kIsSigmoid ? device::sigmoid_approx(x) : device::sqrt_softplus_approx(x);
    } else {
      scores[j] = kIsSigmoid ? device::sigmoid(x) : device::sqrt_softplus(x);
    }
    if constexpr (kUnit != 1.0f) {
      z[j] = numerics::fma_rn(scores[j], kUnit, number(bias, j));
    } else {
      z[j] = kHasBias ? scores[j] + number(bias, j) : scores[j];
    }
    if (!exists(i)) z[j] = -kInf;
  }
}

// What at least kTopk elements reach, and few more; or NaN or -Inf.
inline float threshold_of(float largest) {
  constexpr int32 kParts = power_of_two_from(kTopk);
  if constexpr (kIsAlone && kParts > 1 && kParts < device::kWarpLanes) {
    // The least maximum of kParts groups of lanes, of neighbours or of those that lie apart
    float near = largest;
    float apart = largest;
#pragma unroll
    for (int32 step = 1; step < device::kWarpLanes / kParts; step *= 2) {
      near = fmaxf(near, __shfl_xor_sync(device::kAllLanes, near, step));
      apart = fmaxf(apart, __shfl_xor_sync(device::kAllLanes, apart, step * kParts));
    }
    const float threshold = numerics::number_of_topk_key(numerics::max_of(
        __reduce_min_sync(device::kAllLanes, numerics::topk_key_of_number(near)),
        __reduce_min_sync(device::kAllLanes, numerics::topk_key_of_number(apart))));
    if (threshold > -kInf) return threshold;
  }
  return device::topk_threshold<kTopk>(largest);
}

// Puts the experts whose z reaches the threshold into the room; returns how many there are, or, if
// the room does not take them, any larger number than it takes.
inline int32 gather_candidates(const Row& row, const float (&held)[kHeld][kWidth], uint32 groups,
                               float threshold, Room& room) {
  const uint32 lane = device::lane_id();
  constexpr int32 kBlock = numerics::min_of(kLoads, 32 / kWidth);  // a bit an element
  int32 count = 0;
#pragma unroll 1
  for (int32 first = 0; first < kLoads; first += kBlock) {
    uint32 mask = 0;
#pragma unroll
    for (int32 i = 0; i < kBlock; ++i) {
      if (kLoads % kBlock != 0 && first + i >= kLoads) break;
      float z[kWidth];
      float scores[kWidth];
      if constexpr (!kIsHeld) {
        look(load(row.logits, first + i), load_bias(row, first + i), first + i, z, scores);
      }
#pragma unroll
      for (int32 j = 0; j < kWidth; ++j) {
        bool is_candidate = (kIsHeld ? held[i][j] : z[j]) >= threshold;
        if (!kIsHeld && kGroups > 0) is_candidate &= is_in(groups, first_expert(first + i) + j);
        if (is_candidate) mask |= 1u << (i * kWidth + j);
      }
    }
    // Where a lane's candidates go: behind those of the lanes below it. Few lanes have more than 3.
    const auto mine = static_cast<uint32>(__popc(static_cast<int32>(mask)));
    auto place = static_cast<uint32>(count);
#pragma unroll
    for (int32 bit = 0; 1 << bit <= kBlock * kWidth; ++bit) {
      if (bit == 2 && !__any_sync(device::kAllLanes, mine > 3)) break;
      const uint32 lanes = __ballot_sync(device::kAllLanes, (mine >> bit & 1) != 0);
      place += static_cast<uint32>(__popc(lanes & ((1u << lane) - 1))) << bit;
      count += __popc(lanes) << bit;
    }
    if (count > kRoom) return count;
#pragma unroll 1
    while (mask != 0) {
      const uint32 bit = 31 - static_cast<uint32>(__clz(static_cast<int32>(mask)));
      room.elements[place++] = (first * kWidth + bit) * device::kWarpLanes + lane;
      mask ^= 1u << bit;
    }
  }
  return count;
}

inline uint32 expert_of(uint32 element) {
  const uint32 lane = element % device::kWarpLanes;
  const uint32 number = element / device::kWarpLanes;
  return number / kWidth * kStep + lane * kWidth + number % kWidth;
}

struct Choice {
  int64 expert;  // -1: none
  float score;
};

inline uint64 pack(uint32 expert, float score) {
  return static_cast<uint64>(numerics::bit_cast<uint32>(score)) << 32 | expert;
}

inline Choice chosen_of_lane(const Room& room) {
  if (device::lane_id() >= kTopk) return {-1, 0.0f};
  const uint64 chosen = room.chosen[device::lane_id()];
  return {static_cast<uint32>(chosen),
          numerics::bit_cast<float>(static_cast<uint32>(chosen >> 32))};
}

// Puts the kTopk best of any number of candidates into the room.
inline void rank_candidates(const Row& row, int32 count, Room& room) {
  const auto lane = static_cast<int32>(device::lane_id());
#pragma unroll 1
  for (int32 i = lane; i < count; i += device::kWarpLanes) {
    const uint32 expert = expert_of(room.elements[i]);
    const float logit = row.logits[expert];
    const float z = ranked(row, logit, kIsSoftmax ? 0.0f : regular_score_of(row, logit), expert);
    room.rankings[i] = device::ranking(numerics::topk_key_of_number(z), expert);
  }
  if (lane < kUnroll) room.rankings[count + lane] = 0;
  __syncwarp();
#pragma unroll 1
  for (int32 i = lane; i < count; i += device::kWarpLanes) {
    const uint64 mine = room.rankings[i];
    int32 place = 0;
#pragma unroll 1
    for (int32 other = 0; other < count; other += kUnroll) {
#pragma unroll
      for (int32 k = 0; k < kUnroll; ++k) place += room.rankings[other + k] > mine;
    }
    if (place < kTopk) {
      const uint32 expert = device::ranked_index(mine);
      room.chosen[place] = pack(expert, regular_score_of(row, row.logits[expert]));
    }
  }
}

// The same of at most a candidate a lane; false where some rank alike.
inline bool rank_few_candidates(const Row& row, int32 count, Room& room) {
  const auto lane = static_cast<int32>(device::lane_id());
  const bool is_candidate = lane < count;
  const uint32 expert = is_candidate ? expert_of(room.elements[lane]) : 0;
  const float logit = row.logits[expert];
  const float score = regular_score_of(row, logit);
  const float z = ranked(row, logit, score, expert);
  float* all = reinterpret_cast<float*>(room.rankings);
  all[lane] = is_candidate ? z : -kInf;
  __syncwarp();
  constexpr float kZero = 0x1p23f;  // from which on the lowest bits are the number
  float places[kUnroll] = {kZero, 0.0f, 0.0f, 0.0f};
#pragma unroll(kIsAlone ? device::kWarpLanes / kUnroll : 1)
  for (int32 other = 0; other < (kIsAlone ? device::kWarpLanes : count); other += kUnroll) {
#pragma unroll
    for (int32 k = 0; k < kUnroll; ++k) places[k] += device::is_greater(all[other + k], z);
  }
  const float place = places[0] + ((places[1] + places[2]) + places[3]);
  const uint32 before = numerics::bit_cast<uint32>(place) - numerics::bit_cast<uint32>(kZero);
  // Each pair was counted once, unless some are equal.
  const uint32 pairs = __reduce_add_sync(device::kAllLanes, is_candidate ? before : 0);
  if (pairs != static_cast<uint32>(count * (count - 1) / 2)) {
    __syncwarp();
    return false;
  }
  if (is_candidate && before < kTopk) room.chosen[before] = pack(expert, score);
  return true;
}

// ------------------------------ outputs

inline void store_slot(const MoeTopkGateArgs& args, int64 token, int64 expert, float weight) {
  const int64 place = token * kSlots + device::lane_id();
  args.topk_idx[place] = expert;
  args.topk_weights[place] = weight;
}

// What a row without routed experts leaves in its other outputs.
inline void clear(const MoeTopkGateArgs& args, int64 token) {
  if (kShape.has_unmapped && device::lane_id() < kTopk) {
    args.unmapped_topk_idx[token * args.unmapped_stride + device::lane_id()] = -1;
  }
  if (kShape.has_scores) {
#pragma unroll 1
    for (uint32 e = device::lane_id(); e < kExperts; e += device::kWarpLanes) {
      args.scores[token * kExperts + e] = 0.0f;
    }
  }
}

inline void draw_experts(const MoeTopkGateArgs& args, int64 token) {
  const auto lane = static_cast<int32>(device::lane_id());
  int32 num_physical = kLogical;
  bool is_bad = false;
  if constexpr (kShape.has_map) {
    num_physical = 0;
#pragma unroll 1
    for (int32 i = lane; i < kLogical; i += device::kWarpLanes) {
      const int32 count = args.logical_count[i];
      is_bad |= count < 1 || count > kShape.num_copies;
      num_physical += numerics::min_of(numerics::max_of(count, 0), kShape.num_copies);
    }
    num_physical =
        static_cast<int32>(__reduce_add_sync(device::kAllLanes, static_cast<uint32>(num_physical)));
  }
  is_bad = __any_sync(device::kAllLanes, is_bad) || num_physical < kSlots;
  if (is_bad && lane == 0) {
    device::note_fault(args.fault, token, args.op_id, numerics::kFaultCountOutOfRange);
  }
  const bool has_id = lane < numerics::min_of(kSlots, num_physical);
  const RandomDraw draw = random_draw(args.ep_rank, token, lane);
  // Of the slots that wait: the lowest id goes to the first that wants it, later ones move up.
  constexpr uint32 kDone = ~uint32{0};
  uint32 wanted = has_id ? draw.number % static_cast<uint32>(num_physical - lane) : kDone;
  int64 id = -1;
#pragma unroll 1
  for (int32 k = 0; k < kSlots; ++k) {
    const uint32 lowest = __reduce_min_sync(device::kAllLanes, wanted);
    const uint32 lanes = __ballot_sync(device::kAllLanes, wanted == lowest);
    const int32 first = __ffs(static_cast<int32>(lanes)) - 1;
    if (wanted == kDone) continue;
    if (lane == first) {
      id = wanted;
      wanted = kDone;
    } else if (lane > first) {
      ++wanted;
    }
  }
  if (lane < kSlots) store_slot(args, token, id, has_id ? draw.weight : 0.0f);
}

// Where a logical expert lies.
inline int64 physical(const MoeTopkGateArgs& args, int64 token, int64 expert) {
  int64 id = expert;
  if (kShape.has_map && expert >= 0) {
    const int32 count = args.logical_count[expert];
    id = -1;
    if (count < 1 || count > kShape.num_copies) {
      device::note_fault(args.fault, token, args.op_id, numerics::kFaultCountOutOfRange);
    } else {
      const int32 copy = choose_copy(args.ep_rank, token, count);
      id = args.to_physical_map[expert * kShape.num_copies + copy];
      if (id < 0) {
        device::note_fault(args.fault, token, args.op_id, numerics::kFaultPositionOutOfRange);
        id = -1;
      }
    }
  }
  if (!kShape.has_tp) return id;
  return mask_by_tp(id, args.experts_per_rank, args.tp_rank, args.num_tp_ranks);
}

// Weights and ids from the choice of each lane.
inline void store_choices(const MoeTopkGateArgs& args, int64 token, Choice choice, bool is_fixed) {
  const auto lane = static_cast<int32>(device::lane_id());
  if (lane >= kTopk) choice.score = 0.0f;
  float weight = choice.score;
  if constexpr (kShape.norm_topk_prob) {
    float sum = choice.score;
#pragma unroll
    for (int32 step = power_of_two_from(kTopk) / 2; step > 0; step /= 2) {
      sum += __shfl_xor_sync(device::kAllLanes, sum, step);
    }
    weight = choice.score / (sum + kWeightEpsilon);
  }
  weight = lane < kTopk ? weight * args.routed_scaling_factor : 1.0f;
  if (lane >= kSlots) return;
  if (kShape.has_unmapped && !is_fixed && lane < kTopk) {
    args.unmapped_topk_idx[token * args.unmapped_stride + lane] = choice.expert;
  }
  const int64 expert = lane < kTopk ? choice.expert : kExperts + (lane - kTopk);
  store_slot(args, token, physical(args, token, expert), numerics::canonical(weight));
}

// ------------------------------ a row

template <bool kIsRegular>
inline Choice fixed_choice(const MoeTopkGateArgs& args, const Row& row) {
  if (device::lane_id() >= kTopk) return {-1, 0.0f};
  const int64 expert = args.unmapped_topk_idx[row.token * args.unmapped_stride + device::lane_id()];
  if (expert < 0 || expert >= kExperts) {
    device::note_fault(args.fault, row.token, args.op_id, numerics::kFaultIndexOutOfRange);
    return {-1, 0.0f};
  }
  const float logit = row.logits[expert];
  return {expert, kIsRegular ? regular_score_of(row, logit) : score_of(row, logit)};
}

// Any row, in full.
inline void route_any(const MoeTopkGateArgs& args, Row& row, bool is_fixed) {
  if constexpr (kIsSoftmax && kIsHeld) add_up<false>(row, nullptr);
  bool has_infinite = false;
  bool has_nan = false;
#pragma unroll 1
  for (uint32 e = device::lane_id(); e < kExperts; e += device::kWarpLanes) {
    const float logit = row.logits[e];
    const float score = kIsSoftmax && !kShape.has_scores ? 0.0f : score_of(row, logit);
    has_infinite |= !numerics::is_finite(logit);
    has_nan |= numerics::is_nan(ranked(row, logit, score, e));
    if (kShape.has_scores) args.scores[row.token * kExperts + e] = numerics::canonical(score);
  }
  if (has_infinite) {
    device::note_fault(args.fault, row.token, args.op_id, numerics::kFaultNotFinite);
  }
  if (has_nan && !is_fixed) {
    device::note_fault(args.fault, row.token, args.op_id, numerics::kFaultNan);
  }
  __syncwarp();
  Choice choice;
  if (is_fixed) {
    choice = fixed_choice<false>(args, row);
  } else {
    const uint32 groups = kGroups > 0 ? best_groups_of_any(row) : ~0u;
    const uint32 expert = select_one_by_one(row, groups);
    choice = {expert, score_of(row, row.logits[expert])};
  }
  store_choices(args, row.token, choice, is_fixed);
}

inline void moe_topk_gate(const MoeTopkGateArgs& args) {
  __shared__ Room rooms[kTile.warps];
  const uint32 warp = threadIdx.x / device::kWarpLanes;
  const int64 token = int64{blockIdx.x} * (blockDim.x / device::kWarpLanes) + warp;
  if (token >= args.num_tokens) return;
  device::wait_for_predecessor();
  Room& room = rooms[warp];
  Row row{args.logits + token * kExperts, kShape.has_bias ? args.bias : nullptr, token, 0.0f, 0.0f};

  Scores logits[kHeld];
  if constexpr (kIsHeld) {
#pragma unroll
    for (uint32 i = 0; i < kLoads; ++i) logits[i] = load(row.logits, i);
  }
  if (kShape.has_image_bias && args.image_token_mask[token]) row.bias = args.image_bias;
  Scores bias[kHeld];
  if constexpr (kIsHeld) {
#pragma unroll
    for (uint32 i = 0; i < kLoads; ++i) bias[i] = load_bias(row, i);
  }
  const bool is_fixed = kShape.has_fixed && args.fix_routing_mask[token];
  if (kShape.has_mask && !args.mask[token]) {
    if (device::lane_id() < kSlots) store_slot(args, token, -1, 0.0f);
    return clear(args, token);
  }
  if (kShape.has_random && args.force_random[token]) {
    draw_experts(args, token);
    return clear(args, token);
  }

  float z[kHeld][kWidth];
  float scores[kHeld][kWidth];
  float squares = 0.0f;
  float largest = -kInf;
#pragma unroll(kHeldUnroll)
  for (uint32 i = 0; i < kLoads; ++i) {
    const uint32 at = kIsHeld ? i : 0;
    if constexpr (!kIsHeld) {
      logits[0] = load(row.logits, i);
      bias[0] = load_bias(row, i);
    }
    look(logits[at], bias[at], i, z[at], scores[at]);
#pragma unroll
    for (int32 j = 0; j < kWidth; ++j) {
      const float x = number(logits[at], j);
      squares = numerics::fma_rn(x, x, squares);
      largest = device::max_or_nan(largest, z[at][j]);
    }
  }
  if constexpr (kIsSoftmax && !kIsHeld) add_up<false>(row, nullptr);
  const bool is_regular = squares <= kMaxSquares && (is_fixed || largest < kInf);
  if (!__all_sync(device::kAllLanes, is_regular)) return route_any(args, row, is_fixed);
  if constexpr (kIsSoftmax && kIsHeld) add_up<true>(row, logits);

  Choice choice;
  if (is_fixed) {
    choice = fixed_choice<true>(args, row);
  } else {
    uint32 groups = ~0u;
    if constexpr (kGroups > 0) {
      groups = kGroupsAreLanes || kGroupsAreRuns ? best_groups_of_held(z, room)
                                                 : best_groups_of_any(row);
      largest = -kInf;
#pragma unroll(kHeldUnroll)
      for (uint32 i = 0; i < kLoads; ++i) {
        const uint32 at = kIsHeld ? i : 0;
        if constexpr (!kIsHeld) look(load(row.logits, i), load_bias(row, i), i, z[0], scores[0]);
#pragma unroll
        for (int32 j = 0; j < kWidth; ++j) {
          if (!is_in(groups, first_expert(i) + j)) z[at][j] = -kInf;
          largest = fmaxf(largest, z[at][j]);
        }
      }
    }
    float threshold = threshold_of(largest);
    threshold = numerics::fma_rn(fabsf(threshold), -kRelativeMargin, threshold) - kMargin;
    int32 count = 0;
    if (threshold > -kInf) count = gather_candidates(row, z, groups, threshold, room);
    // Many equal values, or few that are not -Inf
    if (count > kRoom || count < kTopk) return route_any(args, row, false);
    __syncwarp();
    if (count > device::kWarpLanes || !rank_few_candidates(row, count, room)) {
      rank_candidates(row, count, room);
    }
    __syncwarp();
    choice = chosen_of_lane(room);
  }
  store_choices(args, token, choice, is_fixed);
  if constexpr (kShape.has_scores) {
    float* to = args.scores + token * kExperts;
#pragma unroll(kHeldUnroll)
    for (uint32 i = 0; i < kLoads; ++i) {
      const uint32 at = kIsHeld ? i : 0;
      if constexpr (!kIsHeld) {
        logits[0] = load(row.logits, i);
        look(logits[0], load_bias(row, i), i, z[0], scores[0]);
      }
      Scores words;
#pragma unroll
      for (int32 j = 0; j < kWidth; ++j) {
        const float score =
            kIsSoftmax ? regular_score_of(row, number(logits[at], j)) : scores[at][j];
        words.words[j] = numerics::bit_cast<uint32>(score);
      }
      if (exists(i)) device::store<kWidth * 4>(to + first_expert(i), words);
    }
  }
}

}  // namespace tilekernels

extern "C" __global__ void __launch_bounds__(tilekernels::kTile.warps * 32, tilekernels::kMinBlocks)
    moe_topk_gate_kernel(const __grid_constant__ tilekernels::MoeTopkGateArgs args) {
  tilekernels::moe_topk_gate(args);
}
