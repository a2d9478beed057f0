#include "kernels/cuda/cuda_sizes.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/arithmetic.h"
#include "kernels/attend/cuda_kernels.h"
#include "kernels/attend/cuda_list.h"
#include "kernels/cuda/gemm_library.h"
#include "kernels/experts/cuda_kernels.h"
#include "kernels/gated_delta/cuda.h"
#include "kernels/matmul/cuda_kernels.h"
#include "kernels/matmul/gemm_parts.h"
#include "kernels/packing/cuda_packing.h"
#include "memory/kv_format_name.h"

namespace bulkhead {
namespace {

class CudaSizes final : public BackendSizes {
 public:
  explicit CudaSizes(bool gemm_library) : gemm_library_(gemm_library) {}
  int64_t PackedBytes(const LinearShape& shape) const override {
    return PackedLayout(shape).bytes();
  }
  int64_t PackingHostBytes(const LinearShape& shape) const override {
    return bulkhead::PackingHostBytes(shape);
  }
  int64_t WorkspaceBytes(const StepLimits& limits, const HeadLayout& heads) const override {
    BumpAllocator allocator;
    const CudaProductScratch products(limits, gemm_library_, CudaProductScratch::kUnpackedBytes,
                                      allocator);
    const CudaExpertScratch experts(limits, allocator);
    const CudaAttentionScratch attention(limits, heads, allocator);
    return allocator.used_bytes();
  }
  int64_t WorkspaceHostBytes(const StepLimits& limits, const HeadLayout& heads) const override {
    BumpAllocator allocator;
    return AttendList::kCopies * CudaAttentionScratch(limits, heads, allocator).list_bytes;
  }
  bool host_memory() const override { return false; }
  bool samples_tokens() const override { return true; }
  DType product_input_dtype(WeightFormat weights) const override {
    return weights == WeightFormat::kF16 ? DType::kF16 : DType::kBF16;
  }

