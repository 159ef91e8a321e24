// The vector-core layer on a real core: its statements as calls of Ascend C's public register API.
// Never run on an NPU so far; docs/ascend_npu.md says what was checked and how.
#pragma once

#include "basic_api/kernel_vec_intf.h"

#define TILEKERNELS_CORE __aicore__ inline
#define TILEKERNELS_CORE_PART __aicore__ inline
#define TILEKERNELS_VF __simd_vf__ inline
#define TILEKERNELS_CALLEE __simd_callee__ inline

namespace tilekernels::ascend {

namespace api = AscendC::Reg;

// The compiler's own types of lanes
template <class T>
struct NativeOf {
  using U = T;
};
// clang-format off
template <> struct NativeOf<F16> { using U = half; };
template <> struct NativeOf<BF16> { using U = bfloat16_t; };
template <> struct NativeOf<E4M3> { using U = fp8_e4m3fn_t; };
template <> struct NativeOf<E2M1x2> { using U = fp4x2_e2m1_t; };
// clang-format on
template <class T>
using Native = typename NativeOf<T>::U;
// The type by which lanes are stored and loaded
template <class T>
struct StoredAs {
  using U = Native<T>;
};
// clang-format off
template <> struct StoredAs<E4M3> { using U = uint8_t; };
template <> struct StoredAs<E2M1x2> { using U = uint8_t; };
// clang-format on
template <class T>
using Stored = typename StoredAs<T>::U;

using Mask = api::MaskReg;
enum class Pipe { kS, kV, kMte2, kMte3 };
enum class Bar { kVstVld, kVldVst, kVstVst, kVvAll };

template <class T>
class Reg : public api::RegTensor<Native<T>> {
 public:
  static constexpr int32 kLanes = kVectorBytes / lane_bytes(kLaneOf<T>);
};

template <class U, class T>
TILEKERNELS_CALLEE Reg<U>& as(Reg<T>& reg) {
  return reinterpret_cast<Reg<U>&>(reg);
}
template <class U, class T>
TILEKERNELS_CALLEE const Reg<U>& as(const Reg<T>& reg) {
  return reinterpret_cast<const Reg<U>&>(reg);
}

/// Vector functions take pointers, so that is what a place in UB is.
template <class T>
using Ub = __ubuf__ Stored<T>*;
template <class U, class N>
TILEKERNELS_CORE Ub<U> as_ub(__ubuf__ N* ub) {
  return reinterpret_cast<Ub<U>>(ub);
}

template <class T>
struct Gm {
  __gm__ T* address = nullptr;
  TILEKERNELS_CORE Gm operator+(int64 elements) const { return {address + elements}; }
};
template <class T>
TILEKERNELS_CORE Gm<T> gm(T* address) {
  return {reinterpret_cast<__gm__ T*>(address)};
}

// The API takes its operands by reference to what it does not change.
template <class T>
TILEKERNELS_CALLEE api::RegTensor<Native<T>>& raw(const Reg<T>& reg) {
  return const_cast<Reg<T>&>(reg);
}
TILEKERNELS_CALLEE Mask& raw(const Mask& mask) { return const_cast<Mask&>(mask); }

// ------------------------------ core code

TILEKERNELS_CORE int64 block_idx() { return AscendC::GetBlockIdx(); }
TILEKERNELS_CORE int64 block_num() { return AscendC::GetBlockNum(); }

// Bytes of UB handed out on this core; outlives a kernel.
__BLOCK_LOCAL__ inline uint32 ub_used;

template <int32 kBit>
TILEKERNELS_CORE void set_ctrl(int32 value) {
  AscendC::SetCtrlSpr<kBit, kBit>(value);
}
TILEKERNELS_CORE void prologue() {
  ub_used = 0;
  AscendC::InitSocState();
  set_ctrl<60>(0);
}

template <class T>
TILEKERNELS_CORE Ub<T> ub_alloc(const char*, int64 count,
                                int32 readable_tail_bytes = kVectorBytes) {
  const uint32 offset = ub_used;
  const int64 bytes = numerics::align_up(count * static_cast<int64>(sizeof(T)), kBlockBytes) +
                      numerics::align_up(readable_tail_bytes, kBlockBytes);
  ub_used += static_cast<uint32>(bytes);
  return reinterpret_cast<Ub<T>>(static_cast<uint64>(offset));
}

struct CopyShape {
  int64 rows;
  int64 row_bytes;
  int64 gm_pitch = 0;
  int64 ub_pitch = 0;
  bool compact = false;
};

// UB strides count blocks between pieces, GM strides bytes.
TILEKERNELS_CORE int64 ub_gap(const CopyShape& s) {
  const int64 piece = numerics::align_up(s.row_bytes, kBlockBytes);
  return s.rows > 1 ? (s.ub_pitch - piece) / kBlockBytes : 0;
}
TILEKERNELS_CORE int64 gm_gap(const CopyShape& s) {
  return s.rows > 1 ? s.gm_pitch - s.row_bytes : 0;
}
template <class N>
TILEKERNELS_CORE AscendC::LocalTensor<uint8_t> local(__ubuf__ N* ub) {
  return AscendC::LocalTensor<uint8_t>(
      AscendC::TPosition::VECCALC, static_cast<uint32_t>(reinterpret_cast<uint64>(ub)), kUbBytes);
}
template <class T>
TILEKERNELS_CORE AscendC::GlobalTensor<uint8_t> global(Gm<T> of) {
  AscendC::GlobalTensor<uint8_t> tensor;
  tensor.SetGlobalBuffer(reinterpret_cast<__gm__ uint8_t*>(
      const_cast<__gm__ void*>(static_cast<const __gm__ void*>(of.address))));
  return tensor;
}

template <class N, class T>
TILEKERNELS_CORE void copy_in(__ubuf__ N* to, Gm<T> from, const CopyShape& s) {
  const AscendC::DataCopyPadExtParams<uint8_t> no_pad{false, 0, 0, 0};
  if (s.compact) {
    const AscendC::DataCopyExtParams params(static_cast<uint16_t>(s.rows),
                                            static_cast<uint32_t>(s.row_bytes), gm_gap(s),
                                            int64_t{0}, 0);
    AscendC::DataCopyPad<uint8_t, AscendC::PaddingMode::Compact>(local(to), global(from), params,
                                                                 no_pad);
  } else {
    const AscendC::DataCopyExtParams params(
        static_cast<uint16_t>(s.rows), static_cast<uint32_t>(s.row_bytes), gm_gap(s), ub_gap(s), 0);
    AscendC::DataCopyPad<uint8_t>(local(to), global(from), params, no_pad);
  }
}
template <class T, class N>
TILEKERNELS_CORE void copy_out(Gm<T> to, __ubuf__ N* from, const CopyShape& s) {
  const AscendC::DataCopyExtParams params(
      static_cast<uint16_t>(s.rows), static_cast<uint32_t>(s.row_bytes), ub_gap(s), gm_gap(s), 0);
  AscendC::DataCopyPad<uint8_t>(global(to), local(from), params);
}

template <Pipe kFrom, Pipe kTo>
constexpr AscendC::HardEvent event_of() {
  using E = AscendC::HardEvent;
  constexpr int32 kPair = static_cast<int32>(kFrom) * 4 + static_cast<int32>(kTo);
  static_assert(kFrom != kTo, "a flag orders two pipes; one pipe needs pipe_barrier");
  constexpr E kEvents[] = {E::MAX,    E::S_V,    E::S_MTE2,    E::S_MTE3,     //
                           E::V_S,    E::MAX,    E::V_MTE2,    E::V_MTE3,     //
                           E::MTE2_S, E::MTE2_V, E::MAX,       E::MTE2_MTE3,  //
                           E::MTE3_S, E::MTE3_V, E::MTE3_MTE2, E::MAX};
  return kEvents[kPair];
}
template <Pipe kFrom, Pipe kTo>
TILEKERNELS_CORE void set_flag(int32 id) {
  AscendC::SetFlag<event_of<kFrom, kTo>()>(id);
}
template <Pipe kFrom, Pipe kTo>
TILEKERNELS_CORE void wait_flag(int32 id) {
  AscendC::WaitFlag<event_of<kFrom, kTo>()>(id);
}
template <Pipe kPipe>
constexpr pipe_t pipe_of() {
  return kPipe == Pipe::kV ? PIPE_V : kPipe == Pipe::kMte2 ? PIPE_MTE2 : PIPE_MTE3;
}
template <Pipe kPipe>
TILEKERNELS_CORE void lock(int32 id) {
  AscendC::Mutex::Lock<pipe_of<kPipe>()>(static_cast<uint8_t>(id));
}
template <Pipe kPipe>
TILEKERNELS_CORE void unlock(int32 id) {
  AscendC::Mutex::Unlock<pipe_of<kPipe>()>(static_cast<uint8_t>(id));
}
template <Pipe kPipe>
TILEKERNELS_CORE void pipe_barrier() {
  AscendC::PipeBarrier<pipe_of<kPipe>()>();
}
TILEKERNELS_CORE void barrier_all() { AscendC::PipeBarrier<PIPE_ALL>(); }

template <class N>
TILEKERNELS_CORE N get_value(__ubuf__ N* ub, int64 i) {
  return ub[i];
}
template <class N>
TILEKERNELS_CORE void set_value(__ubuf__ N* ub, int64 i, N value) {
  ub[i] = value;
}
template <class T>
TILEKERNELS_CORE T get_value(Gm<const T> from, int64 i) {
  return from.address[i];
}
TILEKERNELS_CORE uint16 trips(int64 count) { return static_cast<uint16>(count); }

template <auto kFunction, class... Args>
TILEKERNELS_CORE void vf_call(const char*, Args... args) {
  asc_vf_call<kFunction>(args...);
}

// ------------------------------ masks

enum class Pattern { kAll, kNone, kVl1, kVl2, kVl4, kVl8, kVl16, kVl32 };
constexpr api::MaskPattern pattern_of(Pattern pattern) {
  using P = api::MaskPattern;
  constexpr P kPatterns[] = {P::ALL, P::ALLF, P::VL1, P::VL2, P::VL4, P::VL8, P::VL16, P::VL32};
  return kPatterns[static_cast<int32>(pattern)];
}
template <class T, Pattern kPattern = Pattern::kAll>
TILEKERNELS_CALLEE Mask pset() {
  return api::CreateMask<Stored<T>, pattern_of(kPattern)>();
}
template <class T>
TILEKERNELS_CALLEE Mask plt(uint32& n) {
  return api::UpdateMask<Stored<T>>(n);
}
TILEKERNELS_CALLEE void pand(Mask& d, const Mask& a, const Mask& b, const Mask& m) {
  api::And(d, raw(a), raw(b), raw(m));
}
TILEKERNELS_CALLEE void por(Mask& d, const Mask& a, const Mask& b, const Mask& m) {
  api::Or(d, raw(a), raw(b), raw(m));
}
TILEKERNELS_CALLEE void pnot(Mask& d, const Mask& a, const Mask& m) { api::Not(d, raw(a), raw(m)); }

// ------------------------------ loads and stores

enum class Dist { kNorm, kBrc, kBlk, kE2b, kUnpack, kUnpack4, kUpsample };
template <Dist kDist, int32 kBytes>
constexpr api::LoadDist dist_of() {
  using D = api::LoadDist;
  constexpr int32 kWidth = kBytes == 1 ? 0 : kBytes == 2 ? 1 : 2;
  constexpr D kBrc[] = {D::DIST_BRC_B8, D::DIST_BRC_B16, D::DIST_BRC_B32};
  constexpr D kUnpack[] = {D::DIST_UNPACK_B8, D::DIST_UNPACK_B16, D::DIST_UNPACK_B32};
  constexpr D kE2b[] = {D::DIST_NORM, D::DIST_E2B_B16, D::DIST_E2B_B32};
  constexpr D kUp[] = {D::DIST_US_B8, D::DIST_US_B16, D::DIST_NORM};
  switch (kDist) {
    case Dist::kNorm:
      return D::DIST_NORM;
    case Dist::kBrc:
      return kBrc[kWidth];
    case Dist::kBlk:
      return D::DIST_BLK;
    case Dist::kE2b:
      return kE2b[kWidth];
    case Dist::kUnpack:
      return kUnpack[kWidth];
    case Dist::kUnpack4:
      return D::DIST_UNPACK4_B8;
    default:
      return kUp[kWidth];
  }
}
// A register as the type by which it is loaded and stored
template <class T>
TILEKERNELS_CALLEE api::RegTensor<Stored<T>>& stored(const Reg<T>& reg) {
  return reinterpret_cast<api::RegTensor<Stored<T>>&>(const_cast<Reg<T>&>(reg));
}
template <Dist kDist = Dist::kNorm, class T>
TILEKERNELS_CALLEE void vlds(Reg<T>& d, Ub<T> ub) {
  api::LoadAlign<Stored<T>, dist_of<kDist, lane_bytes(kLaneOf<T>)>()>(stored(d), ub);
}
template <class T>
TILEKERNELS_CALLEE void vld_deintlv(Reg<T>& d0, Reg<T>& d1, Ub<T> ub) {
  using D = api::LoadDist;
  constexpr int32 kBytes = lane_bytes(kLaneOf<T>);
  constexpr D kDist = kBytes == 1   ? D::DIST_DINTLV_B8
                      : kBytes == 2 ? D::DIST_DINTLV_B16
                                    : D::DIST_DINTLV_B32;
  api::LoadAlign<Stored<T>, kDist>(stored(d0), stored(d1), ub);
}
template <class T>
TILEKERNELS_CALLEE void vldu(Reg<T>& d, Ub<T> ub) {
  api::Load(stored(d), ub);
}
template <class T, class I>
TILEKERNELS_CALLEE void vgather(Reg<T>& d, Ub<T> ub, const Reg<I>& idx, const Mask& m) {
  static_assert(sizeof(T) == sizeof(I) && sizeof(T) >= 2, "gathers of bytes are not mapped");
  if constexpr (sizeof(T) == 2) {
    api::Gather(stored(d), ub, raw(as<uint16>(idx)), raw(m));
  } else {
    api::Gather(stored(d), ub, raw(as<uint32>(idx)), raw(m));
  }
}

enum class StoreDist { kNorm, kPack, kPack4 };
template <class T>
TILEKERNELS_CALLEE void vsts(Ub<T> ub, const Reg<T>& s, const Mask& m) {
  api::StoreAlign(ub, stored(s), raw(m));
}
template <StoreDist kDist, class N, class T>
TILEKERNELS_CALLEE void vsts_pack(__ubuf__ N* ub, const Reg<T>& s, const Mask& m) {
  using D = api::StoreDist;
  constexpr D kOf = kDist == StoreDist::kPack4 ? D::DIST_PACK4_B32
                    : sizeof(N) == 2           ? D::DIST_PACK_B32
                                               : D::DIST_PACK_B16;
  api::StoreAlign<N, kOf>(ub, reinterpret_cast<api::RegTensor<N>&>(const_cast<Reg<T>&>(s)), raw(m));
}
template <class T>
TILEKERNELS_CALLEE void vst_first(Ub<T> ub, const Reg<T>& s) {
  using D = api::StoreDist;
  constexpr D kDist = sizeof(T) == 1   ? D::DIST_FIRST_ELEMENT_B8
                      : sizeof(T) == 2 ? D::DIST_FIRST_ELEMENT_B16
                                       : D::DIST_FIRST_ELEMENT_B32;
  Mask one = pset<T, Pattern::kVl1>();
  api::StoreAlign<Stored<T>, kDist>(ub, stored(s), one);
}
template <class T>
TILEKERNELS_CALLEE void vst_intlv(Ub<T> ub, const Reg<T>& a, const Reg<T>& b) {
  using D = api::StoreDist;
  constexpr D kDist = sizeof(T) == 1   ? D::DIST_INTLV_B8
                      : sizeof(T) == 2 ? D::DIST_INTLV_B16
                                       : D::DIST_INTLV_B32;
  Mask all = pset<T>();
  api::StoreAlign<Stored<T>, kDist>(ub, stored(a), stored(b), all);
}
template <class T>
TILEKERNELS_CALLEE void vstu(Ub<T> ub, const Reg<T>& s, uint32 count) {
  api::Store(ub, stored(s), count);
}
template <class T, class I>
TILEKERNELS_CALLEE void vscatter(Ub<T> ub, const Reg<T>& s, const Reg<I>& idx, const Mask& m) {
  static_assert(sizeof(T) == 4 && sizeof(I) == 4, "scatters of 32-bit lanes are mapped");
  api::Scatter(ub, stored(s), raw(as<uint32>(idx)), raw(m));
}

template <Bar kBar>
TILEKERNELS_CALLEE void mem_bar() {
  using M = api::MemType;
  if constexpr (kBar == Bar::kVstVld) {
    api::LocalMemBar<M::VEC_STORE, M::VEC_LOAD>();
  } else if constexpr (kBar == Bar::kVldVst) {
    api::LocalMemBar<M::VEC_LOAD, M::VEC_STORE>();
  } else if constexpr (kBar == Bar::kVstVst) {
    api::LocalMemBar<M::VEC_STORE, M::VEC_STORE>();
  } else {
    api::LocalMemBar<M::VEC_ALL, M::VEC_ALL>();
  }
}

// ------------------------------ arithmetic

// clang-format off
template <class T> TILEKERNELS_CALLEE void vadd(Reg<T>& d, const Reg<T>& a, const Reg<T>& b, const Mask& m) { api::Add(raw(d), raw(a), raw(b), raw(m)); }
template <class T> TILEKERNELS_CALLEE void vsub(Reg<T>& d, const Reg<T>& a, const Reg<T>& b, const Mask& m) { api::Sub(raw(d), raw(a), raw(b), raw(m)); }
template <class T> TILEKERNELS_CALLEE void vmul(Reg<T>& d, const Reg<T>& a, const Reg<T>& b, const Mask& m) { api::Mul(raw(d), raw(a), raw(b), raw(m)); }
template <class T> TILEKERNELS_CALLEE void vmax(Reg<T>& d, const Reg<T>& a, const Reg<T>& b, const Mask& m) { api::Max(raw(d), raw(a), raw(b), raw(m)); }
template <class T> TILEKERNELS_CALLEE void vmin(Reg<T>& d, const Reg<T>& a, const Reg<T>& b, const Mask& m) { api::Min(raw(d), raw(a), raw(b), raw(m)); }
template <class T> TILEKERNELS_CALLEE void vand(Reg<T>& d, const Reg<T>& a, const Reg<T>& b, const Mask& m) { api::And(raw(d), raw(a), raw(b), raw(m)); }
template <class T> TILEKERNELS_CALLEE void vor(Reg<T>& d, const Reg<T>& a, const Reg<T>& b, const Mask& m) { api::Or(raw(d), raw(a), raw(b), raw(m)); }
template <class T> TILEKERNELS_CALLEE void vxor(Reg<T>& d, const Reg<T>& a, const Reg<T>& b, const Mask& m) { api::Xor(raw(d), raw(a), raw(b), raw(m)); }
template <class T> TILEKERNELS_CALLEE void vadds(Reg<T>& d, const Reg<T>& a, T b, const Mask& m) { api::Adds(raw(d), raw(a), b, raw(m)); }
template <class T> TILEKERNELS_CALLEE void vmuls(Reg<T>& d, const Reg<T>& a, T b, const Mask& m) { api::Muls(raw(d), raw(a), b, raw(m)); }
template <class T> TILEKERNELS_CALLEE void vmaxs(Reg<T>& d, const Reg<T>& a, T b, const Mask& m) { api::Maxs(raw(d), raw(a), b, raw(m)); }
template <class T> TILEKERNELS_CALLEE void vmins(Reg<T>& d, const Reg<T>& a, T b, const Mask& m) { api::Mins(raw(d), raw(a), b, raw(m)); }
template <class T> TILEKERNELS_CALLEE void vabs(Reg<T>& d, const Reg<T>& a, const Mask& m) { api::Abs(raw(d), raw(a), raw(m)); }
template <class T> TILEKERNELS_CALLEE void vneg(Reg<T>& d, const Reg<T>& a, const Mask& m) { api::Neg(raw(d), raw(a), raw(m)); }
template <class T> TILEKERNELS_CALLEE void vnot(Reg<T>& d, const Reg<T>& a, const Mask& m) { api::Not(raw(d), raw(a), raw(m)); }
template <class T> TILEKERNELS_CALLEE void vmula(Reg<T>& d, const Reg<T>& a, const Reg<T>& b, const Mask& m) { api::MulAddDst(raw(d), raw(a), raw(b), raw(m)); }
template <class T> TILEKERNELS_CALLEE void vshls(Reg<T>& d, const Reg<T>& a, int32 count, const Mask& m) { api::ShiftLefts(raw(d), raw(a), static_cast<int16_t>(count), raw(m)); }
template <class T> TILEKERNELS_CALLEE void vshrs(Reg<T>& d, const Reg<T>& a, int32 count, const Mask& m) { api::ShiftRights(raw(d), raw(a), static_cast<int16_t>(count), raw(m)); }
// clang-format on

TILEKERNELS_CALLEE void vmull(Reg<uint32>& low, Reg<uint32>& high, const Reg<uint32>& a,
                              const Reg<uint32>& b, const Mask& m) {
  api::Mull(raw(low), raw(high), raw(a), raw(b), raw(m));
}

enum class Precision { kExact, kFast };
inline constexpr api::DivSpecificMode kExactDiv{api::MaskMergeMode::ZEROING, true,
                                                AscendC::DivAlgo::PRECISION_0ULP_FTZ_FALSE};
template <Precision kPrecision>
TILEKERNELS_CALLEE void vdiv(Reg<float>& d, const Reg<float>& a, const Reg<float>& b,
                             const Mask& m) {
  if constexpr (kPrecision == Precision::kExact) {
    api::Div<float, &kExactDiv>(raw(d), raw(a), raw(b), raw(m));
  } else {
    api::Div(raw(d), raw(a), raw(b), raw(m));
  }
}
inline constexpr api::SqrtSpecificMode kExactSqrt{api::MaskMergeMode::ZEROING, true,
                                                  AscendC::SqrtAlgo::PRECISION_0ULP_FTZ_FALSE};
template <Precision kPrecision>
TILEKERNELS_CALLEE void vsqrt(Reg<float>& d, const Reg<float>& a, const Mask& m) {
  if constexpr (kPrecision == Precision::kExact) {
    api::Sqrt<float, &kExactSqrt>(raw(d), raw(a), raw(m));
  } else {
    api::Sqrt(raw(d), raw(a), raw(m));
  }
}
TILEKERNELS_CALLEE void vexp(Reg<float>& d, const Reg<float>& a, const Mask& m) {
  api::Exp(raw(d), raw(a), raw(m));
}
TILEKERNELS_CALLEE void vln(Reg<float>& d, const Reg<float>& a, const Mask& m) {
  api::Ln(raw(d), raw(a), raw(m));
}

// ------------------------------ comparison, selection, reduction

enum class Cmp { kEq, kNe, kLt, kLe, kGt, kGe };
constexpr AscendC::CMPMODE mode_of(Cmp cmp) {
  using C = AscendC::CMPMODE;
  constexpr C kModes[] = {C::EQ, C::NE, C::LT, C::LE, C::GT, C::GE};
  return kModes[static_cast<int32>(cmp)];
}
template <Cmp kCmp, class T>
TILEKERNELS_CALLEE void vcmp(Mask& d, const Reg<T>& a, const Reg<T>& b, const Mask& m) {
  api::Compare<Native<T>, mode_of(kCmp)>(d, raw(a), raw(b), raw(m));
}
template <Cmp kCmp, class T>
TILEKERNELS_CALLEE void vcmps(Mask& d, const Reg<T>& a, T b, const Mask& m) {
  api::Compares<Native<T>, mode_of(kCmp)>(d, raw(a), b, raw(m));
}
template <class T>
TILEKERNELS_CALLEE void vsel(Reg<T>& d, const Reg<T>& a, const Reg<T>& b, const Mask& m) {
  api::Select(raw(d), raw(a), raw(b), raw(m));
}
template <class T>
TILEKERNELS_CALLEE void vcadd(Reg<T>& d, const Reg<T>& a, const Mask& m) {
  api::Reduce<api::ReduceType::SUM>(raw(d), raw(a), m);
}
template <class T>
TILEKERNELS_CALLEE void vcmax(Reg<T>& d, const Reg<T>& a, const Mask& m) {
  api::Reduce<api::ReduceType::MAX>(raw(d), raw(a), m);
}
template <class T>
TILEKERNELS_CALLEE void vcmin(Reg<T>& d, const Reg<T>& a, const Mask& m) {
  api::Reduce<api::ReduceType::MIN>(raw(d), raw(a), m);
}
template <class T>
TILEKERNELS_CALLEE void vcgmax(Reg<T>& d, const Reg<T>& a, const Mask& m) {
  api::ReduceDataBlock<api::ReduceType::MAX>(raw(d), raw(a), m);
}

// ------------------------------ moves

template <class T>
TILEKERNELS_CALLEE void vdup(Reg<T>& d, T value, const Mask& m) {
  api::Duplicate(raw(d), value, raw(m));
}
template <class T>
TILEKERNELS_CALLEE void vdup_lane0(Reg<T>& d, const Reg<T>& s, const Mask& m) {
  api::Duplicate(raw(d), raw(s), raw(m));
}
template <class T>
TILEKERNELS_CALLEE void vmov(Reg<T>& d, const Reg<T>& s) {
  api::Move(raw(d), raw(s));
}
template <class T>
TILEKERNELS_CALLEE void vci(Reg<T>& d, T start) {
  api::Arange(raw(d), start);
}
template <class T>
TILEKERNELS_CALLEE void vintlv(Reg<T>& d0, Reg<T>& d1, const Reg<T>& a, const Reg<T>& b) {
  api::Interleave(raw(d0), raw(d1), raw(a), raw(b));
}
template <class T>
TILEKERNELS_CALLEE void vdintlv(Reg<T>& d0, Reg<T>& d1, const Reg<T>& a, const Reg<T>& b) {
  api::DeInterleave(raw(d0), raw(d1), raw(a), raw(b));
}
template <class T, class I>
TILEKERNELS_CALLEE void vselr(Reg<T>& d, const Reg<T>& s, const Reg<I>& idx) {
  static_assert(sizeof(T) == 4 && sizeof(I) == 4, "register gathers of 32-bit lanes are mapped");
  api::Gather(raw(d), raw(s), raw(as<uint32>(idx)));
}
template <class T>
TILEKERNELS_CALLEE void vsqz(Reg<T>& d, const Reg<T>& s, const Mask& m) {
  api::Squeeze(raw(d), raw(s), raw(m));
}
template <bool kUpper>
TILEKERNELS_CALLEE void vhist(Reg<uint16>& d, const Reg<uint8>& s, const Mask& m) {
  using B = api::HistogramsBinType;
  api::Histograms<uint8, uint16, kUpper ? B::BIN1 : B::BIN0, api::HistogramsType::FREQUENCY>(
      raw(d), raw(s), raw(m));
}
using StreamPlace = api::UnalignRegForStore;
TILEKERNELS_CALLEE void clear_ar() { api::ClearSpr<AscendC::SpecialPurposeReg::AR>(); }
template <class T>
TILEKERNELS_CALLEE void vsqz_count(Reg<T>& d, const Reg<T>& s, const Mask& m) {
  api::Squeeze<Native<T>, api::GatherMaskMode::STORE_REG>(raw(d), raw(s), raw(m));
}
template <class T>
TILEKERNELS_CALLEE void vstur(Ub<T> ub, const Reg<T>& s, StreamPlace& stream) {
  api::StoreUnAlign(ub, stored(s), stream);
}
template <class N>
TILEKERNELS_CALLEE void vstar(__ubuf__ N* ub, StreamPlace& stream) {
  api::StoreUnAlignPost(ub, stream);
}

constexpr AscendC::RoundMode round_of(Round round) {
  using R = AscendC::RoundMode;
  constexpr R kRounds[] = {R::UNKNOWN,    R::CAST_RINT, R::CAST_ROUND,
                           R::CAST_FLOOR, R::CAST_CEIL, R::CAST_TRUNC};
  return kRounds[static_cast<int32>(round)];
}
template <int32 kPart, Round kRound, Saturate kSaturate>
inline constexpr api::CastTrait kTraitOf{
    static_cast<api::RegLayout>(kPart),
    kRound == Round::kNone
        ? api::SatMode::UNKNOWN
        : (kSaturate == Saturate::kYes ? api::SatMode::SAT : api::SatMode::NO_SAT),
    api::MaskMergeMode::ZEROING, round_of(kRound)};
template <int32 kPart, Round kRound, Saturate kSaturate, class To, class From>
TILEKERNELS_CALLEE void vcvt(Reg<To>& d, const Reg<From>& s, const Mask& m) {
  static_assert(cast_problem(kLaneOf<To>, kLaneOf<From>, kPart, kRound, kSaturate) == nullptr,
                "the vector core has no such conversion: see cast_problem");
  // A layout has no meaning between lanes of one width.
  constexpr int32 kLayout = sizeof(To) == sizeof(From) ? -1 : kPart;
  api::Cast<Native<To>, Native<From>, kTraitOf<kLayout, kRound, kSaturate>>(raw(d), raw(s), raw(m));
}

}  // namespace tilekernels::ascend
