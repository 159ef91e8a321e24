// The questions that docs/ascend_measurements.md answers, measured on the machine model; the tables
// of that page are what this prints.
#include <cstdio>
#include <cstring>
#include <vector>

#include "ops/moe/topk_gate/ascend.h"
#include "ops/quant/cast_ascend.h"
#include "planted.h"

namespace tilekernels::ascend {
namespace {

using namespace topk_gate_kernel;
using model::Cost;

constexpr int64 kRows = 64;  // of the one core

// Scores without structure.
std::vector<float> scores_of(int32 num_experts) {
  std::vector<float> scores(static_cast<size_t>(kRows * num_experts));
  uint32 state = 1;
  for (float& score : scores) {
    state = state * 1664525u + 1013904223u;
    score = static_cast<float>(state >> 8) * 0x1p-24f;
  }
  return scores;
}

struct Measured {
  Cost cost;
  std::vector<int64> ids;
  double cycles() const { return cost.cycles / static_cast<double>(kRows); }
  double vector_cycles() const { return cost.vector_cycles / static_cast<double>(kRows); }
};

// Runs a core of topk_gate.
template <class Body>
Measured measure(int32 num_experts, int32 num_topk, const Body& body) {
  const std::vector<float> scores = scores_of(num_experts);
  Measured measured;
  measured.ids.resize(static_cast<size_t>(kRows * num_topk));
  uint64 fault[kBlockBytes / 8] = {numerics::kNoFault};
  const TopkGateArgs args{scores.data(), measured.ids.data(), kRows, fault};
  const TopkGateShape shape{num_experts, num_topk};
  Options options;
  options.cost = &measured.cost;
  run([&] { body(args, shape); }, 1, options);
  return measured;
}

Measured measure_depth(int32 num_experts, int32 stages) {
  return measure(num_experts, 8, [&](const TopkGateArgs& args, const TopkGateShape& shape) {
    topk_gate_kernel::run(args, shape, Tile{stages});
  });
}

TEST(Questions, HowDeepAPipeline) {
  std::printf("cycles a row, KiB of UB\n%8s", "experts");
  for (int32 stages = 1; stages <= 8; ++stages) std::printf("  %14d", stages);
  std::printf("\n");
  for (int32 experts : {64, 256, 384, 1024}) {
    std::printf("%8d", experts);
    double before = 0;
    for (int32 stages = 1; stages <= 8; ++stages) {
      const Measured measured = measure_depth(experts, stages);
      std::printf("  %7.1f %6.1f", measured.cycles(),
                  static_cast<double>(measured.cost.ub_bytes) / 1024);
      if (stages > 1) {
        EXPECT_LE(measured.cycles(), before * 1.001);
      }
      before = measured.cycles();
    }
    std::printf("\n");
  }
}

template <int32 kRegs>
Measured measure_regs(int32 num_experts) {
  return measure(num_experts, 8, [&](const TopkGateArgs& args, const TopkGateShape& shape) {
    prologue();
    const Ub<int32> faults = alloc_faults();
    chunked_rows<kRegs>(args, shape, Tile{6}, faults);
    report_faults(args.fault, faults, kTopkGateId, numerics::kFaultNotFinite,
                  [](int64 item) { return block_idx() + item * block_num(); });
    barrier_all();
  });
}

TEST(Questions, HowManyRegistersAChunk) {
  std::printf("cycles a row, live registers\n%8s  %12d  %12d  %12d  %12d  %12d\n", "experts", 1, 2,
              4, 6, 8);
  for (int32 experts : {1024, 4096}) {
    const Measured all[] = {measure_regs<1>(experts), measure_regs<2>(experts),
                            measure_regs<4>(experts), measure_regs<6>(experts),
                            measure_regs<8>(experts)};
    std::printf("%8d", experts);
    for (const Measured& measured : all) {
      std::printf("  %8.1f %3d", measured.cycles(), measured.cost.most_registers);
      EXPECT_EQ(measured.ids, all[0].ids);
    }
    std::printf("\n");
  }
}

// The straightforward way: the largest key by one reduction, the lowest expert that has it by
// another, every slot.
template <int32 kRegs>
TILEKERNELS_VF void select_row_by_two(Ub<float> scores, Ub<uint32> out, Ub<int32> best_ids,
                                      Ub<int32> faults, uint32 num_experts, uint16 num_topk,
                                      int32 row) {
  constexpr int32 kNone = 0x7FFFFFFF;
  const Mask all = pset<int32>();
  Reg<int32> keys[kRegs];
  Reg<int32> ids[kRegs];
  {
    Reg<float> score;
    Reg<int32> largest;
    vdup(largest, 0, all);
    for (int32 r = 0; r < kRegs; ++r) {
      const Mask valid = plt<int32>(num_experts);
      vlds(score, scores + r * kF32Lanes);
      make_keys(keys[r], largest, score, valid, all);
      vci(ids[r], r * kF32Lanes);
    }
    note_row(faults, largest, row, all);
  }
  Reg<int32> best;
  Reg<int32> lowest;
  Reg<int32> mine;
  Reg<int32> none;
  Reg<int32> taken;
  Mask is_best;
  vdup(none, kNone, all);
  vdup(taken, numerics::kTopkTaken, all);
  for (uint16 slot = 0; slot < num_topk; ++slot) {
    vmov(best, keys[0]);
    for (int32 r = 1; r < kRegs; ++r) vmax(best, best, keys[r], all);
    vcmax(best, best, all);
    vdup_lane0(best, best, all);
    for (int32 r = 0; r < kRegs; ++r) {
      vcmp<Cmp::kEq>(is_best, keys[r], best, all);
      if (r == 0) {
        vsel(lowest, ids[r], none, is_best);
      } else {
        vsel(mine, ids[r], none, is_best);
        vmin(lowest, lowest, mine, all);
      }
    }
    vcmin(lowest, lowest, all);
    vst_first(best_ids + slot, lowest);
    vdup_lane0(lowest, lowest, all);
    for (int32 r = 0; r < kRegs; ++r) {
      vcmp<Cmp::kEq>(is_best, ids[r], lowest, all);
      vsel(keys[r], taken, keys[r], is_best);
    }
  }
  mem_bar<Bar::kVstVld>();
  store_ids(out, best_ids, num_topk, all);
}

template <int32 kRegs>
void rows_by_two(const TopkGateArgs& args, const TopkGateShape& shape) {
  const Ub<int32> faults = ub_alloc<int32>("fault rows", kF32Lanes);
  vf_call<clear_faults>("clear_faults", faults);
  MutexPool pool;
  InRing<float> scores(pool, "scores", 6, kRegs * kF32Lanes);
  OutRing<uint32> out(pool, "topk_idx", 6, kF32Lanes);
  const Ub<int32> best_ids = ub_alloc<int32>("best ids", kF32Lanes);
  pipeline(
      6, 0, args.num_tokens, 1,
      [&](int64 row) {
        copy_in(scores.fill(), gm(args.scores + row * shape.num_experts),
                {1, shape.num_experts * int64{4}});
        scores.filled();
      },
      [&](int64 row) {
        vf_call<select_row_by_two<kRegs>>("by two", scores.empty(), out.fill(), best_ids, faults,
                                          static_cast<uint32>(shape.num_experts),
                                          static_cast<uint16>(shape.num_topk),
                                          static_cast<int32>(row));
        scores.emptied();
        out.filled();
        copy_out(gm(args.topk_idx + row * shape.num_topk), out.empty(),
                 {1, shape.num_topk * int64{8}});
        out.emptied();
      });
  barrier_all();
}

TEST(Questions, OneReductionASlotAgainstTwo) {
  std::printf("cycles a row, 8 of\n%8s  %8s  %8s\n", "experts", "one", "two");
  const auto compare = [](int32 experts, const Measured& two) {
    const Measured one = measure_depth(experts, 6);
    std::printf("%8d  %8.1f  %8.1f\n", experts, one.cycles(), two.cycles());
    EXPECT_EQ(one.ids, two.ids);
    EXPECT_LT(one.cycles(), two.cycles());
  };
  compare(64, measure(64, 8, rows_by_two<1>));
  compare(128, measure(128, 8, rows_by_two<2>));
  compare(256, measure(256, 8, rows_by_two<4>));
  compare(384, measure(384, 8, rows_by_two<6>));
}

TEST(Questions, WhatBuffersBuyACast) {
  constexpr int32 kHidden = 7168;
  const std::vector<uint16> x(static_cast<size_t>(kRows * kHidden), 0x3F80);
  std::vector<uint8> out(x.size());
  std::vector<float> sf(static_cast<size_t>(kRows * kHidden / 128));
  CastArgs args{};
  args.x = reinterpret_cast<const uint8*>(x.data());
  args.x_pitch_bytes = 2 * kHidden;
  args.out = out.data();
  args.num_tokens = kRows;
  args.amax_clamp = 1e-4f;
  args.out_sf = {reinterpret_cast<uint8*>(sf.data()),
                 numerics::sf_map(numerics::kSfRow, 4, kHidden / 128, 1), kRows, kHidden / 128};
  CastShape shape{};
  shape.mode = kCastAll;
  shape.x_dtype = numerics::kDTypeBF16;
  shape.fmt = numerics::kDTypeE4M3;
  shape.sf_kind = numerics::kSfRoundedF32;
  shape.hidden = kHidden;
  shape.block_rows = 1;
  shape.block_cols = 128;
  std::printf("bf16 to e4m3, 1 x 128, powers of two, hidden 7168: cycles a row\n");
  double before = 0;
  for (int32 stages = 1; stages <= 3; ++stages) {
    Cost cost;
    Options options;
    options.cost = &cost;
    run([&] { cast_kernel::run(args, shape, {stages, kHidden, 0}); }, 1, options);
    std::printf("%d buffers: %.1f, port busy %.1f %%\n", stages,
                cost.cycles / static_cast<double>(kRows), 100 * cost.port_cycles / cost.cycles);
    if (stages > 1) {
      EXPECT_LE(cost.cycles, before * 1.001);
    }
    before = cost.cycles;
  }
}

TEST(Questions, XMinusXFindsEveryValueThatIsNotFinite) {
  uint64 wrong = 0;
  uint64 found = 0;
  for (uint64 bits = 0; bits < uint64{1} << 32; ++bits) {
    const auto x = numerics::bit_cast<float>(static_cast<uint32>(bits));
    const bool differs = x - x != 0.0f;
    wrong += differs == numerics::is_finite(x) ? 1 : 0;
    found += differs ? 1 : 0;
  }
  std::printf("x - x != 0 for %lu of 2^32 values; wrong for %lu\n", found, wrong);
  EXPECT_EQ(wrong, 0u);
  EXPECT_EQ(found, uint64{1} << 24);
}

// ids as int64 by storing low words only into a buffer that was cleared once.
void store_low_words(Ub<int32> out) {
  const Mask all = pset<int32>();
  const Mask some = pset<int32, Pattern::kVl8>();
  Reg<int32> ids;
  Reg<int32> index;
  vci(ids, 5);
  vci(index, 0);
  vmuls(index, index, 2, all);
  vscatter(out, ids, index, some);
}
void clear_words(Ub<int32> out) {
  const Mask all = pset<int32>();
  Reg<int32> zero;
  vdup(zero, 0, all);
  vsts(out, zero, all);
}

TEST(Questions, HighWordsWithoutAClearedBuffer) {
  static int64 ids[3 * 8];
  const auto kernel = [](int32 cleared) {
    return [cleared] {
      const Ub<int32> slots[2] = {ub_alloc<int32>("ids 0", 64), ub_alloc<int32>("ids 1", 64)};
      for (int32 i = 0; i < cleared; ++i) vf_call<clear_words>("clear", slots[i]);
      for (int32 row = 0; row < 2; ++row) {
        vf_call<store_low_words>("low words", slots[row]);
        wait_for<Pipe::kV, Pipe::kMte3>(row);
        copy_out(gm(ids + 8 * row), slots[row], {1, 64});
      }
      barrier_all();
    };
  };
  run(kernel(2));
  EXPECT_EQ(ids[15], 12);
  // Two buffers, one of them cleared: the second row's high words are whatever was there.
  expect_hazard(HazardKind::kUndefined, "ids 1", 4,
                "MTE3 copies out bytes that nothing has written", kernel(1));
}

}  // namespace
}  // namespace tilekernels::ascend
