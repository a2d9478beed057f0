#include "kernels/matmul/cuda.h"

#include <algorithm>
#include <bit>

#include "base/arithmetic.h"
#include "base/check.h"
#include "base/log.h"
#include "base/status.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/launch.h"
#include "kernels/matmul/gemm_parts.h"
#include "kernels/matmul/linear_blocks.h"
#include "kernels/matmul/warpgroup_blocks.h"

namespace bulkhead {
namespace {

constexpr int kMaxTokenTiles = 4;
constexpr int64_t kMinSteppedBucket = 64;  // powers of two up to here
constexpr int64_t kMinBucketStep = 128;
constexpr int64_t kBucketsPerOctave = 8;

using cuda::NumBlocks;
using cuda::RowsOf;

// Ours multiplies one token by plain weights: it reads weights before the previous kernel ends.
constexpr int64_t kMinPlainLibraryTokens = 2;

int64_t MinLibraryTokens(WeightFormat format) {
  return IsQuantized(format) ? kMinUnpackedTokens : kMinPlainLibraryTokens;
}

// The library computes a bucket of rows whatever the number of rows, so that a row's bits depend
// only on the bucket, and the warm-up covers every product that a step may need.
int64_t BucketOf(int64_t tokens, int64_t max_tokens) {
  if (tokens <= kMinSteppedBucket) {
    return std::min(static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(tokens))), max_tokens);
  }
  const auto octave = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(tokens)));
  const int64_t step = std::max(kMinBucketStep, octave / kBucketsPerOctave);
  return std::min(RoundUp(tokens, step), max_tokens);
}

}  // namespace

bool CudaProducts::AreInputs(ConstMatrixView x, const cuda::PackedWeight& weight) {
  return x.dtype() != DType::kF32 && weight.input_at == nullptr && x.cols() == weight.depth &&
         x.row_stride() == weight.depth && reinterpret_cast<uintptr_t>(x.data()) % 16 == 0;
}

int64_t CudaProducts::RowsAtOnce(const PackedLayout& layout) const {
  const int64_t rows = scratch_.inputs_count / layout.depth();
  BH_CHECK(rows > 0);
  return rows;
}

void CudaProducts::MatMul(ConstMatrixView x, const Linear& weight, MatrixView out) {
  if (x.empty() || out.empty()) return;
  const WeightFormat format = weight.shape.format;
  if (format == WeightFormat::kF32) return MultiplyInF32(x, weight, out);
  const PackedLayout layout(weight.shape);
  const cuda::PackedWeight packed = layout.Parameters(weight.shape, weight.packed);
  const int64_t rows_at_once = RowsAtOnce(layout);
  for (int64_t row = 0; row < x.rows(); row += rows_at_once) {
    const int64_t rows = std::min(rows_at_once, x.rows() - row);
    const MatrixView out_rows = out.Rows(row, rows);
    const ConstMatrixView x_rows = x.Rows(row, rows);
    if (const std::optional<Cut> cut = LibraryCut(weight, layout, row, out_rows)) {
      MultiplyByLibrary(*cut, format, LibraryInputs(*cut, x_rows, format, packed), packed,
                        out_rows);
    } else {
      const uint16_t* const inputs = Inputs(x_rows, format, packed);
      MultiplyByKernel(static_cast<int>(rows), format, inputs, packed, out_rows);
    }
  }
}

bool CudaProducts::MatMulInBf16(ConstMatrixView x, const Linear& weight, MatrixView out) {
  BH_CHECK(out.dtype() == DType::kBF16);
  if (x.empty() || out.empty()) return true;
  const PackedLayout layout(weight.shape);
  if (x.rows() > RowsAtOnce(layout)) return false;
  const std::optional<Cut> cut = LibraryCut(weight, layout, /*first=*/0, out);
  if (!cut.has_value()) return false;
  const cuda::PackedWeight packed = layout.Parameters(weight.shape, weight.packed);
  const WeightFormat format = weight.shape.format;
  MultiplyByLibrary(*cut, format, LibraryInputs(*cut, x, format, packed), packed, out);
  return true;
}

