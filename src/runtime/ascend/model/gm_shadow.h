// Which bytes of device memory a core has read and written.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "numerics/types.h"

namespace tilekernels::ascend::model {

class GmShadow {
 public:
  static constexpr int64 kPageBytes = 1 << 14;
  static constexpr int64 kWords = kPageBytes / 64;
  struct Page {
    uint64 written[kWords] = {};
    uint64 read[kWords] = {};
    uint32 last_write = 0;  // sequence number of pipe MTE3
  };
  using Pages = std::unordered_map<uint64, std::unique_ptr<Page>>;

  /// The last write that overlaps the range, as a sequence number; 0 if there is none.
  uint32 last_write(const void* address, int64 bytes) const;
  void note_write(const void* address, int64 bytes, uint32 sequence);
  void note_read(const void* address, int64 bytes);
  const Pages& pages() const { return pages_; }
  void clear() { pages_.clear(); }

 private:
  Pages pages_;
};

/// A byte that two cores touch, one of them by writing.
struct CrossCore {
  bool found = false;
  int64 core = 0;
  int64 other = 0;
  bool both_write = false;
  uint64 address = 0;
};
CrossCore find_cross_core(const std::vector<GmShadow>& cores);

}  // namespace tilekernels::ascend::model
