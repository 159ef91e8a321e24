// What core code asks of a core: work for its queues, and what the scalar unit does at once.
#include <cstring>

#include "runtime/ascend/model/core.h"

namespace tilekernels::ascend::model {
namespace {

constexpr size_t kMaxQueued = 1 << 14;  // then queues run, as if the scalar unit had to wait

}  // namespace

bool Core::skips_sync() { return index_ == 0 && syncs_++ == options_.skip_sync; }

int64 Core::note_event(const Event& event) {
  if (options_.cost == nullptr || index_ != 0) return -1;
  events_.push_back(event);
  return static_cast<int64>(events_.size()) - 1;
}

void Core::set_ctrl(int32 bit, int32 value) {
  if (in_vf_) fail(HazardKind::kBadLoop, "control bits are set outside of vector functions");
  ctrl_ = (ctrl_ & ~(uint64{1} << bit)) | static_cast<uint64>(value) << bit;
}

Core::Work Core::work_of(Work::Kind kind, Pipe pipe, int32 id) {
  Work work{};
  work.kind = kind;
  work.pipe = pipe;
  work.id = id;
  return work;
}

size_t Core::enqueue(const Work& work) {
  auto& queue = queues_[static_cast<int32>(work.pipe)];
  queue.push_back(work);
  return queue.size();
}

void Core::issue_copy(Pipe pipe, UbPlace ub, const void* gm, const Copy& copy) {
  if (copy.rows <= 0 || copy.row_bytes <= 0) return;
  if (copy.rows > kMaxCopyRows || copy.row_bytes > kMaxCopyRowBytes) {
    fail(HazardKind::kMisaligned, ub,
         "a copy takes at most " + std::to_string(kMaxCopyRows) + " rows of " +
             std::to_string(kMaxCopyRowBytes) + " bytes, not " + std::to_string(copy.rows) +
             " of " + std::to_string(copy.row_bytes));
  }
  if (ub.offset % kBlockBytes != 0 || (!copy.compact && copy.ub_pitch % kBlockBytes != 0)) {
    fail(HazardKind::kMisaligned, ub, "copies start at multiples of 32 bytes in UB");
  }
  if (copy.rows > 1 && !copy.compact && copy.ub_pitch < copy.row_bytes) {
    fail(HazardKind::kMisaligned, ub, "rows of a copy overlap in UB");
  }
  if (copy.compact && pipe == Pipe::kMte3) {
    fail(HazardKind::kMisaligned, ub, "copies out take rows from multiples of 32 bytes");
  }
  ended_ = false;
  int64 port_bytes = 0;
  for (int64 row = 0; row < copy.rows; ++row) {
    const auto first = reinterpret_cast<uint64>(gm) + static_cast<uint64>(row * copy.gm_pitch);
    const uint64 last = first + static_cast<uint64>(copy.row_bytes) - 1;
    port_bytes += static_cast<int64>((last / kBlockBytes - first / kBlockBytes + 1) * kBlockBytes);
  }
  const bool in = pipe == Pipe::kMte2;
  (in ? bytes_in_ : bytes_out_) += copy.rows * copy.row_bytes;
  port_bytes_ += port_bytes;
  note_event({.kind = Event::Kind::kWork,
              .pipe = pipe,
              .port_bytes = port_bytes,
              .name = in ? "copy in" : "copy out"});
  Work work = work_of(Work::Kind::kCopy, pipe);
  work.ub = ub;
  work.gm = gm;
  work.copy = copy;
  if (enqueue(work) > kMaxQueued) run_queues(nullptr);
}

void Core::issue_vf(const char* vf_name, void (*function)(const void*), const void* stored,
                    int64 bytes) {
  if (in_vf_) fail(HazardKind::kBadLoop, "a vector function calls another one by vf_call");
  ended_ = false;
  Work work = work_of(Work::Kind::kVf, Pipe::kV);
  work.name = vf_name;
  work.run = function;
  std::memcpy(work.stored, stored, static_cast<size_t>(bytes));
  work.event = note_event({.kind = Event::Kind::kWork, .pipe = Pipe::kV, .name = vf_name});
  if (enqueue(work) > kMaxQueued) run_queues(nullptr);
}

void Core::check_flag(Pipe from, Pipe to, int32 id) const {
  if (id < 0 || id >= kUsableFlags) {
    fail(HazardKind::kFlagMisuse, "flag " + event_name(from, to) + " " + std::to_string(id) +
                                      ": ids are 0..5, 6 and 7 are reserved");
  }
}

Core::Flag& Core::flag(Pipe from, Pipe to, int32 id) {
  const int32 pair = static_cast<int32>(from) * kNumPipes + static_cast<int32>(to);
  return flags_[static_cast<size_t>(pair * kNumFlags + id)];
}

void Core::issue_set(Pipe from, Pipe to, int32 id) {
  check_flag(from, to, id);
  if (skips_sync()) return;
  ended_ = false;
  note_event({.kind = Event::Kind::kSet, .pipe = from, .from = from, .to = to, .id = id});
  Work work = work_of(Work::Kind::kSet, from, id);
  work.from = from;
  work.to = to;
  if (from == Pipe::kS) {
    execute(work);
  } else {
    enqueue(work);
  }
}

void Core::issue_wait(Pipe from, Pipe to, int32 id) {
  check_flag(from, to, id);
  if (skips_sync()) return;
  note_event({.kind = Event::Kind::kWait, .pipe = to, .from = from, .to = to, .id = id});
  Work work = work_of(Work::Kind::kWait, to, id);
  work.from = from;
  work.to = to;
  if (to == Pipe::kS) {
    run_queues(&flag(from, to, id));
    execute(work);
  } else {
    enqueue(work);
  }
}

Core::Mutex& Core::checked_mutex(int32 id, const std::string& which) {
  if (id < 0 || id >= kNumMutexes) {
    fail(HazardKind::kMutexMisuse, which + ": ids are 0..27, 28 to 31 are reserved");
  }
  return mutexes_[static_cast<size_t>(id)];
}

void Core::issue_lock(Pipe pipe, int32 id) {
  const std::string which = "mutex " + std::to_string(id);
  Mutex& mutex = checked_mutex(id, which);
  if (skips_sync()) {
    mutex.skip_unlock = options_.skip_pair;
    return;
  }
  if (mutex.open) {
    fail(HazardKind::kMutexMisuse, which + " is locked by " + name(pipe) + " while " +
                                       name(mutex.by) + " has it: an unlock is missing");
  }
  mutex.open = true;
  mutex.by = pipe;
  ended_ = false;
  note_event(
      {.kind = Event::Kind::kLock, .pipe = pipe, .id = id, .required = mutex.issued_unlocks});
  Work work = work_of(Work::Kind::kLock, pipe, id);
  work.required = mutex.issued_unlocks;
  enqueue(work);
}

void Core::issue_unlock(Pipe pipe, int32 id) {
  const std::string which = "mutex " + std::to_string(id);
  Mutex& mutex = checked_mutex(id, which);
  if (skips_sync()) return;
  if (mutex.skip_unlock) {
    mutex.skip_unlock = false;
    return;
  }
  if (!mutex.open || mutex.by != pipe) {
    fail(HazardKind::kMutexMisuse,
         which + " is unlocked by " + name(pipe) + ", which has not locked it");
  }
  mutex.open = false;
  ++mutex.issued_unlocks;
  note_event({.kind = Event::Kind::kUnlock, .pipe = pipe, .id = id});
  enqueue(work_of(Work::Kind::kUnlock, pipe, id));
}

void Core::issue_barrier(Pipe pipe) {
  if (skips_sync()) return;
  enqueue(work_of(Work::Kind::kBarrier, pipe));
}

void Core::barrier_all() {
  if (skips_sync()) return;
  run_queues(nullptr);
  for (Clock& clock : clocks_) std::copy(now_, now_ + kNumPipes, clock.seen);
  ended_ = true;
}

void Core::scalar_access(UbPlace place, void* out, const void* in, int32 bytes) {
  if (in_vf_) fail(HazardKind::kBadLoop, "the scalar unit's accesses stand in core code");
  const int32 offset = checked_offset(place, bytes, bytes, in != nullptr);
  // What was issued before and is not waited for conflicts whenever it may run by now.
  if (options_.check_order) run_queues(nullptr, true);
  next(Pipe::kS);
  if (in != nullptr) {
    check_write(Pipe::kS, place, offset, bytes);
    std::memcpy(data_.data() + offset, in, static_cast<size_t>(bytes));
    set_undefined(offset, bytes, false);
    return;
  }
  check_read(Pipe::kS, place, offset, bytes);
  const int64 undefined = first_undefined(offset, bytes);
  if (undefined >= 0) {
    fail(HazardKind::kUndefined, place, "the scalar unit reads bytes that nothing has written");
  }
  std::memcpy(out, data_.data() + offset, static_cast<size_t>(bytes));
}

void Core::scalar_read_gm(const void* from, void* value, int32 bytes) {
  if (options_.check_order) run_queues(nullptr, true);
  next(Pipe::kS);
  if (options_.check_order && gm_->last_write(from, bytes) > 0) {
    fail(HazardKind::kScalarAccess,
         "the scalar unit reads bytes of GM that the kernel writes: its cache may hold older ones");
  }
  gm_->note_read(from, bytes);
  std::memcpy(value, from, static_cast<size_t>(bytes));
}

}  // namespace tilekernels::ascend::model