absl::Status CudaProducts::WarmUp(ConstMatrixView x, const Linear& weight, MatrixView out) {
  if (x.empty() || out.empty() || weight.shape.format == WeightFormat::kF32) {
    return absl::OkStatus();
  }
  BH_CHECK(x.rows() <= scratch_.max_tokens && out.rows() == x.rows());
  const PackedLayout layout(weight.shape);
  if (out.dtype() == DType::kF32) BH_RETURN_IF_ERROR(CheckWarpgroups(weight, layout, out));
  if (library_ == nullptr) return absl::OkStatus();
  warmed_up_rows_[{weight.packed, out.dtype()}] = x.rows();
  const WeightFormat format = weight.shape.format;
  const cuda::PackedWeight packed = layout.Parameters(weight.shape, weight.packed);
  const int64_t max_tokens = std::min(x.rows(), RowsAtOnce(layout));
  for (int64_t tokens = MinLibraryTokens(format); tokens <= max_tokens; ++tokens) {
    tokens = BucketOf(tokens, max_tokens);
    const Cut cut = CutOf(weight.shape, layout.depth(), tokens, out);
    if (!IsPrepared(cut) && Prepare(cut)) {
      const uint16_t* const inputs = Inputs(x.Rows(0, tokens), format, packed);
      MultiplyByLibrary(cut, format, inputs, packed, out.Rows(0, tokens));
      BH_RETURN_IF_ERROR(CheckThatItWaits(cut, format, packed, out));
    }
    if (IsPrepared(cut) && TakesFp8(format, layout)) {
      BH_RETURN_IF_ERROR(WarmUpInFp8(cut, packed, out));
    }
  }
  return driver_.Synchronize();
}

CudaProducts::Cut CudaProducts::CutOf(const LinearShape& shape, int64_t depth, int64_t tokens,
                                      MatrixView out) const {
  const auto address = reinterpret_cast<uint64_t>(out.data()) | 16;
  Cut cut;
  cut.piece = {.f16 = shape.format == WeightFormat::kF16,
               .out_bf16 = out.dtype() == DType::kBF16,
               .tokens = tokens,
               .outputs = shape.rows,
               .depth = depth,
               .out_stride = out.row_stride(),
               .out_alignment_bytes = static_cast<int64_t>(address & -address)};
  cut.last = cut.piece;
  if (!IsQuantized(shape.format)) return cut;
  // Equal pieces of whole row tiles.
  const int64_t max_rows = unpacked_bytes_ / 2 / depth / cuda::kTileRows * cuda::kTileRows;
  BH_CHECK(max_rows > 0);
  cut.pieces = CeilDiv(shape.rows, max_rows);
  cut.piece.outputs = RoundUp(CeilDiv(shape.rows, cut.pieces), cuda::kTileRows);
  cut.pieces = CeilDiv(shape.rows, cut.piece.outputs);
  cut.last.outputs = shape.rows - (cut.pieces - 1) * cut.piece.outputs;
  if (cut.pieces == 1) cut.piece = cut.last;
  return cut;
}

std::optional<CudaProducts::Cut> CudaProducts::LibraryCut(const Linear& weight,
                                                          const PackedLayout& layout, int64_t first,
                                                          MatrixView out) const {
  const auto warmed_up = warmed_up_rows_.find({weight.packed, out.dtype()});
  if (warmed_up == warmed_up_rows_.end()) return std::nullopt;
  const auto [key, max_rows] = *warmed_up;
  if (out.rows() > max_rows || out.rows() < MinLibraryTokens(weight.shape.format)) {
    return std::nullopt;
  }
  const int64_t bucket = BucketOf(out.rows(), std::min(max_rows, RowsAtOnce(layout)));
  if (first + bucket > max_rows) return std::nullopt;
  const Cut cut = CutOf(weight.shape, layout.depth(), bucket, out);
  if (TakesFp8(weight.shape.format, layout) && IsPrepared(InFp8(cut))) return InFp8(cut);
  return IsPrepared(cut) ? std::optional(cut) : std::nullopt;
}

bool CudaProducts::IsPrepared(const Cut& cut) const {
  const auto is_prepared = [this](const GemmProblem& problem) {
    return library_->IsPrepared(problem) && !refused_.contains(problem);
  };
  return is_prepared(cut.piece) && is_prepared(cut.last);
}

bool CudaProducts::Prepare(const Cut& cut) {
  for (const GemmProblem& problem : {cut.piece, cut.last}) {
    if (refused_.contains(problem)) return false;
    const absl::Status prepared = library_->Prepare(problem);
    if (prepared.ok()) continue;
    refused_.insert(problem);
    if (!problem.fp8) {
      BH_LOG(kWarning) << prepared.message() << "; using our own kernel";
    } else if (!std::exchange(told_of_fp8_, true)) {
      BH_LOG(kWarning) << prepared.message() << "; multiplying in bf16 (said once)";
    }
    return false;
  }
  return true;
}

