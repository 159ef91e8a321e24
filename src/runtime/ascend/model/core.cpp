// One vector core: its reset state, the run of a program, its diagnoses and its registers; and all
// cores together.
#include "runtime/ascend/model/core.h"

#include <algorithm>
#include <exception>
#include <stdexcept>

#include "core/message.h"
#include "runtime/cpu/parallel.h"

namespace tilekernels::ascend::model {
namespace {

constexpr uint32 kRestart = 1u << 29;  // clears the shadows long before sequences run over
static_assert(kRestart <= 1u << (kSequenceBits - 1));

thread_local Core* current = nullptr;
thread_local Options thread_options;

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

std::string event_name(Pipe from, Pipe to) { return std::string(name(from)) + "_" + name(to); }

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

void Core::fail(HazardKind kind, UbPlace place, const std::string& sentence) const {
  const Allocation& of = allocation(place);
  throw Hazard(kind, kernel_, index_, of.name, place.offset - of.offset,
               in_vf_ ? sentence + " (in " + vf_name_ + ")" : sentence);
}

void Core::fail(HazardKind kind, const std::string& sentence) const {
  throw Hazard(kind, kernel_, index_, "", -1,
               in_vf_ ? sentence + " (in " + vf_name_ + ")" : sentence);
}

void Core::require_vf(const char* what) const {
  if (!in_vf_) {
    fail(HazardKind::kBadLoop, std::string(what) + " stands outside of a vector function");
  }
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
