#include "kernels/cuda/products.h"

#include <algorithm>

#include "kernels/cuda/launch_arguments.h"
#include "kernels/cuda/linear_layout.h"
#include "kernels/cuda/linear_packing.h"
#include "memory/check.h"

namespace bulkhead {
namespace {

constexpr int kMostTokenTiles = 4;
constexpr int kMostFewTokens = 64;  // beyond it weights are worth a way through shared memory

using cuda::CeilDiv;
using cuda::RowsOf;

}  // namespace

void CudaProducts::LayOut(const StepLimits& limits, Carver& carver) {
  // Cells that are no whole chunks need more: MatMul then takes fewer rows at a time, and one row
  // always fits.
  const int64_t depth = CeilDiv(limits.max_inputs, cuda::kDepthGranule) * cuda::kDepthGranule;
  inputs_count_ = std::max<int64_t>(limits.max_num_batched_tokens * depth, 0) +
                  limits.max_inputs * cuda::kChunkInputs;
  inputs_ = reinterpret_cast<uint16_t*>(carver.Next(inputs_count_ * 2));
}

void CudaProducts::MatMul(ConstMatrixView x, const Linear& weight, MatrixView out) {
  if (x.empty() || out.empty()) return;
  const PackedLayout layout(weight.shape);
  const cuda::PackedWeight packed = layout.Parameters(weight.shape, weight.packed);
  const int64_t rows_at_once = inputs_count_ / layout.depth();
  BH_CHECK(rows_at_once > 0);
  for (int64_t row = 0; row < x.rows(); row += rows_at_once) {
    const int64_t rows = std::min(rows_at_once, x.rows() - row);
    MultiplyRows(x.Rows(row, rows), weight.shape.format, packed, out.Rows(row, rows));
  }
}

void CudaProducts::MultiplyRows(ConstMatrixView x, WeightFormat format,
                                const cuda::PackedWeight& weight, MatrixView out) {
  const int tokens = static_cast<int>(x.rows());
  Enqueue(driver_, cuda::GatherInputsKernel(format == WeightFormat::kF16), cuda::OneBlockPerRow(x),
          {RowsOf(x), weight.input_at, weight.inputs, weight.depth, inputs_});
  if (tokens > kMostFewTokens) {
    const LaunchShape shape{
        .grid = {CeilDiv(weight.rows, cuda::kGemmTile), CeilDiv(tokens, cuda::kGemmTile), 1},
        .block = {cuda::kGemmThreads, 1, 1},
        .shared_bytes = cuda::kGemmSharedBytes};
    return Enqueue(driver_, cuda::GemmKernel(format), shape,
                   {inputs_, tokens, weight, RowsOf(out)});
  }
  int token_tiles = 1;
  while (token_tiles < kMostTokenTiles && token_tiles * 8 < tokens) token_tiles *= 2;
  const LaunchShape shape{
      .grid = {CeilDiv(weight.rows, cuda::kTileRows), CeilDiv(tokens, token_tiles * 8), 1},
      .block = {cuda::kLinearThreads, 1, 1},
      .shared_bytes = int64_t{cuda::kLinearThreads} * token_tiles * 4 * 4};
  Enqueue(driver_, cuda::LinearKernel(format, token_tiles), shape,
          {inputs_, tokens, weight, RowsOf(out)});
}

}  // namespace bulkhead
