// get_fused_mapping: checks, shapes and dispatch.
#include <algorithm>
#include <limits>
#include <memory>
#include <string_view>
#include <utility>

#include "core/check.h"
#include "core/kernel_table.h"
#include "ops/moe/get_fused_mapping/op.h"
#include "tilekernels/moe.h"

namespace tilekernels {
namespace {

constexpr int64_t kMaxPosition = std::numeric_limits<int32_t>::max();
constexpr int64_t kMaxAlignment = int64_t{1} << 30;

constexpr KernelTable<GetFusedMappingArgs, GetFusedMappingShape> kGetFusedMapping = {
    .op = "get_fused_mapping",
    .reference = reference::get_fused_mapping,
    .cpu = cpu::get_fused_mapping,
    .cuda = cuda::get_fused_mapping,
    .ascend = ascend::get_fused_mapping,
    .faults = {.op_id = kGetFusedMappingId,
               .index_out_of_range = "topk_idx",
               .position_out_of_range = "token_topk_to_pos"},
};

// The part of a tensor's rows that is in use; it shares the memory.
Tensor first_rows(const Tensor& tensor, int64_t rows) {
  return {TensorView(tensor.data(), {{rows}, tensor.spec().dtype, tensor.spec().device}),
          std::make_shared<Tensor>(tensor)};
}

}  // namespace

FusedMappingSpec get_fused_mapping_spec(const TensorSpec& topk_idx, int num_experts,
                                        int64_t num_expanded_tokens, int alignment) {
  const Check check(kGetFusedMapping.op);
  check.rank("topk_idx", topk_idx, 2).dtype("topk_idx", topk_idx, {DType::kI64});
  check.contiguous("topk_idx", topk_idx);
  check.range("num_topk", topk_idx.size(1), 1, kMaxPosition);
  check.range("num_experts", num_experts, 1, kMaxFusedExperts);
  check.range("alignment", alignment, 1, kMaxAlignment);
  const int64_t entries = topk_idx.numel();
  check.range("num_tokens * num_topk", entries, 0, kMaxPosition - (alignment - 1));
  check.range("num_expanded_tokens", num_expanded_tokens, 0, kMaxPosition);
  if (num_expanded_tokens == 0) {
    num_expanded_tokens =
        (entries + (alignment - int64_t{1}) * num_experts) / alignment * alignment;
    check.range("num_expanded_tokens", num_expanded_tokens, 0, kMaxPosition);
  }
  const TensorSpec by_pos({num_expanded_tokens}, DType::kI32, topk_idx.device);
  const TensorSpec by_expert({num_experts}, DType::kI32, topk_idx.device);
  return {by_pos,    by_pos,    by_pos,    {topk_idx.shape, DType::kI32, topk_idx.device},
          by_expert, by_expert, by_expert, by_expert};
}

void get_fused_mapping_out(const FusedMappingView& out, const TensorView& topk_idx, int num_experts,
                           int alignment, const Call& call) {
  const Check check(kGetFusedMapping.op);
  const std::pair<std::string_view, const TensorView&> outputs[] = {
      {"pos_to_expert", out.pos_to_expert},
      {"pos_to_token", out.pos_to_token},
      {"pos_to_token_topk", out.pos_to_token_topk},
      {"token_topk_to_pos", out.token_topk_to_pos},
      {"expert_start", out.expert_start},
      {"expert_end", out.expert_end},
      {"num_tokens_per_expert", out.num_tokens_per_expert},
      {"psum_num_tokens_per_expert", out.psum_num_tokens_per_expert},
  };
  // Any number of positions is fine, none too: 1 stands for it in the checks that _spec makes.
  const int64_t num_expanded = out.pos_to_expert.rank() == 1 ? out.pos_to_expert.size(0) : 0;
  FusedMappingSpec spec =
      get_fused_mapping_spec(topk_idx, num_experts, std::max<int64_t>(num_expanded, 1), alignment);
  const TensorSpec by_pos({num_expanded}, DType::kI32, topk_idx.device);
  const TensorSpec* const specs[] = {&by_pos,
                                     &by_pos,
                                     &by_pos,
                                     &spec.token_topk_to_pos,
                                     &spec.expert_start,
                                     &spec.expert_end,
                                     &spec.num_tokens_per_expert,
                                     &spec.psum_num_tokens_per_expert};
  check.memory("topk_idx", topk_idx);
  for (size_t i = 0; i < std::size(outputs); ++i) {
    const auto& [name, view] = outputs[i];
    check.matches(name, view, *specs[i]);
    check.disjoint(name, bytes_written(view), "topk_idx", bytes_read(topk_idx));
    for (size_t j = 0; j < i; ++j) {
      check.disjoint(name, bytes_written(view), outputs[j].first, bytes_written(outputs[j].second));
    }
  }
  const auto words = [](const TensorView& view) { return static_cast<int32*>(view.data); };
  kGetFusedMapping.run(call, topk_idx.device,
                       GetFusedMappingArgs{
                           .topk_idx = static_cast<const int64*>(topk_idx.data),
                           .pos_to_expert = words(out.pos_to_expert),
                           .pos_to_token = words(out.pos_to_token),
                           .pos_to_token_topk = words(out.pos_to_token_topk),
                           .token_topk_to_pos = words(out.token_topk_to_pos),
                           .expert_start = words(out.expert_start),
                           .expert_end = words(out.expert_end),
                           .num_tokens_per_expert = words(out.num_tokens_per_expert),
                           .psum_num_tokens_per_expert = words(out.psum_num_tokens_per_expert),
                           .num_entries = topk_idx.numel(),
                           .num_expanded = num_expanded,
                           .alignment = alignment,
                           .counts = nullptr,
                           .part = 0,
                           .fault = nullptr,
                       },
                       GetFusedMappingShape{.num_experts = num_experts,
                                            .num_topk = static_cast<int32>(topk_idx.size(1))});
}

FusedMapping get_fused_mapping(const TensorView& topk_idx, int num_experts,
                               int64_t num_expanded_tokens, int alignment, bool force_no_sync,
                               const Call& call) {
  const FusedMappingSpec spec =
      get_fused_mapping_spec(topk_idx, num_experts, num_expanded_tokens, alignment);
  std::vector<Tensor> memory =
      call.allocate({spec.pos_to_expert, spec.pos_to_token, spec.pos_to_token_topk,
                     spec.token_topk_to_pos, spec.expert_start, spec.expert_end,
                     spec.num_tokens_per_expert, spec.psum_num_tokens_per_expert});
  FusedMapping result{memory[0], memory[1], memory[2], memory[3], memory[4],
                      memory[5], memory[6], memory[7], {}};
  get_fused_mapping_out(result, topk_idx, num_experts, alignment, call);
  if (num_expanded_tokens > 0 || force_no_sync) return result;
  std::vector<int32_t>& list = result.num_tokens_per_expert_list;
  list.resize(static_cast<size_t>(num_experts));
  copy({list.data(), TensorSpec({num_experts}, DType::kI32)}, result.num_tokens_per_expert,
       call.stream);
  int64_t used = 0;
  for (int32_t count : list) used += count;
  result.pos_to_expert = first_rows(result.pos_to_expert, used);
  result.pos_to_token = first_rows(result.pos_to_token, used);
  result.pos_to_token_topk = first_rows(result.pos_to_token_topk, used);
  return result;
}

}  // namespace tilekernels
