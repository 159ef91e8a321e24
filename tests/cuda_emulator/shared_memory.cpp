// Who may touch shared memory when: bytes that somebody wrote, in an order that barriers give.
#include <string>
#include <string_view>
#include <vector>

#include "fiber.h"

namespace cuda_emulator {
namespace {

bool comes_before(u32 other, u32 time, const Fiber& fiber) {
  if (other == fiber.index) return true;
  return other / kLanes == fiber.index / kLanes && time < fiber.seen[other % kLanes];
}

}  // namespace

void check_shared(const Launch& launch, Block& block, const Fiber& fiber, const Access& access) {
  const auto [address, bytes, what, pc] = access;
  const Object& object = *launch.function->module->object;
  const u64 offset = static_cast<u64>(static_cast<const u8*>(address) - object.shared);
  const bool writes = (what & kWrite) != 0;
  const bool atomic = (what & (kAtomic | kVolatile)) != 0;
  const std::string_view verb = writes ? "writes " : "reads ";
  if (object.dynamic_shared != nullptr) {
    const auto begin = static_cast<u64>(object.dynamic_shared - object.shared);
    const u64 end = begin + launch.shared_bytes;
    if (offset + bytes > end && offset < begin + object.max_dynamic_shared) {
      stop(fiber,
           std::string(verb) + std::to_string(bytes) + " bytes at byte " +
               std::to_string(offset - begin) + " of dynamic shared memory, which has " +
               std::to_string(launch.shared_bytes),
           pc);
    }
  }
  std::vector<Trace>& traces = block.traces;
  if (traces.size() < offset + bytes) traces.resize(offset + bytes);
  const u32 epoch = block.epoch;
  for (u64 i = offset; i < offset + bytes; ++i) {
    Trace& trace = traces[i];
    const auto race = [&](u32 other, const char* did) {
      stop(fiber,
           std::string(verb) + "a byte of shared memory that thread " + std::to_string(other) +
               " of the block " + did + ", with nothing that orders the two",
           pc);
    };
    const bool is_written = trace.content_block == block.first_epoch;
    if (!is_written && (!writes || (what & kAtomic) != 0)) {
      stop(fiber, "reads shared memory that nobody wrote", pc);
    }
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
    const auto me = static_cast<u16>(fiber.index);
    if (writes) {
      trace.write_epoch = epoch;
      trace.writer = me;
      trace.write_time = fiber.time;
      trace.is_atomic = atomic;
      trace.content_block = block.first_epoch;
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

}  // namespace cuda_emulator
