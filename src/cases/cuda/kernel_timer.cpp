// Device time of kernels: by CUPTI where it is found, else by events.
#include "cases/cuda/kernel_timer.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <type_traits>
#include <utility>

#include "runtime/cuda/context.h"
#include "tilekernels/error.h"

namespace tilekernels::cases {
namespace {

constexpr const char* kFlushName = "bench_flush_kernel";

// What follows restates CUPTI's binary interface, so that no toolkit is needed to build.
constexpr int kMemset = 2;             // CUPTI_ACTIVITY_KIND_MEMSET
constexpr int kConcurrentKernel = 10;  // CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL
constexpr uint32_t kFlushForced = 1;   // CUPTI_ACTIVITY_FLAG_FLUSH_FORCED
constexpr size_t kBufferBytes = 4 << 20;
constexpr size_t kBufferAlignment = 8;

// The beginning of a record of either kind, the same since CUPTI 9; a kernel's has its name, too.
struct Activity {
  uint32_t kind;
  uint32_t not_used[3];
  uint64_t start;
  uint64_t end;
};
static_assert(offsetof(Activity, start) == 16);
constexpr size_t kNameOfKernel = 104;

struct Cupti {
  int (*register_callbacks)(void (*)(uint8_t**, size_t*, size_t*),
                            void (*)(void*, uint32_t, uint8_t*, size_t, size_t));
  int (*enable)(int kind);
  int (*flush_all)(uint32_t flags);
  int (*next_record)(uint8_t* buffer, size_t size, void** record);
  int (*result_string)(int result, const char** text);
  int (*version)(uint32_t* version);
};

// CUPTI's callbacks take no pointer of ours, so what they share is the process's.
Cupti cupti;
std::mutex mutex;
std::vector<KernelRecord> records;  // guarded by the mutex

void give_buffer(uint8_t** buffer, size_t* size, size_t* max_records) {
  *buffer = static_cast<uint8_t*>(std::aligned_alloc(kBufferAlignment, kBufferBytes));
  *size = *buffer == nullptr ? 0 : kBufferBytes;
  *max_records = 0;
}

void take_buffer(void*, uint32_t, uint8_t* buffer, size_t, size_t valid_size) {
  void* record = nullptr;
  const std::lock_guard lock(mutex);
  while (valid_size > 0 && cupti.next_record(buffer, valid_size, &record) == 0) {
    Activity activity;
    std::memcpy(&activity, record, sizeof(activity));
    const char* name = nullptr;
    if (activity.kind == static_cast<uint32_t>(kConcurrentKernel)) {
      std::memcpy(&name, static_cast<char*>(record) + kNameOfKernel, sizeof(name));
    } else if (activity.kind != static_cast<uint32_t>(kMemset)) {
      continue;
    }
    records.push_back({name == nullptr ? "" : name, activity.start, activity.end});
  }
  std::free(buffer);
}

// The problem, or empty.
std::string open_cupti(const char* path) {
  void* const library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return dlerror();
  const char* absent = nullptr;
  const auto load = [&](auto& entry, const char* name) {
    entry = reinterpret_cast<std::remove_reference_t<decltype(entry)>>(dlsym(library, name));
    if (entry == nullptr) absent = name;
  };
  load(cupti.register_callbacks, "cuptiActivityRegisterCallbacks");
  load(cupti.enable, "cuptiActivityEnable");
  load(cupti.flush_all, "cuptiActivityFlushAll");
  load(cupti.next_record, "cuptiActivityGetNextRecord");
  load(cupti.result_string, "cuptiGetResultString");
  load(cupti.version, "cuptiGetVersion");
  if (absent != nullptr) return std::string(path) + " has no " + absent;
  const auto problem_of = [](int result, const char* call) -> std::string {
    if (result == 0) return "";
    const char* text = nullptr;
    cupti.result_string(result, &text);
    return std::string(call) + " failed: " + (text == nullptr ? "" : text);
  };
  std::string problem = problem_of(cupti.register_callbacks(give_buffer, take_buffer),
                                   "cuptiActivityRegisterCallbacks");
  for (const int kind : {kMemset, kConcurrentKernel}) {
    if (problem.empty()) problem = problem_of(cupti.enable(kind), "cuptiActivityEnable");
  }
  return problem;
}

// Events and streams are of the context that is current.
cuda::CurrentContext in_context() {
  return cuda::CurrentContext("bench", cuda::device_state("bench", 0));
}

void synchronize() {
  cuda::check(cuda::driver().stream_synchronize(nullptr), "bench", "cuStreamSynchronize");
}

class CuptiTimer : public KernelTimer {
 public:
  std::string method() const override {
    uint32_t version = 0;
    cupti.version(&version);
    return "CUPTI (API " + std::to_string(version) + ")";
  }

