// One vector core: queues that run apart, and who may touch which byte of its buffer when.
#include "runtime/ascend/model/core.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <mutex>
#include <stdexcept>

#include "core/message.h"
#include "runtime/cpu/parallel.h"

namespace tilekernels::ascend::model {
namespace {

constexpr uint32 kSequenceBits = 30;
constexpr uint32 kSequenceMask = (1u << kSequenceBits) - 1;
constexpr uint32 kRestart = 1u << 29;   // clears the shadows long before sequences run over
constexpr size_t kMaxQueued = 1 << 14;  // then queues run, as if the scalar unit had to wait
constexpr Pipe kAllPipes[] = {Pipe::kS, Pipe::kV, Pipe::kMte2, Pipe::kMte3};
constexpr Bar kAllBars[] = {Bar::kVstVld, Bar::kVldVst, Bar::kVstVst};

thread_local Core* current = nullptr;
thread_local Options thread_options;

uint32 stamp(Pipe pipe, uint32 sequence) {
  return static_cast<uint32>(pipe) << kSequenceBits | sequence;
}
Pipe pipe_of(uint32 stamp) { return static_cast<Pipe>(stamp >> kSequenceBits); }

bool all_equal(const uint32* words, int32 count) {
  uint32 different = 0;
  for (int32 i = 1; i < count; ++i) different |= words[i] ^ words[0];
  return different == 0;
}

void set_bits(uint64* bits, int64 first, int64 count, bool value) {
  for (int64 i = first; i < first + count;) {
    if (i % 64 == 0 && first + count - i >= 64) {
      bits[i / 64] = value ? ~uint64{0} : 0;
      i += 64;
      continue;
    }
    const uint64 bit = uint64{1} << (i % 64);
    if (value) {
      bits[i / 64] |= bit;
    } else {
      bits[i / 64] &= ~bit;
    }
    ++i;
  }
}

int64 first_bit(const uint64* bits, int64 first, int64 count) {
  for (int64 i = first; i < first + count;) {
    if (i % 64 == 0 && bits[i / 64] == 0) {
      i += 64;
      continue;
    }
    if ((bits[i / 64] >> (i % 64) & 1) != 0) return i;
    ++i;
  }
  return -1;
}

std::string event_name(Pipe from, Pipe to) { return std::string(name(from)) + "_" + name(to); }

}  // namespace

Hazard::Hazard(HazardKind kind, const std::string& kernel, int64_t core, const std::string& buffer,
               int64_t offset, const std::string& sentence)
    : BackendError(message(
          kernel,
          "ascend hazard " + std::to_string(static_cast<int>(kind)) + ", core " +
              std::to_string(core) +
              (buffer.empty() ? "" : ", UB \"" + buffer + "\" + " + std::to_string(offset)) + ": " +
              sentence)),
      kind_(kind),
      buffer_(buffer),
      offset_(offset),
      sentence_(sentence) {}

Options& options() { return thread_options; }

Core& core() {
  if (current == nullptr) throw std::logic_error("the vector-core layer is for kernels only");
  return *current;
}

Core::Core() : data_(kWholeUbBytes), poison_(kWholeUbBytes / 64), writer_(kWholeUbBytes) {
  for (auto& reader : reader_) reader.resize(kWholeUbBytes);
  flags_.resize(kNumPipes * kNumPipes * kNumFlags);
  mutexes_.resize(kNumMutexes);
}

void Core::reset(const Program& program, int64 index, int64 num, const Options& options) {
  kernel_ = program.kernel;
  index_ = index;
  num_ = num;
  options_ = options;
  if (*std::max_element(now_, now_ + kNumPipes) > kRestart) {
    std::fill(writer_.begin(), writer_.end(), 0);
    for (auto& reader : reader_) std::fill(reader.begin(), reader.end(), 0);
    std::fill(now_, now_ + kNumPipes, 0);
  }
  // What earlier programs did is done.
  for (Clock& clock : clocks_) std::copy(now_, now_ + kNumPipes, clock.seen);
  std::fill(bars_, bars_ + 4, now_[static_cast<int32>(Pipe::kV)]);
  ctrl_ = uint64{1} << 60;
  allocations_.clear();
  ub_used_ = 0;
  for (auto& queue : queues_) queue.clear();
  std::fill(flags_.begin(), flags_.end(), Flag{});
  std::fill(mutexes_.begin(), mutexes_.end(), Mutex{});
  syncs_ = 0;
  ended_ = true;
  in_vf_ = false;
  num_stores_ = 0;
  registers_ = most_registers_ = masks_ = most_masks_ = streams_ = 0;
  ar = Ar::kUnknown;
  std::fill(counts_, counts_ + kNumInsts, 0);
  all_issue_cycles_ = all_unit_cycles_ = 0;
  bytes_in_ = bytes_out_ = port_bytes_ = 0;
  events_.clear();
}

void Core::run(const Program& program, int64 index, int64 num, const Options& options,
               GmShadow& gm) {
  reset(program, index, num, options);
  gm_ = &gm;
  struct Current {
    explicit Current(Core* core) { current = core; }
    ~Current() { current = nullptr; }
  } in_force(this);
  program.run(program.state);
  if (!ended_) {
    fail(HazardKind::kMissingFlag,
         "the kernel ends without barrier_all, so its last copies may still run");
  }
  for (Pipe from : kAllPipes) {
    for (Pipe to : kAllPipes) {
      for (int32 id = 0; id < kUsableFlags; ++id) {
        if (flag(from, to, id).raised) {
          fail(HazardKind::kFlagMisuse, "flag " + event_name(from, to) + " " + std::to_string(id) +
                                            " is still set at the end: its wait is missing");
        }
      }
    }
  }
  for (size_t id = 0; id < mutexes_.size(); ++id) {
    if (mutexes_[id].open) {
      fail(HazardKind::kMutexMisuse,
           "mutex " + std::to_string(id) + " is still locked at the end: its unlock is missing");
    }
  }
  if (index_ != 0) return;
  if (options_.num_syncs != nullptr) *options_.num_syncs = syncs_;
  if (options_.cost == nullptr) return;
  Cost& cost = *options_.cost;
  cost = Cost{};
  cost.kernel = kernel_;
  cost.num_cores = num_;
  std::copy(counts_, counts_ + kNumInsts, cost.counts);
  cost.issue_cycles = all_issue_cycles_;
  cost.unit_cycles = all_unit_cycles_;
  cost.bytes_in = bytes_in_;
  cost.bytes_out = bytes_out_;
  cost.port_bytes = port_bytes_;
  cost.ub_bytes = ub_used_;
  cost.most_registers = most_registers_;
  cost.most_masks = most_masks_;
  estimate(events_, options_.port_bytes_per_cycle, cost);
}

// ------------------------------ diagnoses

void Core::fail(HazardKind kind, UbPlace place, const std::string& sentence) const {
  const Allocation& of = allocation(place);
  throw Hazard(kind, kernel_, index_, of.name, place.offset - of.offset,
               in_vf_ ? sentence + " (in " + vf_name_ + ")" : sentence);
}

void Core::fail(HazardKind kind, const std::string& sentence) const {
  throw Hazard(kind, kernel_, index_, "", -1,
               in_vf_ ? sentence + " (in " + vf_name_ + ")" : sentence);
}

const Core::Allocation& Core::allocation(UbPlace place) const {
  if (place.buffer < 0 || place.buffer >= static_cast<int32>(allocations_.size())) {
    throw Hazard(HazardKind::kOutOfBounds, kernel_, index_, "", place.offset,
                 "a UB pointer that comes from no allocation");
  }
  return allocations_[static_cast<size_t>(place.buffer)];
}

// ------------------------------ buffer

UbPlace Core::allocate(const char* name, int64 bytes, int32 readable_tail_bytes) {
  const int64 whole = numerics::align_up(bytes, kBlockBytes);
  const int64 tail = numerics::align_up(readable_tail_bytes, kBlockBytes);
  if (ub_used_ + whole + tail > kUbBytes) {
    fail(HazardKind::kOutOfBounds, "allocating \"" + std::string(name) + "\" takes UB to " +
                                       std::to_string(ub_used_ + whole + tail) + " bytes of " +
                                       std::to_string(kUbBytes));
  }
  const int32 offset = ub_used_;
  // The declared tail and what rounds the size up to blocks: readable, never written.
  const auto readable = static_cast<int32>(whole - bytes + tail);
  allocations_.push_back({name, offset, static_cast<int32>(bytes), readable});
  set_bits(poison_.data(), offset, whole + tail, true);
  std::memset(data_.data() + offset, 0xCD, static_cast<size_t>(whole + tail));
  ub_used_ += static_cast<int32>(whole + tail);
  return {static_cast<int32>(allocations_.size()) - 1, offset};
}

int32 Core::checked_offset(UbPlace place, int64 bytes, int32 align, bool write) const {
  const Allocation& of = allocation(place);
  const int64 first = place.offset - of.offset;
  const int64 end = first + bytes;
  const int64 limit = of.bytes + (write ? 0 : of.tail);
  if (first < 0 || end > limit) {
    fail(HazardKind::kOutOfBounds, place,
         std::string(write ? "a write of " : "a read of ") + std::to_string(bytes) +
             " bytes ends at byte " + std::to_string(end) + " of " + std::to_string(of.bytes) +
             (write ? "" : " and " + std::to_string(of.tail) + " readable ones"));
  }
  if (place.offset % align != 0) {
    fail(HazardKind::kMisaligned, place,
         "the address must be a multiple of " + std::to_string(align) + " bytes");
  }
  return place.offset;
}

void Core::fail_order(Pipe pipe, Pipe before, bool write, bool after_read, UbPlace place,
                      int32 byte) const {
  const UbPlace at = place_at(place, byte);
  const std::string who = name(pipe);
  const std::string other = name(before);
  if (pipe == before) {
    if (pipe == Pipe::kV) {
      const char* const bar = !write ? "kVstVld" : after_read ? "kVldVst" : "kVstVst";
      const char* const what = !write       ? "a vector load reads what a vector store wrote"
                               : after_read ? "a vector store writes what a vector load read"
                                            : "a vector store writes what another one wrote";
      fail(HazardKind::kMissingMemBar, at,
           std::string(what) + " in the same vector function: mem_bar<Bar::" + bar +
               "> is missing between them");
    }
    fail(HazardKind::kCopyOverlap, at,
         "two copies of " + who + " write the same bytes and may overlap: pipe_barrier<Pipe::k" +
             (pipe == Pipe::kMte2 ? "Mte2" : "Mte3") + "> is missing between them");
  }
  const std::string event = event_name(before, pipe);
  const bool scalar = pipe == Pipe::kS || before == Pipe::kS;
  const HazardKind kind = scalar  ? HazardKind::kScalarAccess
                          : write ? HazardKind::kEarlyReuse
                                  : HazardKind::kMissingFlag;
  const std::string sentence = !write ? who + " reads bytes that " + other + " writes"
                               : after_read
                                   ? who + " overwrites bytes that " + other + " still reads"
                                   : who + " overwrites bytes that " + other + " still writes";
  fail(kind, at, sentence + ": the event " + event + " is missing");
}

// Checks a range against who wrote it last.
void Core::check_writers(Pipe pipe, UbPlace place, int32 offset, int32 bytes, bool write) {
  const Clock& clock = clocks_[static_cast<int32>(pipe)];
  const auto is_ordered = [&](uint32 word) {
    const uint32 sequence = word & kSequenceMask;
    if (sequence == 0) return true;
    const Pipe by = pipe_of(word);
    if (by == pipe) {
      if (pipe == Pipe::kS || (pipe == Pipe::kMte3 && !write)) return true;
      if (pipe == Pipe::kV) {
        return sequence <= bars_[static_cast<int32>(write ? Bar::kVstVst : Bar::kVstVld)];
      }
    }
    return sequence <= clock.seen[static_cast<int32>(by)];
  };
  const uint32* const words = writer_.data() + offset;
  if (all_equal(words, bytes)) {
    if (!is_ordered(words[0])) fail_order(pipe, pipe_of(words[0]), write, false, place, offset);
    return;
  }
  uint32 good = words[0];
  if (!is_ordered(good)) fail_order(pipe, pipe_of(good), write, false, place, offset);
  for (int32 i = 1; i < bytes; ++i) {
    if (words[i] == good) continue;
    if (!is_ordered(words[i])) {
      fail_order(pipe, pipe_of(words[i]), write, false, place, offset + i);
    }
    good = words[i];
  }
}

void Core::check_read(Pipe pipe, UbPlace place, int32 offset, int32 bytes) {
  if (options_.check_order) check_writers(pipe, place, offset, bytes, false);
  uint32* const words = reader_[static_cast<int32>(pipe)].data() + offset;
  std::fill(words, words + bytes, now_[static_cast<int32>(pipe)]);
}

void Core::check_write(Pipe pipe, UbPlace place, int32 offset, int32 bytes) {
  if (options_.check_order) {
    check_writers(pipe, place, offset, bytes, true);
    for (Pipe reader : {Pipe::kS, Pipe::kV, Pipe::kMte3}) {
      if (reader == pipe && reader != Pipe::kV) continue;
      const uint32 known = reader == pipe
                               ? bars_[static_cast<int32>(Bar::kVldVst)]
                               : clocks_[static_cast<int32>(pipe)].seen[static_cast<int32>(reader)];
      const uint32* const words = reader_[static_cast<int32>(reader)].data() + offset;
      uint32 late = 0;
      for (int32 i = 0; i < bytes; ++i) late |= words[i] > known ? 1u : 0u;
      if (late == 0) continue;
      for (int32 i = 0; i < bytes; ++i) {
        if (words[i] > known) fail_order(pipe, reader, true, true, place, offset + i);
      }
    }
  }
  uint32* const words = writer_.data() + offset;
  std::fill(words, words + bytes, stamp(pipe, now_[static_cast<int32>(pipe)]));
}

// ------------------------------ issue

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
  Work work{};
  work.kind = Work::Kind::kCopy;
  work.pipe = pipe;
  work.ub = ub;
  work.gm = gm;
  work.copy = copy;
  auto& queue = queues_[static_cast<int32>(pipe)];
  queue.push_back(work);
  if (queue.size() > kMaxQueued) run_queues(nullptr);
}

