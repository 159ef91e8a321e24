// Every primitive of the vector-core layer once a lane type: no test runs it, but the host's
// compiler and scripts/check_ascend_syntax.sh read it.
#pragma once

#include "runtime/ascend/composites.h"
#include "runtime/ascend/faults.h"
#include "runtime/ascend/ring.h"

namespace tilekernels::ascend::primitives_kernel {

template <class T>
TILEKERNELS_VF void integers(Ub<T> x) {
  const Mask all = pset<T>();
  Mask m = pset<T, Pattern::kVl4>();
  uint32 n = 5;
  const Mask p = plt<T>(n);
  Reg<T> a;
  Reg<T> b;
  Reg<T> c;
  vlds(a, x);
  vlds<Dist::kBrc>(a, x);
  vlds<Dist::kBlk>(a, x);
  if constexpr (sizeof(T) > 1) vlds<Dist::kE2b>(a, x);
  if constexpr (sizeof(T) < 4) {
    vlds<Dist::kUpsample>(a, x);
    vlds<Dist::kUnpack>(a, x);
  }
  if constexpr (sizeof(T) == 1) vlds<Dist::kUnpack4>(a, x);
  vld_deintlv(a, b, x);
  vldu(a, x);
  vsts(x, a, all);
  vst_first(x, a);
  vst_intlv(x, a, b);
  vstu(x, a, 3);
  vadd(c, a, b, all);
  vsub(c, a, b, all);
  vmax(c, a, b, all);
  vmin(c, a, b, all);
  vand(c, a, b, all);
  vor(c, a, b, all);
  vxor(c, a, b, all);
  vnot(c, a, all);
  vadds(c, a, T(1), all);
  vmaxs(c, a, T(1), all);
  vmins(c, a, T(1), all);
  vshls(c, a, 2, all);
  vshrs(c, a, 2, all);
  vcmp<Cmp::kGe>(m, a, b, all);
  vcmps<Cmp::kLt>(m, a, T(3), all);
  vsel(c, a, b, m);
  vdup(c, T(2), all);
  vdup_lane0(c, a, all);
  vmov(c, a);
  vintlv(a, b, c, c);
  vdintlv(a, b, c, c);
  vsqz(c, a, m);
  pand(m, p, all, all);
  por(m, p, all, all);
  pnot(m, p, all);
  mem_bar<Bar::kVstVld>();
  mem_bar<Bar::kVldVst>();
  mem_bar<Bar::kVstVst>();
  mem_bar<Bar::kVvAll>();
  if constexpr (sizeof(T) > 1) {
    vcmax(c, a, all);
    vcmin(c, a, all);
    vcgmax(c, a, all);
    vmul(c, a, b, all);
    vmula(c, a, b, all);
    vmuls(c, a, T(3), all);
  }
  if constexpr (sizeof(T) == 4) {
    Reg<uint32> index;
    vdup(index, 0u, all);
    vmull(index, index, index, index, all);
    vcadd(c, a, all);
    vgather(c, x, index, all);
    vscatter(x, c, index, all);
    vselr(c, a, index);
    StreamPlace stream;
    clear_ar();
    vsqz_count(c, a, all);
    vstur(x, c, stream);
    vstar(x, stream);
  }
}

TILEKERNELS_VF void counts(Ub<uint8> x, Ub<uint16> out) {
  const Mask bytes = pset<uint8>();
  Reg<uint8> values;
  Reg<uint16> bins;
  vlds(values, x);
  vdup(bins, uint16{0}, pset<uint16>());
  vhist<false>(bins, values, bytes);
  vhist<true>(bins, values, bytes);
  vsts(out, bins, pset<uint16>());
}

TILEKERNELS_VF void floats(Ub<float> x, Ub<uint8> bytes) {
  const Mask all = pset<float>();
  const Mask narrow = pset<uint8>();
  Reg<float> a;
  Reg<float> b;
  Reg<int32> i;
  Reg<F16> half;
  Reg<BF16> bf16;
  Reg<E4M3> e4m3;
  Reg<E2M1x2> e2m1;
  vlds(a, x);
  vci(b, 1.0f);
  vci(i, 2);
  vadd(a, a, b, all);
  vsub(a, a, b, all);
  vmul(a, a, b, all);
  vmula(a, a, b, all);
  vmax(a, a, b, all);
  vmin(a, a, b, all);
  vabs(a, b, all);
  vneg(a, b, all);
  vdiv<Precision::kExact>(a, a, b, all);
  vdiv<Precision::kFast>(a, a, b, all);
  vsqrt<Precision::kExact>(a, b, all);
  vsqrt<Precision::kFast>(a, b, all);
  vexp(a, b, all);
  vln(a, b, all);
  vcadd(a, b, all);
  vcmax(a, b, all);
  vcmin(a, b, all);
  vcgmax(a, b, all);
  vcvt<0, Round::kRint, Saturate::kNo>(half, a, all);
  vcvt<1, Round::kRint, Saturate::kYes>(bf16, a, all);
  vcvt<3, Round::kRint, Saturate::kYes>(e4m3, a, all);
  vcvt<0, Round::kFloor, Saturate::kYes>(i, a, all);
  vcvt<0, Round::kRint, Saturate::kNo>(a, i, all);
  vcvt<2, Round::kNone, Saturate::kNo>(a, e4m3, narrow);
  vcvt<1, Round::kNone, Saturate::kNo>(a, bf16, narrow);
  vcvt<1, Round::kNone, Saturate::kNo>(a, half, narrow);
  vcvt<2, Round::kRint, Saturate::kYes>(e2m1, bf16, narrow);
  vcvt<2, Round::kNone, Saturate::kNo>(bf16, e2m1, narrow);
  vsts_pack<StoreDist::kPack4>(bytes, as<uint32>(a), all);
  vsts_pack<StoreDist::kPack>(as_ub<uint16>(bytes), as<uint32>(a), all);
}

struct Args {
  uint32* words;
  uint64* fault;
};
struct Shape {
  int32 rows;
};
struct Tile {
  int32 stages;
};

TILEKERNELS_CORE void run(const Args& args, const Shape& shape, const Tile& tile) {
  prologue();
  set_ctrl<48>(1);
  MutexPool pool;
  InRing<uint32> in(pool, "in", tile.stages, 64);
  const Ub<uint8> u8 = ub_alloc<uint8>("u8", 256);
  const Ub<uint16> u16 = ub_alloc<uint16>("u16", 128);
  const Ub<uint32> u32 = ub_alloc<uint32>("u32", 64);
  const Ub<float> f = ub_alloc<float>("f", 64);
  copy_in(in.fill(), gm(args.words), {shape.rows, 256, 256, 256});
  in.filled();
  vf_call<integers<uint8>>("integers", u8);
  vf_call<integers<uint16>>("integers", u16);
  vf_call<integers<uint32>>("integers", in.empty());
  in.emptied();
  vf_call<counts>("counts", u8, u16);
  vf_call<floats>("floats", f, u8);
  set_flag<Pipe::kV, Pipe::kMte2>(0);
  wait_flag<Pipe::kV, Pipe::kMte2>(0);
  set_flag<Pipe::kMte3, Pipe::kS>(1);
  wait_flag<Pipe::kMte3, Pipe::kS>(1);
  lock<Pipe::kMte2>(1);
  unlock<Pipe::kMte2>(1);
  pipe_barrier<Pipe::kMte3>();
  set_value(u32, 0, get_value(u32, 1));
  copy_out(gm(args.words), u32, {1, 256});
  report_faults(args.fault, alloc_faults(), 1, numerics::kFaultNotFinite,
                [](int32 item) { return int64{item}; });
  barrier_all();
}

}  // namespace tilekernels::ascend::primitives_kernel

#ifdef __NPU_ARCH__
#include "runtime/ascend/npu/entry.h"
TILEKERNELS_ENTRY(primitives)
#else
#endif  // __NPU_ARCH__
