// Device memory: host memory with an account of which bytes belong to a block and were written.
#include "memory.h"

#include <sys/mman.h>

#include <cstdio>
#include <cstring>
#include <map>

#include "machine.h"

namespace cuda_emulator {
namespace {

constexpr u64 kGuardBytes = 4096;  // before and behind every block
constexpr u8 kPoison = 0xB5;

struct Block {
  u64 begin;
  u64 bytes;
  int device;
  u8* mapping;
  u64 mapping_bytes;
  u8* written;  // a byte each: 1 as soon as it was written
};

std::map<u64, Block> blocks;  // by their begin
Block* last_found = nullptr;

// The block that holds the address or ends right before it, else null.
Block* block_of(u64 address) {
  if (last_found != nullptr && address - last_found->begin < last_found->bytes) return last_found;
  auto after = blocks.upper_bound(address);
  if (after == blocks.begin()) return nullptr;
  Block& block = std::prev(after)->second;
  if (address - block.begin >= block.bytes) return nullptr;
  return last_found = &block;
}

std::string hex(u64 value) {
  char text[32];
  std::snprintf(text, sizeof(text), "0x%lx", value);
  return text;
}

// Where an address lies beside the nearest block.
std::string place_of(u64 address) {
  if (address < 4096) return "a null pointer";
  const auto after = blocks.upper_bound(address);
  std::string text = hex(address);
  if (after != blocks.begin()) {
    const Block& block = std::prev(after)->second;
    const u64 behind = address - block.begin - block.bytes;
    if (behind < (u64{1} << 20)) {
      return text + ", " + std::to_string(behind) + " bytes behind the end of a block of " +
             std::to_string(block.bytes) + " bytes";
    }
  }
  if (after != blocks.end() && after->second.begin - address < (u64{1} << 20)) {
    return text + ", " + std::to_string(after->second.begin - address) +
           " bytes before a block of " + std::to_string(after->second.bytes) + " bytes";
  }
  return text + ", which is no device memory";
}

}  // namespace

u64 allocate(u64 bytes, int device) {
  const u64 mapping_bytes = bytes + 2 * kGuardBytes;
  const auto map = [](u64 size) {
    void* const memory = mmap(nullptr, size, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return memory == MAP_FAILED ? nullptr : static_cast<u8*>(memory);
  };
  u8* const mapping = map(mapping_bytes);
  u8* const written = map(bytes);
  if (mapping == nullptr || written == nullptr) return 0;
  // Poisoned only as far as it is cheap: that nobody reads it is checked anyway.
  std::memset(mapping + kGuardBytes, kPoison, std::min<u64>(bytes, u64{1} << 16));
  const auto begin = reinterpret_cast<u64>(mapping + kGuardBytes);
  blocks[begin] = {begin, bytes, device, mapping, mapping_bytes, written};
  return begin;
}

bool release(u64 address) {
  const auto found = blocks.find(address);
  if (found == blocks.end()) return false;
  const Block& block = found->second;
  munmap(block.mapping, block.mapping_bytes);
  munmap(block.written, block.bytes);
  blocks.erase(found);
  last_found = nullptr;
  return true;
}

bool host_reads(u64 address, u64 bytes) {
  const Block* const block = block_of(address);
  return block == nullptr || bytes <= block->bytes - (address - block->begin);
}

bool host_writes(u64 address, u64 bytes) {
  if (!host_reads(address, bytes)) return false;
  if (const Block* const block = block_of(address)) {
    std::memset(block->written + (address - block->begin), 1, bytes);
  }
  return true;
}

std::string check_global(u64 address, u64 bytes, u32 what, int device) {
  const bool writes = (what & kWrite) != 0;
  const auto access = [&] {
    return (writes ? "writes " : "reads ") + std::to_string(bytes) + " bytes at ";
  };
  const Block* const block = block_of(address);
  if (block == nullptr) return access() + place_of(address);
  const u64 offset = address - block->begin;
  if (bytes > block->bytes - offset) {
    return access() + hex(address) + ", over the end of a block of " +
           std::to_string(block->bytes) + " bytes";
  }
  if (block->device != device) {
    return access() + "memory of device " + std::to_string(block->device);
  }
  u8* const written = block->written + offset;
  if ((what & (kWrite | kAtomic)) == kWrite) {
    std::memset(written, 1, bytes);
  } else if (std::memchr(written, 0, bytes) != nullptr) {
    return access() + hex(address) + ", byte " + std::to_string(offset) + " of a block of " +
           std::to_string(block->bytes) + " bytes, that nobody wrote before";
  }
  return "";
}

}  // namespace cuda_emulator
