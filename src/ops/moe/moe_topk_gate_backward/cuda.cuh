// moe_topk_gate_backward on CUDA: a warp a row, or a few neighbouring rows, of which a lane has a
// slot. Rows are written twice: first as if no expert was chosen, which needs nothing that a slot
// has, and then the chosen experts, each with its whole gradient.
#include "ops/moe/moe_topk_gate_backward/op.h"
#include "ops/moe/moe_topk_gate_backward/tile.h"
#include "runtime/cuda/device/fault.cuh"
#include "runtime/cuda/device/grid.cuh"
#include "runtime/cuda/device/math.cuh"
#include "runtime/cuda/device/memory.cuh"
#include "runtime/cuda/device/row_sum.cuh"
#include "runtime/cuda/device/warp.cuh"

namespace tilekernels {

constexpr MoeTopkGateBackwardShape kShape = TILEKERNELS_SHAPE;
constexpr MoeTopkGateBackwardTile kTile = TILEKERNELS_TILE;

constexpr int32 kTopk = kShape.num_topk;
constexpr int32 kExperts = kShape.num_experts;
constexpr int32 kSlots = power_of_two_from(kTopk);
constexpr int32 kRows = kTile.rows;
constexpr int32 kLanes = device::kWarpLanes / kRows;  // of a row's slots
constexpr int32 kWidth = 4;                           // neighbouring experts of a lane
constexpr int32 kStep = device::kWarpLanes * kWidth;  // those of a warp
constexpr auto kSteps = static_cast<int32>(numerics::ceil_div(kExperts, kStep));
// Steps with partial sums of their own
constexpr int32 kKept = numerics::min_of(kSteps, numerics::kRowPartials / kStep);
constexpr bool kStays = kExperts <= kBackwardKeptExperts;
constexpr bool kHasAux = kShape.has_aux != 0;
constexpr bool kIsStaged = kTile.staged != 0;

using Part = device::Words<kWidth * 4>;

// One in shared memory.
struct alignas(kWidth * 4) StagedPart {
  float scores[kWidth];
};

// The first expert of this lane's part.
inline int32 begin_of(int32 step) {
  return step * kStep + static_cast<int32>(device::lane_id()) * kWidth;
}

// Where this lane's parts of a row begin.
template <class T>
inline T* lanes_place(T* row) {
  return row + begin_of(0);
}

// Beyond the row's end: zeros. Here and below `place` is the lane's own.
inline Part load(const float* place, int32 step) {
  const float* from = place + step * kStep;
  if constexpr (kTile.wide != 0) {
    Part part{};
    if (begin_of(step) < kExperts) part = device::load<kWidth * 4>(from);
    return part;
  } else {
    return device::load_units<kWidth * 4, 4>(from, kExperts - begin_of(step));
  }
}

inline void store(float* place, int32 step, const Part& part) {
  float* to = place + step * kStep;
  if constexpr (kTile.wide != 0) {
    if (begin_of(step) < kExperts) device::store(to, part);
  } else {
    device::store_units<kWidth * 4, 4>(to, part, kExperts - begin_of(step));
  }
}

inline float element(const Part& part, int32 i) { return numerics::bit_cast<float>(part.words[i]); }

// The dense term of a row.
struct Aux {
  bool is_there;
  float inverse;
  float mean;
};

// A lane's part of a row, if it stays.
struct Kept {
  Part parts[kStays ? kKept : 1];
};

inline Kept load_kept(const float* place) {
  Kept kept{};
  if constexpr (kStays) {
#pragma unroll
    for (int32 step = 0; step < kSteps; ++step) kept.parts[step] = load(place, step);
  }
  return kept;
}

inline Part part_of(const Kept& kept, const float* place, int32 step) {
  if constexpr (kStays) {
    return kept.parts[step];
  } else {
    return load(place, step);
  }
}

// numerics::sum_partials of both, by fewer shuffles than two calls: as long as a lane has several
// sums, it hands half of them to the other lane and goes on with the rest.
struct Totals {
  float score;
  float product;
};

inline Totals totals_of(const float (&of_scores)[kKept][kWidth],
                        const float (&of_products)[kKept][kWidth]) {
  constexpr int32 kPadded = power_of_two_from(kKept);
  float sums[2 * kPadded] = {};
#pragma unroll
  for (int32 step = 0; step < kKept; ++step) {
    sums[step] = device::sum_of_neighbours<kWidth>(of_scores[step]);
    sums[kPadded + step] = device::sum_of_neighbours<kWidth>(of_products[step]);
  }
  const uint32 lane = device::lane_id();
#pragma unroll
  for (int32 bit = 1; bit <= kPadded; bit *= 2) {
    const int32 half = kPadded / bit;
    const bool is_upper = (lane & bit) != 0;
#pragma unroll
    for (int32 i = 0; i < half; ++i) {
      const float kept = is_upper ? sums[half + i] : sums[i];
      const float given = is_upper ? sums[i] : sums[half + i];
      sums[i] = kept + __shfl_xor_sync(device::kAllLanes, given, bit);
    }
  }
#pragma unroll
  for (int32 bit = 2 * kPadded; bit < device::kWarpLanes; bit *= 2) {
    sums[0] += __shfl_xor_sync(device::kAllLanes, sums[0], bit);
  }
  // The lowest bit of the lane now tells scores from products, the next ones the step, whose
  // lowest bit is the last one.
#pragma unroll
  for (int32 bit = kPadded; bit > 1; bit /= 2) {
    sums[0] += __shfl_xor_sync(device::kAllLanes, sums[0], bit);
  }
  return {__shfl_sync(device::kAllLanes, sums[0], 0) + 0.0f,
          __shfl_sync(device::kAllLanes, sums[0], 1) + 0.0f};
}

inline Aux aux_of(const float* scores, const float* sums, const Kept& u, const Kept& h) {
  float of_scores[kKept][kWidth] = {};
  float of_products[kKept][kWidth] = {};
  for (int32 first = 0; first < kSteps; first += kKept) {
#pragma unroll
    for (int32 step = 0; step < kKept; ++step) {
      const Part score = part_of(u, scores, first + step);
      const Part sum = part_of(h, sums, first + step);
#pragma unroll
      for (int32 i = 0; i < kWidth; ++i) {
        of_scores[step][i] = kStays ? element(score, i) : of_scores[step][i] + element(score, i);
        of_products[step][i] =
            numerics::fma_rn(element(sum, i), element(score, i), of_products[step][i]);
      }
    }
  }
  const Totals totals = totals_of(of_scores, of_products);
  const float inverse = 1.0f / totals.score;
  return {totals.score != 0.0f, inverse, totals.product * inverse};
}

// Whether derivative() may be asked for this score.
inline bool is_usual(float score) {
  return kShape.scoring == kScoringSigmoid || !(score * score >= device::kDerivativeRange);
}

inline float derivative(float score) {
  return kShape.scoring == kScoringSigmoid ? score_derivative(kShape.scoring, score)
                                           : device::sqrt_softplus_derivative(score);
}

inline float gradient(float routed, float sum, const Aux& aux, float of_score) {
  return device::canonical((routed + (sum - aux.mean) * aux.inverse) * of_score);
}

// Step by step, as if no expert was chosen. True if derivative() was enough.
inline bool store_dense(float* grad_logits, const float* scores, const float* sums, const Aux& aux,
                        const Kept& u, const Kept& h) {
  bool are_usual = true;
#pragma unroll(kStays ? kSteps : 1)
  for (int32 step = 0; step < kSteps; ++step) {
    const Part score = part_of(u, scores, step);
    const Part sum = part_of(h, sums, step);
    Part part;
#pragma unroll
    for (int32 i = 0; i < kWidth; ++i) {
      are_usual = are_usual && is_usual(element(score, i));
      part.words[i] = numerics::bit_cast<uint32>(
          gradient(0.0f, element(sum, i), aux, derivative(element(score, i))));
    }
    store(grad_logits, step, part);
  }
  return are_usual;
}

// The same for any scores.
inline void store_any_dense(float* grad_logits, const float* scores, const float* sums,
                            const Aux& aux) {
#pragma unroll 1
  for (int32 step = 0; step < kSteps; ++step) {
    const int32 begin = begin_of(step);
#pragma unroll 1
    for (int32 e = begin; e < numerics::min_of(begin + kWidth, kExperts); ++e) {
      grad_logits[e] = gradient(0.0f, sums[e], aux, score_derivative(kShape.scoring, scores[e]));
    }
  }
}

inline void store_zeros(float* grad_logits) {
#pragma unroll 4
  for (int32 step = 0; step < kSteps; ++step) store(grad_logits, step, Part{});
}

// The warp's rows from `first` on, as if no expert was chosen; returns the dense term of the
// lane's own row, whose sequence is `later` ones behind that of the first row. `u` and `h` are of
// the first row, its H begins at `sums`; `are_dense` has a bit for each lane whose row may have the
// term.
inline Aux store_rows(const MoeTopkGateBackwardArgs& args, int64 first, int32 rows, Kept u, Kept h,
                      const float* sums, int32 later, uint32 are_dense) {
  const float* scores = lanes_place(args.scores + first * kExperts);
  float* grad_logits = lanes_place(args.grad_logits + first * kExperts);
  const float* h_place = lanes_place(sums);
  Aux mine{};
  int32 sequence = 0;
  int32 row = 0;
  do {
    const int32 next_sequence = __shfl_sync(device::kAllLanes, later, row * kLanes);
    if (next_sequence != sequence) {
      h_place += int64{next_sequence - sequence} * kExperts;
      sequence = next_sequence;
      h = load_kept(h_place);
    }
    const Kept now = u;
    if (row + 1 < rows) u = load_kept(scores + kExperts);
    Aux aux{};
    if ((are_dense & 1) != 0) {
      aux = aux_of(scores, h_place, now, h);
      if (aux.is_there && !store_dense(grad_logits, scores, h_place, aux, now, h)) {
        // From places that the compiler does not keep for it
        const auto token = first + device::kept(static_cast<uint32>(row));
        store_any_dense(args.grad_logits + token * kExperts, args.scores + token * kExperts,
                        sums + int64{sequence} * kExperts, aux);
      }
    }
    if (!aux.is_there) store_zeros(grad_logits);
    if (static_cast<int32>(device::lane_id()) / kLanes == row) mine = aux;
    scores += kExperts;
    grad_logits += kExperts;
    are_dense = are_dense >> (kLanes - 1) >> 1;  // kLanes may be 32
  } while (++row < rows);
  return mine;
}

inline void moe_topk_gate_backward(const MoeTopkGateBackwardArgs& args) {
  const auto lane = static_cast<int32>(device::lane_id());
  const int32 warp = threadIdx.x / device::kWarpLanes;
  const int64 first = (int64{blockIdx.x} * kBackwardWarps + warp) * kRows;
  if (first >= args.num_tokens) return;
  const int32 rows =
      kRows == 1 ? 1 : static_cast<int32>(numerics::min_of(int64{kRows}, args.num_tokens - first));
  const bool has_row = lane / kLanes < rows;
  const int64 token = first + lane / kLanes;
  const int32 slot = lane % kLanes;
  device::wait_for_predecessor();

  int64 index = -1;
  float grad = 0.0f;
  float weight = 0.0f;
  if (slot < kTopk && has_row) {
    const int64 i = token * kTopk + slot;
    index = args.topk_idx[i];
    grad = args.grad_topk_weights[i];
    weight = args.topk_weights[i];
  }
  // The scores do not wait for the indices.
  Kept u{};
  if constexpr (kHasAux || kIsStaged) u = load_kept(lanes_place(args.scores + first * kExperts));
  Aux aux{};
  const float* sums = nullptr;  // H of the lane's own row
  if constexpr (kHasAux) {
    const int64 sequence = token / args.tokens_per_sequence;
    const int64 first_sequence = __shfl_sync(device::kAllLanes, sequence, 0);
    sums = args.grad_scores_sum + sequence * kExperts;
    const float* first_sums = args.grad_scores_sum + first_sequence * kExperts;
    const Kept h = load_kept(lanes_place(first_sums));
    const bool may_be_dense = has_row && args.mask[token] != 0;
    aux = store_rows(args, first, rows, u, h, first_sums,
                     static_cast<int32>(sequence - first_sequence),
                     __ballot_sync(device::kAllLanes, may_be_dense));
  } else {
    float* const begin = lanes_place(args.grad_logits + first * kExperts);
#pragma unroll
    for (int32 row = 0; row < kRows; ++row) {  // the last one again where one is missing
      store_zeros(begin + numerics::min_of(row, rows - 1) * kExperts);
    }
  }
  __syncwarp();  // what other lanes stored comes before the chosen experts

  const bool counts = static_cast<uint64>(index) < kExperts;
  const int32 expert = counts ? static_cast<int32>(index) : -1;
  float score = 0.0f;
  if constexpr (kIsStaged) {
    __shared__ StagedPart staged[kBackwardWarps][kSteps * device::kWarpLanes];
    StagedPart* const row = staged[warp];
#pragma unroll
    for (int32 step = 0; step < kSteps; ++step) {
#pragma unroll
      for (int32 i = 0; i < kWidth; ++i) {
        row[step * device::kWarpLanes + lane].scores[i] = element(u.parts[step], i);
      }
    }
    __syncwarp();
    if (counts) score = reinterpret_cast<const float*>(row)[expert];
  } else {
    if (counts) score = args.scores[token * kExperts + expert];
  }
  float denominator = score;
  float dot = counts ? grad * weight : 0.0f;
#pragma unroll
  for (int32 step = kSlots / 2; step > 0; step /= 2) {
    denominator += __shfl_xor_sync(device::kAllLanes, denominator, step);
    dot += __shfl_xor_sync(device::kAllLanes, dot, step);
  }
  denominator += kWeightEpsilon;
  const float numerator = args.routed_scaling_factor * grad - dot;
  const float delta = device::divide(numerator, device::divisor(denominator));
  const float of_score = derivative(score);
  const auto store_chosen = [&](float routed, float of_score) {
    if (!counts) return;
    args.grad_logits[token * kExperts + expert] =
        aux.is_there ? gradient(routed, sums[expert], aux, of_score)
                     : device::canonical(routed * of_score);
  };
  store_chosen(0.0f + delta, of_score);

  // Those of rare rows are stored again, slots of one expert the same.
  bool is_rare = !is_usual(score) || !device::can_divide(numerator, denominator);
#pragma unroll
  for (int32 k = 1; k <= kSlots / 2; ++k) {
    is_rare |= __shfl_sync(device::kAllLanes, expert, slot + k, kSlots) == expert;
  }
  if (is_bad_index(index, kExperts)) {
    device::note_fault(args.fault, token, kMoeTopkGateBackwardId, numerics::kFaultIndexOutOfRange);
  }
  if (!__any_sync(device::kAllLanes, counts && is_rare)) return;
  const float any_delta = numerator / denominator;
  float routed = 0.0f;
#pragma unroll 1
  for (int32 k = 0; k < kTopk; ++k) {
    const int32 other = __shfl_sync(device::kAllLanes, expert, k, kLanes);
    const float its_delta = __shfl_sync(device::kAllLanes, any_delta, k, kLanes);
    if (other == expert) routed += its_delta;
  }
  __syncwarp();  // what another lane stored for the same expert comes before
  store_chosen(routed, score_derivative(kShape.scoring, score));
}

}  // namespace tilekernels

extern "C" __global__ void __launch_bounds__(tilekernels::kBackwardThreads,
                                             tilekernels::kStays ? 4 : 2)
    moe_topk_gate_backward_kernel(
        const __grid_constant__ tilekernels::MoeTopkGateBackwardArgs args) {
  tilekernels::moe_topk_gate_backward(args);
}
