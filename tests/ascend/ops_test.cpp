// The ops on the machine model: any number of cores and both schedules give the same bytes, no
// result depends on a fast approximation, and no flag, lock or barrier of a kernel is superfluous.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cases/verify.h"
#include "runtime/ascend/model/core.h"
#include "tilekernels/ascend.h"

namespace tilekernels::ascend {
namespace {

using model::Hazard;
using model::Options;
using model::Schedule;
using model::ScopedOptions;

const cases::Case& case_of(const std::string& id) {
  for (const cases::OpCases& op : cases::all_ops()) {
    for (const cases::Case& test : op.cases) {
      if (test.id == id) return test;
    }
  }
  throw std::logic_error("no case " + id);
}

// Every kernel path with its own flags, locks and barriers, in few items a core.
const char* const kCases[] = {
    "topk_gate/tokens=9,experts=72,topk=6",
    "topk_gate/tokens=2,experts=1000,topk=10",
    "topk_gate/tokens=9,experts=256,topk=8,data=bits",
    "moe_topk_gate/tokens=5,experts=31,topk=4,scores",
    "moe_topk_gate/tokens=9,experts=72,topk=6,mask,bias",
    "moe_topk_gate/tokens=4,experts=385,topk=8,bias,scores",
    "moe_topk_gate/tokens=3,experts=1500,topk=8,softmax,bias,scores",
    "moe_topk_gate/tokens=9,experts=96,topk=6,sigmoid,groups=1of3,bias",
    "moe_topk_gate/tokens=5,experts=64,topk=8,image",
    "moe_topk_gate/top2_sum_gate/tokens=9,experts=36,topk=6,sigmoid,bias,shared2,ep=1,tp=0of1,"
    "copies=3",
    "moe_topk_gate/fixed-far",
    "moe_topk_gate/fixed-not-finite",
    "moe_topk_gate/masked-nan",
    "moe_topk_gate/bias-nan",
    "moe_topk_gate/random-too-few",
    "moe_topk_gate/tokens=29,experts=256,topk=8,mask,bias,image,fixed,map,random,shared1,scores,"
    "stride",
    "normalize_weight/tokens=257,topk=6",
    "normalize_weight/tokens=130,topk=32",
    "get_fused_mapping/tokens=1300,topk=4,experts=16,alignment=64,expanded=900",
    "get_fused_mapping/tokens=300,topk=4,experts=300,alignment=3",
    "expand_to_fused/tokens=400,topk=4,experts=16,alignment=16,hidden=65,x=u8,tail=3000,gap=2",
    "expand_to_fused/with_sf/tokens=9,topk=3,experts=5,alignment=3,hidden=640,x=e4m3,"
    "sf=i32-row-1x128,out_sf=col,tail=1,gap=16",
    "expand_to_fused/out-of-range",
    "reduce_fused/tokens=4,topk=8,experts=16,hidden=13,x=f16,weights,x_sf",
    "reduce_fused/tokens=70,topk=1,experts=4,hidden=8,x=f16",
    "reduce_fused/tokens=6,topk=4,experts=8,hidden=264,x=bf16,weights,x_sf,sf,out=e4m3,data=ties",
    "reduce_fused/out-of-range",
    "get_fused_mapping/tokens=1500,topk=4,experts=6,alignment=4,routing=bad",
    "group_count/tokens=129,topk=8,groups=72",
    "group_count/tokens=40,topk=8,groups=20000",
    "aux_fi/tokens=1025,topk=8,experts=256,aux_topk=8",
    "mask_indices_by_tp/tokens=1031,topk=9,n=288,ep=8,tp=0of1,i32",
    "mask_indices_by_tp/many-faults,i64",
    "inplace_unique_group_indices/many-faults",
    "topk_sum_and_topk_group_idx/tokens=67,groups=8x32,sum=2,topk_groups=4",
    "topk_sum_and_topk_group_idx/tokens=3,groups=2x1500,sum=2,topk_groups=1",
    "moe_topk_gate_backward/tokens=5,experts=7,topk=3",
    "moe_topk_gate_backward/tokens=9,experts=64,topk=8,routing=one",
    "moe_topk_gate_backward/tokens=9,experts=33,topk=4,sequences=3",
    "moe_topk_gate_backward/tokens=4,experts=1027,topk=8,sequences=2",
    "moe_topk_gate_backward/tokens=9,experts=256,topk=8,routing=bad",
    "per_token_cast/tokens=5,hidden=160,x=f32,fmt=e2m1,block=1x32,sf=ue8m0-colpacked",
    "per_token_cast/tokens=3,hidden=192,x=bf16,fmt=e4m3,block=1x128,sf=f32-row",
    "per_token_cast/tokens=17,hidden=96,x=f16,fmt=e2m1,block=1x64,sf=ue8m0-col-ascend",
    "per_token_cast/tokens=33,hidden=592,x=bf16,fmt=e2m1,block=1x32,sf=ue8m0-colpacked-ascend",
    "per_token_cast/tokens=33,hidden=320,x=bf16,fmt=e4m3,block=1x64,sf=ue8m0-colpacked",
    "per_token_cast/tokens=5,hidden=1040,x=bf16,fmt=e2m1,block=1x16,sf=e4m3-col",
    "per_token_cast/tokens=32,hidden=256,x=bf16,fmt=e2m1,block=1x32,sf=f32-row,data=edge",
    "per_token_cast/precomputed/tokens=5,hidden=48,x=f16,fmt=e2m1,block=1x16,sf=e4m3-scale",
    "per_token_cast/sf_only/tokens=5,hidden=48,x=bf16,fmt=e2m1,block=1x16,sf=e4m3-row",
    "per_token_cast/requant/tokens=7,hidden=608,x=e2m1,x_sf=i16-rowpacked-1x32-pow2,fmt=e4m3,"
    "block=1x64,sf=f32-row",
    "per_token_cast/requant/tokens=37,hidden=608,x=e2m1,x_sf=i16-tokenpacked-1x1-pow2,fmt=e4m3,"
    "block=1x32,sf=f32-row",
    "per_block_cast/tokens=130,hidden=200,x=f32,fmt=e4m3,block=128x128,sf=ue8m0-colpacked",
    "per_block_cast/requant/tokens=70,hidden=321,x=e4m3,x_sf=f32-row-7x384-scale,fmt=e4m3,"
    "block=32x128,sf=f32-row,gap=3,sf_gap=2",
    "cast_back/tokens=5,hidden=94,x=e2m1,block=1x16,sf=e4m3,out=f16,data=bits*scale",
    "cast_back/tokens=131,hidden=91,x=e4m3,block=32x1,sf=tokenpacked,out=bf16,data=bits*scale",
};

class OnTheModel : public testing::TestWithParam<const char*> {};

TEST_P(OnTheModel, AnyNumberOfCoresGivesTheSameBytes) {
  cases::Judge judge(case_of(GetParam()));
  for (int64 num_cores : {1, 3, 40, 64}) {
    for (Schedule schedule : {Schedule::kCopiesEarly, Schedule::kCopiesLate}) {
      Options options;
      options.num_cores = num_cores;
      options.schedule = schedule;
      options.jitter_ulps = num_cores == 3 ? 1 : 0;
      const ScopedOptions scope(options);
      const cases::Verdict verdict = judge.verify(Backend::kAscend);
      EXPECT_TRUE(verdict.passed) << num_cores << " cores: " << verdict.failure;
    }
  }
}

// Runs a case; whether the model objected.
bool objects(const cases::Case& test, const cases::Buffers& buffers, const Options& options) {
  const ScopedOptions scope(options);
  try {
    test.out(buffers.outputs(), buffers.inputs(), Call{.backend = Backend::kAscend});
  } catch (const Hazard&) {
    return true;
  } catch (const DataError&) {
  }
  return false;
}

TEST_P(OnTheModel, EveryFlagLockAndBarrierIsNeeded) {
  const cases::Case& test = case_of(GetParam());
  const cases::Buffers buffers(test, 0);
  int64 num_syncs = 0;
  Options options;
  options.num_cores = 2;
  options.num_syncs = &num_syncs;
  ASSERT_FALSE(objects(test, buffers, options));
  options.num_syncs = nullptr;
  ASSERT_GT(num_syncs, 5);
  // All of the first items, then some: the later ones repeat them.
  constexpr int64 kAll = 400;
  for (int64 sync = 0; sync < num_syncs; sync += sync < kAll || num_syncs - sync < 40 ? 1 : 37) {
    for (bool pair : {false, true}) {
      options.skip_sync = sync;
      options.skip_pair = pair;
      EXPECT_TRUE(objects(test, buffers, options))
          << "sync " << sync << " of " << num_syncs << (pair ? " with its unlock" : "");
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ops, OnTheModel, testing::ValuesIn(kCases),
                         [](const auto& test) { return "case_" + std::to_string(test.index); });

TEST(Cost, StreamingCastsKeepThePortToMemoryBusy) {
  const char* const ids[] = {
      "per_token_cast/tokens=4096,hidden=7168,x=bf16,fmt=e4m3,block=1x128,sf=ue8m0-colpacked",
      "per_token_cast/tokens=4096,hidden=7168,x=bf16,fmt=e2m1,block=1x32,sf=ue8m0-colpacked",
      "per_token_cast/tokens=4096,hidden=7168,x=f32,fmt=e4m3,block=1x128,sf=f32-row",
      "per_token_cast/tokens=4096,hidden=7168,x=bf16,fmt=e4m3,block=1x128,sf=f32-row",
      "per_token_cast/tokens=4096,hidden=7168,x=bf16,fmt=e2m1,block=1x32,sf=f32-row",
      "per_token_cast/tokens=4096,hidden=7168,x=bf16,fmt=e2m1,block=1x16,sf=e4m3-row",
      "per_block_cast/tokens=4096,hidden=7168,x=bf16,fmt=e4m3,block=128x128,sf=f32-row",
      "per_block_cast/tokens=4096,hidden=7168,x=f32,fmt=e4m3,block=128x128,sf=f32-row",
      "cast_back/tokens=4096,hidden=7168,x=e4m3,block=1x128,sf=f32,out=bf16,data=normal*scale",
      "cast_back/tokens=4096,hidden=7168,x=e2m1,block=1x32,sf=f32,out=bf16,data=bits*scale",
  };
  for (const char* id : ids) {
    const cases::Case& test = case_of(id);
    const cases::Buffers buffers(test, 0);
    const AscendCost cost = ascend_cost(
        [&] { test.out(buffers.outputs(), buffers.inputs(), Call{.backend = Backend::kAscend}); });
    EXPECT_GE(cost.port_cycles, 0.9 * cost.cycles) << id;
  }
}

TEST(Cost, IsThatOfTheFirstCore) {
  const cases::Case& test = case_of(
      "per_token_cast/tokens=4096,hidden=7168,x=bf16,fmt=e4m3,"
      "block=1x128,sf=f32-row");
  const cases::Buffers buffers(test, 0);
  const AscendCost cost = ascend_cost(
      [&] { test.out(buffers.outputs(), buffers.inputs(), Call{.backend = Backend::kAscend}); });
  EXPECT_EQ(cost.kernel, "per_token_cast");
  EXPECT_EQ(cost.num_cores, 64);
  EXPECT_EQ(cost.bytes_in, 64 * 7168 * 2);
  EXPECT_EQ(cost.bytes_out, 64 * (7168 + 56 * 4));
  EXPECT_LE(cost.registers, 32);
  EXPECT_GE(cost.cycles, cost.port_cycles);
  EXPECT_GE(cost.cycles, cost.vector_cycles);
  EXPECT_EQ(cost.port_cycles, static_cast<double>(cost.bytes_in + cost.bytes_out) / 32);
}

}  // namespace
}  // namespace tilekernels::ascend
