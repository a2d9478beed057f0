// How the CPU backend's threads split a product of many rows, and where its columns go.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/activation.h"
#include "base/arithmetic.h"
#include "kernels/activation/op.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/packing/quantized_layout.h"
#include "memory/matrix.h"

namespace bulkhead {

// How threads share a product of many rows: the grid whose largest part is smallest, the one with
// the most cuts along the panels if several are.
struct Grid {
  int64_t panel_parts = 1;
  int64_t row_parts = 1;
};

inline Grid GridFor(int64_t panels, int64_t rows, int num_threads) {
  Grid best;
  int64_t min_largest = panels * rows;
  for (int64_t panel_parts = std::min<int64_t>(num_threads, panels); panel_parts >= 1;
       --panel_parts) {
    const int64_t row_parts = std::min(num_threads / panel_parts, rows);
    const int64_t largest = CeilDiv(panels, panel_parts) * CeilDiv(rows, row_parts);
    if (largest >= min_largest) continue;
    min_largest = largest;
    best = {panel_parts, row_parts};
  }
  return best;
}

// Rows in units that a kernel takes whole.
struct RowUnits {
  int64_t rows;
  int64_t count;
  int64_t chunk_rows = 0;  // maximum of a chunk that is activated
  int64_t unit_rows = 0;   // except the last unit; 0: InputTileOf's

  int64_t RowOf(int64_t unit) const {
    return unit_rows > 0 ? std::min(unit * unit_rows, rows) : rows * unit / count;
  }
};

// The part that one kernel call computes, and the address that the product's first row and column
// would have.
struct GridPart {
  int64_t panel_begin;
  int64_t panel_end;
  int64_t unit_begin;
  int64_t unit_end;
  float* out;
  int64_t out_stride;
};

// Where a product's columns go: they stay in `out`; or, if there is a `gated`, chunks of them that
// fit in L2 are written to parts of out's memory, and gates are activated and multiplied by ups.
struct ProductOutput {
  MatrixView out;
  MatrixView gated = {};
  Activation activation = Activation::kSilu;
};

inline constexpr int64_t kMinGatedRows = 64;        // below, a thread's columns all fit in L2
inline constexpr int64_t kGatedFloats = 64 * 1024;  // per chunk

// Whether a product of `rows` rows is activated in chunks, if its inputs are in int8 or in tile
// registers: others are bound by computation, and would pack inputs for each chunk.
inline bool InGatedChunks(int64_t rows, MatrixView gated) {
  return rows >= kMinGatedRows && !gated.empty() && gated.cols() % kPanelColumns == 0;
}

// Computes a thread's part, chunk by chunk. A chunk's offset in output.out is the number of outputs
// of the parts before this one.
template <typename Multiply>
void MultiplyGatedPart(Isa isa, const ProductOutput& output, const RowUnits& units, int thread,
                       const GridPart& part, const Multiply& multiply) {
  const auto activate = BH_OF_ISA(isa, ActivateRow);
  const int64_t panels = output.gated.cols() / kPanelColumns;  // panels of gates
  const int64_t chunk_units = std::max<int64_t>(1, units.chunk_rows * units.count / units.rows);
  float* const chunk =
      output.out.F32() + 2 * kPanelColumns *
                             (part.panel_begin * units.rows +
                              units.RowOf(part.unit_begin) * (part.panel_end - part.panel_begin));
  for (int64_t unit = part.unit_begin; unit < part.unit_end; unit += chunk_units) {
    const int64_t unit_end = std::min(unit + chunk_units, part.unit_end);
    const int64_t row = units.RowOf(unit);
    const int64_t rows = units.RowOf(unit_end) - row;
    const int64_t step = std::max<int64_t>(1, kGatedFloats / (2 * kPanelColumns * rows));
    for (int64_t panel = part.panel_begin; panel < part.panel_end; panel += step) {
      const int64_t end = std::min(panel + step, part.panel_end);
      const int64_t columns = (end - panel) * kPanelColumns;
      const int64_t stride = 2 * columns;
      float* const gates = chunk - row * stride - panel * kPanelColumns;
      multiply(thread, GridPart{panel, end, unit, unit_end, gates, stride});
      multiply(thread, GridPart{panels + panel, panels + end, unit, unit_end,
                                gates + columns - panels * kPanelColumns, stride});
      for (int64_t r = 0; r < rows; ++r) {
        activate(output.activation, chunk + r * stride, chunk + r * stride + columns, columns,
                 output.gated.F32(row + r) + panel * kPanelColumns);
      }
    }
  }
}

// Rows of a chunk: for int8 products without tile registers; and with tile registers, whose inputs
// stay in L2 with the chunk.
inline constexpr int64_t kInt8ChunkRows = 96;
constexpr int64_t TileChunkRows(int64_t row_bytes) {
  constexpr int64_t kInputBytes = 1 << 20;
  return std::clamp<int64_t>(kInputBytes / row_bytes, 128, 512);
}

// multiply(thread, part) for all parts of a product of many rows.
template <typename Multiply>
void ForGrid(ThreadPool& pool, Isa isa, const ProductOutput& output, const RowUnits& units,
             int64_t cost, const Multiply& multiply) {
  const bool is_gated = !output.gated.empty();
  const int64_t panels = CeilDiv((is_gated ? output.gated : output.out).cols(), kPanelColumns);
  const Grid grid = GridFor(panels, units.count, pool.num_threads());
  pool.ParallelForWork(
      grid.panel_parts * grid.row_parts, cost, [&](int thread, int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          const int64_t p = i / grid.row_parts;
          const int64_t r = i % grid.row_parts;
          const GridPart part{ThreadPool::PartBegin(panels, p, grid.panel_parts),
                              ThreadPool::PartBegin(panels, p + 1, grid.panel_parts),
                              ThreadPool::PartBegin(units.count, r, grid.row_parts),
                              ThreadPool::PartBegin(units.count, r + 1, grid.row_parts),
                              output.out.F32(),
                              output.out.row_stride()};
          if (!is_gated) {
            multiply(thread, part);
          } else {
            MultiplyGatedPart(isa, output, units, thread, part, multiply);
          }
        }
      });
}

}  // namespace bulkhead
