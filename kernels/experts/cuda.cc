#include "kernels/experts/cuda.h"

#include <algorithm>

#include "base/arithmetic.h"
#include "base/check.h"
#include "base/log.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/launch.h"
#include "kernels/matmul/linear_blocks.h"

namespace bulkhead {
namespace {

using cuda::NumBlocks;

constexpr int64_t kMaxGridTiles = 65535;

static_assert(cuda::kManyTilePairs == cuda::kGemmTile);

}  // namespace

void CudaExperts::RouteTokens(ConstMatrixView logits, ConstMatrixView bias, ConstMatrixView scales,
                              const RouterOptions& options, const ExpertRouting& routing) {
  if (logits.empty()) return;
  const int num_experts = routing.num_experts;
  const int k = routing.experts_per_token;
  BH_CHECK(logits.cols() == num_experts && num_experts <= kMaxExperts && k <= num_experts);
  BH_CHECK(num_experts % options.num_groups == 0 &&
           num_experts / options.num_groups * options.num_chosen_groups >= k);
  const int64_t tokens = logits.rows();
  pairs_ = tokens * k;
  tile_pairs_ = cuda::TilePairs(tokens, num_experts, k);
  max_tiles_ = cuda::MaxExpertTiles(pairs_, num_experts, tile_pairs_);
  routed_ = routing.expert_begin;
  BH_CHECK(pairs_ <= scratch_.max_pairs && max_tiles_ <= scratch_.max_tiles);
  const cuda::RouteParameters route = {.logits = cuda::RowsOf(logits),
                                       .bias = cuda::VectorOf(bias),
                                       .scales = cuda::VectorOf(scales),
                                       .options = options,
                                       .tokens = static_cast<int>(tokens),
                                       .num_experts = num_experts,
                                       .experts_per_token = k,
                                       .experts = routing.experts,
                                       .weights = routing.weights,
                                       .token_seq = routing.token_seq,
                                       .seq_slot = routing.seq_slot,
                                       .padding_slot = routing.padding_slot};
  Enqueue(driver_, cuda::RouteKernel(),
          {.grid = {NumBlocks(tokens, cuda::kRouteWarps), 1, 1},
           .block = {cuda::kRouteWarps * 32, 1, 1},
           .shared_bytes = cuda::RouteSharedBytes(route)},
          route);
  Enqueue(driver_, cuda::SortPairsKernel(),
          {.grid = {NumBlocks(num_experts, cuda::kSortWarps), 1, 1},
           .block = {cuda::kSortWarps * 32, 1, 1},
           .shared_bytes = cuda::kSortSharedBytes},
          {.experts = routing.experts,
           .weights = routing.weights,
           .pairs = static_cast<int>(pairs_),
           .num_experts = num_experts,
           .experts_per_token = k,
           .expert_begin = routing.expert_begin,
           .pair_token = routing.pair_token,
           .pair_weight = routing.pair_weight,
           .pair_at = scratch_.pair_at,
           .tile_pairs = tile_pairs_,
           .max_tiles = static_cast<int>(max_tiles_),
           .tiles = scratch_.tiles});
}

void CudaExperts::CheckRouted(const ExpertRouting& routing, int64_t pairs) const {
  BH_CHECK(routed_ == routing.expert_begin && pairs_ == pairs);
}

void CudaExperts::MatMulExperts(ConstMatrixView x, absl::Span<const Linear> experts,
                                const ExpertRouting& routing, MatrixView out) {
  if (x.empty() || out.empty()) return;
  BH_CHECK(out.rows() == x.rows() * routing.experts_per_token);
  Multiply(x, routing.pair_token, experts, routing, {0, out.cols(), out});
}

// Sums of pairs use the scratch: some columns of all pairs at a time.
void CudaExperts::SumExperts(ConstMatrixView x, absl::Span<const Linear> experts,
                             const ExpertRouting& routing, bool adds, MatrixView out) {
  const int64_t columns = scratch_.sums_count / x.rows() / cuda::kGemmTile * cuda::kGemmTile;
  BH_CHECK(x.rows() == out.rows() * routing.experts_per_token && columns > 0);
  for (int64_t begin = 0; begin < out.cols(); begin += columns) {
    const int64_t width = std::min(columns, out.cols() - begin);
    const MatrixView sums(reinterpret_cast<std::byte*>(scratch_.sums), DType::kF32, x.rows(), width,
                          RoundUp(width, int64_t{4}));
    Multiply(x, nullptr, experts, routing, {begin, begin + width, sums});
    const MatrixView part = out.Cols(begin, width);
    Enqueue(driver_, cuda::SumPairsKernel(cuda::IsVec4(part)),
            {.grid = {static_cast<int>(part.rows()), NumBlocks(width, cuda::kSumCols), 1},
             .block = {cuda::kRowThreads, 1, 1}},
            {.pairs = cuda::RowsOf(ConstMatrixView(sums)),
             .pair_at = scratch_.pair_at,
             .experts_per_token = routing.experts_per_token,
             .width = static_cast<int>(width),
             .adds = adds,
             .out = cuda::RowsOf(part)});
  }
}

void CudaExperts::Multiply(ConstMatrixView x, const int32_t* row_of_pair,
                           absl::Span<const Linear> experts, const ExpertRouting& routing,
                           const Outputs& outputs) {
  const Linear& first = experts[0];
  const WeightFormat format = first.shape.format;
  const int64_t pairs = outputs.out.rows();
  CheckRouted(routing, pairs);
  BH_CHECK(static_cast<int>(experts.size()) == routing.num_experts &&
           x.cols() == first.shape.cols && outputs.end <= first.shape.rows);
  const PackedLayout layout(first.shape);
  const int64_t stride = experts.size() > 1 ? experts[1].packed - first.packed : 0;
  for (size_t e = 1; e < experts.size(); ++e) {
    BH_CHECK(experts[e].packed == first.packed + static_cast<int64_t>(e) * stride);
    BH_CHECK(experts[e].shape.format == format && experts[e].shape.rows == first.shape.rows);
  }
  BH_CHECK(first.shape.groups.indexed == 0 && stride % 16 == 0);
  cuda::ExpertProductParameters p = {.tiles = scratch_.tiles,
                                     .pair_row = row_of_pair,
                                     .end_pair = static_cast<int>(pairs),
                                     .weight = layout.Parameters(first.shape, first.packed),
                                     .expert_bytes = stride,
                                     .first_output = static_cast<int>(outputs.begin),
                                     .end_output = static_cast<int>(outputs.end),
                                     .out = cuda::RowsOf(outputs.out)};
  const int64_t rows_at_once = products_.RowsAtOnce(layout);
  if (CudaProducts::AreInputs(x, p.weight)) {
    p.x = reinterpret_cast<const uint16_t*>(x.data());
    return Launch(format, p);
  }
  if (x.rows() <= rows_at_once) {
    p.x = products_.GatherInputs(x, nullptr, x.rows(), format, p.weight);
    return Launch(format, p);
  }
  p.pair_row = nullptr;
  for (int64_t begin = 0; begin < pairs; begin += rows_at_once) {
    const int64_t count = std::min(rows_at_once, pairs - begin);
    const bool own = row_of_pair == nullptr;
    p.x = products_.GatherInputs(own ? x.Rows(begin, count) : x,
                                 own ? nullptr : row_of_pair + begin, count, format, p.weight);
    p.first_pair = static_cast<int>(begin);
    p.end_pair = static_cast<int>(begin + count);
    Launch(format, p);
  }
}

void CudaExperts::Launch(WeightFormat format, cuda::ExpertProductParameters p) {
  const bool many = tile_pairs_ == cuda::kManyTilePairs;
  const int outputs = p.end_output - p.first_output;
  for (int64_t tile = 0; tile < max_tiles_; tile += kMaxGridTiles) {
    const auto tiles = static_cast<int>(std::min(kMaxGridTiles, max_tiles_ - tile));
    p.tiles = scratch_.tiles + tile;
    if (many) {
      LaunchMany(format, p, tiles);
    } else {
      const cuda::LinearBlocks blocks =
          cuda::LinearBlocksOf(format, cuda::kRowsOfMany, p.weight.depth, tile_pairs_ / 8,
                               driver_.properties().max_shared_bytes);
      p.parts = blocks.parts;
      Enqueue(driver_, cuda::ExpertLinearKernel(format, tile_pairs_ / 8),
              {.grid = {NumBlocks(outputs, cuda::LinearRows(format)), tiles, 1},
               .block = {blocks.threads, 1, 1},
               .shared_bytes = blocks.shared_bytes},
              p);
    }
  }
}

void CudaExperts::LaunchMany(WeightFormat format, cuda::ExpertProductParameters p, int tiles) {
  const CudaProperties& gpu = driver_.properties();
  const auto by_warpgroups = cuda::ExpertPiecesKernel(format);
  if (!has_warpgroups_ || !by_warpgroups.has_value() ||
      cuda::kExpertPieceSharedBytes > gpu.max_shared_bytes) {
    return LaunchGemm(format, p, tiles);
  }
  p.num_tiles = tiles;
  p.out_in_twos =
      p.out.stride % 2 == 0 && reinterpret_cast<uintptr_t>(p.out.data) % (2 * sizeof(float)) == 0;
  const int outputs = p.end_output - p.first_output;
  const int64_t pieces = int64_t{tiles} * NumBlocks(outputs, cuda::kPieceOutputs);
  const auto launch = [&] {
    Enqueue(driver_, *by_warpgroups,
            {.grid = {static_cast<int>(std::min<int64_t>(pieces, gpu.num_sms)), 1, 1},
             .block = {by_warpgroups->kernel.max_threads, 1, 1},
             .shared_bytes = cuda::kExpertPieceSharedBytes},
            p);
  };
  if (!warming_up_ || !checked_.insert(format).second) return launch();
  const MatrixView out(reinterpret_cast<std::byte*>(p.out.data), DType::kF32, p.end_pair, outputs,
                       p.out.stride);
  const absl::StatusOr<bool> alike = ComputeAlike(
      driver_, out.Rows(p.first_pair, p.end_pair - p.first_pair), kProductTolerance,
      [&] { LaunchGemm(format, p, tiles); }, launch);
  if (!alike.ok()) return driver_.ReportFault(alike.status());
  if (*alike) return;
  has_warpgroups_ = false;
  LaunchGemm(format, p, tiles);
  BH_LOG(kWarning) << "products of experts by warpgroups (wgmma) with weights in "
                   << WeightFormatName(format) << " of " << p.weight.rows << " x " << p.weight.depth
                   << " are wrong on this GPU: going on without them";
}

void CudaExperts::LaunchGemm(WeightFormat format, const cuda::ExpertProductParameters& p,
                             int tiles) {
  const int outputs = p.end_output - p.first_output;
  Enqueue(driver_, cuda::ExpertGemmKernel(format),
          {.grid = {NumBlocks(outputs, cuda::kGemmTile), tiles, 1},
           .block = {cuda::kGemmThreads, 1, 1},
           .shared_bytes = cuda::kExpertGemmSharedBytes},
          p);
}

void CudaBackend::RouteTokens(ConstMatrixView logits, ConstMatrixView bias, ConstMatrixView scales,
                              const RouterOptions& options, const ExpertRouting& routing) {
  experts_->RouteTokens(logits, bias, scales, options, routing);
}

void CudaBackend::MatMulExperts(ConstMatrixView x, absl::Span<const Linear> experts,
                                const ExpertRouting& routing, MatrixView out) {
  experts_->MatMulExperts(x, experts, routing, out);
}

void CudaBackend::SumExperts(ConstMatrixView x, absl::Span<const Linear> experts,
                             const ExpertRouting& routing, ConstMatrixView shared_x,
                             const Linear* shared, MatrixView out) {
  if (out.empty()) return;
  const bool has_shared = shared != nullptr && !shared_x.empty();
  if (has_shared) MatMul(shared_x, *shared, out);
  if (!x.empty()) {
    experts_->SumExperts(x, experts, routing, has_shared, out);
  } else if (!has_shared) {
    Fill(-0.0F, out);  // a rank without expert columns adds nothing to the sum
  }
}

}  // namespace bulkhead
