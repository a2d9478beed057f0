#include "kernels/cuda/cuda_sizes.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/attend_list.h"
#include "kernels/cuda/gemm_library.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/linear_layout.h"
#include "kernels/cuda/linear_packing.h"
#include "memory/kv_format_name.h"

namespace bulkhead {
namespace {

constexpr int kMostHeadDim = 256;

int64_t CeilDiv(int64_t x, int64_t y) { return (x + y - 1) / y; }

class CudaSizes final : public BackendSizes {
 public:
  explicit CudaSizes(bool gemm_library) : gemm_library_(gemm_library) {}
  int64_t PackedBytes(const LinearShape& shape) const override {
    return PackedLayout(shape).bytes();
  }
  int64_t WorkspaceBytes(const StepLimits& limits, const HeadLayout& heads) const override {
    Carver carver;
    const CudaProductScratch products(limits, gemm_library_, CudaProductScratch::kUnpackedBytes,
                                      carver);
    const CudaAttentionScratch attention(limits, heads, carver);
    return carver.used_bytes();
  }
  bool draws_tokens() const override { return true; }
  DType product_input_dtype(WeightFormat weights) const override {
    return weights == WeightFormat::kF16 ? DType::kF16 : DType::kBF16;
  }

 private:
  const bool gemm_library_;
};

}  // namespace

CudaProductScratch::CudaProductScratch(const StepLimits& limits, bool gemm_library,
                                       int64_t unpacked_bytes, Carver& carver)
    : max_tokens(limits.max_num_batched_tokens) {
  // Cells that are no whole chunks need more: MatMul then takes fewer rows at a time, and one row
  // always fits.
  const int64_t depth = CeilDiv(limits.max_inputs, cuda::kDepthGranule) * cuda::kDepthGranule;
  inputs_count = std::max<int64_t>(max_tokens * depth, 0) + limits.max_inputs * cuda::kChunkInputs;
  inputs = reinterpret_cast<uint16_t*>(carver.Next(inputs_count * 2));
  if (!gemm_library) return;
  library = carver.Next(GemmLibrary::kWorkspaceBytes);
  if (limits.quantized_weights && max_tokens >= kLeastUnpackedTokens) {
    unpacked = reinterpret_cast<uint16_t*>(carver.Next(unpacked_bytes));
  }
}

CudaAttentionScratch::CudaAttentionScratch(const StepLimits& limits, const HeadLayout& heads,
                                           Carver& carver) {
  splits = static_cast<int>(std::clamp<int64_t>(
      CeilDiv(limits.max_model_len, cuda::kLeastSplitTokens), 1, cuda::kMostSplits));
  head_begin = reinterpret_cast<int32_t*>(carver.Next((heads.num_kv_heads + 1) * 4));
  list_bytes = AttendList::Bytes(limits.max_num_seqs, splits);
  list = reinterpret_cast<int32_t*>(carver.Next(list_bytes));
  const int64_t rows = int64_t{limits.max_num_seqs} * splits * heads.num_heads;
  parts = reinterpret_cast<float*>(carver.Next(rows * heads.head_dim * 4));
  part_sums = reinterpret_cast<float*>(carver.Next(rows * 2 * 4));
}

std::unique_ptr<BackendSizes> NewCudaSizes(bool gemm_library) {
  return std::make_unique<CudaSizes>(gemm_library);
}

absl::Status CheckCudaFormats(WeightFormat weights, KvFormat cache, int head_dim) {
  if (weights == WeightFormat::kF32) {
    return absl::InvalidArgumentError(
        "CUDA computes with weights in bfloat16, float16, int8 or int4, not in float32: add "
        "--dtype "
        "bfloat16, or --device cpu");
  }
  if (cache == KvFormat::kF32) {
    return absl::InvalidArgumentError(
        absl::StrCat("CUDA keeps keys and values in bfloat16, float16, int8 or int4, not in ",
                     KvFormatName(cache), ": add --kv-cache-dtype bfloat16, or --device cpu"));
  }
  if (head_dim % 8 != 0 || head_dim > kMostHeadDim) {
    return absl::InvalidArgumentError(
        absl::StrCat("CUDA computes with heads of a multiple of 8 up to ", kMostHeadDim,
                     " numbers; the model's have ", head_dim, ": add --device cpu"));
  }
  return absl::OkStatus();
}

}  // namespace bulkhead
