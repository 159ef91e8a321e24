// One vector core of the machine model: its buffer with shadows, queues, clocks and counters.
#pragma once

#include <deque>
#include <string>
#include <vector>

#include "runtime/ascend/model/cost.h"
#include "runtime/ascend/model/gm_shadow.h"
#include "runtime/ascend/model/hazard.h"
#include "runtime/ascend/model/machine.h"

namespace tilekernels::ascend::model {

constexpr int32 kWholeUbBytes = 256 * 1024;  // the rest is the stack of vector functions
constexpr int32 kMaxRegisters = 32;
constexpr int32 kMaxMasks = 8;
constexpr int32 kMaxStreams = 4;
constexpr int32 kNumFlags = 8;       // per pair of pipes
constexpr int32 kUsableFlags = 6;    // the last two are reserved
constexpr int32 kNumMutexes = 28;    // of 32, the last four are reserved
constexpr int32 kSequenceBits = 30;  // of a stamp in the shadows; the pipe above

constexpr Pipe kAllPipes[] = {Pipe::kS, Pipe::kV, Pipe::kMte2, Pipe::kMte3};
/// "MTE2_V": what orders work of one pipe before that of another.
std::string event_name(Pipe from, Pipe to);

/// In which order the queues run where the kernel leaves it open.
enum class Schedule {
  kByCore,       ///< even cores kCopiesEarly, odd ones kCopiesLate
  kCopiesEarly,  ///< copies in run ahead, copies out fall behind
  kCopiesLate,   ///< copies in fall behind, copies out run ahead
};

/// How the model runs kernels; the defaults are those of a call of an op.
struct Options {
  int64 num_cores = 64;
  Schedule schedule = Schedule::kByCore;
  int32 jitter_ulps = 0;         ///< added to the fast approximations: -1, 0 or 1
  bool check_order = true;       ///< off: wrong order is not reported and shows in the data
  int64 skip_sync = -1;          ///< leaves out the so-many-th flag, lock or barrier of core 0
  bool skip_pair = false;        ///< of a lock: its unlock as well
  bool first_core_only = false;  ///< for costs: the others' results are not computed
  double port_bytes_per_cycle = 32;
  Cost* cost = nullptr;        ///< takes the cost of core 0
  int64* num_syncs = nullptr;  ///< takes how many flags, locks and barriers core 0 ran
};
/// The options that this thread's launches take.
Options& options();
/// Sets them for a scope.
class ScopedOptions {
 public:
  explicit ScopedOptions(const Options& now) : saved_(options()) { options() = now; }
  ~ScopedOptions() { options() = saved_; }
  ScopedOptions(const ScopedOptions&) = delete;
  ScopedOptions& operator=(const ScopedOptions&) = delete;

 private:
  const Options saved_;
};

/// What a pipe knows of the others' completed work.
struct Clock {
  uint32 seen[kNumPipes] = {};
  void join(const Clock& other) {
    for (int32 i = 0; i < kNumPipes; ++i) {
      if (other.seen[i] > seen[i]) seen[i] = other.seen[i];
    }
  }
};

/// Calls a kernel's core code.
struct Program {
  const char* kernel;
  void (*run)(const void* state);
  const void* state;
};

class Core {
 public:
  Core();

  /// Runs a program from its reset state to its end, and leaves what it touched in `gm`.
  void run(const Program& program, int64 index, int64 num, const Options& options, GmShadow& gm);

  int64 index() const { return index_; }
  int64 num() const { return num_; }

  [[noreturn]] void fail(HazardKind kind, UbPlace place, const std::string& sentence) const;
  [[noreturn]] void fail(HazardKind kind, const std::string& sentence) const;

  // ---- core code
  void set_ctrl(int32 bit, int32 value);
  bool ctrl(int32 bit) const { return (ctrl_ >> bit & 1) != 0; }
  UbPlace allocate(const char* name, int64 bytes, int32 readable_tail_bytes);
  void issue_copy(Pipe pipe, UbPlace ub, const void* gm, const Copy& copy);
  void issue_set(Pipe from, Pipe to, int32 id);
  void issue_wait(Pipe from, Pipe to, int32 id);
  void issue_lock(Pipe pipe, int32 id);
  void issue_unlock(Pipe pipe, int32 id);
  void issue_barrier(Pipe pipe);
  void issue_vf(const char* vf_name, void (*function)(const void*), const void* stored,
                int64 bytes);
  void barrier_all();
  void scalar_access(UbPlace place, void* out, const void* in, int32 bytes);
  void scalar_read_gm(const void* from, void* value, int32 bytes);

  // ---- vector functions
  void require_vf(const char* what) const;
  void add_cost(Inst inst, const Cycles& cycles) {
    ++counts_[static_cast<int32>(inst)];
    issue_cycles_ += cycles.issue;
    unit_cycles_ += cycles.unit;
  }
  /// Reads UB into `to`, and which bytes are undefined.
  void vector_read(UbPlace place, int32 bytes, int32 align, uint8* to, uint64* poison);
  /// Writes the bytes of `from` whose `active` is not 0, all where that is null.
  void vector_write(UbPlace place, int32 bytes, int32 align, const uint8* from,
                    const uint8* active);
  void vector_bar(Bar bar);
  bool contains(UbPlace place, int64 bytes) const;
  void add_register(int32 count);
  void add_mask(int32 count);
  void add_stream(int32 count);
  bool in_vf() const { return in_vf_; }
  int32 jitter_ulps() const { return options_.jitter_ulps; }