void Core::issue_vf(const char* vf_name, void (*function)(const void*), const void* stored,
                    int64 bytes) {
  if (in_vf_) fail(HazardKind::kBadLoop, "a vector function calls another one by vf_call");
  ended_ = false;
  Work work{};
  work.kind = Work::Kind::kVf;
  work.pipe = Pipe::kV;
  work.name = vf_name;
  work.run = function;
  std::memcpy(work.stored, stored, static_cast<size_t>(bytes));
  work.event = note_event({.kind = Event::Kind::kWork, .pipe = Pipe::kV, .name = vf_name});
  auto& queue = queues_[static_cast<int32>(Pipe::kV)];
  queue.push_back(work);
  if (queue.size() > kMaxQueued) run_queues(nullptr);
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
  Work work{};
  work.kind = Work::Kind::kSet;
  work.pipe = from;
  work.from = from;
  work.to = to;
  work.id = id;
  if (from == Pipe::kS) {
    execute(work);
  } else {
    queues_[static_cast<int32>(from)].push_back(work);
  }
}

void Core::issue_wait(Pipe from, Pipe to, int32 id) {
  check_flag(from, to, id);
  if (skips_sync()) return;
  note_event({.kind = Event::Kind::kWait, .pipe = to, .from = from, .to = to, .id = id});
  Work work{};
  work.kind = Work::Kind::kWait;
  work.pipe = to;
  work.from = from;
  work.to = to;
  work.id = id;
  if (to == Pipe::kS) {
    run_queues(&flag(from, to, id));
    execute(work);
  } else {
    queues_[static_cast<int32>(to)].push_back(work);
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
  Work work{};
  work.kind = Work::Kind::kLock;
  work.pipe = pipe;
  work.id = id;
  work.required = mutex.issued_unlocks;
  queues_[static_cast<int32>(pipe)].push_back(work);
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
  Work work{};
  work.kind = Work::Kind::kUnlock;
  work.pipe = pipe;
  work.id = id;
  queues_[static_cast<int32>(pipe)].push_back(work);
}

void Core::issue_barrier(Pipe pipe) {
  if (skips_sync()) return;
  Work work{};
  work.kind = Work::Kind::kBarrier;
  work.pipe = pipe;
  queues_[static_cast<int32>(pipe)].push_back(work);
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
    set_bits(poison_.data(), offset, bytes, false);
    return;
  }
  check_read(Pipe::kS, place, offset, bytes);
  const int64 undefined = first_bit(poison_.data(), offset, bytes);
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

// ------------------------------ queues

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
      const int64 undefined = first_bit(poison_.data(), offset, row_bytes);
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
    set_bits(poison_.data(), offset, row_bytes, false);
    set_bits(poison_.data(), offset + row_bytes, written - row_bytes, true);
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

// ------------------------------ vector functions

void Core::require_vf(const char* what) const {
  if (!in_vf_) {
    fail(HazardKind::kBadLoop, std::string(what) + " stands outside of a vector function");
  }
}

void Core::vector_read(UbPlace place, int32 bytes, int32 align, uint8* to, uint64* poison) {
  const int32 offset = checked_offset(place, bytes, align, false);
  check_read(Pipe::kV, place, offset, bytes);
  std::memcpy(to, data_.data() + offset, static_cast<size_t>(bytes));
  for (int32 i = 0; i < (bytes + 63) / 64; ++i) poison[i] = 0;
  for (int32 i = 0; i < bytes;) {
    const int32 at = offset + i;
    const int32 count = std::min({64 - i % 64, 64 - at % 64, bytes - i});
    uint64 bits = poison_[static_cast<size_t>(at / 64)] >> (at % 64);
    if (count < 64) bits &= (uint64{1} << count) - 1;
    poison[i / 64] |= bits << (i % 64);
    i += count;
  }
}

void Core::vector_write(UbPlace place, int32 bytes, int32 align, const uint8* from,
                        const uint8* active) {
  // Inactive bytes at the end need not exist.
  int32 used = bytes;
  if (active != nullptr) {
    while (used > 0 && active[used - 1] == 0) --used;
  }
  checked_offset(place, used, align, true);
  const int32 offset = place.offset;
  for (int32 i = 0; i < used;) {
    if (active != nullptr && active[i] == 0) {
      ++i;
      continue;
    }
    int32 end = i + 1;
    while (end < used && (active == nullptr || active[end] != 0)) ++end;
    check_write(Pipe::kV, place, offset + i, end - i);
    i = end;
  }
  if (num_stores_ == stores_.size()) stores_.emplace_back();
  PendingStore& store = stores_[num_stores_++];
  store.offset = offset;
  store.bytes = used;
  std::memcpy(store.value, from, static_cast<size_t>(used));
  if (active != nullptr) {
    std::memcpy(store.active, active, static_cast<size_t>(used));
  } else {
    std::memset(store.active, 1, static_cast<size_t>(used));
  }
}

// Stores become visible as late as the barriers allow.
void Core::apply_stores() {
  for (size_t i = 0; i < num_stores_; ++i) {
    const PendingStore& store = stores_[i];
    for (int32 k = 0; k < store.bytes;) {
      if (store.active[k] == 0) {
        ++k;
        continue;
      }
      int32 end = k + 1;
      while (end < store.bytes && store.active[end] != 0) ++end;
      std::memcpy(data_.data() + store.offset + k, store.value + k, static_cast<size_t>(end - k));
      set_bits(poison_.data(), store.offset + k, end - k, false);
      k = end;
    }
  }
  num_stores_ = 0;
}

bool Core::contains(UbPlace place, int64 bytes) const {
  const Allocation& of = allocation(place);
  return place.offset >= of.offset && place.offset + bytes <= of.offset + of.bytes;
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

void Core::add_register(int32 count) {
  registers_ += count;
  most_registers_ = std::max(most_registers_, registers_);
  if (registers_ > kMaxRegisters) {
    fail(HazardKind::kRegisterPressure, "33 vector registers are live, the core has 32");
  }
}

void Core::add_mask(int32 count) {
  masks_ += count;
  most_masks_ = std::max(most_masks_, masks_);
  if (masks_ > kMaxMasks) {
    fail(HazardKind::kRegisterPressure, "9 mask registers are live, the core has 8");
  }
}

void Core::add_stream(int32 count) {
  streams_ += count;
  if (streams_ > kMaxStreams) {
    fail(HazardKind::kRegisterPressure, "5 unaligned streams are live, the core has 4");
  }
}

// ------------------------------ all cores

void run_cores(const Program& program, int64 num_cores, const Options& options) {
  const int64 run = options.first_core_only ? 1 : num_cores;
  std::vector<GmShadow> shadows(static_cast<size_t>(run));
  std::vector<std::exception_ptr> errors(static_cast<size_t>(run));
  cpu::parallel_for(run, 1, [&](int64_t begin, int64_t end) {
    thread_local Core machine;
    for (int64_t index = begin; index < end; ++index) {
      const auto at = static_cast<size_t>(index);
      try {
        machine.run(program, index, num_cores, options, shadows[at]);
      } catch (...) {
        errors[at] = std::current_exception();
      }
    }
  });
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
  const CrossCore shared = find_cross_core(shadows);
  if (!shared.found || !options.check_order) return;
  throw Hazard(HazardKind::kCrossCore, program.kernel, shared.core, "", -1,
               "core " + std::to_string(shared.other) + (shared.both_write ? " writes" : " reads") +
                   " a byte of GM that this core writes: cores must not share outputs");
}

void check_fast_bits(const Program& program, int64 num_cores, Options options, void* output,
                     int64 bytes) {
  std::vector<uint8> results[2];
  for (int32 i = 0; i < 2; ++i) {
    options.jitter_ulps = 2 * i - 1;
    run_cores(program, num_cores, options);
    const auto* begin = static_cast<const uint8*>(output);
    results[i].assign(begin, begin + bytes);
  }
  const auto at = std::mismatch(results[0].begin(), results[0].end(), results[1].begin()).first;
  if (at == results[0].end()) return;
  throw Hazard(HazardKind::kFastBits, program.kernel, 0, "", -1,
               "byte " + std::to_string(at - results[0].begin()) +
                   " of the output depends on the last bit of a fast approximation: use the exact "
                   "form, or a polynomial of our own");
}

}  // namespace tilekernels::ascend::model