 private:
  const bool gemm_library_;
};

absl::Status CheckLatents(KvFormat cache, int cached_dim, int value_dim) {
  if (IsQuantized(cache)) {
    return absl::UnimplementedError(
        absl::StrCat("CUDA keeps latents in bfloat16, float16 or fp8, not in ", KvFormatName(cache),
                     ": add --kv-cache-dtype fp8, or --device cpu"));
  }
  if (cached_dim % 8 != 0 || cached_dim > cuda::kMaxLatentDim ||
      value_dim > cuda::kMaxLatentValueDim) {
    return absl::UnimplementedError(absl::StrCat(
        "CUDA attends to latents of a multiple of 8 up to ", cuda::kMaxLatentDim,
        " numbers, of which up to ", cuda::kMaxLatentValueDim, " are values; the model's have ",
        cached_dim, " (kv_lora_rank + qk_rope_head_dim) and ", value_dim,
        " (kv_lora_rank): add --device cpu"));
  }
  return absl::OkStatus();
}

}  // namespace

CudaProductScratch::CudaProductScratch(const StepLimits& limits, bool gemm_library,
                                       int64_t unpacked_bytes, BumpAllocator& allocator)
    : max_tokens(limits.max_num_batched_tokens) {
  // Cells that are not whole chunks need more: MatMul then takes fewer rows at a time, and one row
  // always fits.
  const int64_t depth = RoundUp(limits.max_inputs, cuda::kDepthGranule);
  inputs_count = std::max<int64_t>(max_tokens * depth, 0) + limits.max_inputs * cuda::kChunkInputs;
  inputs = reinterpret_cast<uint16_t*>(allocator.Next(inputs_count * 2));
  if (gemm_library) library = allocator.Next(GemmLibrary::kWorkspaceBytes);
  if (limits.quantized_weights && max_tokens > kMaxFewTokens) {
    static_assert(cuda::kMaxPartBytes <= GemmLibrary::kWorkspaceBytes);
    part_sums_count = cuda::MaxPartSums(limits.max_inputs, max_tokens);
    part_sums =
        reinterpret_cast<float*>(gemm_library ? library : allocator.Next(part_sums_count * 4));
  }
  if (gemm_library && limits.quantized_weights && max_tokens >= kMinUnpackedTokens) {
    unpacked = reinterpret_cast<uint16_t*>(allocator.Next(unpacked_bytes));
  }
}

CudaExpertScratch::CudaExpertScratch(const StepLimits& limits, BumpAllocator& allocator) {
  max_pairs = int64_t{limits.max_num_batched_tokens} * limits.experts_per_token;
  if (limits.num_experts == 0 || max_pairs <= 0) return;
  pair_at = reinterpret_cast<int32_t*>(allocator.Next(max_pairs * 4));
  max_tiles = cuda::MaxExpertTilesOfStep(max_pairs, limits.num_experts);
  tiles = reinterpret_cast<cuda::ExpertTile*>(
      allocator.Next(max_tiles * static_cast<int64_t>(sizeof(cuda::ExpertTile))));
  const int64_t columns = RoundUp(limits.max_expert_inputs, int64_t{cuda::kGemmTile});
  sums_count = max_pairs *
               std::min(columns, std::max(kMinSumColumns, kSumsBytes / 4 / max_pairs /
                                                              cuda::kGemmTile * cuda::kGemmTile));
  sums = reinterpret_cast<float*>(allocator.Next(sums_count * 4));
}

CudaAttentionSplits::CudaAttentionSplits(const StepLimits& limits, int64_t row_floats) {
  const int64_t tokens = limits.max_model_len;
  const int64_t of_short =
      CeilDiv(std::clamp<int64_t>(tokens, 1, cuda::kMinSplitTokens), cuda::kShortSplitTokens);
  const int64_t of_long =
      std::max(std::min<int64_t>(CeilDiv(tokens, cuda::kMinSplitTokens), cuda::kFewSplits),
               CeilDiv(tokens, cuda::kLongSplitTokens));
  const int64_t max_splits = std::clamp<int64_t>(
      kPartFloatsOfContext / std::max<int64_t>(row_floats, 1), cuda::kFewSplits, cuda::kMaxSplits);
  per_context = static_cast<int>(std::min(std::max(of_short, of_long), max_splits));
  part_rows = int64_t{limits.max_num_seqs} * per_context;
  if (of_long <= 1 || row_floats == 0) return;
  max_part_rows = static_cast<int>(std::min(cuda::kMaxPartFloats / row_floats,
                                            int64_t{limits.max_num_batched_tokens} * per_context));
  part_rows = std::max<int64_t>(part_rows, max_part_rows);
}

CudaAttentionScratch::CudaAttentionScratch(const StepLimits& limits, const HeadLayout& heads,
                                           BumpAllocator& allocator) {
  const HeadLayout& full = limits.full_heads;
  head_begin = reinterpret_cast<int32_t*>(allocator.Next((heads.num_kv_heads + 1) * 4));
  if (full.num_heads > 0) {
    full_head_begin = reinterpret_cast<int32_t*>(allocator.Next((full.num_kv_heads + 1) * 4));
  }
  const int num_heads = std::max(heads.num_heads, full.num_heads);
  const int64_t row_floats = int64_t{num_heads} * std::max(heads.out_dim(), full.out_dim());
  splits = CudaAttentionSplits(limits, row_floats);
  list_bytes = AttendList::Bytes(limits, splits);
  list = reinterpret_cast<int32_t*>(allocator.Next(list_bytes));
  parts = reinterpret_cast<float*>(allocator.Next(splits.part_rows * row_floats * 4));
  part_sums = reinterpret_cast<float*>(allocator.Next(splits.part_rows * num_heads * 2 * 4));
}

std::unique_ptr<BackendSizes> NewCudaSizes(bool gemm_library) {
  return std::make_unique<CudaSizes>(gemm_library);
}

absl::Status CheckCudaFormats(WeightFormat weights, KvFormat cache, int head_dim,
                              int latent_value_dim) {
  if (weights == WeightFormat::kF32) {
    return absl::InvalidArgumentError(
        "CUDA computes with weights in bfloat16, float16, int8, int4, fp8, mxfp4 or nvfp4, "
        "not in float32: "
        "add --dtype bfloat16, or --device cpu");
  }
  if (cache == KvFormat::kF32) {
    return absl::InvalidArgumentError(
        absl::StrCat("CUDA keeps keys and values in bfloat16, float16, int8, int4 or fp8, not in ",
                     KvFormatName(cache), ": add --kv-cache-dtype bfloat16, or --device cpu"));
  }
  if (latent_value_dim > 0) return CheckLatents(cache, head_dim, latent_value_dim);
  if (head_dim % (head_dim > cuda::kMaxNarrowHeadDim ? 32 : 8) != 0 ||
      head_dim > cuda::kMaxHeadDim) {
    return absl::InvalidArgumentError(
        absl::StrCat("CUDA computes with heads of a multiple of 8 up to ", cuda::kMaxNarrowHeadDim,
                     " numbers, or of 32 up to ", cuda::kMaxHeadDim, "; the model's have ",
                     head_dim, ": add --device cpu"));
  }
  return absl::OkStatus();
}

absl::Status CheckCudaShared(KvFormat cache, int head_dim, int64_t max_shared_bytes) {
  const bool wide = head_dim > cuda::kMaxNarrowHeadDim;
  const int64_t needed = wide                                         ? cuda::kWideHeadSharedBytes
                         : head_dim > 128 && KvElementBits(cache) > 8 ? cuda::k16BitSharedBytes
                                                                      : 0;
  if (max_shared_bytes >= needed) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "attention to heads of ", head_dim, " numbers in ", KvFormatName(cache), " needs ", needed,
      " bytes of shared memory for a block, and this GPU has ", max_shared_bytes, ": add ",
      wide ? "" : "--kv-cache-dtype int8 (or int4, fp8), or ", "--device cpu"));
}

absl::Status CheckCudaDelta(int key_dim, int value_dim) {
  const auto fits = [](int dim, int most) { return dim % 4 == 0 && dim <= most; };
  if (fits(key_dim, cuda::kMaxDeltaKeyDim) && fits(value_dim, cuda::kMaxDeltaValueDim)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("CUDA computes linear attention with keys of a multiple of 4 up to ",
                   cuda::kMaxDeltaKeyDim, " numbers and values up to ", cuda::kMaxDeltaValueDim,
                   "; the model's have ", key_dim, " and ", value_dim, ": add --device cpu"));
}

absl::Status CheckCudaCells(absl::string_view name, const LinearShape& shape) {
  constexpr int64_t kMaxChunks = cuda::kMaxCells / 2 - 1;
  const PackedLayout layout(shape);
  if (layout.num_cells() <= cuda::kMaxCells && layout.longest_cell_chunks() <= kMaxChunks) {
    return absl::OkStatus();
  }
  return absl::UnimplementedError(absl::StrCat(
      "CUDA computes with quantised weights of up to ", cuda::kMaxCells, " groups, each of up to ",
      kMaxChunks * cuda::kChunkInputs, " inputs, padding included; ", name, " has ",
      layout.num_cells(), " of up to ", layout.longest_cell_chunks() * cuda::kChunkInputs,
      shape.groups.indexed > 0 ? " (by index: one may have all)" : "", ": add --device cpu"));
}

}  // namespace bulkhead
