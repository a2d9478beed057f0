#include "kernels/matmul/cpu.h"

#include <algorithm>

#include "base/arithmetic.h"
#include "base/check.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/product_grid.h"
#include "kernels/matmul/bf16_amx.h"
#include "kernels/matmul/op.h"
#include "kernels/packing/packing.h"
#include "kernels/packing/quantized_packing.h"

namespace bulkhead {
namespace {

void CheckShapes(ConstMatrixView x, const LinearShape& shape, MatrixView out) {
  BH_CHECK(x.cols() == shape.cols && out.cols() == shape.rows && x.rows() == out.rows());
  BH_CHECK(shape.k_borders.size() >= 2 && shape.k_borders.size() <= kMaxSlices + 1);
  const size_t num_slices = shape.k_borders.size() - 1;
  BH_CHECK((num_slices & (num_slices - 1)) == 0);
  BH_CHECK(shape.k_borders.front() == 0 && shape.k_borders.back() == shape.cols);
  BH_CHECK(std::is_sorted(shape.k_borders.begin(), shape.k_borders.end()));
}

void MatMulInInt8(ThreadPool& pool, Isa isa, const CpuMatMulScratch& scratch, ConstMatrixView x,
                  const Linear& weight, const ProductOutput& output) {
  const LinearShape& shape = weight.shape;
  const int64_t rows = x.rows();
  BH_CHECK(scratch.inputs.codes != nullptr && rows <= scratch.max_rows &&
           shape.cols <= scratch.max_inputs);
  const QuantizedPanels panels = QuantizedPanelsOf(weight);
  QuantizedInputs inputs = scratch.InputsFor(panels);
  inputs.by_row = HasAmx(isa) && rows >= kMinAmxRows;
  const int64_t tiles =
      CeilDiv(rows, inputs.by_row ? kAmxTileRows : BH_OF_ISA_OR_VNNI(isa, kInt8MaxTileRows));
  const auto quantize = BH_OF_ISA_OR_VNNI(isa, QuantizeCell);
  pool.ParallelForWork(tiles * inputs.cells, rows * shape.cols,
                       [&](int, int64_t begin, int64_t end) {
                         for (int64_t i = begin; i < end; ++i) {
                           quantize(panels, {x.F32(), x.row_stride(), nullptr},
                                    InputTileOf(rows, tiles, i / inputs.cells),
                                    static_cast<int>(i % inputs.cells), inputs);
                         }
                       });
  const Int8Product product = Int8ProductOf(weight, panels, inputs, rows, tiles, output.out);
  const auto multiply = BH_OF_ISA_OR_VNNI(isa, MultiplyInt8);
  const auto multiply_in_tiles = BH_OF_AMX(isa, MultiplyInt8InTiles);
  static_assert(kAmxGroupFloats <= kGroupRows * kMinScratchFloatsPerRow &&
                kAmxScratchFloatsPerRow <= kMinScratchFloatsPerRow);
  const int64_t chunk_rows = inputs.by_row ? TileChunkRows(inputs.row_bytes) : kInt8ChunkRows;
  ForGrid(
      pool, isa, output, {rows, tiles, chunk_rows}, rows * shape.rows * shape.cols,
      [&](int thread, const GridPart& part) {
        Int8Product of_part = product;
        of_part.out = part.out;
        of_part.out_stride = part.out_stride;
        const Int8Part in_tiles{part.panel_begin, part.panel_end, part.unit_begin, part.unit_end};
        if (inputs.by_row) return multiply_in_tiles(of_part, in_tiles, scratch.Of(thread));
        multiply(of_part, in_tiles);
      });
}

// Any number of rows: all sums are paired as in tiles.
void MatMulInBf16Tiles(ThreadPool& pool, Isa isa, const CpuMatMulScratch& scratch,
                       const Product& product, int64_t rows, const ProductOutput& output) {
  BH_CHECK(rows <= scratch.max_rows && product.inputs <= scratch.max_tile_inputs);
  const auto round = BH_OF_AMX(isa, RoundRowToTiles);
  pool.ParallelForWork(rows, rows * product.inputs, [&](int, int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) round(product, row, scratch.bf16_tiles);
  });
  const auto multiply = BH_OF_AMX(isa, MultiplyBf16InTiles);
  static_assert(kBf16TileGroupFloats <= kGroupRows * kMinScratchFloatsPerRow &&
                kBf16TileScratchFloats <= 2 * kMinScratchFloatsPerRow);
  ForGrid(pool, isa, output,
          {rows, CeilDiv(rows, kBf16TileRows), TileChunkRows(product.inputs * 2), kBf16TileRows},
          rows * product.outputs * product.inputs, [&](int thread, const GridPart& part) {
            Product of_part = product;
            of_part.out = part.out;
            of_part.out_stride = part.out_stride;
            multiply(of_part, scratch.bf16_tiles,
                     {part.panel_begin, part.panel_end, part.unit_begin * kBf16TileRows,
                      std::min(part.unit_end * kBf16TileRows, rows), scratch.Of(thread)});
          });
}

// Fewer panels than threads: each (panel, slice) separately, then the slices of each output join.
void MultiplySlices(ThreadPool& pool, Isa isa, const CpuMatMulScratch& scratch,
                    const Product& product, int64_t rows, int64_t panels) {
  const int64_t num_slices = product.num_slices;
  const int64_t tile_floats = rows * kPanelColumns;
  // At most one tile of scratch per slice and thread, less than a thread's scratch for `rows` rows.
  static_assert(kMaxSlices * kPanelColumns <= kMinScratchFloatsPerRow);
  const auto multiply = BH_OF_ISA_OR_BF16(isa, MultiplySlice);
  pool.ParallelForWork(panels * num_slices, rows * product.outputs * product.inputs,
                       [&](int, int64_t begin, int64_t end) {
                         for (int64_t i = begin; i < end; ++i) {
                           const int64_t panel = i / num_slices;
                           multiply(product, {panel, panel + 1, 0, rows, nullptr},
                                    static_cast<int>(i % num_slices),
                                    scratch.floats + i * tile_floats);
                         }
                       });
  const DefaultFloatMode mode;
  for (int64_t n = 0; n < product.outputs; ++n) {
    float* sums = scratch.floats + n / kPanelColumns * num_slices * tile_floats + n % kPanelColumns;
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

}  // namespace

Product ProductOf(ConstMatrixView x, const Linear& weight, MatrixView out,
                  QuantizedPanels& panels) {
  const LinearShape& shape = weight.shape;
  const bool is_quantized = IsQuantized(shape.format);
  if (is_quantized) panels = QuantizedPanelsOf(weight);
  return {.x = x.F32(),
          .x_stride = x.row_stride(),
          .x_rows = nullptr,
          .weight = weight.packed,
          .format = PanelFormatOf(shape.format),
          .in_bf16 = false,
          .outputs = shape.rows,
          .inputs = shape.cols,
          .k_borders = shape.k_borders.data(),
          .num_slices = shape.num_slices(),
          .out = out.F32(),
          .out_stride = out.row_stride(),
          .quantized = is_quantized ? &panels : nullptr};
}

Int8Product Int8ProductOf(const Linear& weight, const QuantizedPanels& panels,
                          const QuantizedInputs& x, int64_t rows, int64_t tiles, MatrixView out) {
  return {.weight = &panels,
          .format = PanelFormatOf(weight.shape.format),
          .x = x,
          .rows = rows,
          .tiles = tiles,
          .outputs = weight.shape.rows,
          .k_borders = weight.shape.k_borders.data(),
          .num_slices = weight.shape.num_slices(),
          .out = out.F32(),
          .out_stride = out.row_stride()};
}

namespace {

// Rows of a block of SumExperts: its pairs, and its tokens for the shared expert.
int64_t ExpertSumRows(const StepLimits& limits) {
  if (limits.experts_per_token == 0) return 0;
  const auto tokens = std::min<int64_t>(limits.max_num_batched_tokens, kExpertSumTokens);
  return tokens * (limits.experts_per_token + 1);
}

// The rows of bf16_tiles for products of experts: each expert begins with a new tile, and so does
// the shared one of a block of SumExperts.
int64_t ExpertTileRows(const StepLimits& limits) {
  if (limits.experts_per_token == 0) return 0;
  const int64_t tokens = limits.max_num_batched_tokens;
  return tokens * limits.experts_per_token + limits.num_experts * kBf16TileRows +
         std::min(tokens, kExpertSumTokens);
}

}  // namespace

CpuMatMulScratch::CpuMatMulScratch(const StepLimits& limits, BumpAllocator& allocator)
    : thread_floats(std::min<int64_t>(limits.max_num_batched_tokens, kGroupRows) *
                    ScratchFloatsPerRow(limits.max_inputs)),
      max_rows(limits.max_num_batched_tokens),
      max_inputs(limits.max_int8_inputs),
      max_expert_inputs(limits.max_expert_inputs) {
  if (limits.experts_per_token > 0) {
    thread_floats =
        std::max({thread_floats, kExpertSumFloats,
                  kMaxFewRowsOfAnyIsa * (limits.bf16_inputs ? PairFloats(limits.max_expert_inputs)
                                                            : limits.max_expert_inputs)});
  }
  if (limits.bf16_tiles) thread_floats = std::max(thread_floats, kBf16TileScratchFloats);
  floats = reinterpret_cast<float*>(
      allocator.Next(kMaxThreads * thread_floats * int64_t{sizeof(float)}));
  if (limits.bf16_inputs) {
    max_bf16_rows = ExpertSumRows(limits);
    const int64_t numbers = std::max(kMaxFewRowsOfAnyIsa * PairFloats(limits.max_inputs),
                                     max_bf16_rows * PairFloats(limits.max_expert_inputs));
    bf16_rows = reinterpret_cast<float*>(allocator.Next(numbers * int64_t{sizeof(float)}));
  }
  if (limits.bf16_tiles) {
    max_tile_inputs = limits.max_inputs;
    const int64_t numbers = std::max(Bf16TileInputsOf(max_rows, limits.max_inputs),
                                     Bf16TileInputsOf(ExpertTileRows(limits), max_expert_inputs));
    bf16_tiles = reinterpret_cast<uint16_t*>(allocator.Next(numbers * int64_t{sizeof(uint16_t)}));
  }
  if (max_inputs == 0) return;
  const int64_t rows = limits.max_num_batched_tokens;
  // A step's tokens, or all pairs of a token and an expert plus the shared expert's tokens.
  const int64_t expert_rows =
      limits.experts_per_token > 0 ? rows * (limits.experts_per_token + 1) : 0;
  const int64_t expert_inputs = limits.max_expert_inputs;
  const int64_t bytes = std::max(rows * MaxInputBytes(max_inputs, limits.min_group),
                                 expert_rows * MaxInputBytes(expert_inputs, limits.min_group));
  const int64_t cells = std::max(rows * MaxCells(max_inputs, limits.min_group),
                                 expert_rows * MaxCells(expert_inputs, limits.min_group));
  inputs.codes = reinterpret_cast<int8_t*>(allocator.Next(bytes));
  inputs.scales = reinterpret_cast<float*>(allocator.Next(cells * 4));
  inputs.sums = reinterpret_cast<int32_t*>(allocator.Next(cells * 4));
}

QuantizedInputs CpuMatMulScratch::InputsFor(const QuantizedPanels& panels) const {
  QuantizedInputs of_panels = inputs;
  of_panels.row_bytes = panels.x_bytes;
  of_panels.cells = panels.num_cells;
  return of_panels;
}

// Earlier pairs fill at most first / kBf16TileRows tiles, plus a last one per expert.
uint16_t* CpuMatMulScratch::ExpertTiles(int expert, int64_t first) const {
  const int64_t tile = first / kBf16TileRows + expert;
  return bf16_tiles + Bf16TileInputsOf(tile * kBf16TileRows, max_expert_inputs);
}

bool InBf16Pairs(ActivationDType activation, const LinearShape& shape) {
  return activation == ActivationDType::kBf16 && shape.format == WeightFormat::kBF16;
}

bool InBf16Tiles(ActivationDType activation, const LinearShape& shape) {
  return activation == ActivationDType::kBf16Amx && shape.format == WeightFormat::kBF16;
}

bool InInt8(ActivationDType activation, const LinearShape& shape) {
  return activation == ActivationDType::kInt8 && HasIntegerCodes(shape.format) &&
         shape.groups.indexed == 0;
}

void CpuBackend::MatMul(ConstMatrixView x, const Linear& weight, MatrixView out) {
  if (!x.empty() && !out.empty()) Multiply(x, weight, {out});
}

void CpuBackend::MatMulGated(Activation activation, ConstMatrixView x, const Linear& weight,
                             MatrixView gate_up, MatrixView out) {
  const bool in_int8_or_tiles =
      InInt8(activation_, weight.shape) || InBf16Tiles(activation_, weight.shape);
  if (x.empty() || !in_int8_or_tiles || !InGatedChunks(x.rows(), out)) {
    return Backend::MatMulGated(activation, x, weight, gate_up, out);
  }
  BH_CHECK(gate_up.cols() == 2 * out.cols() && gate_up.rows() == out.rows());
  Multiply(x, weight, {gate_up, out, activation});
}

void CpuBackend::Multiply(ConstMatrixView x, const Linear& weight, const ProductOutput& output) {
  const MatrixView out = output.out;
  const LinearShape& shape = weight.shape;
  CheckShapes(x, shape, out);
  if (InInt8(activation_, shape)) {
    return MatMulInInt8(*pool_, isa_, mat_mul_scratch_, x, weight, output);
  }
  const int num_slices = shape.num_slices();
  QuantizedPanels quantized_panels{};
  Product product = ProductOf(x, weight, out, quantized_panels);
  product.in_bf16 = InBf16Pairs(activation_, shape);
  const int64_t rows = x.rows();
  if (InBf16Tiles(activation_, shape)) {
    return MatMulInBf16Tiles(*pool_, isa_, mat_mul_scratch_, product, rows, output);
  }
  const int64_t panels = CeilDiv(shape.rows, kPanelColumns);
  const int64_t work = rows * shape.rows * shape.cols;
  const bool few = rows <= BH_OF_ISA_OR_BF16(isa_, kMaxFewRows);
  if (few && product.in_bf16) {
    BH_CHECK(mat_mul_scratch_.bf16_rows != nullptr);
    BH_OF_ISA_OR_BF16(isa_, RoundRows)(product, rows, mat_mul_scratch_.bf16_rows);
    product.x = mat_mul_scratch_.bf16_rows;
    product.x_stride = PairFloats(shape.cols);
  }
  if (few && (panels >= pool_->num_threads() || num_slices == 1)) {
    const auto multiply = BH_OF_ISA_OR_BF16(isa_, MultiplyFew);
    return pool_->ParallelForWork(panels, work, [&](int, int64_t begin, int64_t end) {
      multiply(product, {begin, end, 0, rows, nullptr});
    });
  }
  BH_CHECK(mat_mul_scratch_.floats != nullptr && rows <= mat_mul_scratch_.max_rows);
  if (few) return MultiplySlices(*pool_, isa_, mat_mul_scratch_, product, rows, panels);
  const auto multiply = BH_OF_ISA_OR_BF16(isa_, MultiplyMany);
  ForGrid(*pool_, isa_, output, {rows, rows}, work, [&](int thread, const GridPart& part) {
    Product of_part = product;
    of_part.out = part.out;
    of_part.out_stride = part.out_stride;
    multiply(of_part, {part.panel_begin, part.panel_end, part.unit_begin, part.unit_end,
                       mat_mul_scratch_.Of(thread), mat_mul_scratch_.thread_floats});
  });
}

}  // namespace bulkhead
