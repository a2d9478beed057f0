#include "kernels/cpu/product_ops.h"

#include <algorithm>

#include "base/arithmetic.h"
#include "base/check.h"
#include "kernels/cpu/packing.h"
#include "kernels/cpu/quantized_packing.h"

namespace bulkhead {
namespace {

int64_t ScratchFloats(const StepLimits& limits) {
  return std::min<int64_t>(limits.max_num_batched_tokens, kGroupRows) * kScratchFloatsPerRow;
}

void CheckShapes(ConstMatrixView x, const LinearShape& shape, MatrixView out) {
  BH_CHECK(x.cols() == shape.cols && out.cols() == shape.rows && x.rows() == out.rows());
  BH_CHECK(shape.k_borders.size() >= 2 && shape.k_borders.size() <= kMaxSlices + 1);
  const size_t num_slices = shape.k_borders.size() - 1;
  BH_CHECK((num_slices & (num_slices - 1)) == 0);
  BH_CHECK(shape.k_borders.front() == 0 && shape.k_borders.back() == shape.cols);
  BH_CHECK(std::is_sorted(shape.k_borders.begin(), shape.k_borders.end()));
}

// How threads share a product of many rows: the grid whose largest part is smallest, the one with
// the most cuts along the panels if several are.
struct Grid {
  int64_t panel_parts = 1;
  int64_t row_parts = 1;
};

Grid GridFor(int64_t panels, int64_t rows, int num_threads) {
  Grid best;
  int64_t least = panels * rows;
  for (int64_t panel_parts = std::min<int64_t>(num_threads, panels); panel_parts >= 1;
       --panel_parts) {
    const int64_t row_parts = std::min(num_threads / panel_parts, rows);
    const int64_t largest = CeilDiv(panels, panel_parts) * CeilDiv(rows, row_parts);
    if (largest >= least) continue;
    least = largest;
    best = {panel_parts, row_parts};
  }
  return best;
}

}  // namespace

const ProductKernels& ProductKernelsOf(Isa isa) {
  if (isa >= Isa::kAvx512) return avx512::kProductKernels;
  return isa == Isa::kAvx2 ? avx2::kProductKernels : plain::kProductKernels;
}

const ConvertKernels& ConvertKernelsOf(Isa isa) {
  if (isa >= Isa::kAvx512) return avx512::kConvertKernels;
  return isa == Isa::kAvx2 ? avx2::kConvertKernels : plain::kConvertKernels;
}

const PackingKernels& PackingKernelsOf(Isa isa) {
  if (isa >= Isa::kAvx512) return avx512::kPackingKernels;
  return isa == Isa::kAvx2 ? avx2::kPackingKernels : plain::kPackingKernels;
}

const Int8Kernels& Int8KernelsOf(Isa isa) {
  if (isa == Isa::kAvx512Vnni) return avx512vnni::kInt8Kernels;
  if (isa == Isa::kAvx512) return avx512::kInt8Kernels;
  return isa == Isa::kAvx2 ? avx2::kInt8Kernels : plain::kInt8Kernels;
}

int64_t ProductOps::WorkspaceBytes(const StepLimits& limits) const {
  BumpAllocator allocator;
  allocator.Next(kMaxThreads * ScratchFloats(limits) * static_cast<int64_t>(sizeof(float)));
  LayOutInputs(limits, allocator);
  return allocator.used_bytes();
}

QuantizedInputs ProductOps::LayOutInputs(const StepLimits& limits, BumpAllocator& allocator) const {
  QuantizedInputs inputs{};
  if (limits.max_int8_inputs == 0) return inputs;
  const int64_t rows = limits.max_num_batched_tokens;
  inputs.row_bytes = MostInputBytes(limits.max_int8_inputs);
  inputs.cells = MostCells(limits.max_int8_inputs);
  inputs.codes = reinterpret_cast<int8_t*>(allocator.Next(rows * inputs.row_bytes));
  inputs.scales = reinterpret_cast<float*>(allocator.Next(rows * inputs.cells * 4));
  inputs.sums = reinterpret_cast<int32_t*>(allocator.Next(rows * inputs.cells * 4));
  return inputs;
}

void ProductOps::SetWorkspace(std::byte* workspace, const StepLimits& limits) {
  BumpAllocator allocator(workspace);
  scratch_floats_ = ScratchFloats(limits);
  workspace_ = reinterpret_cast<float*>(
      allocator.Next(kMaxThreads * scratch_floats_ * static_cast<int64_t>(sizeof(float))));
  inputs_ = LayOutInputs(limits, allocator);
  max_inputs_ = limits.max_int8_inputs;
  max_rows_ = limits.max_num_batched_tokens;
}

void ProductOps::Embed(const int32_t* tokens, const Linear& table, int64_t first_row,
                       MatrixView out) {
  if (out.empty()) return;
  BH_CHECK(out.cols() == table.shape.cols);
  pool_.ParallelForWork(out.rows(), out.rows() * out.cols(), [&](int, int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const int64_t row = tokens[t] - first_row;
      if (row >= 0 && row < table.shape.rows) {
        UnpackRow(table, row, out.F32(t));
      } else {
        std::fill_n(out.F32(t), out.cols(), 0.0f);
      }
    }
  });
}

