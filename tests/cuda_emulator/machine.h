// The machine that the emulator is: device memory, and kernels whose threads run one at a time.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "api.h"

namespace cuda_emulator {

/// A loaded object.
struct Module {
  const Object* object = nullptr;
  void* handle = nullptr;
  u64 base = 0;  // what the object occupies, its constants among it
  u64 end = 0;
  std::string bytes{};  // of the file
};

struct Function {
  std::string name;
  const Module* module;
  const Kernel* kernel;
  int device;
  u32 max_dynamic_shared = 48 * 1024;
};

struct Launch {
  const Function* function;
  u32 grid[3];
  u32 block[3];
  u32 shared_bytes;
  bool is_dependent;  // programmatic dependent launch
  void** params;
};

/// Memory of a device, of which every access of a kernel must lie in one block. The address is a
/// multiple of 256. Bytes that nobody wrote must not be read.
u64 allocate(u64 bytes, int device);
/// False when no block begins there.
bool release(u64 address);
/// Says that the host writes these bytes. Returns false when they reach over the end of a block;
/// true as well when they are the host's own.
bool host_writes(u64 address, u64 bytes);
bool host_reads(u64 address, u64 bytes);

/// The order in which what is not ordered by the kernel runs: "forward", "reverse", "random:SEED".
/// False for another text.
bool set_order(std::string_view text);

/// Runs a kernel to its end. Empty, or one sentence that says where it broke which rule.
std::string run(const Launch& launch);

}  // namespace cuda_emulator
