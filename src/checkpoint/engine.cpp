// Carries a shard's jobs out: blocks are read, converted and written by several threads.
#include "checkpoint/engine.h"

#include <algorithm>
#include <atomic>
#include <cassert>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>

#include "checkpoint/grid.h"
#include "checkpoint/values.h"
#include "core/message.h"
#include "numerics/formats.h"
#include "runtime/cpu/parallel.h"
#include "tilekernels/config.h"
#include "tilekernels/error.h"

namespace tilekernels::checkpoint {
namespace {

using io::StDType;

// All buffers of a tile together. What can be cut anywhere stays in a core's own cache between
// reading, converting, counting and writing; a cast needs 128 rows and columns long enough to read.
constexpr int64_t kSmallTileBytes = int64_t{512} << 10;
constexpr int64_t kTileBytes = int64_t{4} << 20;
constexpr int64_t kAllTilesBytes = int64_t{160} << 20;

int64_t width(StDType dtype) { return io::bits(dtype) / 8; }

// Aligned memory of one worker, grown on demand.
class Buffer {
 public:
  template <class T>
  T* get(int64_t count) {
    const int64_t bytes = count * static_cast<int64_t>(sizeof(T));
    if (bytes > bytes_) {
      memory_ = Tensor(TensorSpec({bytes}, DType::kU8));
      bytes_ = bytes;
    }
    return static_cast<T*>(memory_.data());
  }

 private:
  Tensor memory_;
  int64_t bytes_ = 0;
};

struct Worker {
  Buffer in, out, sf, sf_raw, after, exact;
};

// One shard's jobs with their cut; tiles are numbered through.
class ShardRun {
 public:
  ShardRun(const Source& source, const ShardPlan& plan) : source_(source), plan_(plan) {
    int64_t num_tiles = 0;
    for (const Job& job : plan.jobs) {
      grids_.push_back(cut(job));
      first_tile_.push_back(num_tiles);
      num_tiles += grids_.back().num_tiles();
      open(job.in);
      open(job.scale);
    }
    figures_.resize(static_cast<size_t>(num_tiles));
  }

  int64_t num_tiles() const { return static_cast<int64_t>(figures_.size()); }

  // Runs act(worker, job number, tile number within the job) on all tiles.
  template <class Act>
  void for_each_tile(Progress* progress, std::atomic<bool>& stop, Act&& act) {
    const int64_t num_workers =
        std::min<int64_t>({get_num_threads(), kAllTilesBytes / kTileBytes, num_tiles()});
    std::atomic<int64_t> next{0};
    cpu::parallel_for(num_workers, 1, [&](int64_t, int64_t) {
      Worker worker;
      try {
        for (int64_t i; !stop && (i = next++) < num_tiles();) {
          const size_t job =
              static_cast<size_t>(std::upper_bound(first_tile_.begin(), first_tile_.end(), i) -
                                  first_tile_.begin() - 1);
          act(worker, job, i - first_tile_[job], figures_[static_cast<size_t>(i)]);
          if (progress != nullptr && progress->cancelled()) {
            throw Cancelled(message("convert", "stopped; nothing was published"));
          }
        }
      } catch (...) {
        stop = true;
        throw;
      }
    });
    if (stop) throw StoppedElsewhere();
  }

  // Whether errors of this job are measured; nothing is lost on the way to f32.
  bool measures(const Job& job) const {
    if (!job.measure_error) return false;
    return job.action == TensorAction::kQuantized || job.action == TensorAction::kCastBack ||
           (job.action == TensorAction::kConverted && entry(job.out).dtype != StDType::kF32);
  }

  // Figures of a job's tiles, in their order.
  BlockFigures job_figures(size_t job) const {
    BlockFigures sum;
    const int64_t end = first_tile_[job] + grids_[job].num_tiles();
    for (int64_t i = first_tile_[job]; i < end; ++i) sum.add(figures_[static_cast<size_t>(i)]);
    return sum;
  }

  uint64_t digest() const {
    uint64_t digest = 0;
    for (const BlockFigures& tile : figures_) {
      digest = digest_bytes(&tile.digest, sizeof tile.digest, digest);
    }
    return digest;
  }

  // Converts one tile and hands its bytes to write(tensor, offset, bytes, count).
  template <class Write>
  int64_t convert(Worker& worker, size_t j, int64_t tile, BlockFigures& figures, Write&& write) {
    const Job& job = plan_.jobs[j];
    const Grid& grid = grids_[j];
    const Tile t = grid.tile(tile);
    switch (job.action) {
      case TensorAction::kCopied:
        return copy(worker, job, grid, t, figures, write);
      case TensorAction::kConverted:
        return convert_plain_tile(worker, job, grid, t, figures, write);
      case TensorAction::kQuantized:
        return quantize(worker, job, grid, t, figures, write);
      case TensorAction::kCastBack:
        return cast_back_tile(worker, job, grid, t, figures, write);
      case TensorAction::kRescaled:
        return rescale(worker, job, grid, t, figures, write);
      case TensorAction::kConsumed:
        break;
    }
    assert(false);
    return 0;
  }

