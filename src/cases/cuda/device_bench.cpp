// What the device bench launches and times besides the ops: copies, an empty kernel, host costs.
#include "cases/cuda/device_bench.h"

#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "cases/cuda/bench_args.h"
#include "cases/scope_exit.h"
#include "runtime/cuda/launch.h"
#include "tilekernels/cache.h"
#include "tilekernels/error.h"

namespace tilekernels::cuda {
extern const Text bench_copy_text;
extern const Text bench_flush_text;
extern const Text bench_empty_text;
}  // namespace tilekernels::cuda

namespace tilekernels::cases {
namespace {

constexpr int64_t kFlushBytes = int64_t{512} << 20;
constexpr int64_t kWordBytes = sizeof(BenchWord);
constexpr int kCallsPerBatch = 100;  // far from filling the driver's queue
constexpr Device kDevice{DeviceType::kCuda, 0};
constexpr Launch kWhere{kDevice, {}};

double now_ns() {
  return std::chrono::duration<double, std::nano>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// Device memory that holds `fill`.
Tensor device_memory(int64_t size, uint8_t fill) {
  const TensorSpec host({size}, DType::kU8);
  std::vector<uint8_t> bytes(static_cast<size_t>(size), fill);
  if (fill != 0) {
    // Positions, so that a copy of the wrong place shows.
    for (size_t i = 0; i + sizeof(uint32_t) <= bytes.size(); i += sizeof(uint32_t)) {
      const auto value = static_cast<uint32_t>(i * 2654435761u);
      std::memcpy(bytes.data() + i, &value, sizeof(value));
    }
  }
  Tensor memory(TensorSpec({size}, DType::kU8, kDevice));
  tilekernels::copy(memory, {bytes.data(), host});
  return memory;
}

int64_t num_words(int64_t bytes_moved) {
  return numerics::ceil_div(numerics::ceil_div(bytes_moved, 2), kWordBytes);
}

void synchronize_device() {
  const cuda::CurrentContext current("bench", cuda::device_state("bench", kDevice.index));
  cuda::check(cuda::driver().stream_synchronize(nullptr), "bench", "cuStreamSynchronize");
}

void launch_empty() {
  cuda::launch(cuda::bench_empty_text, {.grid = {1}, .block = {32}}, BenchEmptyArgs{0},
               BenchEmptyShape{32}, kWhere);
}

// The id under which `launch_empty` finds its kernel.
cuda::KernelId empty_id() {
  cuda::KernelId id{};
  id.text = &cuda::bench_empty_text;
  id.kind = {0, 0, 1, 1};
  id.constants[0] = 32;
  return id;
}

using RawLaunch = int (*)(void* function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                          unsigned block_x, unsigned block_y, unsigned block_z,
                          unsigned shared_bytes, void* stream, void** params, void** extra);

RawLaunch raw_launch() {
  void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  void* const found = library == nullptr ? nullptr : dlsym(library, "cuLaunchKernel");
  if (found == nullptr) throw BackendError("[bench] the driver has no cuLaunchKernel");
  return reinterpret_cast<RawLaunch>(found);
}

// Nanoseconds a call, over one batch into an empty queue.
template <class Body>
double batch_ns(const Body& body) {
  synchronize_device();
  const double start = now_ns();
  for (int i = 0; i < kCallsPerBatch; ++i) body();
  return (now_ns() - start) / kCallsPerBatch;
}

}  // namespace

std::string text(const CopyTile& tile) {
  return std::to_string(tile.threads) + " threads, " + std::to_string(tile.words) +
         (tile.words == 1 ? " word" : " words") + (tile.streaming ? ", streaming" : "") +
         (tile.blocks_per_sm == 0 ? ", one-shot"
                                  : ", " + std::to_string(tile.blocks_per_sm) + " blocks an SM");
}

DeviceBench::DeviceBench(int64_t max_bytes_moved)
    : from_(device_memory(num_words(max_bytes_moved) * kWordBytes, 1)),
      to_(device_memory(num_words(max_bytes_moved) * kWordBytes, 0)),
      flush_(device_memory(kFlushBytes + kWordBytes, 0)) {}

std::vector<CopyTile> DeviceBench::tiles() {
  return {{128, 1, false, 0}, {256, 1, false, 0}, {1024, 1, false, 0}, {256, 2, false, 0},
          {256, 4, false, 0}, {512, 4, false, 0}, {256, 4, true, 0},   {512, 2, true, 0},
          {512, 4, true, 0},  {256, 8, true, 0},  {512, 4, false, 4},  {512, 4, true, 4},
          {1024, 4, true, 2}};
}

void DeviceBench::copy(int64_t bytes_moved, const CopyTile& tile) const {
  copy_from(from_, bytes_moved, tile);
}

void DeviceBench::forget_copy(int64_t bytes_moved) const {
  copy_from(flush_, std::min(bytes_moved, 2 * kFlushBytes), tiles()[0]);  // zeros
}

void DeviceBench::copy_from(const Tensor& from, int64_t bytes_moved, const CopyTile& tile) const {
  const BenchCopyArgs args{static_cast<const BenchWord*>(from.data()),
                           static_cast<BenchWord*>(to_.data()), num_words(bytes_moved)};
  const BenchCopyShape shape{tile.threads, tile.words, tile.streaming ? 1 : 0,
                             tile.blocks_per_sm > 0 ? 1 : 0};
  int64_t blocks = numerics::ceil_div(args.num_words, int64_t{tile.threads} * tile.words);
  if (tile.blocks_per_sm > 0) {
    const int64_t most = int64_t{tile.blocks_per_sm} * cuda::num_sms(cuda::bench_copy_text, kWhere);
    blocks = std::min(blocks, most);
  }
  cuda::launch(cuda::bench_copy_text, {.grid = {blocks}, .block = {tile.threads}}, args, shape,
               kWhere);
}

bool DeviceBench::has_copied(int64_t bytes_moved) const {
  const int64_t size = num_words(bytes_moved) * kWordBytes;
  std::vector<uint8_t> bytes[2];
  for (int i = 0; i < 2; ++i) {
    bytes[i].resize(static_cast<size_t>(size));
    tilekernels::copy({bytes[i].data(), TensorSpec({size}, DType::kU8)},
                      {(i == 0 ? from_ : to_).data(), TensorSpec({size}, DType::kU8, kDevice)});
  }
  return bytes[0] == bytes[1];
}

void DeviceBench::flush() const {
  constexpr BenchFlushShape kShape{512, 8};
  auto* const memory = static_cast<BenchWord*>(flush_.data());
  const BenchFlushArgs args{memory, memory[kFlushBytes / kWordBytes].part,
                            kFlushBytes / kWordBytes};
  const int64_t blocks = int64_t{4} * cuda::num_sms(cuda::bench_flush_text, kWhere);
  cuda::launch(cuda::bench_flush_text, {.grid = {blocks}, .block = {kShape.threads}}, args, kShape,
               kWhere);
}

void DeviceBench::empty() const { launch_empty(); }

void DeviceBench::synchronize() const { synchronize_device(); }

HostCost host_cost(const Case& test, const Views& outputs, const Views& inputs, int batches) {
  launch_empty();
  const Call call{};
  test.out(outputs, inputs, call);
  const RawLaunch launch = raw_launch();
  const cuda::CurrentContext current("bench", cuda::device_state("bench", kDevice.index));
  void* const function = cuda::find_kernel(empty_id())->function;
  BenchEmptyArgs args{0};
  void* params[] = {&args};
  std::vector<double> raw;
  std::vector<double> calls;
  for (int batch = 0; batch < batches; ++batch) {
    raw.push_back(
        batch_ns([&] { launch(function, 1, 1, 1, 32, 1, 1, 0, nullptr, params, nullptr); }));
    calls.push_back(batch_ns([&] { test.out(outputs, inputs, call); }));
  }
  synchronize_device();
  return {median(raw), median(calls)};
}

double lookup_ns() {
  launch_empty();
  constexpr int kLookups = 10000;
  const cuda::KernelId id = empty_id();
  std::vector<double> times;
  volatile const void* found = nullptr;
  for (int batch = 0; batch < 101; ++batch) {
    const double start = now_ns();
    for (int i = 0; i < kLookups; ++i) found = cuda::find_kernel(id);
    times.push_back((now_ns() - start) / kLookups);
  }
  if (found == nullptr) throw BackendError("[bench] the loaded kernel is not found");
  return median(times);
}

JitTimes jit_times(const Case& test, const Views& outputs, const Views& inputs,
                   const std::string& folder) {
  launch_empty();  // opens the compiler
  const std::string before = cache_dir();
  std::filesystem::remove_all(folder);
  const ScopeExit back([&] {
    set_cache_dir(before);
    std::error_code ignored;
    std::filesystem::remove_all(folder, ignored);
  });
  set_cache_dir(folder);
  const auto first_call_ms = [&] {
    synchronize_device();
    cuda::forget_kernels();
    const double start = now_ns();
    test.out(outputs, inputs, Call{.backend = Backend::kCuda});
    synchronize_device();
    return (now_ns() - start) * 1e-6;
  };
  JitTimes times{};
  times.cold = first_call_ms();
  std::vector<double> disk;
  for (int i = 0; i < 11; ++i) disk.push_back(first_call_ms());
  times.disk = median(disk);
  return times;
}

}  // namespace tilekernels::cases
