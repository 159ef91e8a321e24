// Which bytes of device memory a core has read and written.
#include "runtime/ascend/model/gm_shadow.h"

#include <algorithm>
#include <bit>

namespace tilekernels::ascend::model {
namespace {

// Calls visit(page number, word, bits) for every word of 64 bytes that the range touches.
template <class Visit>
void for_each_word(const void* address, int64 bytes, const Visit& visit) {
  auto at = reinterpret_cast<uint64>(address);
  const uint64 end = at + static_cast<uint64>(bytes);
  while (at < end) {
    const uint64 first = at % 64;
    const uint64 count = std::min<uint64>(64 - first, end - at);
    const uint64 bits = (count == 64 ? ~uint64{0} : (uint64{1} << count) - 1) << first;
    visit(at / GmShadow::kPageBytes, at % GmShadow::kPageBytes / 64, bits);
    at += count;
  }
}

// The same with the page itself, made at the first touch: visit(page, word, bits).
template <class Visit>
void for_each_word(GmShadow::Pages& pages, const void* address, int64 bytes, const Visit& visit) {
  uint64 number = ~uint64{0};
  GmShadow::Page* page = nullptr;
  for_each_word(address, bytes, [&](uint64 page_number, uint64 word, uint64 bits) {
    if (page_number != number) {
      number = page_number;
      auto& owner = pages[number];
      if (!owner) owner = std::make_unique<GmShadow::Page>();
      page = owner.get();
    }
    visit(*page, word, bits);
  });
}

}  // namespace

uint32 GmShadow::last_write(const void* address, int64 bytes) const {
  uint32 last = 0;
  uint64 number = ~uint64{0};
  const Page* page = nullptr;
  for_each_word(address, bytes, [&](uint64 page_number, uint64 word, uint64 bits) {
    if (page_number != number) {
      number = page_number;
      const auto found = pages_.find(number);
      page = found == pages_.end() ? nullptr : found->second.get();
    }
    if (page != nullptr && (page->written[word] & bits) != 0) {
      last = std::max(last, page->last_write);
    }
  });
  return last;
}

void GmShadow::note_write(const void* address, int64 bytes, uint32 sequence) {
  for_each_word(pages_, address, bytes, [sequence](Page& page, uint64 word, uint64 bits) {
    page.last_write = sequence;
    page.written[word] |= bits;
  });
}

void GmShadow::note_read(const void* address, int64 bytes) {
  for_each_word(pages_, address, bytes,
                [](Page& page, uint64 word, uint64 bits) { page.read[word] |= bits; });
}

namespace {

// Whether cores touch a byte of the page in common, one of them by writing.
bool is_shared(const std::vector<GmShadow>& cores, const std::vector<size_t>& of, uint64 number) {
  if (of.size() < 2) return false;
  uint64 written[GmShadow::kWords] = {};
  uint64 read[GmShadow::kWords] = {};
  uint64 hit = 0;
  for (size_t core : of) {
    const GmShadow::Page& page = *cores[core].pages().at(number);
    for (int64 word = 0; word < GmShadow::kWords; ++word) {
      hit |=
          (page.written[word] & (written[word] | read[word])) | (page.read[word] & written[word]);
      written[word] |= page.written[word];
      read[word] |= page.read[word];
    }
  }
  return hit != 0;
}

}  // namespace

CrossCore find_cross_core(const std::vector<GmShadow>& cores) {
  // Who writes a page, so that only shared pages are compared bit by bit.
  std::unordered_map<uint64, std::vector<size_t>> touched;
  for (size_t core = 0; core < cores.size(); ++core) {
    for (const auto& [number, page] : cores[core].pages()) touched[number].push_back(core);
  }
  CrossCore worst;
  for (const auto& [number, of] : touched) {
    if (!is_shared(cores, of, number)) continue;
    for (size_t writer : of) {
      const GmShadow::Page& written = *cores[writer].pages().at(number);
      if (written.last_write == 0) continue;
      for (size_t other : of) {
        if (other == writer) continue;
        const GmShadow::Page& page = *cores[other].pages().at(number);
        for (uint64 word = 0; word < static_cast<uint64>(GmShadow::kWords); ++word) {
          const uint64 both = written.written[word] & page.written[word];
          const uint64 hit = both | (written.written[word] & page.read[word]);
          if (hit == 0) continue;
          const uint64 address = number * GmShadow::kPageBytes + word * 64 +
                                 static_cast<uint64>(std::countr_zero(hit));
          if (worst.found && worst.address <= address) break;
          worst = {true, static_cast<int64>(writer), static_cast<int64>(other), both != 0, address};
          break;
        }
      }
    }
  }
  return worst;
}

}  // namespace tilekernels::ascend::model
