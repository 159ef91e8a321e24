// How a tensor is cut into tiles that fit a worker's memory.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "io/file.h"
#include "tilekernels/quant.h"

namespace tilekernels::checkpoint {

/// Rows [row, row + rows) and columns [col, col + cols) of one matrix of a stack.
struct Tile {
  int64_t slab = 0;
  int64_t row = 0;
  int64_t rows = 0;
  int64_t col = 0;
  int64_t cols = 0;
  int64_t numel() const { return rows * cols; }
};

/// A stack of row-major matrices and its cut. Depends on shapes alone: the same on every machine.
struct Grid {
  int64_t slabs = 0;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t tile_rows = 1;
  int64_t tile_cols = 1;

  int64_t num_tiles() const {
    if (slabs == 0 || rows == 0 || cols == 0) return 0;
    return slabs * across(rows, tile_rows) * across(cols, tile_cols);
  }
  Tile tile(int64_t i) const {
    const int64_t num_col_tiles = across(cols, tile_cols);
    const int64_t num_row_tiles = across(rows, tile_rows);
    const int64_t col = i % num_col_tiles * tile_cols;
    const int64_t row = i / num_col_tiles % num_row_tiles * tile_rows;
    return {i / num_col_tiles / num_row_tiles, row, std::min(tile_rows, rows - row), col,
            std::min(tile_cols, cols - col)};
  }
  /// Calls act(offset in elements, offset in the tile, count) for every stretch of a tile that is
  /// contiguous in the tensor.
  template <class Act>
  void for_each_stretch(const Tile& t, Act&& act) const {
    const int64_t start = (t.slab * rows + t.row) * cols + t.col;
    if (t.cols == cols) return act(start, int64_t{0}, t.numel());
    for (int64_t r = 0; r < t.rows; ++r) act(start + r * cols, r * t.cols, t.cols);
  }

  static int64_t across(int64_t extent, int64_t step) {
    return extent / step + (extent % step != 0);
  }
};

/// `count` elements in a row, in tiles of at most `max_elements`.
inline Grid linear_grid(int64_t count, int64_t max_elements) {
  return {1, 1, count, 1, std::max<int64_t>(64, max_elements / 64 * 64)};
}

/// A weight in scaling blocks, in tiles of at most about `max_elements`: whole rows where possible.
/// A tile holds whole blocks, or (`may_cut_blocks`) whole rows of one row of blocks.
inline Grid block_grid(const std::vector<int64_t>& shape, BlockSize block, int64_t max_elements,
                       bool may_cut_blocks) {
  Grid grid;
  grid.slabs = 1;
  for (size_t i = 0; i + 2 < shape.size(); ++i) grid.slabs *= shape[i];
  grid.rows = shape[shape.size() - 2];
  grid.cols = shape.back();
  grid.tile_rows = block.rows;
  grid.tile_cols = std::max<int64_t>(1, grid.cols);
  if (may_cut_blocks) {
    while (grid.tile_rows % 2 == 0 && grid.tile_rows * grid.tile_cols > max_elements) {
      grid.tile_rows /= 2;
    }
  }
  if (grid.tile_rows * grid.tile_cols > max_elements) {
    const int64_t fitting = max_elements / grid.tile_rows / block.cols * block.cols;
    grid.tile_cols = std::min(grid.tile_cols, std::max<int64_t>(block.cols, fitting));
  } else if (grid.tile_rows == block.rows) {
    const int64_t blocks = max_elements / (grid.tile_rows * grid.tile_cols);
    grid.tile_rows *= std::max<int64_t>(1, std::min(blocks, Grid::across(grid.rows, block.rows)));
  }
  return grid;
}

/// The scales that a tile of codes needs, as a tile of the grid of scales.
inline Grid scale_grid(const Grid& codes, BlockSize block) {
  return {codes.slabs, Grid::across(codes.rows, block.rows), Grid::across(codes.cols, block.cols),
          1, 1};
}
inline Tile scale_tile(const Tile& t, BlockSize block) {
  const int64_t row = t.row / block.rows;
  const int64_t col = t.col / block.cols;
  return {t.slab, row, Grid::across(t.row + t.rows, block.rows) - row, col,
          Grid::across(t.col + t.cols, block.cols) - col};
}

}  // namespace tilekernels::checkpoint
