// Plants each of the 20 hazards in a small kernel and expects exactly that diagnosis; and that
// wrong code computes wrong data where the check is off.
#include <cstring>
#include <vector>

#include "planted.h"

namespace tilekernels::ascend {
namespace {

float input[256];
float output[256];

TEST(Hazards, TheSoundKernelRuns) {
  input[255] = 5;
  run(
      [] {
        prologue();
        MutexPool pool;
        InRing<float> in(pool, "in", 2, 64);
        OutRing<float> out(pool, "out", 2, 64);
        pipeline(
            2, block_idx(), 4, block_num(),
            [&](int64 i) {
              copy_in(in.fill(), gm(input + 64 * i), kVector);
              in.filled();
            },
            [&](int64 i) {
              vf_call<add_one>("add_one", out.fill(), in.empty());
              in.emptied();
              out.filled();
              copy_out(gm(output + 64 * i), out.empty(), kVector);
              out.emptied();
            });
        barrier_all();
      },
      3);
  EXPECT_EQ(output[255], 6.0f);
}

TEST(Hazards, H01MissingFlag) {
  // The scalar unit waits, so that the copy has run: V must know by itself.
  expect_hazard(HazardKind::kMissingFlag, "x", 0,
                "V reads bytes that MTE2 writes: the event MTE2_V is missing (in read_only)", [] {
                  const Ub<float> x = ub_alloc<float>("x", 64);
                  copy_in(x, gm(input), kVector);
                  wait_for<Pipe::kMte2, Pipe::kS>();
                  vf_call<read_only>("read_only", x);
                  barrier_all();
                });
  expect_hazard(HazardKind::kMissingFlag, "x", 0,
                "MTE3 reads bytes that V writes: the event V_MTE3 is missing", [] {
                  const Ub<float> x = ub_alloc<float>("x", 64);
                  vf_call<fill_one>("fill_one", x);
                  wait_for<Pipe::kV, Pipe::kS>();
                  copy_out(gm(output), x, kVector);
                  barrier_all();
                });
  expect_hazard(HazardKind::kMissingFlag, "", -1,
                "the kernel ends without barrier_all, so its last copies may still run",
                [] { copy_in(ub_alloc<float>("x", 64), gm(input), kVector); });
}

TEST(Hazards, H02EarlyReuse) {
  expect_hazard(HazardKind::kEarlyReuse, "x", 0,
                "MTE2 overwrites bytes that V still reads: the event V_MTE2 is missing", [] {
                  const Ub<float> x = ub_alloc<float>("x", 64);
                  copy_in(x, gm(input), kVector);
                  wait_for<Pipe::kMte2, Pipe::kV>();
                  vf_call<read_only>("read_only", x);
                  wait_for<Pipe::kV, Pipe::kS>();
                  pipe_barrier<Pipe::kMte2>();
                  copy_in(x, gm(input + 64), kVector);
                  barrier_all();
                });
  expect_hazard(HazardKind::kEarlyReuse, "x", 0,
                "V overwrites bytes that MTE3 still reads: the event MTE3_V is missing "
                "(in fill_one)",
                [] {
                  const Ub<float> x = ub_alloc<float>("x", 64);
                  vf_call<fill_one>("fill_one", x);
                  wait_for<Pipe::kV, Pipe::kMte3>();
                  copy_out(gm(output), x, kVector);
                  wait_for<Pipe::kMte3, Pipe::kS>();
                  vf_call<fill_one>("fill_one", x);
                  barrier_all();
                });
}

TEST(Hazards, H03FlagMisuse) {
  expect_hazard(HazardKind::kFlagMisuse, "", -1,
                "flag V_MTE3 0 is set twice without a wait between", [] {
                  set_flag<Pipe::kV, Pipe::kMte3>(0);
                  set_flag<Pipe::kV, Pipe::kMte3>(0);
                  barrier_all();
                });
  expect_hazard(HazardKind::kFlagMisuse, "", -1,
                "nothing can run, and these wait for ever: V for flag MTE2_V 1; a set_flag is "
                "missing",
                [] {
                  wait_flag<Pipe::kMte2, Pipe::kV>(1);
                  barrier_all();
                });
  expect_hazard(HazardKind::kFlagMisuse, "", -1,
                "flag V_MTE2 2 is still set at the end: its wait is missing", [] {
                  set_flag<Pipe::kV, Pipe::kMte2>(2);
                  barrier_all();
                });
  expect_hazard(HazardKind::kFlagMisuse, "", -1,
                "flag V_MTE2 6: ids are 0..5, 6 and 7 are reserved",
                [] { set_flag<Pipe::kV, Pipe::kMte2>(6); });
}

TEST(Hazards, H03AFlagSetAgainTooEarly) {
  // Whether the second set meets a raised flag depends on the speed of the queues.
  for (Schedule schedule : {Schedule::kCopiesEarly, Schedule::kCopiesLate}) {
    Options options;
    options.schedule = schedule;
    try {
      run(
          [] {
            wait_for<Pipe::kMte2, Pipe::kV>();
            wait_for<Pipe::kMte2, Pipe::kV>();
            barrier_all();
          },
          1, options);
      ADD_FAILURE();
    } catch (const Hazard& hazard) {
      EXPECT_EQ(hazard.kind(), HazardKind::kFlagMisuse) << hazard.what();
    }
  }
}

TEST(Hazards, H04MutexMisuse) {
  expect_hazard(HazardKind::kMutexMisuse, "", -1,
                "mutex 3 is unlocked by V, which has not locked it", [] { unlock<Pipe::kV>(3); });
  expect_hazard(HazardKind::kMutexMisuse, "", -1,
                "mutex 3 is locked by V while MTE2 has it: an unlock is missing", [] {
                  lock<Pipe::kMte2>(3);
                  lock<Pipe::kV>(3);
                });
  expect_hazard(HazardKind::kMutexMisuse, "", -1,
                "mutex 3 is still locked at the end: its unlock is missing", [] {
                  lock<Pipe::kMte2>(3);
                  barrier_all();
                });
  expect_hazard(HazardKind::kMutexMisuse, "", -1, "mutex 28: ids are 0..27, 28 to 31 are reserved",
                [] { lock<Pipe::kMte2>(28); });
}

TEST(Hazards, H05CopiesOverlap) {
  expect_hazard(HazardKind::kCopyOverlap, "x", 32,
                "two copies of MTE2 write the same bytes and may overlap: "
                "pipe_barrier<Pipe::kMte2> is missing between them",
                [] {
                  const Ub<float> x = ub_alloc<float>("x", 128);
                  copy_in(x, gm(input), {1, 64});
                  copy_in(x + 8, gm(input), kVector);
                  barrier_all();
                });
  expect_hazard(HazardKind::kCopyOverlap, "x", 0,
                "two copies of MTE3 write the same bytes of GM and may overlap: "
                "pipe_barrier<Pipe::kMte3> is missing between them",
                [] {
                  const Ub<float> x = ub_alloc<float>("x", 64);
                  vf_call<fill_one>("fill_one", x);
                  wait_for<Pipe::kV, Pipe::kMte3>();
                  copy_out(gm(output), x, kVector);
                  copy_out(gm(output), x, kVector);
                  barrier_all();
                });
  run([] {
    const Ub<float> x = ub_alloc<float>("x", 64);
    copy_in(x, gm(input), kVector);
    pipe_barrier<Pipe::kMte2>();
    copy_in(x, gm(input), kVector);
    barrier_all();
  });
}

TEST(Hazards, H06ScalarAccess) {
  expect_hazard(HazardKind::kScalarAccess, "x", 4,
                "V reads bytes that S writes: the event S_V is missing (in read_only)", [] {
                  const Ub<float> x = ub_alloc<float>("x", 64);
                  set_value(x, 1, 2.0f);
                  vf_call<read_only>("read_only", x);
                  barrier_all();
                });
  expect_hazard(HazardKind::kScalarAccess, "x", 8,
                "S reads bytes that V writes: the event V_S is missing", [] {
                  const Ub<float> x = ub_alloc<float>("x", 64);
                  vf_call<fill_one>("fill_one", x);
                  get_value(x, 2);
                });
  expect_hazard(HazardKind::kScalarAccess, "x", 8,
                "S overwrites bytes that MTE3 still reads: the event MTE3_S is missing", [] {
                  const Ub<float> x = ub_alloc<float>("x", 64);
                  vf_call<fill_one>("fill_one", x);
                  wait_for<Pipe::kV, Pipe::kMte3>(0);
                  wait_for<Pipe::kV, Pipe::kS>(0);
                  copy_out(gm(output), x, kVector);
                  set_value(x, 2, 1.0f);
                });
  expect_hazard(
      HazardKind::kScalarAccess, "", -1,
      "the scalar unit reads bytes of GM that the kernel writes: its cache may hold older ones",
      [] {
        const Ub<float> x = ub_alloc<float>("x", 64);
        vf_call<fill_one>("fill_one", x);
        wait_for<Pipe::kV, Pipe::kMte3>(0);
        copy_out(gm(output), x, kVector);
        get_value(gm(static_cast<const float*>(output)), 3);
      });
}

void store_then_load(Ub<float> x, bool with_bar) {
  const Mask all = pset<float>();
  Reg<float> a;
  vdup(a, 1.0f, all);
  vsts(x, a, all);
  if (with_bar) mem_bar<Bar::kVstVld>();
  vlds(a, x);
  vsts(x + 64, a, all);
}
void load_then_store(Ub<float> x) {
  const Mask all = pset<float>();
  Reg<float> a;
  vlds(a, x);
  vsts(x, a, all);
}
void store_twice(Ub<float> x) {
  const Mask all = pset<float>();
  Reg<float> a;
  vdup(a, 1.0f, all);
  vsts(x, a, all);
  vsts(x, a, all);
}

TEST(Hazards, H07MissingMemBar) {
  expect_hazard(HazardKind::kMissingMemBar, "x", 0,
                "a vector load reads what a vector store wrote in the same vector function: "
                "mem_bar<Bar::kVstVld> is missing between them (in f)",
                [] {
                  vf_call<store_then_load>("f", ub_alloc<float>("x", 128), false);
                  barrier_all();
                });
  run([] {
    vf_call<store_then_load>("f", ub_alloc<float>("x", 128), true);
    barrier_all();
  });
  expect_hazard(HazardKind::kMissingMemBar, "x", 0,
                "a vector store writes what a vector load read in the same vector function: "
                "mem_bar<Bar::kVldVst> is missing between them (in f)",
                [] {
                  const Ub<float> x = ub_alloc<float>("x", 64);
                  vf_call<fill_one>("fill_one", x);
                  vf_call<load_then_store>("f", x);
                  barrier_all();
                });
  expect_hazard(HazardKind::kMissingMemBar, "x", 0,
                "a vector store writes what another one wrote in the same vector function: "
                "mem_bar<Bar::kVstVst> is missing between them (in f)",
                [] {
                  vf_call<store_twice>("f", ub_alloc<float>("x", 64));
                  barrier_all();
                });
}

void load_pairs(Ub<float> x) {
  Reg<float> a;
  Reg<float> b;
  vld_deintlv(a, b, x);
}

TEST(Hazards, H08OutOfBounds) {
  expect_hazard(HazardKind::kOutOfBounds, "", -1,
                "allocating \"big\" takes UB to 256256 bytes of 253952",
                [] { ub_alloc<float>("big", 64000); });
  expect_hazard(HazardKind::kOutOfBounds, "x", 0,
                "a read of 512 bytes ends at byte 512 of 128 and 256 readable ones (in f)", [] {
                  vf_call<load_pairs>("f", ub_alloc<float>("x", 32));
                  barrier_all();
                });
  expect_hazard(HazardKind::kOutOfBounds, "x", 0,
                "a write of 256 bytes ends at byte 256 of 128 (in fill_one)", [] {
                  vf_call<fill_one>("fill_one", ub_alloc<float>("x", 32));
                  barrier_all();
                });
}

TEST(Hazards, H09Misaligned) {
  expect_hazard(HazardKind::kMisaligned, "x", 4,
                "the address must be a multiple of 32 bytes (in read_only)", [] {
                  vf_call<read_only>("read_only", ub_alloc<float>("x", 128) + 1);
                  barrier_all();
                });
  expect_hazard(HazardKind::kMisaligned, "x", 4, "copies start at multiples of 32 bytes in UB",
                [] { copy_in(ub_alloc<float>("x", 128) + 1, gm(input), kVector); });
  expect_hazard(HazardKind::kMisaligned, "x", 0,
                "a copy takes at most 4095 rows of 2097151 bytes, not 4096 of 4", [] {
                  copy_in(ub_alloc<float>("x", 4096), gm(input), {4096, 4, 4, 0, true});
                });
}

void store_undefined(Ub<float> x) {
  const Mask all = pset<float>();
  Reg<float> a;
  vadds(a, a, 1.0f, all);
  vsts(x, a, all);
}
void compare_undefined(Ub<float> x) {
  const Mask all = pset<float>();
  Reg<float> a;
  vlds(a, x);
  Mask m;
  vcmps<Cmp::kGt>(m, a, 0.0f, all);
}

TEST(Hazards, H10Undefined) {
  expect_hazard(HazardKind::kUndefined, "x", 0, "a store of lanes that are undefined (in f)", [] {
    vf_call<store_undefined>("f", ub_alloc<float>("x", 64));
    barrier_all();
  });
  expect_hazard(HazardKind::kUndefined, "x", 12, "MTE3 copies out bytes that nothing has written",
                [] {
                  const Ub<float> x = ub_alloc<float>("x", 64);
                  copy_in(x, gm(input), {1, 12});
                  wait_for<Pipe::kMte2, Pipe::kMte3>();
                  copy_out(gm(output), x, {1, 16});
                  barrier_all();
                });
  expect_hazard(HazardKind::kUndefined, "", -1, "a comparison depends on undefined lanes (in f)",
                [] {
                  vf_call<compare_undefined>("f", ub_alloc<float>("x", 64));
                  barrier_all();
                });
}

void wrong_mask() {
  const Mask all = pset<float>();
  Reg<uint16> a;
  vdup(a, uint16{1}, all);
}

TEST(Hazards, H11WrongMask) {
  expect_hazard(HazardKind::kWrongMask, "", -1,
                "a mask made for lanes of 4 bytes is used on lanes of 2 (in f)", [] {
                  vf_call<wrong_mask>("f");
                  barrier_all();
                });
}

void pack_with_holes(Ub<uint16> x) {
  const Mask all = pset<uint32>();
  Reg<uint32> a;
  vdup(a, 1u, all);
  const Mask low = pset<uint32, Pattern::kVl4>();
  Mask high;
  pnot(high, low, all);
  vsts_pack<StoreDist::kPack>(x, a, high);
}
void interleave_undefined(Ub<float> x) {
  const Mask low = pset<float, Pattern::kVl8>();
  Reg<float> a;
  Reg<float> b;
  vdup(a, 1.0f, low);
  vst_intlv(x, a, b);
}

TEST(Hazards, H12IgnoredMask) {
  expect_hazard(HazardKind::kIgnoredMask, "x", 0,
                "a packed store under a mask with holes: whether they close is not stated (in f)",
                [] {
                  vf_call<pack_with_holes>("f", ub_alloc<uint16>("x", 64));
                  barrier_all();
                });
  expect_hazard(HazardKind::kIgnoredMask, "x", 0,
                "an interleaving store writes all lanes, undefined ones among them (in f)", [] {
                  vf_call<interleave_undefined>("f", ub_alloc<float>("x", 128));
                  barrier_all();
                });
}

TEST(Hazards, H13IllegalCast) {
  // vcvt asserts this at compile time.
  static_assert(cast_problem(Lane::kE4M3, Lane::kF32, 3, Round::kRint, Saturate::kYes) == nullptr);
  const auto problem = [](Lane to, Lane from, int32 part = 0) {
    const char* text = cast_problem(to, from, part, Round::kRint, Saturate::kYes);
    return std::string(text == nullptr ? "" : text);
  };
  const std::string none =
      "the vector core has no such conversion, and its headers would emit nothing";
  EXPECT_EQ(problem(Lane::kE2M1x2, Lane::kF32), none);
  EXPECT_EQ(problem(Lane::kE4M3, Lane::kBF16), none);
  EXPECT_EQ(problem(Lane::kU32, Lane::kF32), none);
  EXPECT_EQ(problem(Lane::kE4M3, Lane::kF32, 4), "the part lies beyond the wide lane");
  EXPECT_EQ(problem(Lane::kE2M1x2, Lane::kBF16), "");
  // And of operations that bf16 lacks
  static_assert(!has_inst(Inst::kVabs, Lane::kBF16) && !has_inst(Inst::kVcmax, Lane::kBF16));
}

void gather_beyond(Ub<float> x) {
  const Mask all = pset<float>();
  Reg<int32> index;
  vci(index, 1);
  Reg<float> a;
  vgather(a, x, index, all);
}
void scatter_twice(Ub<float> x) {
  const Mask all = pset<float>();
  Reg<int32> index;
  vdup(index, 3, all);
  Reg<float> a;
  vdup(a, 1.0f, all);
  vscatter(x, a, index, all);
}
void permute_beyond() {
  const Mask all = pset<float>();
  Reg<int32> index;
  vci(index, 1);
  Reg<float> a;
  vdup(a, 1.0f, all);
  vselr(a, a, index);
}

TEST(Hazards, H14BadIndex) {
  expect_hazard(HazardKind::kBadIndex, "x", 0,
                "lane 63 has the index 64, which lies outside of the buffer (in f)", [] {
                  const Ub<float> x = ub_alloc<float>("x", 64);
                  vf_call<fill_one>("fill_one", x);
                  vf_call<gather_beyond>("f", x);
                  barrier_all();
                });
  expect_hazard(HazardKind::kBadIndex, "x", 12,
                "two lanes of a scatter have one index: which of them wins is not stated (in f)",
                [] {
                  vf_call<scatter_twice>("f", ub_alloc<float>("x", 64));
                  barrier_all();
                });
  expect_hazard(HazardKind::kBadIndex, "", -1,
                "lane 63 of a register gather has the index 64, beyond the register (in f)", [] {
                  vf_call<permute_beyond>("f");
                  barrier_all();
                });
}

void reduce_nothing() {
  const Mask all = pset<float>();
  const Mask none = pset<float, Pattern::kNone>();
  Reg<float> a;
  vdup(a, 1.0f, all);
  vcmax(a, a, none);
}
void narrow() {
  const Mask all = pset<float>();
  Reg<float> a;
  vdup(a, 1e30f, all);
  Reg<BF16> b;
  vcvt<0, Round::kRint, Saturate::kNo>(b, a, all);
}

TEST(Hazards, H15ControlState) {
  expect_hazard(HazardKind::kControlState, "", -1,
                "a reduction under an empty mask: its value is not stated (in f)", [] {
                  vf_call<reduce_nothing>("f");
                  barrier_all();
                });
  expect_hazard(HazardKind::kControlState, "", -1,
                "control bit 60 is 1, as after a reset, and overrules the saturation of this "
                "conversion: prologue() is missing (in f)",
                [] {
                  vf_call<narrow>("f");
                  barrier_all();
                });
  run([] {
    prologue();
    vf_call<narrow>("f");
    barrier_all();
  });
}

void many_registers() { Reg<float> regs[33]; }
void many_masks() { Mask masks[9]; }

TEST(Hazards, H16RegisterPressure) {
  expect_hazard(HazardKind::kRegisterPressure, "", -1,
                "33 vector registers are live, the core has 32 (in f)", [] {
                  vf_call<many_registers>("f");
                  barrier_all();
                });
  expect_hazard(HazardKind::kRegisterPressure, "", -1,
                "9 mask registers are live, the core has 8 (in f)", [] {
                  vf_call<many_masks>("f");
                  barrier_all();
                });
}

void scalar_inside(Ub<float> x) { get_value(x, 0); }

void barrier_inside() { barrier_all(); }
void lock_inside() { lock(Pipe::kV, 1); }

TEST(Hazards, H17BadLoop) {
  expect_hazard(HazardKind::kBadLoop, "", -1, "a loop of 65536 trips: its counter is 16 bits wide",
                [] { trips(65536); });
  expect_hazard(HazardKind::kBadLoop, "", -1,
                "a vector register stands outside of a vector function", [] { Reg<float> a; });
  expect_hazard(HazardKind::kBadLoop, "", -1,
                "the scalar unit's accesses stand in core code (in f)", [] {
                  vf_call<scalar_inside>("f", ub_alloc<float>("x", 8));
                  barrier_all();
                });
  expect_hazard(HazardKind::kBadLoop, "", -1, "barrier_all stands in core code (in f)", [] {
    vf_call<barrier_inside>("f");
    barrier_all();
  });
  expect_hazard(HazardKind::kBadLoop, "", -1, "lock stands in core code (in f)", [] {
    vf_call<lock_inside>("f");
    barrier_all();
  });
}

// Squeezes four lanes into a stream; leaves out one statement.
template <int kLeftOut>
void stream_lanes(Ub<float> x) {
  const Mask all = pset<float>();
  const Mask some = pset<float, Pattern::kVl4>();
  Reg<float> a;
  vdup(a, 1.0f, all);
  StreamPlace stream;
  if constexpr (kLeftOut != 1) clear_ar();
  vsqz_count(a, a, some);
  if constexpr (kLeftOut == 2) vsqz_count(a, a, some);
  vstur(x, a, stream);
  if constexpr (kLeftOut != 3) vstar(x, stream);
}

template <int kLeftOut>
void call_stream_lanes() {
  vf_call<stream_lanes<kLeftOut>>("f", ub_alloc<float>("x", 64));
  barrier_all();
}

TEST(Hazards, H18StreamMisuse) {
  run([] { call_stream_lanes<0>(); });
  expect_hazard(HazardKind::kStreamMisuse, "", -1,
                "vsqz_count without clear_ar: the count is undefined (in f)",
                [] { call_stream_lanes<1>(); });
  expect_hazard(HazardKind::kStreamMisuse, "", -1,
                "two vsqz_count in a row: a vstur must take the count of the first (in f)",
                [] { call_stream_lanes<2>(); });
  expect_hazard(HazardKind::kStreamMisuse, "", -1,
                "the function ends with bytes left in an unaligned stream: vstar is missing (in f)",
                [] { call_stream_lanes<3>(); });
}

TEST(Hazards, H19CrossCore) {
  expect_hazard(
      HazardKind::kCrossCore, "", -1,
      "core 1 writes a byte of GM that this core writes: cores must not share outputs",
      [] {
        const Ub<float> x = ub_alloc<float>("x", 64);
        vf_call<fill_one>("fill_one", x);
        wait_for<Pipe::kV, Pipe::kMte3>();
        copy_out(gm(output + 8 * block_idx()), x, {1, 64});
        barrier_all();
      },
      2);
  expect_hazard(
      HazardKind::kCrossCore, "", -1,
      "core 1 reads a byte of GM that this core writes: cores must not share outputs",
      [] {
        const Ub<float> x = ub_alloc<float>("x", 64);
        vf_call<fill_one>("fill_one", x);
        wait_for<Pipe::kV, Pipe::kMte3>();
        if (block_idx() == 0) copy_out(gm(output), x, kVector);
        const Ub<float> y = ub_alloc<float>("y", 64);
        if (block_idx() == 1) copy_in(y, gm(output), kVector);
        barrier_all();
      },
      2);
}

template <Precision kPrecision>
void thirds(Ub<float> x) {
  const Mask all = pset<float>();
  Reg<float> a;
  Reg<float> b;
  vdup(a, 1.0f, all);
  vdup(b, 3.0f, all);
  vdiv<kPrecision>(a, a, b, all);
  vsts(x, a, all);
}

template <Precision kPrecision>
void call_thirds() {
  const Ub<float> x = ub_alloc<float>("x", 64);
  vf_call<thirds<kPrecision>>("thirds", x);
  wait_for<Pipe::kV, Pipe::kMte3>();
  copy_out(gm(output), x, kVector);
  barrier_all();
}

TEST(Hazards, H20FastBits) {
  const auto exact = [] { call_thirds<Precision::kExact>(); };
  const auto fast = [] { call_thirds<Precision::kFast>(); };
  check_fast_bits(program(exact), 1, {}, output, sizeof(output));
  try {
    check_fast_bits(program(fast), 1, {}, output, sizeof(output));
    ADD_FAILURE();
  } catch (const Hazard& hazard) {
    EXPECT_EQ(hazard.kind(), HazardKind::kFastBits);
    EXPECT_EQ(hazard.sentence(),
              "byte 0 of the output depends on the last bit of a fast approximation: use the exact "
              "form, or a polynomial of our own");
  }
}

// ------------------------------ wrong code computes wrong data

// The output of a kernel whose order is not checked, under both schedules.
template <class Body>
std::vector<float> results_of(const Body& body) {
  for (int i = 0; i < 256; ++i) input[i] = static_cast<float>(i);
  std::vector<float> results;
  for (Schedule schedule : {Schedule::kCopiesEarly, Schedule::kCopiesLate}) {
    std::memset(output, 0, sizeof(output));
    Options options;
    options.schedule = schedule;
    options.check_order = false;
    run(body, 1, options);
    results.insert(results.end(), output, output + 128);
  }
  return results;
}

// Two rows through one buffer, without the events of one kind.
template <int kLeftOut>
void two_rows() {
  const Ub<float> x = ub_alloc<float>("x", 64);
  const Ub<float> y = ub_alloc<float>("y", 64);
  vf_call<fill_one>("fill_one", x);
  vf_call<fill_one>("fill_one", y);
  barrier_all();
  for (int64 row = 0; row < 2; ++row) {
    if (row > 0 && kLeftOut != 0) wait_for<Pipe::kV, Pipe::kMte2>();
    copy_in(x, gm(input + 64 * row), kVector);
    if (kLeftOut != 1) wait_for<Pipe::kMte2, Pipe::kV>(static_cast<int32>(row));
    if (row > 0 && kLeftOut != 2) wait_for<Pipe::kMte3, Pipe::kV>();
    vf_call<add_one>("add_one", y, x);
    if (kLeftOut != 3) wait_for<Pipe::kV, Pipe::kMte3>(static_cast<int32>(row));
    copy_out(gm(output + 64 * row), y, kVector);
  }
  barrier_all();
}

TEST(Schedules, AMissingEventShowsInTheData) {
  std::vector<float> right;
  for (int i = 0; i < 256; ++i) right.push_back(static_cast<float>(i % 128 + 1));
  EXPECT_EQ(results_of([] { two_rows<-1>(); }), right);
  EXPECT_NE(results_of([] { two_rows<0>(); }), right);
  EXPECT_NE(results_of([] { two_rows<1>(); }), right);
  EXPECT_NE(results_of([] { two_rows<2>(); }), right);
  EXPECT_NE(results_of([] { two_rows<3>(); }), right);
}

void store_and_load(Ub<float> x, Ub<float> y) {
  const Mask all = pset<float>();
  Reg<float> a;
  vdup(a, 7.0f, all);
  vsts(x, a, all);
  vlds(a, x);
  vsts(y, a, all);
}

TEST(Schedules, AMissingBarShowsInTheData) {
  const std::vector<float> got = results_of([] {
    const Ub<float> x = ub_alloc<float>("x", 64);
    const Ub<float> y = ub_alloc<float>("y", 64);
    vf_call<fill_one>("fill_one", x);
    vf_call<store_and_load>("store_and_load", x, y);
    wait_for<Pipe::kV, Pipe::kMte3>();
    copy_out(gm(output), y, kVector);
    barrier_all();
  });
  EXPECT_EQ(got[0], 1.0f);
}

}  // namespace
}  // namespace tilekernels::ascend
