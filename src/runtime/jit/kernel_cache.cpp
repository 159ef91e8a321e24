// Loaded kernels: from an op's text, constants and device to a function, without a lock when hot.
//
// An open-addressed table of pointers to entries that never change. Readers take no lock; writers
// hold one. A table that fills up is replaced by a larger one and kept for readers still in it.
#include "runtime/jit/kernel_cache.h"

#include <bit>
#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "runtime/jit/disk_cache.h"
#include "tilekernels/cache.h"

namespace tilekernels::jit {
namespace {

struct Entry {
  uint64_t hash;
  KernelId id;
  LoadedKernel kernel;
};

struct Table {
  explicit Table(size_t size) : mask(size - 1), slots(new std::atomic<Entry*>[size]()) {}
  const size_t mask;
  const std::unique_ptr<std::atomic<Entry*>[]> slots;
};

constexpr size_t kFirstSize = 256;

std::atomic<Table*> table{nullptr};

// What writers share. Never destroyed: threads may outlive main.
struct Writers {
  std::mutex mutex;
  std::condition_variable loaded;
  std::set<std::string> in_flight;  // keys and devices that a thread is loading
  std::vector<std::unique_ptr<Table>> tables;
  size_t num_entries = 0;
};
Writers& writers() {
  static Writers* const writers = new Writers;
  return *writers;
}

uint64_t hash_of(const KernelId& id) {
  constexpr uint64_t kFactor = 0x9E3779B97F4A7C15u;
  uint64_t hash =
      (reinterpret_cast<uintptr_t>(id.text) ^ std::bit_cast<uint64_t>(id.kind)) * kFactor;
  const auto* left = reinterpret_cast<const char*>(id.constants);
  auto size = static_cast<size_t>(id.kind.num_constants) * sizeof(int32_t);
  for (; size >= sizeof(uint64_t); size -= sizeof(uint64_t), left += sizeof(uint64_t)) {
    uint64_t pair;
    std::memcpy(&pair, left, sizeof(pair));
    hash = ((hash << 23 | hash >> 41) ^ pair) * kFactor;
  }
  if (size > 0) {
    uint32_t last;
    std::memcpy(&last, left, sizeof(last));
    hash = ((hash << 23 | hash >> 41) ^ last) * kFactor;
  }
  return hash ^ hash >> 32;
}

bool same(const KernelId& a, const KernelId& b) {
  return a.text == b.text && std::bit_cast<uint64_t>(a.kind) == std::bit_cast<uint64_t>(b.kind) &&
         std::memcmp(a.constants, b.constants,
                     static_cast<size_t>(a.kind.num_constants) * sizeof(int32_t)) == 0;
}

LoadedKernel* find(const KernelId& id, uint64_t hash) {
  const Table* const now = table.load(std::memory_order_acquire);
  if (now == nullptr) return nullptr;
  for (size_t i = hash & now->mask;; i = (i + 1) & now->mask) {
    Entry* const entry = now->slots[i].load(std::memory_order_acquire);
    if (entry == nullptr) return nullptr;
    if (entry->hash == hash && same(entry->id, id)) return &entry->kernel;
  }
}

void put(const Table& into, Entry* entry) {
  size_t i = entry->hash & into.mask;
  while (into.slots[i].load(std::memory_order_relaxed) != nullptr) i = (i + 1) & into.mask;
  into.slots[i].store(entry, std::memory_order_release);
}

// Called with the writers' mutex.
void insert(Entry* entry) {
  Writers& shared = writers();
  Table* now = table.load(std::memory_order_relaxed);
  if (now == nullptr || 2 * (shared.num_entries + 1) > now->mask + 1) {
    const size_t size = now == nullptr ? kFirstSize : 2 * (now->mask + 1);
    shared.tables.push_back(std::make_unique<Table>(size));
    Table* const larger = shared.tables.back().get();
    for (size_t i = 0; now != nullptr && i <= now->mask; ++i) {
      if (Entry* old = now->slots[i].load(std::memory_order_relaxed)) put(*larger, old);
    }
    table.store(larger, std::memory_order_release);
    now = larger;
  }
  put(*now, entry);
  ++shared.num_entries;
}

// Takes a place among the keys in flight, and leaves it.
class InFlight {
 public:
  InFlight(std::unique_lock<std::mutex>& lock, const std::string& key) : lock_(lock), key_(key) {
    writers().in_flight.insert(key_);
    lock_.unlock();
  }
  ~InFlight() {
    if (!lock_.owns_lock()) lock_.lock();
    writers().in_flight.erase(key_);
    writers().loaded.notify_all();
  }
  InFlight(const InFlight&) = delete;
  InFlight& operator=(const InFlight&) = delete;

 private:
  std::unique_lock<std::mutex>& lock_;
  const std::string& key_;
};

}  // namespace

CompileJob job_of(const KernelId& id, std::string_view arch) {
  const int32_t* const tile = id.constants + id.kind.num_shape;
  return {id.text,
          {id.constants, tile},
          {tile, id.constants + id.kind.num_constants},
          arch,
          id.kind.pdl != 0};
}

LoadedKernel* find_kernel(const KernelId& id) { return find(id, hash_of(id)); }

LoadedKernel& load_kernel(const KernelId& id, const KernelSource& source) {
  const uint64_t hash = hash_of(id);
  const std::string place = source.key + std::to_string(id.kind.device);
  std::unique_lock lock(writers().mutex);
  for (;;) {
    if (LoadedKernel* kernel = find(id, hash)) return *kernel;
    if (writers().in_flight.count(place) == 0) break;
    writers().loaded.wait(lock);
  }
  const InFlight in_flight(lock, place);
  void* const function = source.load(find_or_make(cache_dir(), source.key, source.compile));
  lock.lock();
  auto* const entry = new Entry{hash, id, {function}};
  insert(entry);
  return entry->kernel;
}

void forget_kernels() {
  Writers& shared = writers();
  const std::lock_guard lock(shared.mutex);
  if (const Table* now = table.exchange(nullptr)) {
    for (size_t i = 0; i <= now->mask; ++i) delete now->slots[i].load();
  }
  shared.tables.clear();
  shared.num_entries = 0;
}

}  // namespace tilekernels::jit
