#include <algorithm>

#include "base/check.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/launch.h"
#include "kernels/matmul/cuda.h"
#include "kernels/matmul/linear_blocks.h"
#include "kernels/matmul_heads/cuda_kernels.h"

namespace bulkhead {
namespace {

constexpr int kMaxTokenTiles = 4;

using cuda::NumBlocks;

// Whether x already is the output of GatherHeadsKernel.
bool AreInputs(ConstMatrixView x, int64_t x_step, const cuda::HeadProductParameters& p, bool f16) {
  return x.dtype() == (f16 ? DType::kF16 : DType::kBF16) && p.weight.input_at == nullptr &&
         p.weight.inputs == p.weight.depth && x_step == p.weight.depth &&
         x.row_stride() == p.heads * x_step && reinterpret_cast<uintptr_t>(x.data()) % 16 == 0;
}

void Multiply(CudaDriver& driver, WeightFormat format, cuda::HeadProductParameters p) {
  if (p.tokens > kMaxFewTokens) {
    return Enqueue(driver, cuda::HeadGemmKernel(format),
                   {.grid = {NumBlocks(p.weight.rows, cuda::kGemmTile),
                             NumBlocks(p.tokens, cuda::kGemmTile), p.heads},
                    .block = {cuda::kGemmThreads, 1, 1},
                    .shared_bytes = cuda::kGemmSharedBytes},
                   p);
  }
  int token_tiles = 1;
  while (token_tiles < kMaxTokenTiles && token_tiles * 8 < p.tokens) token_tiles *= 2;
  const cuda::LinearBlocks blocks = cuda::LinearBlocksOf(
      format, cuda::kRowsOfMany, p.weight.depth, token_tiles, driver.properties().max_shared_bytes);
  p.parts = blocks.parts;
  Enqueue(driver, cuda::HeadLinearKernel(format, token_tiles),
          {.grid = {NumBlocks(p.weight.rows, cuda::LinearRows(format)),
                    NumBlocks(p.tokens, token_tiles * 8), p.heads},
           .block = {blocks.threads, 1, 1},
           .shared_bytes = blocks.shared_bytes},
          p);
}

}  // namespace

void CudaBackend::MatMulHeads(ConstMatrixView x, int64_t x_step, absl::Span<const Linear> heads,
                              MatrixView out, int64_t out_step) {
  if (heads.empty() || x.empty() || out.empty()) return;
  const LinearShape& shape = heads[0].shape;
  const auto num_heads = static_cast<int64_t>(heads.size());
  BH_CHECK(x.rows() == out.rows() && shape.format != WeightFormat::kF32);
  BH_CHECK(shape.groups.indexed == 0);  // heads have no index of inputs
  BH_CHECK(shape.cols <= x_step && (num_heads - 1) * x_step + shape.cols <= x.cols());
  BH_CHECK(shape.rows <= out_step && (num_heads - 1) * out_step + shape.rows <= out.cols());
  const int64_t head_bytes = num_heads > 1 ? heads[1].packed - heads[0].packed : 0;
  for (int64_t i = 1; i < num_heads; ++i) {
    BH_CHECK(heads[i].packed == heads[0].packed + i * head_bytes);
    BH_CHECK(heads[i].shape.format == shape.format && heads[i].shape.rows == shape.rows);
  }
  BH_CHECK(head_bytes % 16 == 0);
  const bool f16 = shape.format == WeightFormat::kF16;
  cuda::HeadProductParameters p;
  p.weight = PackedLayout(shape).Parameters(shape, heads[0].packed);
  p.head_bytes = head_bytes;
  p.out_step = out_step;
  p.tokens = static_cast<int>(x.rows());
  p.heads = static_cast<int>(num_heads);
  p.out = cuda::OutRowsOf(out);
  if (AreInputs(x, x_step, p, f16)) {
    p.x = reinterpret_cast<const uint16_t*>(x.data());
    return Multiply(driver_, shape.format, p);
  }
  // As many heads, then rows, as fit the scratch.
  const CudaProducts::InputScratch scratch = products_->input_scratch();
  const int64_t heads_at_once = std::min(num_heads, scratch.count / p.weight.depth);
  BH_CHECK(heads_at_once > 0);
  const int64_t rows_at_once = scratch.count / (heads_at_once * p.weight.depth);
  const unsigned char* const numbers = p.weight.numbers;
  const uint32_t* const scaling = p.weight.scaling;
  p.x = scratch.inputs;
  for (int64_t head = 0; head < num_heads; head += heads_at_once) {
    p.heads = static_cast<int>(std::min(heads_at_once, num_heads - head));
    p.weight.numbers = numbers + head * head_bytes;
    if (scaling != nullptr) p.weight.scaling = scaling + head * head_bytes / 4;
    for (int64_t row = 0; row < x.rows(); row += rows_at_once) {
      const int64_t rows = std::min(rows_at_once, x.rows() - row);
      const ConstMatrixView from =
          x.Rows(row, rows).Cols(head * x_step, (p.heads - 1) * x_step + shape.cols);
      Enqueue(driver_, cuda::GatherHeadsKernel(f16),
              cuda::OneWarpPerHead(static_cast<int>(rows), p.heads),
              {.x = from.data(),
               .x_stride = from.row_stride(),
               .numbers = cuda::NumbersOf(from.dtype()),
               .x_step = x_step,
               .input_at = p.weight.input_at,
               .heads = p.heads,
               .inputs = p.weight.inputs,
               .depth = p.weight.depth,
               .out = scratch.inputs});
      p.tokens = static_cast<int>(rows);
      p.out =
          cuda::OutRowsOf(out.Rows(row, rows).Cols(head * out_step, out.cols() - head * out_step));
      Multiply(driver_, shape.format, p);
    }
  }
}

}  // namespace bulkhead