  // The digest of a tile as it lies in a finished file.
  int64_t digest_tile(Worker& worker, size_t j, int64_t tile, const io::File& file,
                      BlockFigures& figures) {
    const Job& job = plan_.jobs[j];
    const Tile t = grids_[j].tile(tile);
    const io::TensorEntry& out = entry(job.out);
    const int64_t unit = job.action == TensorAction::kCopied ? 1 : width(out.dtype);
    char* bytes = worker.out.get<char>(t.numel() * unit);
    read(file, plan_.header.data_start + out.begin, unit, grids_[j], t, bytes);
    figures.digest = digest_bytes(bytes, t.numel() * unit, 0);
    if (job.action == TensorAction::kQuantized) {
      const Tile s = scale_tile(t, job.block);
      char* sf = worker.sf.get<char>(s.numel() * 4);
      read(file, plan_.header.data_start + entry(job.out_sf).begin, 4,
           scale_grid(grids_[j], job.block), s, sf);
      figures.digest = digest_bytes(sf, s.numel() * 4, figures.digest);
    }
    return t.numel() * unit;
  }

 private:
  const io::TensorEntry& entry(size_t out) const { return plan_.header.tensors[out]; }
  const io::TensorEntry& entry(TensorRef ref) const { return source_.tensor(ref); }

  Grid cut(const Job& job) const {
    const io::TensorEntry& out = entry(job.out);
    if (job.action == TensorAction::kCopied) return linear_grid(out.bytes(), kSmallTileBytes);
    int64_t unit = width(out.dtype) + (job.in.found() ? width(entry(job.in).dtype) : 0);
    if (measures(job)) unit += job.action == TensorAction::kQuantized ? 4 : 8;
    if (job.action == TensorAction::kQuantized) {
      return block_grid(out.shape, job.block, kTileBytes / unit, false);
    }
    if (job.action == TensorAction::kCastBack && job.scale.found()) {
      return block_grid(out.shape, job.block, kSmallTileBytes / unit, true);
    }
    return linear_grid(out.numel(), kSmallTileBytes / unit);
  }

  void open(TensorRef ref) {
    if (ref.found() && !files_.count(ref.shard)) files_.emplace(ref.shard, source_.open(ref.shard));
  }

  static void read(const io::File& file, int64_t start, int64_t unit, const Grid& grid,
                   const Tile& t, void* to) {
    grid.for_each_stretch(t, [&](int64_t from, int64_t place, int64_t count) {
      file.read_at(start + from * unit, static_cast<char*>(to) + place * unit, count * unit);
    });
  }

  void read_tile(TensorRef ref, int64_t unit, const Grid& grid, const Tile& t, void* to) const {
    const io::TensorEntry& source = entry(ref);
    const io::Header& header = source_.shards[static_cast<size_t>(ref.shard)].header;
    read(files_.at(ref.shard), header.data_start + source.begin, unit, grid, t, to);
  }

  template <class Write>
  static void write_tile(Write& write, size_t out, int64_t unit, const Grid& grid, const Tile& t,
                         const void* from, BlockFigures& figures) {
    grid.for_each_stretch(t, [&](int64_t to, int64_t place, int64_t count) {
      write(out, to * unit, static_cast<const char*>(from) + place * unit, count * unit);
    });
    figures.digest = digest_bytes(from, t.numel() * unit, figures.digest);
  }

  template <class Write>
  int64_t copy(Worker& worker, const Job& job, const Grid& grid, const Tile& t,
               BlockFigures& figures, Write& write) {
    char* bytes = worker.in.get<char>(t.numel());
    read_tile(job.in, 1, grid, t, bytes);
    write_tile(write, job.out, 1, grid, t, bytes, figures);
    return t.numel();
  }

  template <class Write>
  int64_t convert_plain_tile(Worker& worker, const Job& job, const Grid& grid, const Tile& t,
                             BlockFigures& figures, Write& write) {
    const StDType from = entry(job.in).dtype;
    const StDType to = entry(job.out).dtype;
    char* in = worker.in.get<char>(t.numel() * width(from));
    char* out = worker.out.get<char>(t.numel() * width(to));
    read_tile(job.in, width(from), grid, t, in);
    convert_plain(from, in, to, out, t.numel());
    write_tile(write, job.out, width(to), grid, t, out, figures);
    const NonFinite before = count_non_finite(from, in, t.numel());
    const NonFinite after = count_non_finite(to, out, t.numel());
    figures.num_nan = after.num_nan;
    figures.num_saturated = after.num_inf - before.num_inf;
    if (measures(job)) {
      float* wide = worker.after.get<float>(t.numel());
      convert_plain(to, out, StDType::kF32, wide, t.numel());
      measure_error(from, in, wide, t.numel(), &figures);
    }
    return t.numel() * width(from);
  }