void ProductOps::MatMul(ConstMatrixView x, const Linear& weight, MatrixView out) {
  if (x.empty() || out.empty()) return;
  const LinearShape& shape = weight.shape;
  CheckShapes(x, shape, out);
  if (IsInInt8(weight)) return MatMulInInt8(x, weight, out);
  const int num_slices = shape.num_slices();
  const bool quantized = IsQuantized(shape.format);
  const QuantizedPanels quantized_panels =
      quantized ? QuantizedPanelsOf(weight) : QuantizedPanels{};
  const Product product{x.F32(),
                        x.row_stride(),
                        weight.packed,
                        PanelFormatOf(shape.format),
                        shape.rows,
                        shape.cols,
                        shape.k_borders.data(),
                        num_slices,
                        out.F32(),
                        out.row_stride(),
                        quantized ? &quantized_panels : nullptr};
  const int64_t rows = x.rows();
  const int64_t panels = CeilDiv(shape.rows, kPanelColumns);
  if (rows > kernels_.few_rows) {
    MultiplyMany(product, rows, panels);
  } else if (panels < pool_.num_threads() && num_slices > 1) {
    MultiplySlices(product, rows, panels);
  } else {
    pool_.ParallelForWork(panels, rows * shape.rows * shape.cols,
                          [&](int, int64_t begin, int64_t end) {
                            kernels_.multiply_few(product, {begin, end, 0, rows, nullptr});
                          });
  }
}

bool ProductOps::IsInInt8(const Linear& weight) const {
  return activation_ == ActivationDType::kInt8 && IsQuantized(weight.shape.format) &&
         weight.shape.groups.indexed == 0;
}

