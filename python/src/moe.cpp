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

}  // namespace
}  // namespace tilekernels::python
