// What the CUDA backend takes of memory, and what it can compute with: from shapes and limits
// alone. Needs neither a device nor a CUDA toolkit, so that any build can plan for a GPU.
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
// compute with weights and a cache in these formats and heads of this size. latent_value_dim: of a
// latent cache, whose keys have head_dim numbers; 0: keys and values are apart.
absl::Status CheckCudaFormats(WeightFormat weights, KvFormat cache, int head_dim,
                              int latent_value_dim = 0);

// INVALID_ARGUMENT, likewise, unless attention over keys and values in this format fits the shared
// memory that a GPU has for a block.
absl::Status CheckCudaShared(KvFormat cache, int head_dim, int64_t max_shared_bytes);

// INVALID_ARGUMENT, likewise, unless it has linear attention with heads of these sizes.
absl::Status CheckCudaDelta(int key_dim, int value_dim);

// UNIMPLEMENTED, likewise, unless the quantised weight `name` has a layout: it may have too many
// cells (memory/linear.h), or one that is too long.
absl::Status CheckCudaCells(absl::string_view name, const LinearShape& shape);

// Those of NewCudaBackend, to the byte, with a library of products or without. Any thread.
std::unique_ptr<BackendSizes> NewCudaSizes(bool gemm_library);

// Beyond this number of tokens weights go through shared memory.
inline constexpr int64_t kMaxFewTokens = 64;
// From here on the library saves more than it costs to write and read quantised weights as bf16.
inline constexpr int64_t kMinUnpackedTokens = kMaxFewTokens + 1;

// The parts of the workspace, in this order. Null pointers where there is no memory behind the
// allocator.
struct CudaProductScratch {
  static constexpr int64_t kUnpackedBytes = int64_t{64} << 20;  // of a weight at once

  uint16_t* inputs = nullptr;  // of a product, in 16 bits
  int64_t inputs_count = 0;
  int64_t max_tokens = 0;
  std::byte* library = nullptr;  // the library's workspace
  uint16_t* unpacked = nullptr;  // rows of a quantised weight, for the library
  float* part_sums = nullptr;    // of quantised weights (gemm_parts.h); the library's workspace
  int64_t part_sums_count = 0;   // where there is one: a product needs one or the other

  CudaProductScratch() = default;
  CudaProductScratch(const StepLimits& limits, bool gemm_library, int64_t unpacked_bytes,
                     BumpAllocator& allocator);
};

// Nothing for a model without experts.
struct CudaExpertScratch {
  // Of sums of pairs, and the columns of all pairs that there is room for in any case: each time
  // the pairs' inputs are read again.
  static constexpr int64_t kSumsBytes = int64_t{32} << 20;
  static constexpr int64_t kMinSumColumns = 512;

  int32_t* pair_at = nullptr;  // [P] where each token's pairs are in order of experts
  int64_t max_pairs = 0;
  cuda::ExpertTile* tiles = nullptr;
  int64_t max_tiles = 0;
  float* sums = nullptr;  // of pairs, which their tokens add up
  int64_t sums_count = 0;

  CudaExpertScratch() = default;
  CudaExpertScratch(const StepLimits& limits, BumpAllocator& allocator);
};

// Into how many splits a step's contexts are cut (cuda::SplitTokens).
struct CudaAttentionSplits {
  // Of the sums of one context, beyond kFewSplits: those of 32 heads of 128 in 32 splits.
  static constexpr int64_t kPartFloatsOfContext = int64_t{32} * 128 * 32;

  int per_context = 1;    // at most
  int max_part_rows = 0;  // of the sums of one sequence of several tokens
  int64_t part_rows = 0;  // that there is room for

  CudaAttentionSplits() = default;
  // row_floats: of a row of sums, a token's of all heads.
  CudaAttentionSplits(const StepLimits& limits, int64_t row_floats);
};

// Heads of two kinds, where limits.full_heads has some, take turns.
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