  std::vector<std::vector<double>> sample(const std::vector<KernelCall>& calls,
                                          const KernelCall& flush, int reps) override {
    const cuda::CurrentContext current = in_context();
    collect();  // what ran before
    for (int rep = 0; rep < reps; ++rep) {
      for (const KernelCall& call : calls) {
        flush();
        call();
      }
    }
    const std::vector<double> times =
        split_at_flushes(collect(), calls.size() * static_cast<size_t>(reps));
    std::vector<std::vector<double>> samples(calls.size());
    for (size_t i = 0; i < times.size(); ++i) samples[i % calls.size()].push_back(times[i]);
    return samples;
  }

 private:
  static std::vector<KernelRecord> collect() {
    synchronize();
    if (cupti.flush_all(kFlushForced) != 0)
      throw BackendError("[bench] cuptiActivityFlushAll failed");
    const std::lock_guard lock(mutex);
    return std::exchange(records, {});
  }
};

struct Events {
  int (*create)(void** event, unsigned flags);
  int (*record)(void* event, void* stream);
  int (*elapsed)(float* milliseconds, void* start, void* end);
};

class EventTimer : public KernelTimer {
 public:
  explicit EventTimer(KernelCall empty) : empty_(std::move(empty)) {
    void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    const auto load = [&](auto& entry, const char* name) {
      void* const found = library == nullptr ? nullptr : dlsym(library, name);
      if (found == nullptr) throw BackendError(std::string("[bench] the driver has no ") + name);
      entry = reinterpret_cast<std::remove_reference_t<decltype(entry)>>(found);
    };
    load(events_.create, "cuEventCreate");
    load(events_.record, "cuEventRecord");
    load(events_.elapsed, "cuEventElapsedTime");
    const cuda::CurrentContext current = in_context();
    cuda::check(events_.create(&start_, 0), "bench", "cuEventCreate");
    cuda::check(events_.create(&end_, 0), "bench", "cuEventCreate");
  }

  std::string method() const override { return "events, less those of an empty kernel"; }

  std::vector<std::vector<double>> sample(const std::vector<KernelCall>& calls,
                                          const KernelCall& flush, int reps) override {
    const cuda::CurrentContext current = in_context();
    std::vector<std::vector<double>> samples(calls.size());
    std::vector<double> empties;
    for (int rep = 0; rep < reps; ++rep) {
      empties.push_back(time(empty_, flush));
      for (size_t i = 0; i < calls.size(); ++i) samples[i].push_back(time(calls[i], flush));
    }
    const auto middle = empties.begin() + reps / 2;
    std::nth_element(empties.begin(), middle, empties.end());
    for (std::vector<double>& of_call : samples) {
      for (double& us : of_call) us = std::max(us - *middle, 0.0);
    }
    return samples;
  }

 private:
  double time(const KernelCall& call, const KernelCall& flush) const {
    flush();
    cuda::check(events_.record(start_, nullptr), "bench", "cuEventRecord");
    call();
    cuda::check(events_.record(end_, nullptr), "bench", "cuEventRecord");
    synchronize();
    float milliseconds = 0;
    cuda::check(events_.elapsed(&milliseconds, start_, end_), "bench", "cuEventElapsedTime");
    return static_cast<double>(milliseconds) * 1e3;
  }

  Events events_{};
  void* start_ = nullptr;
  void* end_ = nullptr;
  KernelCall empty_;
};

}  // namespace

std::vector<double> split_at_flushes(std::vector<KernelRecord> of_run, size_t count) {
  std::sort(of_run.begin(), of_run.end(),
            [](const KernelRecord& a, const KernelRecord& b) { return a.start < b.start; });
  struct Span {
    uint64_t start;
    uint64_t end;
  };
  std::vector<Span> spans;
  for (const KernelRecord& record : of_run) {
    if (record.name == kFlushName) {
      spans.push_back({0, 0});
    } else if (!spans.empty()) {
      Span& span = spans.back();
      if (span.end == 0) span.start = record.start;
      span.end = std::max(span.end, record.end);
    }
  }
  std::vector<double> times;
  for (const Span& span : spans) {
    if (span.end != 0) times.push_back(static_cast<double>(span.end - span.start) * 1e-3);
  }
  if (spans.size() == count && times.size() == count) return times;
  throw BackendError("[bench] CUPTI reports " + std::to_string(spans.size()) + " flushes and " +
                     std::to_string(times.size()) + " timed calls, want " + std::to_string(count));
}

std::unique_ptr<KernelTimer> cupti_timer(const std::string& path, std::string& problem) {
  std::vector<std::string> places = {"libcupti.so.13", "libcupti.so.12", "libcupti.so",
                                     "/usr/local/cuda/extras/CUPTI/lib64/libcupti.so",
                                     "/usr/local/cuda/lib64/libcupti.so"};
  if (!path.empty()) places = {path};
  for (const std::string& place : places) {
    problem = open_cupti(place.c_str());
    if (problem.empty()) return std::make_unique<CuptiTimer>();
  }
  return nullptr;
}

std::unique_ptr<KernelTimer> event_timer(const KernelCall& empty) {
  return std::make_unique<EventTimer>(empty);
}

}  // namespace tilekernels::cases