const uint16_t* CudaProducts::Inputs(ConstMatrixView x, WeightFormat format,
                                     const cuda::PackedWeight& weight) {
  if (AreInputs(x, weight)) return reinterpret_cast<const uint16_t*>(x.data());
  return GatherInputs(x, nullptr, x.rows(), format, weight);
}

const uint16_t* CudaProducts::GatherInputs(ConstMatrixView x, const int32_t* row_at, int64_t rows,
                                           WeightFormat format, const cuda::PackedWeight& weight) {
  BH_CHECK(rows * weight.depth <= scratch_.inputs_count);
  const bool f16 = format == WeightFormat::kF16;
  const bool rounded = x.dtype() != DType::kF32;
  BH_CHECK(!rounded || x.dtype() == (f16 ? DType::kF16 : DType::kBF16));
  cuda::GatherInputsParameters p;
  p.x.stride = x.row_stride();
  if (rounded) {
    p.rounded = reinterpret_cast<const uint16_t*>(x.data());
  } else {
    p.x.data = x.F32();
  }
  p.row_at = row_at;
  p.input_at = weight.input_at;
  p.inputs = weight.inputs;
  p.depth = weight.depth;
  p.out = scratch_.inputs;
  Enqueue(driver_, cuda::GatherInputsKernel(f16),
          {.grid = {static_cast<int>(rows), 1, 1}, .block = {cuda::kRowThreads, 1, 1}}, p);
  return scratch_.inputs;
}

GemmOperands CudaProducts::OperandsOf(const GemmProblem& problem, int64_t first_row,
                                      WeightFormat format, const uint16_t* inputs,
                                      const cuda::PackedWeight& weight) {
  if (!IsQuantized(format)) return {inputs, weight.numbers};
  const LaunchShape shape{
      .grid = {NumBlocks(problem.outputs, cuda::kTileRows),
               NumBlocks(weight.depth, cuda::kDepthGranule * cuda::kUnpackWarps), 1},
      .block = {cuda::kUnpackWarps * 32, 1, 1}};
  const int first = static_cast<int>(first_row);
  if (problem.fp8) return Fp8OperandsOf(problem, shape, first, weight);
  Enqueue(driver_, cuda::UnpackKernel(format), shape, {weight, first, scratch_.unpacked});
  return {inputs, scratch_.unpacked};
}

void CudaProducts::MultiplyByLibrary(const Cut& cut, WeightFormat format, const uint16_t* inputs,
                                     const cuda::PackedWeight& weight, MatrixView out) {
  for (int64_t i = 0; i < cut.pieces; ++i) {
    const GemmProblem& problem = i + 1 < cut.pieces ? cut.piece : cut.last;
    const int64_t first_row = i * cut.piece.outputs;
    library_->Multiply(problem, OperandsOf(problem, first_row, format, inputs, weight),
                       out.data() + first_row * DTypeBytes(out.dtype()), scratch_.library);
  }
}

void CudaProducts::MultiplyByKernel(int tokens, WeightFormat format, const uint16_t* inputs,
                                    const cuda::PackedWeight& weight, MatrixView out) {
  cuda::LinearParameters p{inputs, tokens, weight, RowsOf(out)};
  if (tokens > kMaxFewTokens) return MultiplyByGemm(p, format);
  int token_tiles = 1;
  while (token_tiles < kMaxTokenTiles && token_tiles * 8 < tokens) token_tiles *= 2;
  const CudaProperties& gpu = driver_.properties();
  const int token_blocks = NumBlocks(tokens, token_tiles * 8);
  const cuda::LinearBlocks blocks = cuda::WiderLinearBlocksOf(
      cuda::LinearBlocksOf(format, weight.rows, weight.depth, token_tiles, gpu.max_shared_bytes),
      format, weight.rows, weight.depth, token_tiles, token_blocks, gpu.max_shared_bytes,
      gpu.num_sms);
  p.parts = blocks.parts;
  const int64_t bytes_read = cuda::BytesRead(blocks, format, weight.rows, weight.depth, token_tiles,
                                             token_blocks, gpu.num_sms);
  if (token_tiles > 1 && MultiplyByWarpgroups(p, format, bytes_read)) return;
  const LaunchShape shape{
      .grid = {NumBlocks(weight.rows, cuda::LinearRows(format, blocks.width)), token_blocks, 1},
      .block = {blocks.threads, 1, 1},
      .shared_bytes = blocks.shared_bytes};
  Enqueue(driver_, cuda::LinearKernel(format, token_tiles, blocks.width), shape, p);
}

