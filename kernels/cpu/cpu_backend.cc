#include "kernels/cpu/cpu_backend.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"
#include "kernels/cpu/isa.h"
#include "kernels/packing/packing.h"
#include "kernels/simd/exp_constants.h"

namespace bulkhead {

CpuBackend::CpuBackend(Device& device, Isa isa, ActivationDType activation,
                       AttentionDType attention, std::unique_ptr<ThreadPool> pool)
    : device_(device),
      isa_(isa),
      activation_(activation),
      attention_(attention),
      pool_(std::move(pool)) {}

int64_t CpuBackend::PackedBytes(const LinearShape& shape) const { return PanelBytes(shape); }

std::unique_ptr<WeightSink> CpuBackend::Pack(const Linear& linear) {
  return NewPanelSink(linear, BH_OF_ISA(isa_, kConvertKernels), BH_OF_ISA(isa_, kPackingKernels));
}

int64_t CpuBackend::WorkspaceBytes(const StepLimits& limits, const HeadLayout& heads) const {
  BumpAllocator allocator;
  const CpuMatMulScratch mat_mul(limits, allocator);
  const CpuAttendScratch attend(limits, heads, allocator);
  const CpuDeltaScratch delta(limits, allocator);
  return allocator.used_bytes();
}

void CpuBackend::SetWorkspace(std::byte* workspace, const StepLimits& limits,
                              const HeadLayout& heads) {
  BumpAllocator allocator(workspace);
  mat_mul_scratch_ = CpuMatMulScratch(limits, allocator);
  attend_scratch_ = CpuAttendScratch(limits, heads, allocator);
  delta_scratch_ = CpuDeltaScratch(limits, allocator);
}

void CpuBackend::OnHostThreads(int parts, absl::FunctionRef<void(int part)> body) {
  pool_->ParallelFor(parts, [&](int, int64_t begin, int64_t end) {
    for (int64_t part = begin; part < end; ++part) body(static_cast<int>(part));
  });
}

bool HasHeads(const StepIndex& index, const HeadLayout& heads, ConstMatrixView qkv) {
  if (index.num_tokens == 0 || heads.num_heads + heads.num_kv_heads == 0) return false;
  BH_CHECK(qkv.rows() == index.num_tokens);
  BH_CHECK(qkv.cols() == heads.qkv_dim());
  return true;
}

void CheckCache(const KvGeometry& geometry, const HeadLayout& heads) {
  BH_CHECK(geometry.kv_heads == heads.num_kv_heads && geometry.head_dim == heads.head_dim);
  BH_CHECK(geometry.latent == heads.latent() && heads.value_dim <= heads.head_dim);
  BH_CHECK(geometry.block_tokens % kAttentionLanes == 0 &&
           kAttentionChunk % geometry.block_tokens == 0);
}

absl::StatusOr<std::unique_ptr<Backend>> NewCpuBackend(Device& device,
                                                       const CpuBackendOptions& options) {
  if (options.num_threads < 1 || options.num_threads > kMaxThreads) {
    return absl::InvalidArgumentError(absl::StrCat("num_threads is ", options.num_threads,
                                                   "; it must lie in [1, ", kMaxThreads, "]"));
  }
  BH_ASSIGN_OR_RETURN(const Isa isa, ParseIsa(options.isa));
  BH_RETURN_IF_ERROR(CheckBf16Tiles(isa, options.activation, options.attention));
  BH_ASSIGN_OR_RETURN(std::unique_ptr<ThreadPool> pool,
                      ThreadPool::Create(options.num_threads, options.may_spin));
  return std::make_unique<CpuBackend>(device, isa, options.activation, options.attention,
                                      std::move(pool));
}

}  // namespace bulkhead
