// group_count and aux_fi on the cpu backend: tables of each thread's own, added up at the end.
#include <algorithm>
#include <cstddef>
#include <mutex>
#include <vector>

#include "ops/moe/common.h"
#include "ops/moe/histogram.h"
#include "runtime/cpu/fault.h"
#include "runtime/cpu/parallel.h"

namespace tilekernels::cpu {
namespace {

// Increments of one counter wait for each other, those of several tables do not. Few indices are
// not worth the tables.
constexpr int32 kTables = 4;
constexpr int64 kIndicesPerBin = 4;

// Counts of one range: an entry for -1, one a bin, and one for all that is out of range.
class Counts {
 public:
  explicit Counts(int32 num_bins)
      : pitch_(static_cast<std::size_t>(num_bins) + 2), counts_(pitch_) {}

  void add(const int64* indices, int64 count) {
    int64 i = 0;
    if (count >= kIndicesPerBin * static_cast<int64>(pitch_)) i = add_by_tables(indices, count);
    for (; i < count; ++i) ++counts_[entry(indices[i])];
  }

  bool has_fault() const { return counts_[pitch_ - 1] > 0; }
  const int32* bins() const { return counts_.data() + 1; }

 private:
  // Takes the indices that fill all tables; how many these are.
  int64 add_by_tables(const int64* indices, int64 count) {
    std::vector<int32> memory(kTables * pitch_);
    int32* tables[kTables];
    for (std::size_t t = 0; t < kTables; ++t) tables[t] = memory.data() + t * pitch_;
    const int64 taken = count / kTables * kTables;
    for (int64 i = 0; i < taken; i += kTables) {
      for (int32 t = 0; t < kTables; ++t) ++tables[t][entry(indices[i + t])];
    }
    for (std::size_t e = 0; e < pitch_; ++e) {
      for (const int32* table : tables) counts_[e] += table[e];
    }
    return taken;
  }

  std::size_t entry(int64 index) const {
    return std::min(static_cast<std::size_t>(index) + 1, pitch_ - 1);
  }

  std::size_t pitch_;
  std::vector<int32> counts_;
};

// The row of the first index that is out of range; there is one.
int64 first_faulty_row(const HistogramArgs& args, int64 row) {
  for (const int64* index = args.indices + row * args.num_topk;; ++index) {
    if (is_bad_index(*index, args.num_bins)) return (index - args.indices) / args.num_topk;
  }
}

}  // namespace

void histogram(const HistogramArgs& args, const HistogramShape& shape, const Launch&) {
  auto* const totals = static_cast<int32*>(args.out);  // fractions replace them at the end
  std::fill_n(totals, args.num_bins, 0);
  std::mutex mutex;
  const double nanoseconds = 0.7 * args.num_topk;
  // Each range also makes and adds up its tables.
  const int64 min_rows =
      std::max(items_per_thread(nanoseconds),
               numerics::ceil_div(kIndicesPerBin * args.num_bins, args.num_topk));
  parallel_for(args.num_tokens, min_rows, [&](int64 begin, int64 end) {
    Counts counts(args.num_bins);
    counts.add(args.indices + begin * args.num_topk, (end - begin) * args.num_topk);
    if (counts.has_fault()) {
      note_fault(args.fault, first_faulty_row(args, begin), histogram_op_id(shape),
                 numerics::kFaultIndexOutOfRange);
    }
    const std::lock_guard lock(mutex);
    for (int32 bin = 0; bin < args.num_bins; ++bin) totals[bin] += counts.bins()[bin];
  });
  if (shape.is_fraction == 0) return;
  auto* const fractions = static_cast<float*>(args.out);
  parallel_for(args.num_bins, items_per_thread(5), [&](int64 begin, int64 end) {
    for (int64 bin = begin; bin < end; ++bin) {
      const int32 count = totals[bin];
      fractions[bin] = fraction_of(count, args);
    }
  });
}

}  // namespace tilekernels::cpu
