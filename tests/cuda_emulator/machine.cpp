// Kernels on the host: every thread of a block is a fiber that runs until a collective, a barrier
// or its end. What the kernel leaves unordered runs in an order that is chosen to be unkind.
#include "machine.h"

#include <sys/mman.h>
#include <xmmintrin.h>

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <random>
#include <utility>

#include "memory.h"

// Keeps the registers that a call keeps on the stack, and goes to another stack.
extern "C" void cuda_emulator_switch(void** save, void* to);
asm(R"(
.text
.type cuda_emulator_switch, @function
cuda_emulator_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size cuda_emulator_switch, . - cuda_emulator_switch
)");

namespace cuda_emulator {
namespace {

constexpr u32 kLanes = 32;
constexpr u64 kStackBytes = 128 << 10;
constexpr u64 kStackCanary = 0x5AFEC0DE5AFEC0DE;
constexpr u8 kPoison = 0xB5;
constexpr u32 kMaxPolls = 16;          // looks at a flag before another thread runs
constexpr u64 kMaxIdleRounds = 20000;  // in which every thread only looked at flags

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

struct Block {
  u32 index[3] = {};
  std::vector<Fiber> fibers{};
  u32 ready[kLanes] = {};  // lanes, a warp each
  u32 ready_warps = 0;
  u32 num_done = 0;
  u32 num_at_barrier = 0;
  u32 num_waiting = 0;
  u32 epoch = 0;             // one between two barriers, of all blocks
  bool has_moved = false;    // more than looked at flags
  std::vector<u8> shared{};  // while another block has the object's
  u8* stacks = nullptr;
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

enum class Order { kForward, kReverse, kRandom };
Order order = Order::kForward;
std::mt19937 random_numbers(1);

// The launch that runs.
const Launch* launch = nullptr;
Block* running_block = nullptr;
Fiber* running = nullptr;
void* scheduler_stack = nullptr;
std::string error;
const void* error_pc = nullptr;
u32 epochs = 0;
u32 first_epoch = 0;  // of the running block
std::vector<Trace> traces;
std::vector<u8*> free_stacks;  // for the fibers of a whole block each
bool checks_races = true;

u64 shared_bytes_of(const Object& object) {
  return static_cast<u64>(object.shared_end - object.shared);
}

std::string place(const u32* at) {
  return "(" + std::to_string(at[0]) + ", " + std::to_string(at[1]) + ", " + std::to_string(at[2]) +
         ")";
}

std::string mask_text(u32 mask) {
  char text[16];
  std::snprintf(text, sizeof(text), "0x%08x", mask);
  return text;
}

// Ends the launch; does not return to a fiber.
void stop(const Fiber& at, const std::string& what, const void* pc = nullptr) {
  if (error.empty()) {
    error = launch->function->name + ", block " + place(at.thread.block) + ", thread " +
            place(at.thread.thread) + " " + what;
    error_pc = pc;
  }
  if (running != nullptr) {
    Fiber* const fiber = running;
    running = nullptr;
    cuda_emulator_switch(&fiber->stack_pointer, scheduler_stack);
  }
}

void make_ready(Block& block, Fiber& fiber) {
  fiber.state = State::kReady;
  const u32 warp = fiber.index / kLanes;
  block.ready[warp] |= 1u << fiber.thread.lane;
  block.ready_warps |= 1u << warp;
}

// To the scheduler, in a new state.
void leave(State state) {
  Fiber* const fiber = running;
  fiber->state = state;
  running = nullptr;
  cuda_emulator_switch(&fiber->stack_pointer, scheduler_stack);
}

void enter() {
  launch->function->kernel->run(launch->params);
  leave(State::kDone);
}

// --- what kernels call

u64 collective(Collective kind, u32 mask, u64 value, u32 a, u32 b, const char* name,
               const void* pc) {
  Fiber& fiber = *running;
  fiber.kind = kind;
  fiber.mask = mask;
  fiber.value = value;
  fiber.a = a;
  fiber.b = b;
  fiber.name = name;
  fiber.pc = pc;
  fiber.polls = 0;
  leave(State::kCollective);
  return fiber.result;
}

u32 block_barrier(BlockBarrier kind, u32 predicate, const char* file, u32 line) {
  Fiber& fiber = *running;
  fiber.barrier = kind;
  fiber.value = predicate;
  fiber.file = file;
  fiber.line = line;
  fiber.polls = 0;
  leave(State::kBarrier);
  return static_cast<u32>(fiber.result);
}

// Lets others run when a thread looks at a flag again and again, and sometimes anyway.
void poll() {
  Fiber& fiber = *running;
  const bool is_unlucky = order == Order::kRandom && random_numbers() % 4 == 0;
  if (++fiber.polls < kMaxPolls && !is_unlucky) return;
  fiber.polls = 0;
  leave(State::kWaiting);
}

bool comes_before(u32 other, u32 time, const Fiber& fiber) {
  if (other == fiber.index) return true;
  return other / kLanes == fiber.index / kLanes && time < fiber.seen[other % kLanes];
}

void check_shared(const void* address, u64 bytes, u32 what, const void* pc) {
  Fiber& fiber = *running;
  const Object& object = *launch->function->module->object;
  const u64 offset = static_cast<u64>(static_cast<const u8*>(address) - object.shared);
  const bool writes = (what & kWrite) != 0;
  const bool atomic = (what & (kAtomic | kVolatile)) != 0;
  const std::string_view verb = writes ? "writes " : "reads ";
  if (object.dynamic_shared != nullptr) {
    const auto begin = static_cast<u64>(object.dynamic_shared - object.shared);
    const u64 end = begin + launch->shared_bytes;
    if (offset + bytes > end && offset < begin + object.max_dynamic_shared) {
      stop(fiber,
           std::string(verb) + std::to_string(bytes) + " bytes at byte " +
               std::to_string(offset - begin) + " of dynamic shared memory, which has " +
               std::to_string(launch->shared_bytes),
           pc);
    }
  }
  const u32 epoch = running_block->epoch;
  for (u64 i = offset; i < offset + bytes; ++i) {
    Trace& trace = traces[i];
    const auto race = [&](u32 other, const char* did) {
      stop(fiber,
           std::string(verb) + "a byte of shared memory that thread " + std::to_string(other) +
               " of the block " + did + ", with nothing that orders the two",
           pc);
    };
    const bool is_written = trace.content_block == first_epoch;
    if (!is_written && (!writes || (what & kAtomic) != 0)) {
      stop(fiber, "reads shared memory that nobody wrote", pc);
    }
    if (checks_races) {
      if (trace.write_epoch == epoch && !(atomic && trace.is_atomic) &&
          !comes_before(trace.writer, trace.write_time, fiber)) {
        race(trace.writer, "wrote");
      }
      if (writes && trace.read_epoch == epoch) {
        for (int k = 0; k < 2; ++k) {
          if (!comes_before(trace.readers[k], trace.read_times[k], fiber)) {
            race(trace.readers[k], "read");
          }
        }
      }
    }
    const auto me = static_cast<u16>(fiber.index);
    if (writes) {
      trace.write_epoch = epoch;
      trace.writer = me;
      trace.write_time = fiber.time;
      trace.is_atomic = atomic;
      trace.content_block = first_epoch;
    } else if (!atomic) {
      // The first reader, and the last one
      if (trace.read_epoch != epoch || trace.readers[0] == me) {
        trace.readers[0] = me;
        trace.read_times[0] = fiber.time;
      }
      if (trace.read_epoch != epoch || trace.readers[1] != me) trace.readers[1] = me;
      trace.read_times[1] = fiber.time;
      trace.read_epoch = epoch;
    }
  }
}

void access(const void* address, u64 bytes, u32 what, const void* pc) {
  Fiber& fiber = *running;
  const auto at = reinterpret_cast<u64>(address);
  const bool writes = (what & kWrite) != 0;
  if ((what & kUnaligned) == 0 && at % bytes != 0) {
    char text[128];
    std::snprintf(text, sizeof(text), "%s %lu bytes at 0x%lx, which is no multiple of %lu",
                  writes ? "writes" : "reads", bytes, at, bytes);
    stop(fiber, text, pc);
  }
  const Module& module = *launch->function->module;
  const Object& object = *module.object;
  const u64 shared = reinterpret_cast<u64>(object.shared);
  if (at - shared < shared_bytes_of(object)) {
    if ((what & kGlobalOnly) != 0) stop(fiber, "takes shared memory for global memory", pc);
    check_shared(address, bytes, what, pc);
  } else {
    if ((what & kSharedOnly) != 0) stop(fiber, "leaves shared memory", pc);
    const bool is_constant = at - module.base < module.end - module.base && !writes;
    const bool is_own = at - fiber.thread.stack < fiber.thread.stack_bytes;
    if (!is_constant && !is_own) {
      if (launch->is_dependent && !fiber.has_waited) {
        stop(fiber, "touches memory before it waited for the kernel before", pc);
      }
      const std::string problem = check_global(at, bytes, what, launch->function->device);
      if (!problem.empty()) stop(fiber, problem, pc);
    }
  }
  if ((what & (kAtomic | kVolatile)) != 0) poll();
}

void fence() {}
void wait_for_predecessor() { running->has_waited = true; }
void fail(const char* what) { stop(*running, std::string("says: ") + what); }

const Api kApi = {collective, block_barrier, access, fence, wait_for_predecessor, fail};

// --- what happens when all have come

void order_accesses(Block& block, u32 warp, u32 mask) {
  u32 seen[kLanes] = {};
  Fiber* const fibers = &block.fibers[warp * kLanes];
  for (u32 lane = 0; lane < kLanes; ++lane) {
    if ((mask >> lane & 1) == 0) continue;
    for (u32 i = 0; i < kLanes; ++i) seen[i] = std::max(seen[i], fibers[lane].seen[i]);
    seen[lane] = std::max(seen[lane], ++fibers[lane].time);
  }
  for (u32 lane = 0; lane < kLanes; ++lane) {
    if ((mask >> lane & 1) != 0) std::copy(seen, seen + kLanes, fibers[lane].seen);
  }
}

u32 reduced(Collective kind, u32 x, u32 y) {
  const auto signed_less = static_cast<s32>(x) < static_cast<s32>(y);
  switch (kind) {
    case Collective::kReduceAdd:
      return x + y;
    case Collective::kReduceMinU:
      return std::min(x, y);
    case Collective::kReduceMaxU:
      return std::max(x, y);
    case Collective::kReduceMinS:
      return signed_less ? x : y;
    case Collective::kReduceMaxS:
      return signed_less ? y : x;
    case Collective::kReduceAnd:
      return x & y;
    case Collective::kReduceOr:
      return x | y;
    default:
      return x ^ y;
  }
}

// The lane whose value a shuffle gives to this one.
u32 source_of(const Fiber& fiber) {
  const u32 lane = fiber.thread.lane;
  const u32 width = fiber.b;
  const u32 first = lane & ~(width - 1);
  switch (fiber.kind) {
    case Collective::kShfl:
      return first | (fiber.a & (width - 1));
    case Collective::kShflUp:
      return fiber.a <= lane - first ? lane - fiber.a : lane;
    case Collective::kShflDown:
      return u64{lane} + fiber.a < first + width ? lane + fiber.a : lane;
    default:
      return (lane ^ fiber.a) < first + width ? lane ^ fiber.a : lane;
  }
}

void complete(Block& block, u32 warp, u32 mask, Collective kind) {
  Fiber* const fibers = &block.fibers[warp * kLanes];
  u32 votes = 0;
  u32 sum = 0;
  bool is_first = true;
  bool all_equal = true;
  u64 one_value = 0;
  for (u32 lane = 0; lane < kLanes; ++lane) {
    if ((mask >> lane & 1) == 0) continue;
    const u64 value = fibers[lane].value;
    if (value != 0) votes |= 1u << lane;
    sum = is_first ? static_cast<u32>(value) : reduced(kind, sum, static_cast<u32>(value));
    if (is_first) one_value = value;
    all_equal = all_equal && value == one_value;
    is_first = false;
  }
  for (u32 lane = 0; lane < kLanes; ++lane) {
    if ((mask >> lane & 1) == 0) continue;
    Fiber& fiber = fibers[lane];
    switch (kind) {
      case Collective::kSync:
        break;
      case Collective::kShfl:
      case Collective::kShflUp:
      case Collective::kShflDown:
      case Collective::kShflXor: {
        if (fiber.b == 0 || fiber.b > kLanes || !std::has_single_bit(fiber.b)) {
          return stop(
              fiber,
              std::string("calls ") + fiber.name + " with a width of " + std::to_string(fiber.b),
              fiber.pc);
        }
        const u32 source = source_of(fiber);
        if ((mask >> source & 1) == 0) {
          return stop(fiber,
                      std::string("reads lane ") + std::to_string(source) + " in " + fiber.name +
                          ", which the mask " + mask_text(mask) + " does not name",
                      fiber.pc);
        }
        fiber.result = fibers[source].value;
        break;
      }
      case Collective::kBallot:
        fiber.result = votes;
        break;
      case Collective::kAny:
        fiber.result = votes != 0;
        break;
      case Collective::kAll:
        fiber.result = votes == mask;
        break;
      case Collective::kUni:
        fiber.result = all_equal;
        break;
      case Collective::kMatchAll:
        fiber.result = all_equal ? mask : 0;
        break;
      case Collective::kMatchAny:
        fiber.result = 0;
        for (u32 other = 0; other < kLanes; ++other) {
          if ((mask >> other & 1) != 0 && fibers[other].value == fiber.value) {
            fiber.result |= 1u << other;
          }
        }
        break;
      default:
        fiber.result = sum;
    }
  }
  if (kind == Collective::kSync) order_accesses(block, warp, mask);
  for (u32 lane = 0; lane < kLanes; ++lane) {
    if ((mask >> lane & 1) != 0) make_ready(block, fibers[lane]);
  }
}

void arrive_at_collective(Block& block, Fiber& fiber) {
  const u32 warp = fiber.index / kLanes;
  const u32 num_lanes = std::min(kLanes, static_cast<u32>(block.fibers.size()) - warp * kLanes);
  const auto wrong = [&](const std::string& what) {
    stop(fiber,
         std::string("calls ") + fiber.name + " with the mask " + mask_text(fiber.mask) +
             ", which " + what,
         fiber.pc);
  };
  if ((fiber.mask >> fiber.thread.lane & 1) == 0) return wrong("does not name its own lane");
  bool all_here = true;
  for (u32 lane = 0; lane < kLanes; ++lane) {
    if ((fiber.mask >> lane & 1) == 0) continue;
    if (lane >= num_lanes) {
      return wrong("names lane " + std::to_string(lane) + " of a warp of " +
                   std::to_string(num_lanes));
    }
    const Fiber& other = block.fibers[warp * kLanes + lane];
    if (other.state == State::kDone) {
      return wrong("names lane " + std::to_string(lane) + " that has left the kernel");
    }
    all_here = all_here && other.state == State::kCollective && other.mask == fiber.mask &&
               other.kind == fiber.kind;
  }
  if (all_here) complete(block, warp, fiber.mask, fiber.kind);
}

void arrive_at_barrier(Block& block, Fiber& fiber) {
  ++block.num_at_barrier;
  if (block.num_done > 0) {
    return stop(fiber, "waits at a barrier of the block that other threads have left");
  }
  if (block.num_at_barrier < block.fibers.size()) return;
  u32 count = 0;
  for (const Fiber& other : block.fibers) {
    count += other.value != 0;
    if (other.line != fiber.line || std::strcmp(other.file, fiber.file) != 0 ||
        other.barrier != fiber.barrier) {
      return stop(other, "waits at the barrier of " + std::string(other.file) + ":" +
                             std::to_string(other.line) + ", but thread " +
                             place(fiber.thread.thread) + " at that of " + fiber.file + ":" +
                             std::to_string(fiber.line));
    }
  }
  const u32 result = fiber.barrier == BlockBarrier::kCount ? count
                     : fiber.barrier == BlockBarrier::kAnd ? count == block.fibers.size()
                                                           : count != 0;
  block.num_at_barrier = 0;
  block.epoch = ++epochs;
  for (Fiber& other : block.fibers) {
    other.result = result;
    make_ready(block, other);
  }
}

u32 pick_bit(u32 bits) {
  switch (order) {
    case Order::kForward:
      return static_cast<u32>(std::countr_zero(bits));
    case Order::kReverse:
      return 31 - static_cast<u32>(std::countl_zero(bits));
    default: {
      u32 skip = static_cast<u32>(random_numbers()) % static_cast<u32>(std::popcount(bits));
      for (; skip > 0; --skip) bits &= bits - 1;
      return static_cast<u32>(std::countr_zero(bits));
    }
  }
}

// Why nothing moves: the first thread that waits, and what the others do.
void report_deadlock(const Block& block) {
  for (const Fiber& fiber : block.fibers) {
    if (fiber.state == State::kCollective) {
      const u32 warp = fiber.index / kLanes;
      for (u32 lane = 0; lane < kLanes; ++lane) {
        if ((fiber.mask >> lane & 1) == 0) continue;
        const Fiber& other = block.fibers[warp * kLanes + lane];
        const bool fits = other.state == State::kCollective && other.mask == fiber.mask &&
                          other.kind == fiber.kind;
        if (fits) continue;
        const std::string does =
            other.state == State::kCollective
                ? std::string("waits at ") + other.name + " with the mask " + mask_text(other.mask)
                : std::string("waits at a barrier of the block");
        return stop(fiber,
                    std::string("waits at ") + fiber.name + " with the mask " +
                        mask_text(fiber.mask) + " for lane " + std::to_string(lane) + ", which " +
                        does,
                    fiber.pc);
      }
    }
  }
  for (const Fiber& fiber : block.fibers) {
    if (fiber.state == State::kBarrier) {
      return stop(fiber, "waits at the barrier of " + std::string(fiber.file) + ":" +
                             std::to_string(fiber.line) + " for threads that do not come");
    }
  }
}

void resume(Block& block, Fiber& fiber) {
  const Object& object = *launch->function->module->object;
  running = &fiber;
  *object.current = &fiber.thread;
  cuda_emulator_switch(&scheduler_stack, fiber.stack_pointer);
  running = nullptr;
  if (!error.empty()) return;
  if (fiber.state != State::kWaiting) block.has_moved = true;
  switch (fiber.state) {
    case State::kCollective:
      return arrive_at_collective(block, fiber);
    case State::kBarrier:
      return arrive_at_barrier(block, fiber);
    case State::kWaiting:
      ++block.num_waiting;
      return;
    default:
      ++block.num_done;
      if (*reinterpret_cast<u64*>(fiber.thread.stack) != kStackCanary) {
        stop(fiber, "used more stack than the emulator has");
      }
      if (block.num_at_barrier > 0) {
        for (const Fiber& other : block.fibers) {
          if (other.state == State::kBarrier) {
            return stop(fiber, "leaves the kernel, but thread " + place(other.thread.thread) +
                                   " waits for it at the barrier of " + other.file + ":" +
                                   std::to_string(other.line));
          }
        }
      }
  }
}

enum class Outcome { kFinished, kIdle, kFailed };

// Runs a block until its end or until all its threads only look at flags.
Outcome run_block(Block& block) {
  running_block = &block;
  for (;;) {
    if (block.ready_warps == 0) {
      if (block.num_done == block.fibers.size()) return Outcome::kFinished;
      if (block.num_waiting == 0) {
        report_deadlock(block);
        return Outcome::kFailed;
      }
      for (Fiber& fiber : block.fibers) {
        if (fiber.state == State::kWaiting) make_ready(block, fiber);
      }
      block.num_waiting = 0;
      if (!std::exchange(block.has_moved, false)) return Outcome::kIdle;
    }
    const u32 warp = pick_bit(block.ready_warps);
    const u32 lane = pick_bit(block.ready[warp]);
    block.ready[warp] &= ~(1u << lane);
    if (block.ready[warp] == 0) block.ready_warps &= ~(1u << warp);
    resume(block, block.fibers[warp * kLanes + lane]);
    if (!error.empty()) return Outcome::kFailed;
  }
}

u8* take_stacks() {
  if (!free_stacks.empty()) {
    u8* const stacks = free_stacks.back();
    free_stacks.pop_back();
    return stacks;
  }
  void* const memory = mmap(nullptr, 1024 * kStackBytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return memory == MAP_FAILED ? nullptr : static_cast<u8*>(memory);
}

// A block before its first step; its shared memory is poisoned.
void start_block(Block& block, u64 number) {
  const u32* const grid = launch->grid;
  block.index[0] = static_cast<u32>(number % grid[0]);
  block.index[1] = static_cast<u32>(number / grid[0] % grid[1]);
  block.index[2] = static_cast<u32>(number / grid[0] / grid[1]);
  const u32* const size = launch->block;
  block.fibers.assign(size_t{size[0]} * size[1] * size[2], Fiber());
  block.stacks = take_stacks();
  block.num_done = 0;
  block.num_at_barrier = 0;
  block.num_waiting = 0;
  block.has_moved = false;
  block.epoch = ++epochs;
  for (u32 i = 0; i < block.fibers.size(); ++i) {
    Fiber& fiber = block.fibers[i];
    fiber.index = i;
    fiber.thread.thread[0] = i % size[0];
    fiber.thread.thread[1] = i / size[0] % size[1];
    fiber.thread.thread[2] = i / size[0] / size[1];
    fiber.thread.lane = i % kLanes;
    std::copy(block.index, block.index + 3, fiber.thread.block);
    std::copy(size, size + 3, fiber.thread.block_size);
    std::copy(grid, grid + 3, fiber.thread.grid_size);
    u8* const stack = block.stacks + i * kStackBytes;
    fiber.thread.stack = reinterpret_cast<u64>(stack);
    fiber.thread.stack_bytes = kStackBytes;
    *reinterpret_cast<u64*>(stack) = kStackCanary;
    // What cuda_emulator_switch pops: six registers, then the address to go to. The stack is as
    // after a call there.
    auto* const top = reinterpret_cast<u64*>(stack + kStackBytes);
    top[-1] = 0;
    top[-2] = reinterpret_cast<u64>(&enter);
    std::fill(top - 8, top - 2, 0);
    fiber.stack_pointer = top - 8;
    make_ready(block, fiber);
  }
  const Object& object = *launch->function->module->object;
  if (object.dynamic_shared == nullptr) {
    std::memset(object.shared, kPoison, shared_bytes_of(object));
  } else {
    std::memset(object.shared, kPoison, static_cast<u64>(object.dynamic_shared - object.shared));
    std::memset(object.dynamic_shared, kPoison, launch->shared_bytes);
    u8* const behind = object.dynamic_shared + object.max_dynamic_shared;
    std::memset(behind, kPoison, static_cast<u64>(object.shared_end - behind));
  }
}

std::vector<u32> order_of_blocks(u64 count) {
  std::vector<u32> numbers(count);
  for (u64 i = 0; i < count; ++i) numbers[i] = static_cast<u32>(i);
  if (order == Order::kReverse) std::reverse(numbers.begin(), numbers.end());
  if (order == Order::kRandom) std::shuffle(numbers.begin(), numbers.end(), random_numbers);
  return numbers;
}

struct Resident {
  Block block{};
  u32 first_epoch = 0;
};

void run_blocks() {
  const Object& object = *launch->function->module->object;
  const u64 shared_bytes = shared_bytes_of(object);
  const std::vector<u32> numbers =
      order_of_blocks(u64{launch->grid[0]} * launch->grid[1] * launch->grid[2]);
  size_t next = 0;
  std::deque<std::unique_ptr<Resident>> waiting;  // for other blocks
  std::unique_ptr<Resident> spare;
  u64 idle_rounds = 0;
  while (next < numbers.size() || !waiting.empty()) {
    std::unique_ptr<Resident> now;
    // A new block when there is one: the others wait for something
    if (next < numbers.size()) {
      now = spare ? std::move(spare) : std::make_unique<Resident>();
      start_block(now->block, numbers[next++]);
      now->first_epoch = now->block.epoch;
    } else {
      now = std::move(waiting.front());
      waiting.pop_front();
      if (!now->block.shared.empty()) {
        std::copy(now->block.shared.begin(), now->block.shared.end(), object.shared);
      }
    }
    first_epoch = now->first_epoch;
    const Outcome outcome = run_block(now->block);
    if (outcome != Outcome::kIdle) {
      free_stacks.push_back(now->block.stacks);
      if (outcome == Outcome::kFailed) return;
      idle_rounds = 0;
      spare = std::move(now);
      continue;
    }
    if (++idle_rounds > kMaxIdleRounds + numbers.size()) {
      stop(now->block.fibers[0], "waits, as all threads do, for a flag that nobody sets");
      return;
    }
    now->block.shared.assign(object.shared, object.shared + shared_bytes);
    waiting.push_back(std::move(now));
  }
}

// "file:line" of an address in the module, by addr2line; empty without one.
std::string source_of(const Module& module, const void* pc) {
  if (pc == nullptr) return "";
  char path[] = "/tmp/cuda-emulator-XXXXXX";
  const int file = mkstemp(path);
  if (file < 0) return "";
  FILE* const out = fdopen(file, "wb");
  std::fwrite(module.bytes.data(), 1, module.bytes.size(), out);
  std::fclose(out);
  char command[128];
  std::snprintf(command, sizeof(command), "addr2line -i -e %s 0x%lx 2>/dev/null", path,
                reinterpret_cast<u64>(pc) - module.base - 1);
  std::string where;
  if (FILE* const in = popen(command, "r")) {
    char line[512];
    while (std::fgets(line, sizeof(line), in) != nullptr) {
      std::string text(line, std::strcspn(line, "\n"));
      while (text.rfind("./", 0) == 0) text = text.substr(2);
      text = text.substr(0, text.find(" ("));
      const bool is_own = text.rfind("builtins.h", 0) == 0 || text.rfind("ptx.h", 0) == 0;
      if (is_own || text[0] == '?') continue;
      where += (where.empty() ? " at " : ", in ") + text;
    }
    pclose(in);
  }
  std::remove(path);
  return where;
}

}  // namespace

bool set_order(std::string_view text) {
  if (text == "forward") {
    order = Order::kForward;
  } else if (text == "reverse") {
    order = Order::kReverse;
  } else if (text.rfind("random:", 0) == 0) {
    order = Order::kRandom;
    random_numbers.seed(
        static_cast<u32>(std::strtoul(std::string(text.substr(7)).c_str(), nullptr, 10)));
  } else {
    return false;
  }
  return true;
}

std::string run(const Launch& what) {
  launch = &what;
  error.clear();
  error_pc = nullptr;
  const Module& module = *what.function->module;
  *module.object->api = &kApi;
  traces.resize(std::max<size_t>(traces.size(), shared_bytes_of(*module.object)));
  const u32 float_environment = _mm_getcsr();
  _mm_setcsr(0x1F80);
  run_blocks();
  _mm_setcsr(float_environment);
  launch = nullptr;
  return error.empty() ? "" : error + source_of(module, error_pc);
}

}  // namespace cuda_emulator
