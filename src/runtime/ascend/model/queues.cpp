// The queues of a core, which run apart: what may run, and what running it does.
#include <algorithm>
#include <cstring>

#include "runtime/ascend/model/core.h"

namespace tilekernels::ascend::model {
namespace {

constexpr Bar kAllBars[] = {Bar::kVstVld, Bar::kVldVst, Bar::kVstVst};

}  // namespace

bool Core::is_runnable(const Work& work) const {
  if (work.kind == Work::Kind::kWait) {
    return const_cast<Core*>(this)->flag(work.from, work.to, work.id).raised;
  }
  if (work.kind == Work::Kind::kLock) {
    return mutexes_[static_cast<size_t>(work.id)].done_unlocks >= work.required;
  }
  return true;
}

// Runs all queues to their end, or until a flag is raised. A queue that waits for ever is a hazard,
// unless the scalar unit may still set its flag.
void Core::run_queues(const Flag* until, bool may_block) {
  const bool late = options_.schedule == Schedule::kCopiesLate ||
                    (options_.schedule == Schedule::kByCore && index_ % 2 == 1);
  const Pipe order[] = {late ? Pipe::kMte3 : Pipe::kMte2, Pipe::kV,
                        late ? Pipe::kMte2 : Pipe::kMte3};
  while (until == nullptr || !until->raised) {
    bool ran = false;
    bool left = false;
    for (Pipe pipe : order) {
      auto& queue = queues_[static_cast<int32>(pipe)];
      if (queue.empty()) continue;
      left = true;
      if (!is_runnable(queue.front())) continue;
      execute(queue.front());
      queue.pop_front();
      ran = true;
      break;
    }
    if (ran) continue;
    if (may_block || (!left && until == nullptr)) return;
    std::string waits;
    for (Pipe pipe : order) {
      const auto& queue = queues_[static_cast<int32>(pipe)];
      if (queue.empty()) continue;
      const Work& work = queue.front();
      waits += (waits.empty() ? "" : ", ") + std::string(name(pipe)) + " for " +
               (work.kind == Work::Kind::kWait ? "flag " + event_name(work.from, work.to) + " "
                                               : std::string("mutex ")) +
               std::to_string(work.id);
    }
    if (waits.empty()) waits = "the scalar unit for a flag";
    fail(HazardKind::kFlagMisuse,
         "nothing can run, and these wait for ever: " + waits + "; a set_flag is missing");
  }
}

Clock Core::clock_of(Pipe pipe) const {
  Clock clock = clocks_[static_cast<int32>(pipe)];
  clock.seen[static_cast<int32>(pipe)] = now_[static_cast<int32>(pipe)];
  return clock;
}

void Core::execute(Work& work) {
  switch (work.kind) {
    case Work::Kind::kCopy:
      return run_copy(work);
    case Work::Kind::kVf:
      return run_vf(work);
    case Work::Kind::kSet: {
      Flag& raised = flag(work.from, work.to, work.id);
      const std::string which =
          "flag " + event_name(work.from, work.to) + " " + std::to_string(work.id);
      if (raised.raised) {
        fail(HazardKind::kFlagMisuse, which + " is set twice without a wait between");
      }
      // The scalar unit issues everything, so that what it has waited for lies before.
      if (raised.wait_sequence > seen(work.from, work.to) && work.to != Pipe::kS &&
          options_.check_order) {
        fail(HazardKind::kFlagMisuse,
             which + " is set again, and nothing orders that after the wait of " + name(work.to));
      }
      raised.raised = true;
      raised.clock = clock_of(work.from);
      return;
    }
    case Work::Kind::kWait: {
      Flag& raised = flag(work.from, work.to, work.id);
      raised.raised = false;
      raised.wait_sequence = next(work.to);
      clocks_[static_cast<int32>(work.to)].join(raised.clock);
      return;
    }
    case Work::Kind::kLock: {
      const Mutex& mutex = mutexes_[static_cast<size_t>(work.id)];
      for (Pipe by : kAllPipes) {
        // Two locks by one pipe in a row do not order its work.
        if (by == work.pipe) continue;
        clocks_[static_cast<int32>(work.pipe)].join(mutex.clocks[static_cast<int32>(by)]);
      }
      return;
    }
    case Work::Kind::kUnlock: {
      Mutex& mutex = mutexes_[static_cast<size_t>(work.id)];
      mutex.clocks[static_cast<int32>(work.pipe)] = clock_of(work.pipe);
      ++mutex.done_unlocks;
      return;
    }
    case Work::Kind::kBarrier:
      seen(work.pipe, work.pipe) = now_[static_cast<int32>(work.pipe)];
      return;
  }
}

void Core::run_copy(const Work& work) {
  const Copy& copy = work.copy;
  const bool in = work.pipe == Pipe::kMte2;
  const auto row_bytes = static_cast<int32>(copy.row_bytes);
  const uint32 sequence = next(work.pipe);
  const int64 block_bytes = numerics::align_up(copy.row_bytes, kBlockBytes);
  const int64 pitch = copy.compact ? copy.row_bytes : copy.ub_pitch;
  auto* gm = static_cast<uint8*>(const_cast<void*>(work.gm));
  for (int64 row = 0; row < copy.rows; ++row, gm += copy.gm_pitch) {
    const UbPlace place = moved(work.ub, row * pitch);
    const int32 offset = place.offset;
    if (!in) {
      checked_offset(place, copy.row_bytes, kBlockBytes, false);
      check_read(work.pipe, place, offset, row_bytes);
      const int64 undefined = first_undefined(offset, row_bytes);
      if (undefined >= 0) {
        fail(HazardKind::kUndefined, place_at(place, static_cast<int32>(undefined)),
             "MTE3 copies out bytes that nothing has written");
      }
      if (options_.check_order &&
          gm_->last_write(gm, copy.row_bytes) > seen(work.pipe, work.pipe)) {
        fail(HazardKind::kCopyOverlap, place,
             "two copies of MTE3 write the same bytes of GM and may overlap: "
             "pipe_barrier<Pipe::kMte3> is missing between them");
      }
      gm_->note_write(gm, copy.row_bytes, sequence);
      std::memcpy(gm, data_.data() + offset, static_cast<size_t>(row_bytes));
      continue;
    }
    if (options_.check_order &&
        gm_->last_write(gm, copy.row_bytes) > seen(work.pipe, Pipe::kMte3)) {
      fail(HazardKind::kMissingFlag, place,
           "MTE2 reads bytes of GM that MTE3 writes: the event MTE3_MTE2 is missing");
    }
    gm_->note_read(gm, copy.row_bytes);
    // Whole blocks are written; what fills the last one is junk.
    const bool last_of_compact = copy.compact && row + 1 == copy.rows;
    const int64 end = numerics::align_up(offset + copy.row_bytes, kBlockBytes);
    const auto written = static_cast<int32>(
        copy.compact ? (last_of_compact ? end - offset : copy.row_bytes) : block_bytes);
    checked_offset(place, copy.row_bytes, copy.compact ? 1 : kBlockBytes, true);
    checked_offset(place, written, 1, false);
    check_write(work.pipe, place, offset, written);
    std::memcpy(data_.data() + offset, gm, static_cast<size_t>(row_bytes));
    std::memset(data_.data() + offset + row_bytes, 0xCD, static_cast<size_t>(written - row_bytes));
    set_undefined(offset, row_bytes, false);
    set_undefined(offset + row_bytes, written - row_bytes, true);
  }
}

void Core::run_vf(Work& work) {
  const auto v = static_cast<int32>(Pipe::kV);
  std::fill(bars_, bars_ + 4, now_[v]);
  next(Pipe::kV);
  in_vf_ = true;
  vf_name_ = work.name;
  ar = Ar::kUnknown;
  stream_lost = false;
  issue_cycles_ = unit_cycles_ = 0;
  num_stores_ = 0;
  work.run(work.stored);
  apply_stores();
  if (stream_lost) {
    fail(HazardKind::kStreamMisuse,
         "the function ends with bytes left in an unaligned stream: vstar is missing");
  }
  if (ar == Ar::kFilled) {
    fail(HazardKind::kStreamMisuse,
         "the function ends with squeezed lanes that no vstur has stored");
  }
  in_vf_ = false;
  all_issue_cycles_ += issue_cycles_;
  all_unit_cycles_ += unit_cycles_;
  if (work.event >= 0) {
    events_[static_cast<size_t>(work.event)].cycles = std::max(issue_cycles_, unit_cycles_);
  }
}

void Core::vector_bar(Bar bar) {
  if (skips_sync()) return;
  if (bar != Bar::kVldVst) apply_stores();
  const uint32 now = now_[static_cast<int32>(Pipe::kV)];
  for (Bar each : kAllBars) {
    if (bar == each || bar == Bar::kVvAll) bars_[static_cast<int32>(each)] = now;
  }
  next(Pipe::kV);
}

}  // namespace tilekernels::ascend::model
