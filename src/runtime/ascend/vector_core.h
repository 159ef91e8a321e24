// The vector-core layer: what a kernel may say to one Ascend vector core, in names close to
// Ascend's own. Kernels are written against this header alone; on a host it leads to the machine
// model, for the NPU's run-time compiler to the mapping in npu/.
//
// A kernel is core code (scalar; copies, vector functions and their order) and vector functions
// (registers; started by vf_call, which hands over plain numbers and UB pointers). Every vector
// instruction names its destination first and its mask last; lanes outside of the mask become 0.
#pragma once

#include "runtime/ascend/lanes.h"

#ifdef __NPU_ARCH__
#include "runtime/ascend/npu/vector_core.h"
#else

#include "runtime/ascend/model/machine.h"

// What marks functions for the NPU's compiler
#define TILEKERNELS_CORE inline    // core code
#define TILEKERNELS_CORE_PART      // templates of core code that a host may compile elsewhere
#define TILEKERNELS_VF inline      // a vector function
#define TILEKERNELS_CALLEE inline  // called by vector functions

namespace tilekernels::ascend {

using model::Mask;
using model::Pipe;

/// A vector register of 256 bytes. Its contents are undefined until written.
template <class T>
class Reg : public model::RegBits {
 public:
  static constexpr int32 kLanes = kVectorBytes / lane_bytes(kLaneOf<T>);
};

/// The same register, its lanes of another type.
template <class U, class T>
Reg<U>& as(Reg<T>& reg) {
  return static_cast<Reg<U>&>(static_cast<model::RegBits&>(reg));
}
template <class U, class T>
const Reg<U>& as(const Reg<T>& reg) {
  return static_cast<const Reg<U>&>(static_cast<const model::RegBits&>(reg));
}

/// A pointer into the on-core buffer.
template <class T>
struct Ub {
  model::UbPlace place{};
  Ub operator+(int64 elements) const {
    return {model::moved(place, elements * static_cast<int64>(sizeof(T)))};
  }
};
template <class U, class T>
Ub<U> as_ub(Ub<T> ub) {
  return {ub.place};
}

/// A pointer into device memory (GM).
template <class T>
struct Gm {
  T* address = nullptr;
  Gm operator+(int64 elements) const { return {address + elements}; }
};
template <class T>
Gm<T> gm(T* address) {
  return {address};
}

// ------------------------------ core code

inline int64 block_idx() { return model::block_idx(); }
inline int64 block_num() { return model::block_num(); }

/// First statement of every kernel: the control register's saturation bit 60 is 1 after a reset
/// and would make casts ignore what they say.
inline void prologue() { model::set_ctrl(60, 0); }
template <int32 kBit>
void set_ctrl(int32 value) {
  model::set_ctrl(kBit, value);
}

/// `count` elements of UB at a 32-byte boundary, and as many bytes behind them that loads of whole
/// registers may read but nothing may write.
template <class T>
Ub<T> ub_alloc(const char* name, int64 count, int32 readable_tail_bytes = kVectorBytes) {
  return {model::ub_alloc(name, count * static_cast<int64>(sizeof(T)), readable_tail_bytes)};
}

/// One copy between GM and UB: `rows` pieces of `row_bytes`. A GM piece starts `gm_pitch` bytes
/// after the one before, a UB piece `ub_pitch` bytes, a multiple of 32; or, `compact` and into UB
/// only, right where the one before ends. What fills the last block of a piece is undefined.
struct CopyShape {
  int64 rows;
  int64 row_bytes;
  int64 gm_pitch = 0;
  int64 ub_pitch = 0;
  bool compact = false;
};
/// Pipe MTE2. At most 4095 rows of at most 2097151 bytes.
template <class T, class U>
void copy_in(Ub<T> to, Gm<U> from, const CopyShape& s) {
  model::copy_in(to.place, from.address, {s.rows, s.row_bytes, s.gm_pitch, s.ub_pitch, s.compact});
}
/// Pipe MTE3.
template <class T, class U>
void copy_out(Gm<T> to, Ub<U> from, const CopyShape& s) {
  model::copy_out(to.address, from.place, {s.rows, s.row_bytes, s.gm_pitch, s.ub_pitch, s.compact});
}

/// Binary flags, ids 0..5 per pair of pipes.
template <Pipe kFrom, Pipe kTo>
void set_flag(int32 id) {
  static_assert(kFrom != kTo, "a flag orders two pipes; one pipe needs pipe_barrier");
  model::set_flag(kFrom, kTo, id);
}
template <Pipe kFrom, Pipe kTo>
void wait_flag(int32 id) {
  static_assert(kFrom != kTo, "a flag orders two pipes; one pipe needs pipe_barrier");
  model::wait_flag(kFrom, kTo, id);
}
/// Mutexes, ids 0..27: lock blocks the pipe until every earlier unlock of that id has run.
template <Pipe kPipe>
void lock(int32 id) {
  static_assert(kPipe != Pipe::kS, "mutexes order queues");
  model::lock(kPipe, id);
}
template <Pipe kPipe>
void unlock(int32 id) {
  static_assert(kPipe != Pipe::kS, "mutexes order queues");
  model::unlock(kPipe, id);
}
template <Pipe kPipe>
void pipe_barrier() {
  static_assert(kPipe != Pipe::kS, "the scalar unit is in order");
  model::pipe_barrier(kPipe);
}
/// All pipes; the last statement of a kernel.
inline void barrier_all() { model::barrier_all(); }

/// The scalar unit on UB: pipe S.
template <class T>
T get_value(Ub<T> ub, int64 i) {
  T value;
  model::scalar_read((ub + i).place, &value, sizeof(T));
  return value;
}
template <class T>
void set_value(Ub<T> ub, int64 i, T value) {
  model::scalar_write((ub + i).place, &value, sizeof(T));
}

/// The scalar unit on GM, through its own cache: of what no core writes during the kernel.
template <class T>
T get_value(Gm<const T> from, int64 i) {
  T value;
  model::scalar_read_gm(from.address + i, &value, sizeof(T));
  return value;
}

/// A trip count for a loop in a vector function.
inline uint16 trips(int64 count) { return model::trips(count); }

namespace detail {
template <class T>
constexpr bool kIsVfArg = __is_enum(T) || !__is_class(T);
template <class T>
constexpr bool kIsVfArg<Ub<T> > = true;
}  // namespace detail

/// Queues the vector function kFunction(args...) on pipe V. `name` is for diagnoses and timelines.
template <auto kFunction, class... Args>
void vf_call(const char* name, Args... args) {
  static_assert((detail::kIsVfArg<Args> && ...), "vector functions take numbers and UB pointers");
  const auto call = [args...] { kFunction(args...); };
  static_assert(__is_trivially_copyable(decltype(call)));
  static_assert(sizeof(call) <= model::kMaxVfBytes, "too many arguments");
  model::enqueue_vf(
      name, [](const void* stored) { (*static_cast<const decltype(call)*>(stored))(); }, &call,
      sizeof(call));
}

// ------------------------------ masks

enum class Pattern { kAll, kNone, kVl1, kVl2, kVl4, kVl8, kVl16, kVl32 };
/// A mask for lanes of type T by pattern; kVlN: the lowest N lanes.
template <class T, Pattern kPattern = Pattern::kAll>
Mask pset() {
  constexpr int32 kCounts[] = {256, 0, 1, 2, 4, 8, 16, 32};
  return model::pset(lane_bytes(kLaneOf<T>), kCounts[static_cast<int32>(kPattern)]);
}
/// The lowest min(n, lanes) lanes; takes as many off n.
template <class T>
Mask plt(uint32& n) {
  return model::plt(lane_bytes(kLaneOf<T>), n);
}
inline void pand(Mask& d, const Mask& a, const Mask& b, const Mask& m) {
  model::mask_and(d, a, b, m);
}
inline void por(Mask& d, const Mask& a, const Mask& b, const Mask& m) {
  model::mask_or(d, a, b, m);
}
inline void pnot(Mask& d, const Mask& a, const Mask& m) { model::mask_not(d, a, m); }

// ------------------------------ loads and stores

enum class Dist {
  kNorm,      ///< d[i] = ub[i]
  kBrc,       ///< d[i] = ub[0]
  kBlk,       ///< every data block the first one
  kE2b,       ///< data block k filled with ub[k]
  kUnpack,    ///< zero-extended to lanes of twice the width
  kUnpack4,   ///< bytes zero-extended to lanes of 32 bits
  kUpsample,  ///< d[i] = ub[i / 2]
};
/// T is the type of the lanes in memory; kUnpack and kUnpack4 fill the wide lanes of `d`.
template <Dist kDist = Dist::kNorm, class T>
void vlds(Reg<T>& d, Ub<T> ub) {
  constexpr int32 kBytes = lane_bytes(kLaneOf<T>);
  static_assert(kDist != Dist::kE2b || kBytes >= 2, "kE2b takes lanes of 2 or 4 bytes");
  static_assert(kDist != Dist::kUnpack4 || kBytes == 1, "kUnpack4 takes bytes");
  static_assert(kDist != Dist::kUpsample || kBytes <= 2, "kUpsample takes lanes of 1 or 2 bytes");
  model::load(static_cast<int32>(kDist), kBytes, d, ub.place);
}
/// d0[i] = ub[2i], d1[i] = ub[2i + 1].
template <class T>
void vld_deintlv(Reg<T>& d0, Reg<T>& d1, Ub<T> ub) {
  model::load_deintlv(lane_bytes(kLaneOf<T>), d0, d1, ub.place);
}
/// As kNorm from any element's address; reads whole blocks.
template <class T>
void vldu(Reg<T>& d, Ub<T> ub) {
  model::load_unaligned(lane_bytes(kLaneOf<T>), d, ub.place);
}
/// d[i] = ub[idx[i]] for active lanes.
template <class T, class I>
void vgather(Reg<T>& d, Ub<T> ub, const Reg<I>& idx, const Mask& m) {
  static_assert(has_inst(Inst::kVgather, kLaneOf<T>) && sizeof(I) == sizeof(T));
  model::gather(lane_bytes(kLaneOf<T>), d, ub.place, idx, m);
}

enum class StoreDist {
  kNorm,   ///< active lanes in place
  kPack,   ///< the low half of each active lane, contiguous
  kPack4,  ///< the low byte of each active lane of 32 bits, contiguous
};
template <class T>
void vsts(Ub<T> ub, const Reg<T>& s, const Mask& m) {
  model::store(0, lane_bytes(kLaneOf<T>), ub.place, s, m);
}
/// Packed stores: P is the type in memory.
template <StoreDist kDist, class P, class T>
void vsts_pack(Ub<P> ub, const Reg<T>& s, const Mask& m) {
  constexpr int32 kRatio = kDist == StoreDist::kPack ? 2 : 4;
  static_assert(kDist != StoreDist::kNorm);
  static_assert(lane_bytes(kLaneOf<T>) == kRatio * lane_bytes(kLaneOf<P>));
  model::store(static_cast<int32>(kDist), lane_bytes(kLaneOf<T>), ub.place, s, m);
}
/// ub[0] = s[0], whatever the mask.
template <class T>
void vst_first(Ub<T> ub, const Reg<T>& s) {
  model::store_first(lane_bytes(kLaneOf<T>), ub.place, s);
}
/// ub[2i] = a[i], ub[2i + 1] = b[i], whatever the mask.
template <class T>
void vst_intlv(Ub<T> ub, const Reg<T>& a, const Reg<T>& b) {
  model::store_intlv(lane_bytes(kLaneOf<T>), ub.place, a, b);
}
/// The first `count` lanes to any element's address.
template <class T>
void vstu(Ub<T> ub, const Reg<T>& s, uint32 count) {
  model::store_unaligned(lane_bytes(kLaneOf<T>), ub.place, s, count);
}
/// ub[idx[i]] = s[i] for active lanes; the indices must differ.
template <class T, class I>
void vscatter(Ub<T> ub, const Reg<T>& s, const Reg<I>& idx, const Mask& m) {
  static_assert(has_inst(Inst::kVscatter, kLaneOf<T>) && sizeof(I) == sizeof(T));
  model::scatter(lane_bytes(kLaneOf<T>), ub.place, s, idx, m);
}

/// What a barrier inside a vector function orders: earlier stores before later loads, and so on.
using Bar = model::Bar;
template <Bar kBar>
void mem_bar() {
  model::mem_bar(kBar);
}

// ------------------------------ arithmetic

namespace detail {
template <Inst kInst, class T>
void binary(Reg<T>& d, const Reg<T>& a, const Reg<T>& b, const Mask& m) {
  static_assert(has_inst(kInst, kLaneOf<T>), "the vector core has no such instruction");
  model::binary(kInst, kLaneOf<T>, d, a, b, m);
}
template <Inst kInst, class T>
void binary_scalar(Reg<T>& d, const Reg<T>& a, T b, const Mask& m) {
  static_assert(has_inst(kInst, kLaneOf<T>), "the vector core has no such instruction");
  model::binary_scalar(kInst, kLaneOf<T>, d, a, &b, m);
}
template <Inst kInst, class T>
void unary(Reg<T>& d, const Reg<T>& a, const Mask& m) {
  static_assert(has_inst(kInst, kLaneOf<T>), "the vector core has no such instruction");
  model::unary(kInst, kLaneOf<T>, d, a, m);
}
}  // namespace detail

// clang-format off
template <class T> void vadd(Reg<T>& d, const Reg<T>& a, const Reg<T>& b, const Mask& m) { detail::binary<Inst::kVadd>(d, a, b, m); }
template <class T> void vsub(Reg<T>& d, const Reg<T>& a, const Reg<T>& b, const Mask& m) { detail::binary<Inst::kVsub>(d, a, b, m); }
template <class T> void vmul(Reg<T>& d, const Reg<T>& a, const Reg<T>& b, const Mask& m) { detail::binary<Inst::kVmul>(d, a, b, m); }
template <class T> void vmax(Reg<T>& d, const Reg<T>& a, const Reg<T>& b, const Mask& m) { detail::binary<Inst::kVmax>(d, a, b, m); }
template <class T> void vmin(Reg<T>& d, const Reg<T>& a, const Reg<T>& b, const Mask& m) { detail::binary<Inst::kVmin>(d, a, b, m); }
template <class T> void vand(Reg<T>& d, const Reg<T>& a, const Reg<T>& b, const Mask& m) { detail::binary<Inst::kVand>(d, a, b, m); }
template <class T> void vor(Reg<T>& d, const Reg<T>& a, const Reg<T>& b, const Mask& m) { detail::binary<Inst::kVor>(d, a, b, m); }
template <class T> void vxor(Reg<T>& d, const Reg<T>& a, const Reg<T>& b, const Mask& m) { detail::binary<Inst::kVxor>(d, a, b, m); }
template <class T> void vadds(Reg<T>& d, const Reg<T>& a, T b, const Mask& m) { detail::binary_scalar<Inst::kVadd>(d, a, b, m); }
template <class T> void vmuls(Reg<T>& d, const Reg<T>& a, T b, const Mask& m) { detail::binary_scalar<Inst::kVmul>(d, a, b, m); }
template <class T> void vmaxs(Reg<T>& d, const Reg<T>& a, T b, const Mask& m) { detail::binary_scalar<Inst::kVmax>(d, a, b, m); }
template <class T> void vmins(Reg<T>& d, const Reg<T>& a, T b, const Mask& m) { detail::binary_scalar<Inst::kVmin>(d, a, b, m); }
template <class T> void vabs(Reg<T>& d, const Reg<T>& a, const Mask& m) { detail::unary<Inst::kVabs>(d, a, m); }
template <class T> void vneg(Reg<T>& d, const Reg<T>& a, const Mask& m) { detail::unary<Inst::kVneg>(d, a, m); }
template <class T> void vnot(Reg<T>& d, const Reg<T>& a, const Mask& m) { detail::unary<Inst::kVnot>(d, a, m); }
// clang-format on

/// d = a · b + d, rounded once.
template <class T>
void vmula(Reg<T>& d, const Reg<T>& a, const Reg<T>& b, const Mask& m) {
  static_assert(has_inst(Inst::kVmula, kLaneOf<T>), "the vector core has no such instruction");
  model::multiply_add(kLaneOf<T>, d, a, b, m);
}
/// The low and the high words of the products of unsigned words.
inline void vmull(Reg<uint32>& low, Reg<uint32>& high, const Reg<uint32>& a, const Reg<uint32>& b,
                  const Mask& m) {
  model::multiply_wide(low, high, a, b, m);
}
/// Shifts by a count below the lane's width; logical for unsigned lanes, arithmetic for signed.
template <class T>
void vshls(Reg<T>& d, const Reg<T>& a, int32 count, const Mask& m) {
  static_assert(has_inst(Inst::kVshl, kLaneOf<T>) && kLaneOf<T> != Lane::kI32,
                "shift unsigned lanes left");
  model::shift(Inst::kVshl, kLaneOf<T>, d, a, count, m);
}
template <class T>
void vshrs(Reg<T>& d, const Reg<T>& a, int32 count, const Mask& m) {
  static_assert(has_inst(Inst::kVshr, kLaneOf<T>));
  model::shift(Inst::kVshr, kLaneOf<T>, d, a, count, m);
}

/// kExact is IEEE: correctly rounded, subnormals kept. kFast has no defined bits: at most one unit
/// in the last place off, subnormals flushed.
enum class Precision { kExact, kFast };
template <Precision kPrecision>
void vdiv(Reg<float>& d, const Reg<float>& a, const Reg<float>& b, const Mask& m) {
  model::divide(kPrecision == Precision::kFast, d, a, b, m);
}
template <Precision kPrecision>
void vsqrt(Reg<float>& d, const Reg<float>& a, const Mask& m) {
  model::square_root(kPrecision == Precision::kFast, d, a, m);
}
/// Always fast: the vector core has no exact one.
inline void vexp(Reg<float>& d, const Reg<float>& a, const Mask& m) {
  model::fast_function(Inst::kVexp, d, a, m);
}
inline void vln(Reg<float>& d, const Reg<float>& a, const Mask& m) {
  model::fast_function(Inst::kVln, d, a, m);
}

// ------------------------------ comparison, selection, reduction

enum class Cmp { kEq, kNe, kLt, kLe, kGt, kGe };
/// d[i] = m[i] && a[i] kCmp b[i], by IEEE for floats.
template <Cmp kCmp, class T>
void vcmp(Mask& d, const Reg<T>& a, const Reg<T>& b, const Mask& m) {
  static_assert(has_inst(Inst::kVcmp, kLaneOf<T>));
  model::compare(static_cast<int32>(kCmp), kLaneOf<T>, d, a, b, m);
}
template <Cmp kCmp, class T>
void vcmps(Mask& d, const Reg<T>& a, T b, const Mask& m) {
  static_assert(has_inst(Inst::kVcmp, kLaneOf<T>));
  model::compare_scalar(static_cast<int32>(kCmp), kLaneOf<T>, d, a, &b, m);
}
/// d[i] = m[i] ? a[i] : b[i].
template <class T>
void vsel(Reg<T>& d, const Reg<T>& a, const Reg<T>& b, const Mask& m) {
  model::select(lane_bytes(kLaneOf<T>), d, a, b, m);
}
/// d[0] = the sum of active lanes by a tree of neighbours; other lanes 0.
template <class T>
void vcadd(Reg<T>& d, const Reg<T>& a, const Mask& m) {
  static_assert(has_inst(Inst::kVcadd, kLaneOf<T>) && sizeof(T) == 4);
  model::reduce(Inst::kVcadd, kLaneOf<T>, d, a, m);
}
/// d[0] = the extreme of active lanes, d[1] = the index of its first occurrence; other lanes 0.
template <class T>
void vcmax(Reg<T>& d, const Reg<T>& a, const Mask& m) {
  static_assert(has_inst(Inst::kVcmax, kLaneOf<T>));
  model::reduce(Inst::kVcmax, kLaneOf<T>, d, a, m);
}
template <class T>
void vcmin(Reg<T>& d, const Reg<T>& a, const Mask& m) {
  static_assert(has_inst(Inst::kVcmin, kLaneOf<T>));
  model::reduce(Inst::kVcmin, kLaneOf<T>, d, a, m);
}
/// d[k] = the maximum of data block k, k = 0..7; other lanes are undefined.
template <class T>
void vcgmax(Reg<T>& d, const Reg<T>& a, const Mask& m) {
  static_assert(has_inst(Inst::kVcgmax, kLaneOf<T>));
  model::block_max(kLaneOf<T>, d, a, m);
}

// ------------------------------ moves

/// Every active lane = value.
template <class T>
void vdup(Reg<T>& d, T value, const Mask& m) {
  model::duplicate(lane_bytes(kLaneOf<T>), d, &value, m);
}
/// Every active lane = lane 0 of s.
template <class T>
void vdup_lane0(Reg<T>& d, const Reg<T>& s, const Mask& m) {
  model::duplicate_lane0(lane_bytes(kLaneOf<T>), d, s, m);
}
/// All lanes.
template <class T>
void vmov(Reg<T>& d, const Reg<T>& s) {
  model::move(d, s);
}
/// d[i] = start + i.
template <class T>
void vci(Reg<T>& d, T start) {
  static_assert(has_inst(Inst::kVci, kLaneOf<T>));
  model::arange(kLaneOf<T>, d, &start);
}
/// a[0], b[0], a[1], b[1], … over d0 then d1.
template <class T>
void vintlv(Reg<T>& d0, Reg<T>& d1, const Reg<T>& a, const Reg<T>& b) {
  model::interleave(lane_bytes(kLaneOf<T>), d0, d1, a, b);
}
/// The even lanes of a then b, and the odd ones.
template <class T>
void vdintlv(Reg<T>& d0, Reg<T>& d1, const Reg<T>& a, const Reg<T>& b) {
  model::deinterleave(lane_bytes(kLaneOf<T>), d0, d1, a, b);
}
/// d[i] = s[idx[i]]; indices below the number of lanes.
template <class T, class I>
void vselr(Reg<T>& d, const Reg<T>& s, const Reg<I>& idx) {
  static_assert(has_inst(Inst::kVselr, kLaneOf<T>) && sizeof(I) == sizeof(T));
  model::permute(lane_bytes(kLaneOf<T>), d, s, idx);
}
/// Active lanes moved down, the rest 0.
template <class T>
void vsqz(Reg<T>& d, const Reg<T>& s, const Mask& m) {
  static_assert(has_inst(Inst::kVsqz, kLaneOf<T>));
  model::squeeze(lane_bytes(kLaneOf<T>), d, s, m, false);
}

/// Counts active bytes by their value: d[n] += how many are n (kUpper: n + 128), n = 0..127, modulo
/// 2^16.
template <bool kUpper>
void vhist(Reg<uint16>& d, const Reg<uint8>& s, const Mask& m) {
  model::histogram(kUpper, d, s, m);
}

// Streams of squeezed lanes: clear_ar once, then vsqz_count and vstur in turn, vstar at the end.
using StreamPlace = model::Stream;
inline void clear_ar() { model::clear_ar(); }
template <class T>
void vsqz_count(Reg<T>& d, const Reg<T>& s, const Mask& m) {
  static_assert(has_inst(Inst::kVsqz, kLaneOf<T>));
  model::squeeze(lane_bytes(kLaneOf<T>), d, s, m, true);
}
template <class T>
void vstur(Ub<T> ub, const Reg<T>& s, StreamPlace& stream) {
  model::stream_store(ub.place, s, stream);
}
/// The rest of a stream; `ub` as of its last vstur.
template <class T>
void vstar(Ub<T> ub, StreamPlace& stream) {
  static_cast<void>(ub);
  model::stream_flush(stream);
}

/// Conversion of active lanes. The mask counts lanes of the source's type; narrow lanes beside
/// `kPart` become 0.
template <int32 kPart, Round kRound, Saturate kSaturate, class To, class From>
void vcvt(Reg<To>& d, const Reg<From>& s, const Mask& m) {
  static_assert(cast_problem(kLaneOf<To>, kLaneOf<From>, kPart, kRound, kSaturate) == nullptr,
                "the vector core has no such conversion: see cast_problem");
  model::convert(kLaneOf<To>, kLaneOf<From>, kPart, kRound, kSaturate, d, s, m);
}

}  // namespace tilekernels::ascend

#endif  // __NPU_ARCH__
