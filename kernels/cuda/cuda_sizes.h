// The CUDA backend's memory needs and supported shapes, from shapes and limits only. Needs neither
// a device nor a CUDA toolkit, so that any build can plan for a GPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "kernels/backend.h"
#include "memory/kv_format.h"
#include "memory/ledger.h"
#include "memory/weight_format.h"

namespace bulkhead {

namespace cuda {
struct ExpertTile;  // kernels/experts/cuda_kernels.h
}

// INVALID_ARGUMENT or UNIMPLEMENTED, with the flag to set instead, unless the CUDA backend can
// compute with weights and a cache in these formats and heads of this size. latent_value_dim: for a
// latent cache, whose keys have head_dim numbers; 0: values are stored separately.
absl::Status CheckCudaFormats(WeightFormat weights, KvFormat cache, int head_dim,
                              int latent_value_dim = 0);

// INVALID_ARGUMENT with that flag unless attention over keys and values in this format fits the
// shared memory per block of a GPU.
absl::Status CheckCudaShared(KvFormat cache, int head_dim, int64_t max_shared_bytes);

// INVALID_ARGUMENT unless it has linear attention with heads of these sizes.
absl::Status CheckCudaDelta(int key_dim, int value_dim);

// UNIMPLEMENTED unless the quantised weight `name` has a layout: it may have too many cells
// (memory/linear.h), or too long a cell.
absl::Status CheckCudaCells(absl::string_view name, const LinearShape& shape);

// Exactly NewCudaBackend's sizes, with a library of products or without. Any thread.
std::unique_ptr<BackendSizes> NewCudaSizes(bool gemm_library);

// With more tokens than this, weights go through shared memory.
inline constexpr int64_t kMaxFewTokens = 64;
// From this many tokens the library saves more than unpacking quantised weights to bf16 costs.
inline constexpr int64_t kMinUnpackedTokens = kMaxFewTokens + 1;

// The parts of the workspace, in this order. Null pointers if the allocator only plans.
struct CudaProductScratch {
  static constexpr int64_t kUnpackedBytes = int64_t{64} << 20;  // of a weight at a time

  uint16_t* inputs = nullptr;  // 16-bit inputs of a product
  int64_t inputs_count = 0;
  int64_t max_tokens = 0;
  std::byte* library = nullptr;  // the library's workspace
  uint16_t* unpacked = nullptr;  // rows of a quantised weight, for the library
  float* part_sums = nullptr;    // for quantised weights (gemm_parts.h); the library's
  int64_t part_sums_count = 0;   // workspace if there is one: a product needs only one of both

  CudaProductScratch() = default;
  CudaProductScratch(const StepLimits& limits, bool gemm_library, int64_t unpacked_bytes,
                     BumpAllocator& allocator);
};

// Empty for a model without experts.
struct CudaExpertScratch {
  // Bytes for sums of pairs, and the minimum number of columns with room for all pairs: the pairs'
  // inputs are read again for each set of columns.
  static constexpr int64_t kSumsBytes = int64_t{32} << 20;
  static constexpr int64_t kMinSumColumns = 512;

  int32_t* pair_at = nullptr;  // [P] where each token's pairs are in expert order
  int64_t max_pairs = 0;
  cuda::ExpertTile* tiles = nullptr;
  int64_t max_tiles = 0;
  float* sums = nullptr;  // of pairs, to be added up per token
  int64_t sums_count = 0;

  CudaExpertScratch() = default;
  CudaExpertScratch(const StepLimits& limits, BumpAllocator& allocator);
};

// Number of splits of a step's contexts (cuda::SplitTokens).
struct CudaAttentionSplits {
  // Sums of one context beyond kFewSplits: room for 32 heads of 128 in 32 splits.
  static constexpr int64_t kPartFloatsOfContext = int64_t{32} * 128 * 32;

  int per_context = 1;    // maximum
  int max_part_rows = 0;  // of the sums of one sequence of several tokens
  int64_t part_rows = 0;  // available rows

  CudaAttentionSplits() = default;
  // row_floats: floats in a row of sums, which has all heads of a token.
  CudaAttentionSplits(const StepLimits& limits, int64_t row_floats);
};

// Shared by two kinds of heads if limits.full_heads has some: one at a time.
struct CudaAttentionScratch {
  int32_t* head_begin = nullptr;
  int32_t* full_head_begin = nullptr;
  int32_t* list = nullptr;  // AttendList
  int64_t list_bytes = 0;
  float* parts = nullptr;  // the sums of the splits
  float* part_sums = nullptr;
  CudaAttentionSplits splits;

  CudaAttentionScratch() = default;
  CudaAttentionScratch(const StepLimits& limits, const HeadLayout& heads, BumpAllocator& allocator);
};

}  // namespace bulkhead