  enum class Ar { kUnknown, kClear, kFilled };
  Ar ar = Ar::kUnknown;
  int32 ar_bytes = 0;
  bool stream_lost = false;

 private:
  struct Allocation {
    std::string name;
    int32 offset;
    int32 bytes;
    int32 tail;
  };
  struct Work {
    enum class Kind { kCopy, kVf, kSet, kWait, kLock, kUnlock, kBarrier };
    Kind kind;
    Pipe pipe;
    Pipe from = Pipe::kS;
    Pipe to = Pipe::kS;
    int32 id = 0;
    int64 required = 0;
    UbPlace ub{};
    const void* gm = nullptr;
    Copy copy{};
    const char* name = "";
    void (*run)(const void*) = nullptr;
    int64 event = -1;
    alignas(16) uint8 stored[kMaxVfBytes];
  };
  struct Flag {
    bool raised = false;
    Clock clock;
    uint32 wait_sequence = 0;  // of the last wait, in the waiting pipe
    Pipe waiter = Pipe::kS;
  };
  struct Mutex {
    bool open = false;  // by program order
    Pipe by = Pipe::kS;
    int64 issued_unlocks = 0;
    int64 done_unlocks = 0;
    bool skip_unlock = false;  // its lock was left out
    Clock clocks[kNumPipes];   // at the last unlock by each pipe
  };
  struct PendingStore {
    int32 offset;
    int32 bytes;
    uint8 value[2 * kVectorBytes];
    uint8 active[2 * kVectorBytes];
  };

  void reset(const Program& program, int64 index, int64 num, const Options& options);
  static Work work_of(Work::Kind kind, Pipe pipe, int32 id = 0);
  /// Returns how long the queue of its pipe is then.
  size_t enqueue(const Work& work);
  void run_queues(const Flag* until, bool may_block = false);
  bool is_runnable(const Work& work) const;
  void execute(Work& work);
  void run_copy(const Work& work);
  void run_vf(Work& work);
  void apply_stores();
  bool skips_sync();
  int64 note_event(const Event& event);
  const Allocation& allocation(UbPlace place) const;
  int32 checked_offset(UbPlace place, int64 bytes, int32 align, bool write) const;
  void check_read(Pipe pipe, UbPlace place, int32 offset, int32 bytes);
  void check_write(Pipe pipe, UbPlace place, int32 offset, int32 bytes);
  void check_writers(Pipe pipe, UbPlace place, int32 offset, int32 bytes, bool write);
  [[noreturn]] void fail_order(Pipe pipe, Pipe before, bool write, bool after_read, UbPlace place,
                               int32 byte) const;
  void set_undefined(int64 first, int64 count, bool value);
  /// -1: none.
  int64 first_undefined(int64 first, int64 count) const;
  UbPlace place_at(UbPlace place, int32 absolute) const { return {place.buffer, absolute}; }
  uint32 next(Pipe pipe) { return ++now_[static_cast<int32>(pipe)]; }
  uint32& seen(Pipe by, Pipe of) {
    return clocks_[static_cast<int32>(by)].seen[static_cast<int32>(of)];
  }
  Clock clock_of(Pipe pipe) const;
  Flag& flag(Pipe from, Pipe to, int32 id);
  void check_flag(Pipe from, Pipe to, int32 id) const;
  Mutex& checked_mutex(int32 id, const std::string& which);

  std::string kernel_;
  int64 index_ = 0;
  int64 num_ = 1;
  Options options_;
  GmShadow* gm_ = nullptr;
  uint64 ctrl_ = 0;

  // UB and, a word a byte, who touched it last: pipe in the upper two bits, sequence number below
  std::vector<uint8> data_;
  std::vector<uint64> poison_;
  std::vector<uint32> writer_;
  std::vector<uint32> reader_[kNumPipes];
  std::vector<Allocation> allocations_;
  int32 ub_used_ = 0;

  uint32 now_[kNumPipes] = {};
  Clock clocks_[kNumPipes];
  uint32 bars_[4] = {};  // of pipe V, by Bar: what lies before is ordered
  std::deque<Work> queues_[kNumPipes];
  std::vector<Flag> flags_;
  std::vector<Mutex> mutexes_;
  int64 syncs_ = 0;
  bool ended_ = false;

  bool in_vf_ = false;
  const char* vf_name_ = "";
  std::vector<PendingStore> stores_;
  size_t num_stores_ = 0;
  int32 registers_ = 0, most_registers_ = 0;
  int32 masks_ = 0, most_masks_ = 0;
  int32 streams_ = 0;

  int64 counts_[kNumInsts] = {};
  double issue_cycles_ = 0, unit_cycles_ = 0;  // of the running vector function
  double all_issue_cycles_ = 0, all_unit_cycles_ = 0;
  int64 bytes_in_ = 0, bytes_out_ = 0, port_bytes_ = 0;
  std::vector<Event> events_;
};

/// The core that this thread runs. Errors: std::logic_error outside of a kernel.
Core& core();

/// Runs a program on every core and checks what they share. Throws the hazard of the lowest core.
void run_cores(const Program& program, int64 num_cores, const Options& options);

/// Runs a program with its fast approximations one unit in the last place low, then high.
/// Throws a hazard where the bytes of `output` differ.
void check_fast_bits(const Program& program, int64 num_cores, Options options, void* output,
                     int64 bytes);

}  // namespace tilekernels::ascend::model