  template <class Write>
  int64_t quantize(Worker& worker, const Job& job, const Grid& grid, const Tile& t,
                   BlockFigures& figures, Write& write) {
    const StDType from = entry(job.in).dtype;
    char* in = worker.in.get<char>(t.numel() * width(from));
    uint8_t* codes = worker.out.get<uint8_t>(t.numel());
    const Tile s = scale_tile(t, job.block);
    float* sf = worker.sf.get<float>(s.numel());
    read_tile(job.in, width(from), grid, t, in);

    CastOptions options;
    options.amax_clamp = plan_.scheme->amax_clamp;
    const QuantView quantized{{codes, TensorSpec({t.rows, t.cols}, DType::kE4M3)},
                              {sf, TensorSpec({s.rows, s.cols}, DType::kF32)}};
    per_block_cast_out(quantized, {in, TensorSpec({t.rows, t.cols}, op_dtype(from))}, DType::kE4M3,
                       job.block, options);
    write_tile(write, job.out, 1, grid, t, codes, figures);
    write_tile(write, job.out_sf, 4, scale_grid(grid, job.block), s, sf, figures);

    figures.num_bad_blocks = count_non_finite(StDType::kF32, sf, s.numel()).num_nan;
    if (figures.num_bad_blocks > 0) {
      ValueCounts counts;
      count_values(StDType::kF8E4M3, codes, t.numel(), &counts);
      figures.num_nan = counts.num_nan;
    }
    if (measures(job)) {
      float* after = worker.after.get<float>(t.numel());
      cast_back_out({after, TensorSpec({t.rows, t.cols}, DType::kF32)}, quantized, {job.block});
      measure_error(from, in, after, t.numel(), &figures);
    }
    return t.numel() * width(from);
  }

  // The scales of a tile, widened to f32. Shares of it that a cut block repeats are counted once.
  float* read_scales(Worker& worker, const Job& job, const Grid& grid, const Tile& t,
                     BlockFigures& figures) {
    const Tile s = scale_tile(t, job.block);
    const StDType from = entry(job.scale).dtype;
    float* sf = worker.sf.get<float>(s.numel());
    if (from == StDType::kF32) {
      read_tile(job.scale, 4, scale_grid(grid, job.block), s, sf);
    } else {
      char* raw = worker.sf_raw.get<char>(s.numel() * width(from));
      read_tile(job.scale, width(from), scale_grid(grid, job.block), s, raw);
      widen_scales(from, raw, s.numel(), sf);
    }
    if (t.row % job.block.rows == 0) {
      const NonFinite bad = count_non_finite(StDType::kF32, sf, s.numel());
      figures.num_bad_blocks = bad.num_nan + bad.num_inf;
    }
    return sf;
  }

  static void widen_scales(StDType from, const char* raw, int64_t count, float* sf) {
    if (from == StDType::kF8E8M0) {
      for (int64_t i = 0; i < count; ++i) {
        sf[i] = numerics::ue8m0_to_f32(static_cast<uint8_t>(raw[i]));
      }
    } else {
      convert_plain(from, raw, StDType::kF32, sf, count);
    }
  }

  // How many numbers of a tile became Inf though their scale is finite.
  static int64_t clipped(StDType to, const char* out, const Tile& t, BlockSize block,
                         const float* sf) {
    const int64_t sf_cols = scale_tile(t, block).cols;
    int64_t count = 0;
    for (int64_t i = 0; i < t.numel(); ++i) {
      const int64_t row = (t.row % block.rows + i / t.cols) / block.rows;
      if (!std::isfinite(sf[row * sf_cols + i % t.cols / block.cols])) continue;
      count += count_non_finite(to, out + i * width(to), 1).num_inf;
    }
    return count;
  }

