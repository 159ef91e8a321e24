// The kernel of `ascend_selftest`: one question a compilation, answered by the bits that an
// instruction leaves. For an NPU only; never run on one so far.
#pragma once

#include "runtime/ascend/npu/entry.h"
#include "runtime/ascend/npu/questions.h"
#include "runtime/ascend/ring.h"

namespace tilekernels::ascend::selftest_kernel {

constexpr Shape kAsked = TILEKERNELS_SHAPE;

template <int32 kQuestion>
TILEKERNELS_VF void answer(Ub<uint32> a, Ub<uint32> b, Ub<uint32> out) {
  const Mask all = pset<uint32>();
  const Mask few = pset<uint32, Pattern::kVl4>();
  Reg<uint32> x;
  Reg<uint32> y;
  Reg<uint32> d;
  vlds(x, a);
  vlds(y, b);
  vdup(d, kUntouched, all);
  if constexpr (kQuestion == kNanToE4m3) {
    vcvt<0, Round::kRint, Saturate::kYes>(as<E4M3>(d), as<float>(x), all);
  } else if constexpr (kQuestion == kNegativeZeroToE2m1 || kQuestion == kNibbleOrder) {
    vcvt<0, Round::kRint, Saturate::kYes>(as<E2M1x2>(d), as<BF16>(x), pset<uint16>());
  } else if constexpr (kQuestion == kDivision) {
    vdiv<Precision::kExact>(as<float>(d), as<float>(x), as<float>(y), all);
  } else if constexpr (kQuestion == kSquareRoot) {
    vsqrt<Precision::kExact>(as<float>(d), as<float>(x), all);
  } else if constexpr (kQuestion == kPackedStoreHoles) {
    Mask odd;
    vcmps<Cmp::kNe>(odd, y, 0u, all);
    vsts(out, d, all);
    mem_bar<Bar::kVstVst>();
    vsts_pack<StoreDist::kPack>(as_ub<uint16>(out), x, odd);
    return;
  } else if constexpr (kQuestion == kBlockMaximumRest) {
    vcgmax(as<int32>(d), as<int32>(x), all);
  } else if constexpr (kQuestion == kGatherInactive) {
    vgather(d, a, y, few);
  } else if constexpr (kQuestion == kPackOtherHalf) {
    api::Pack<uint16_t, uint32_t, api::HighLowPart::LOWEST>(raw(as<uint16>(d)), raw(x));
  } else if constexpr (kQuestion == kEmptyMaximum) {
    const Mask none = pset<uint32, Pattern::kNone>();
    vcmax(as<float>(d), as<float>(x), none);
  } else if constexpr (kQuestion == kHalfOverflow) {
    vadd(as<F16>(d), as<F16>(x), as<F16>(y), pset<uint16>());
  } else if constexpr (kQuestion == kExpSubInfinity) {
    api::ExpSub(raw(as<float>(d)), raw(as<float>(x)), raw(as<float>(y)), raw(all));
  } else if constexpr (kQuestion == kUpperBinsAccumulate) {
    const Mask bytes = pset<uint8>();
    vdup(d, 0u, all);
    api::Histograms<uint8_t, uint16_t, api::HistogramsBinType::BIN1,
                    api::HistogramsType::ACCUMULATE>(raw(as<uint16>(d)), raw(as<uint8>(x)),
                                                     raw(bytes));
  } else if constexpr (kQuestion == kE8m0Overflow) {
    Mask halves = pset<uint16>();
    api::Cast<fp8_e8m0_t, bfloat16_t, kTraitOf<0, Round::kRint, Saturate::kYes> >(
        reinterpret_cast<api::RegTensor<fp8_e8m0_t>&>(d), raw(as<BF16>(x)), halves);
  }
  vsts(out, d, all);
}

TILEKERNELS_CORE void copy(const Args& args) {
  constexpr int64 kBytes = kPieceWords * 4;
  MutexPool pool;
  Ring<uint32, Pipe::kMte2, Pipe::kMte3> pieces(pool, "pieces", 6, kPieceWords);
  pipeline(
      4, block_idx(), args.rows, block_num(),
      [&](int64 i) {
        copy_in(pieces.fill(), gm(args.a + i * kPieceWords), {1, kBytes});
        pieces.filled();
      },
      [&](int64 i) {
        copy_out(gm(args.out + i * kPieceWords), pieces.empty(), {1, kBytes});
        pieces.emptied();
      });
}

TILEKERNELS_CORE void answer_rows(const Args& args) {
  constexpr int64 kBytes = kWords * 4;
  MutexPool pool;
  InRing<uint32> a(pool, "a", 2, kWords);
  InRing<uint32> b(pool, "b", 2, kWords);
  OutRing<uint32> out(pool, "out", 2, kWords);
  for (int64 row = block_idx(); row < args.rows; row += block_num()) {
    copy_in(a.fill(), gm(args.a + row * kWords), {1, kBytes});
    a.filled();
    copy_in(b.fill(), gm(args.b + row * kWords), {1, kBytes});
    b.filled();
    vf_call<answer<kAsked.question> >("answer", a.empty(), b.empty(), out.fill());
    a.emptied();
    b.emptied();
    out.filled();
    copy_out(gm(args.out + row * kWords), out.empty(), {1, kBytes});
    out.emptied();
  }
}

TILEKERNELS_CORE void run(const Args& args, const Shape&) {
  prologue();
  if constexpr (kAsked.question == kCopy) {
    copy(args);
  } else {
    answer_rows(args);
  }
  barrier_all();
}

}  // namespace tilekernels::ascend::selftest_kernel

TILEKERNELS_ENTRY(selftest)
