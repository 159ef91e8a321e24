// What a kernel compiled for the host and the emulator tell each other. The emulator includes this,
// and it is the first part of every kernel's text; hence no std headers.
#pragma once

namespace cuda_emulator {

using u8 = unsigned char;
using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long;
using s8 = signed char;
using s16 = short;
using s32 = int;
using s64 = long;

/// Operations of a warp, at which the named lanes wait for each other.
enum class Collective : s32 {
  kSync,
  kShfl,
  kShflUp,
  kShflDown,
  kShflXor,
  kBallot,
  kAny,
  kAll,
  kUni,
  kReduceAdd,
  kReduceMinU,
  kReduceMaxU,
  kReduceMinS,
  kReduceMaxS,
  kReduceAnd,
  kReduceOr,
  kReduceXor,
  kMatchAny,
  kMatchAll,
};

/// Barriers of a block; the predicates of all threads make the result.
enum class BlockBarrier : s32 { kPlain, kCount, kAnd, kOr };

/// What an access to memory is, as bits.
constexpr u32 kRead = 0;
constexpr u32 kWrite = 1;
constexpr u32 kAtomic = 2;
constexpr u32 kVolatile = 4;   // also relaxed and acquire loads: what a thread may wait on
constexpr u32 kUnaligned = 8;  // the text claims no alignment
constexpr u32 kGlobalOnly = 16;
constexpr u32 kSharedOnly = 32;

/// The thread that runs. Its own stack needs no check.
struct Thread {
  u32 thread[3];
  u32 block[3];
  u32 block_size[3];
  u32 grid_size[3];
  u32 lane;
  u64 stack;  // lowest address
  u64 stack_bytes;
};

/// What the emulator does for a kernel.
struct Api {
  u64 (*collective)(Collective kind, u32 mask, u64 value, u32 a, u32 b, const char* name,
                    const void* pc);
  u32 (*block_barrier)(BlockBarrier kind, u32 predicate, const char* file, u32 line);
  void (*access)(const void* address, u64 bytes, u32 what, const void* pc);
  void (*fence)();
  void (*wait_for_predecessor)();
  void (*fail)(const char* what);
};

/// What a kernel's object exports, as the symbol `cuda_emulator_object`.
struct Object {
  const Api** api;         // to be set after loading
  const Thread** current;  // to be set before a thread runs
  u8* shared;              // all static shared memory, and the room of the dynamic one in it
  u8* shared_end;
  u8* dynamic_shared;  // null: not used
  u64 max_dynamic_shared;
};

/// What is exported of each kernel, as the symbol `cuda_emulator_kernel_<name>`.
struct Kernel {
  void (*run)(void** params);
  u32 max_threads;  // of __launch_bounds__; 0: none given
};

}  // namespace cuda_emulator