  template <class Write>
  int64_t cast_back_tile(Worker& worker, const Job& job, const Grid& grid, const Tile& t,
                         BlockFigures& figures, Write& write) {
    const StDType to = entry(job.out).dtype;
    uint8_t* codes = worker.in.get<uint8_t>(t.numel());
    char* out = worker.out.get<char>(t.numel() * width(to));
    read_tile(job.in, 1, grid, t, codes);
    // Without a scale the tensor is one block of scale 1.
    SfSource x_sf{{1, 1}};
    TensorView sf;
    static const float kOne = 1.0f;
    if (job.scale.found()) {
      x_sf.block = job.block;
      const Tile s = scale_tile(t, job.block);
      sf = {read_scales(worker, job, grid, t, figures), TensorSpec({s.rows, s.cols}, DType::kF32)};
    } else {
      x_sf.block = {1, static_cast<int>(t.cols)};
      sf = {const_cast<float*>(&kOne), TensorSpec({1, 1}, DType::kF32)};
    }
    const QuantView x{{codes, TensorSpec({t.rows, t.cols}, DType::kE4M3)}, sf};
    cast_back_out({out, TensorSpec({t.rows, t.cols}, op_dtype(to))}, x, x_sf);
    write_tile(write, job.out, width(to), grid, t, out, figures);
    const NonFinite after = count_non_finite(to, out, t.numel());
    figures.num_nan = after.num_nan;
    figures.num_saturated =
        after.num_inf == 0 || !job.scale.found()
            ? after.num_inf
            : clipped(to, out, t, job.block, static_cast<const float*>(sf.data));
    if (measures(job)) {
      float* exact = worker.exact.get<float>(t.numel());
      float* wide = worker.after.get<float>(t.numel());
      cast_back_out({exact, TensorSpec({t.rows, t.cols}, DType::kF32)}, x, x_sf);
      convert_plain(to, out, StDType::kF32, wide, t.numel());
      measure_error(StDType::kF32, exact, wide, t.numel(), &figures);
    }
    return t.numel();
  }

  template <class Write>
  int64_t rescale(Worker& worker, const Job& job, const Grid& grid, const Tile& t,
                  BlockFigures& figures, Write& write) {
    float* sf = worker.out.get<float>(t.numel());
    int64_t read_bytes = 0;
    if (job.in.found()) {
      const StDType from = entry(job.in).dtype;
      char* raw = worker.in.get<char>(t.numel() * width(from));
      read_tile(job.in, width(from), grid, t, raw);
      if (from == StDType::kF32) {
        std::memcpy(sf, raw, static_cast<size_t>(t.numel()) * 4);
      } else {
        widen_scales(from, raw, t.numel(), sf);
      }
      read_bytes = t.numel() * width(from);
    } else {
      std::fill_n(sf, t.numel(), 1.0f);
    }
    write_tile(write, job.out, 4, grid, t, sf, figures);
    figures.num_nan = count_non_finite(StDType::kF32, sf, t.numel()).num_nan;
    return read_bytes;
  }

  const Source& source_;
  const ShardPlan& plan_;
  std::vector<Grid> grids_;
  std::vector<int64_t> first_tile_;
  std::vector<BlockFigures> figures_;
  std::map<int, io::File> files_;
};

}  // namespace

uint64_t convert_shard(const Source& source, const ShardPlan& plan,
                       const io::SafetensorsWriter& writer, std::vector<TensorReport>* reports,
                       Progress* progress, std::atomic<bool>& stop) {
  ShardRun run(source, plan);
  const auto write = [&](size_t out, int64_t offset, const void* from, int64_t count) {
    writer.write(out, offset, from, count);
  };
  run.for_each_tile(progress, stop,
                    [&](Worker& worker, size_t job, int64_t tile, BlockFigures& figures) {
                      const int64_t read_bytes = run.convert(worker, job, tile, figures, write);
                      if (progress != nullptr) progress->advance(read_bytes);
                    });
  for (size_t j = 0; j < plan.jobs.size(); ++j) {
    const BlockFigures sum = run.job_figures(j);
    TensorReport& report = (*reports)[plan.jobs[j].report];
    report.num_saturated = sum.num_saturated;
    report.num_nan = sum.num_nan;
    report.num_bad_blocks = sum.num_bad_blocks;
    if (run.measures(plan.jobs[j])) {
      report.error = ErrorFigures{
          sum.max_abs,
          sum.sum_squares > 0 ? std::sqrt(sum.sum_error_squares / sum.sum_squares) : 0};
    }
  }
  return run.digest();
}

uint64_t digest_shard(const Source& source, const ShardPlan& plan, const io::File& file,
                      Progress* progress) {
  ShardRun run(source, plan);
  std::atomic<bool> stop{false};
  run.for_each_tile(progress, stop,
                    [&](Worker& worker, size_t job, int64_t tile, BlockFigures& figures) {
                      run.digest_tile(worker, job, tile, file, figures);
                    });
  return run.digest();
}

int64_t input_bytes(const Source& source, const ShardPlan& plan) {
  int64_t bytes = 0;
  for (const Job& job : plan.jobs) {
    if (job.in.found()) bytes += source.tensor(job.in).bytes();
  }
  return bytes;
}

}  // namespace tilekernels::checkpoint
