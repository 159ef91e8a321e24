// The threads of a block while they run: what the parts of the machine share.
#pragma once

#include <string>
#include <vector>

#include "api.h"
#include "machine.h"

namespace cuda_emulator {

constexpr u32 kLanes = 32;

enum class State { kReady, kCollective, kBarrier, kWaiting, kDone };

struct Fiber {
  Thread thread{};
  u32 index = 0;  // in the block
  void* stack_pointer = nullptr;
  State state = State::kReady;
  bool has_waited = false;  // for the predecessor
  u32 polls = 0;
  // What it waits at
  Collective kind{};
  u32 mask = 0;
  u64 value = 0;
  u32 a = 0;
  u32 b = 0;
  const char* name = nullptr;
  const void* pc = nullptr;
  u64 result = 0;
  BlockBarrier barrier{};
  const char* file = nullptr;
  u32 line = 0;
  // Which accesses of its warp come before its next ones: those with a smaller time
  u32 time = 1;
  u32 seen[kLanes] = {};
};

// Who touched a byte of shared memory last.
struct Trace {
  u32 write_epoch = 0;
  u32 read_epoch = 0;
  u32 write_time = 0;
  u32 read_times[2] = {};
  u16 writer = 0;
  u16 readers[2] = {};
  bool is_atomic = false;
  u32 content_block = 0;  // the block that wrote it, as first epoch
};

struct Block {
  u32 index[3] = {};
  std::vector<Fiber> fibers{};
  u32 ready[kLanes] = {};  // lanes, a warp each
  u32 ready_warps = 0;
  u32 num_done = 0;
  u32 num_at_barrier = 0;
  u32 num_waiting = 0;
  u32 epoch = 0;  // one between two barriers, of all blocks
  u32 first_epoch = 0;
  bool has_moved = false;       // more than looked at flags
  std::vector<u8> shared{};     // while another block has the object's
  std::vector<Trace> traces{};  // of its bytes
  u8* stacks = nullptr;
};

/// Ends the launch; does not return to a fiber.
void stop(const Fiber& at, const std::string& what, const void* pc = nullptr);
void make_ready(Block& block, Fiber& fiber);
/// A number that no earlier stretch between barriers had, of any block.
u32 next_epoch();

/// "(1, 2, 3)".
std::string place(const u32* at);

/// An access of a kernel, as in `Api`.
struct Access {
  const void* address;
  u64 bytes;
  u32 what;
  const void* pc;
};
/// Stops a thread that touches shared memory as it must not.
void check_shared(const Launch& launch, Block& block, const Fiber& fiber, const Access& access);

/// A thread has come to a collective or to a barrier of its block: goes on with all when it is the
/// last, stops it when it is wrong there.
void arrive_at_collective(Block& block, Fiber& fiber);
void arrive_at_barrier(Block& block, Fiber& fiber);
/// Nothing moves: stops the first thread that waits, with what the others do.
void report_deadlock(const Block& block);

}  // namespace cuda_emulator