void ProductOps::MatMulInInt8(ConstMatrixView x, const Linear& weight, MatrixView out) {
  const LinearShape& shape = weight.shape;
  const int64_t rows = x.rows();
  BH_CHECK(inputs_.codes != nullptr && rows <= max_rows_ && shape.cols <= max_inputs_);
  const QuantizedPanels panels = QuantizedPanelsOf(weight);
  QuantizedInputs inputs = inputs_;
  inputs.row_bytes = panels.x_bytes;
  inputs.cells = panels.num_cells;
  const int64_t tiles = CeilDiv(rows, int8_kernels_.tile_rows);
  pool_.ParallelForWork(tiles * inputs.cells, rows * shape.cols,
                        [&](int, int64_t begin, int64_t end) {
                          for (int64_t i = begin; i < end; ++i) {
                            int8_kernels_.quantize_cell(panels, x.F32(), x.row_stride(),
                                                        InputTileOf(rows, tiles, i / inputs.cells),
                                                        static_cast<int>(i % inputs.cells), inputs);
                          }
                        });
  const Int8Product product{&panels,
                            shape.format == WeightFormat::kInt4,
                            inputs,
                            rows,
                            tiles,
                            shape.rows,
                            shape.k_borders.data(),
                            shape.num_slices(),
                            out.F32(),
                            out.row_stride()};
  const int64_t num_panels = CeilDiv(shape.rows, kPanelColumns);
  const Grid grid = GridFor(num_panels, rows, pool_.num_threads());
  pool_.ParallelForWork(grid.panel_parts * grid.row_parts, rows * shape.rows * shape.cols,
                        [&](int, int64_t begin, int64_t end) {
                          for (int64_t i = begin; i < end; ++i) {
                            const int64_t p = i / grid.row_parts;
                            const int64_t r = i % grid.row_parts;
                            int8_kernels_.multiply(
                                product,
                                {ThreadPool::PartBegin(num_panels, p, grid.panel_parts),
                                 ThreadPool::PartBegin(num_panels, p + 1, grid.panel_parts),
                                 ThreadPool::PartBegin(tiles, r, grid.row_parts),
                                 ThreadPool::PartBegin(tiles, r + 1, grid.row_parts)});
                          }
                        });
}

void ProductOps::MultiplyMany(const Product& product, int64_t rows, int64_t panels) {
  BH_CHECK(workspace_ != nullptr && rows <= max_rows_);
  const Grid grid = GridFor(panels, rows, pool_.num_threads());
  const int64_t work = rows * product.outputs * product.inputs;
  pool_.ParallelForWork(
      grid.panel_parts * grid.row_parts, work, [&](int thread, int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          const int64_t p = i / grid.row_parts;
          const int64_t r = i % grid.row_parts;
          kernels_.multiply_many(
              product, {ThreadPool::PartBegin(panels, p, grid.panel_parts),
                        ThreadPool::PartBegin(panels, p + 1, grid.panel_parts),
                        ThreadPool::PartBegin(rows, r, grid.row_parts),
                        ThreadPool::PartBegin(rows, r + 1, grid.row_parts), ScratchOf(thread)});
        }
      });
}

// Fewer panels than threads: each (panel, slice) on its own, then the slices of each output join.
void ProductOps::MultiplySlices(const Product& product, int64_t rows, int64_t panels) {
  BH_CHECK(workspace_ != nullptr && rows <= max_rows_);
  const int64_t num_slices = product.num_slices;
  const int64_t tile_floats = rows * kPanelColumns;
  // At most one tile of scratch per slice and thread, fewer than a thread's scratch for `rows`
  // rows.
  static_assert(kMaxSlices * kPanelColumns <= kScratchFloatsPerRow);
  pool_.ParallelForWork(panels * num_slices, rows * product.outputs * product.inputs,
                        [&](int, int64_t begin, int64_t end) {
                          for (int64_t i = begin; i < end; ++i) {
                            const int64_t panel = i / num_slices;
                            kernels_.multiply_slice(product, {panel, panel + 1, 0, rows, nullptr},
                                                    static_cast<int>(i % num_slices),
                                                    workspace_ + i * tile_floats);
                          }
                        });
  const DefaultFloatMode mode;
  for (int64_t n = 0; n < product.outputs; ++n) {
    float* sums = workspace_ + n / kPanelColumns * num_slices * tile_floats + n % kPanelColumns;
    for (int64_t row = 0; row < rows; ++row, sums += kPanelColumns) {
      for (int64_t width = 1; width < num_slices; width *= 2) {
        for (int64_t i = 0; i < num_slices; i += 2 * width) {
          sums[i * tile_floats] += sums[(i + width) * tile_floats];
        }
      }
      product.out[row * product.out_stride + n] = sums[0];
    }
  }
}

}  // namespace bulkhead
