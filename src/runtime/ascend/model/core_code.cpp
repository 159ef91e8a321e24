// What core code says to the machine model.
#include <algorithm>
#include <limits>
#include <string>

#include "runtime/ascend/model/core.h"

namespace tilekernels::ascend::model {
namespace {
Core& core_code(const char* what) {
  if (core().in_vf()) {
    core().fail(HazardKind::kBadLoop, std::string(what) + " stands in core code");
  }
  return core();
}
}  // namespace

UbPlace moved(UbPlace place, int64 bytes) {
  // Far outside stays outside: offsets do not wrap round into the buffer.
  const int64 offset = std::clamp<int64>(place.offset + bytes, std::numeric_limits<int32>::min(),
                                         std::numeric_limits<int32>::max());
  return {place.buffer, static_cast<int32>(offset)};
}
int64 block_idx() { return core().index(); }
int64 block_num() { return core().num(); }
void set_ctrl(int32 bit, int32 value) { core().set_ctrl(bit, value); }
UbPlace ub_alloc(const char* name, int64 bytes, int32 readable_tail_bytes) {
  return core_code("ub_alloc").allocate(name, bytes, readable_tail_bytes);
}
void copy_in(UbPlace to, const void* from, const Copy& copy) {
  core_code("copy_in").issue_copy(Pipe::kMte2, to, from, copy);
}
void copy_out(void* to, UbPlace from, const Copy& copy) {
  core_code("copy_out").issue_copy(Pipe::kMte3, from, to, copy);
}
void set_flag(Pipe from, Pipe to, int32 id) { core_code("set_flag").issue_set(from, to, id); }
void wait_flag(Pipe from, Pipe to, int32 id) { core_code("wait_flag").issue_wait(from, to, id); }
void lock(Pipe pipe, int32 id) { core_code("lock").issue_lock(pipe, id); }
void unlock(Pipe pipe, int32 id) { core_code("unlock").issue_unlock(pipe, id); }
void pipe_barrier(Pipe pipe) { core_code("pipe_barrier").issue_barrier(pipe); }
void barrier_all() { core_code("barrier_all").barrier_all(); }
void scalar_read(UbPlace place, void* value, int32 bytes) {
  core().scalar_access(place, value, nullptr, bytes);
}
void scalar_write(UbPlace place, const void* value, int32 bytes) {
  core().scalar_access(place, nullptr, value, bytes);
}
void scalar_read_gm(const void* from, void* value, int32 bytes) {
  core_code("a scalar read of GM").scalar_read_gm(from, value, bytes);
}
uint16 trips(int64 trip_count) {
  if (trip_count < 0 || trip_count > kMaxTrips) {
    core().fail(HazardKind::kBadLoop,
                "a loop of " + std::to_string(trip_count) + " trips: its counter is 16 bits wide");
  }
  return static_cast<uint16>(trip_count);
}
void enqueue_vf(const char* vf_name, void (*run)(const void*), const void* stored, int64 bytes) {
  core().issue_vf(vf_name, run, stored, bytes);
}

}  // namespace tilekernels::ascend::model
