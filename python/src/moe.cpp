// Registers the ops of tilekernels/moe.h.
#include "tilekernels/moe.h"

#include "call.h"

namespace tilekernels::python {
namespace {

const OpRegistration kTopkGate(
    "topk_gate", "topk_gate",
    [](PyCall& call) {
      const TensorSpec scores = call.spec();
      call.give({topk_gate_spec(scores, call.integer("num_topk"))});
    },
    [](PyCall& call) {
      const TensorView topk_idx = call.tensor();
      const TensorView scores = call.tensor();
      const int num_topk = call.integer("num_topk");
      topk_gate_out(topk_idx, scores, num_topk, call.options(scores.device));
    });

const OpRegistration kNormalizeWeight(
    "normalize_weight", "normalize_weight",
    [](PyCall& call) {
      const NormalizedWeightsSpec spec = normalize_weight_spec(call.spec());
      call.give({spec.denominator, spec.normalized_weights});
    },
    [](PyCall& call) {
      const TensorView denominator = call.tensor();
      const TensorView normalized_weights = call.tensor();
      const TensorView topk_weights = call.tensor();
      normalize_weight_out(denominator, normalized_weights, topk_weights,
                           call.options(topk_weights.device));
    });

}  // namespace
}  // namespace tilekernels::python