bool CudaProducts::MultiplyByWarpgroups(const cuda::LinearParameters& product, WeightFormat format,
                                        int64_t than_bytes) {
  const CudaProperties& gpu = driver_.properties();
  if (!has_warpgroups_ || !IsQuantized(format)) return false;
  const cuda::WarpgroupBlocks blocks = cuda::WarpgroupBlocksOf(
      format, product.weight.rows, product.weight.depth, product.parts, product.tokens,
      scratch_.part_sums_count, gpu.max_shared_bytes, gpu.num_sms);
  const auto kernel = cuda::LinearWarpgroupKernel(format, blocks.tokens);
  // An eighth less, since starting and ending a block is not counted.
  if (blocks.bytes_read >= than_bytes - than_bytes / 8 || !kernel.has_value()) return false;
  const LaunchShape shape = blocks.Launch(product.weight.rows, product.parts);
  Enqueue(driver_, *kernel, shape, {product, blocks.in_parts ? scratch_.part_sums : nullptr});
  if (blocks.in_parts) AddParts(product, shape.grid[2]);
  return true;
}

void CudaProducts::AddParts(const cuda::LinearParameters& product, int num_parts) {
  const int rows = product.weight.rows;
  Enqueue(driver_, cuda::AddPartsKernel(),
          {.grid = {product.tokens, NumBlocks(rows, cuda::kAddPartsThreads), 1},
           .block = {cuda::kAddPartsThreads, 1, 1}},
          {scratch_.part_sums, num_parts, product.tokens, rows, product.out});
}

void CudaProducts::MultiplyByGemm(const cuda::LinearParameters& product, WeightFormat format) {
  const int64_t rows = product.weight.rows;
  const int tokens = product.tokens;
  LaunchShape shape{
      .grid = {NumBlocks(rows, cuda::kGemmTile), NumBlocks(tokens, cuda::kGemmTile), 1},
      .block = {cuda::kGemmThreads, 1, 1},
      .shared_bytes = cuda::kGemmSharedBytes};
  const cuda::GemmParts parts = cuda::GemmPartsOf(rows, product.weight.depth);
  cuda::GemmParameters p{product, static_cast<unsigned>(parts.steps)};
  const int64_t tiles = int64_t{shape.grid[0]} * shape.grid[1];
  const bool in_parts = IsQuantized(format) &&
                        parts.count * tokens * rows <= scratch_.part_sums_count &&
                        cuda::TakesLessInParts(parts, tiles, driver_.properties().num_sms);
  if (in_parts) {
    shape.grid[2] = parts.count;
    p.part_out = scratch_.part_sums;
  }
  Enqueue(driver_, cuda::GemmKernel(format), shape, p);
  if (in_parts) AddParts(product, parts.count);
}

void CudaProducts::MultiplyInF32(ConstMatrixView x, const Linear& weight, MatrixView out) {
  const PackedLayout layout(weight.shape);
  const cuda::F32ProductParameters p = {.x = x.data(),
                                        .x_stride = x.row_stride(),
                                        .numbers = cuda::NumbersOf(x.dtype()),
                                        .vec4 = cuda::IsVec4(x),
                                        .weight = reinterpret_cast<const float*>(weight.packed),
                                        .inputs = static_cast<int>(weight.shape.cols),
                                        .depth = static_cast<int>(layout.depth()),
                                        .outputs = static_cast<int>(weight.shape.rows),
                                        .tokens = static_cast<int>(x.rows()),
                                        .out = RowsOf(out)};
  const bool few = p.tokens <= cuda::kF32MaxFewTokens;
  const LaunchShape of_few{.grid = {p.outputs, NumBlocks(p.tokens, cuda::kF32FewTokens), 1},
                           .block = {cuda::kF32FewThreads, 1, 1},
                           .shared_bytes = cuda::kF32FewSharedBytes};
  const LaunchShape of_many{.grid = {NumBlocks(p.outputs, cuda::kF32TileOutputs),
                                     NumBlocks(p.tokens, cuda::kF32TileTokens), 1},
                            .block = {cuda::kF32TileThreads, 1, 1},
                            .shared_bytes = cuda::kF32TileSharedBytes};
  Enqueue(driver_, cuda::LinearF32Kernel(few), few ? of_few : of_many, p);
}

void CudaBackend::MatMul(ConstMatrixView x, const Linear& weight, MatrixView out) {
  products_->MatMul(x, weight, out);
}

}  // namespace bulkhead
