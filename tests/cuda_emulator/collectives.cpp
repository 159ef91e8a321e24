// What happens where the threads of a warp or of a block meet.
#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstring>

#include "fiber.h"

namespace cuda_emulator {
namespace {

std::string mask_text(u32 mask) {
  char text[16];
  std::snprintf(text, sizeof(text), "0x%08x", mask);
  return text;
}

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

}  // namespace

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
  block.epoch = next_epoch();
  for (Fiber& other : block.fibers) {
    other.result = result;
    make_ready(block, other);
  }
}

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

}  // namespace cuda_emulator
