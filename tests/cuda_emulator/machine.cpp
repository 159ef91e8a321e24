// Kernels on the host: every thread of a block is a fiber that runs until a collective, a barrier
// or its end. What the kernel leaves unordered runs in an order that is chosen to be unkind.
#include "machine.h"

#include <sys/mman.h>
#include <xmmintrin.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <deque>
#include <memory>
#include <random>
#include <utility>

#include "fiber.h"
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

constexpr u64 kStackBytes = 128 << 10;
constexpr u64 kStackCanary = 0x5AFEC0DE5AFEC0DE;
constexpr u8 kPoison = 0xB5;
constexpr u32 kMaxPolls = 16;          // looks at a flag before another thread runs
constexpr u64 kMaxIdleRounds = 20000;  // in which every thread only looked at flags

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
std::vector<u8*> free_stacks;  // for the fibers of a whole block each

u64 shared_bytes_of(const Object& object) {
  return static_cast<u64>(object.shared_end - object.shared);
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
    check_shared(*launch, *running_block, fiber, {address, bytes, what, pc});
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
  block.first_epoch = block.epoch = next_epoch();
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

void run_blocks() {
  const Object& object = *launch->function->module->object;
  const u64 shared_bytes = shared_bytes_of(object);
  const std::vector<u32> numbers =
      order_of_blocks(u64{launch->grid[0]} * launch->grid[1] * launch->grid[2]);
  size_t next = 0;
  std::deque<std::unique_ptr<Block>> waiting;  // for other blocks
  std::unique_ptr<Block> spare;
  u64 idle_rounds = 0;
  while (next < numbers.size() || !waiting.empty()) {
    std::unique_ptr<Block> now;
    // A new block when there is one: the others wait for something
    if (next < numbers.size()) {
      now = spare ? std::move(spare) : std::make_unique<Block>();
      start_block(*now, numbers[next++]);
    } else {
      now = std::move(waiting.front());
      waiting.pop_front();
      if (!now->shared.empty()) {
        std::copy(now->shared.begin(), now->shared.end(), object.shared);
      }
    }
    const Outcome outcome = run_block(*now);
    if (outcome != Outcome::kIdle) {
      free_stacks.push_back(now->stacks);
      if (outcome == Outcome::kFailed) return;
      idle_rounds = 0;
      spare = std::move(now);
      continue;
    }
    if (++idle_rounds > kMaxIdleRounds + numbers.size()) {
      stop(now->fibers[0], "waits, as all threads do, for a flag that nobody sets");
      return;
    }
    now->shared.assign(object.shared, object.shared + shared_bytes);
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

void stop(const Fiber& at, const std::string& what, const void* pc) {
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

u32 next_epoch() {
  static u32 epochs = 0;
  return ++epochs;
}

std::string place(const u32* at) {
  return "(" + std::to_string(at[0]) + ", " + std::to_string(at[1]) + ", " + std::to_string(at[2]) +
         ")";
}

bool set_order(std::string_view text) {
  if (text == "forward") {
    order = Order::kForward;
  } else if (text == "reverse") {
    order = Order::kReverse;
  } else {
    constexpr std::string_view kRandom = "random:";
    if (text.substr(0, kRandom.size()) != kRandom) return false;
    const char* const end = text.data() + text.size();
    u32 seed = 0;
    const auto [rest, wrong] = std::from_chars(text.data() + kRandom.size(), end, seed);
    if (wrong != std::errc() || rest != end) return false;
    order = Order::kRandom;
    random_numbers.seed(seed);
  }
  return true;
}

std::string run(const Launch& what) {
  launch = &what;
  error.clear();
  error_pc = nullptr;
  const Module& module = *what.function->module;
  *module.object->api = &kApi;
  const u32 float_environment = _mm_getcsr();
  _mm_setcsr(0x1F80);
  run_blocks();
  _mm_setcsr(float_environment);
  launch = nullptr;
  return error.empty() ? "" : error + source_of(module, error_pc);
}

}  // namespace cuda_emulator
