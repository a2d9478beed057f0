#include "kernels/cuda/cuda_backend.h"

#include <utility>

#include "kernels/attend/cuda.h"
#include "kernels/cuda/cuda_sizes.h"
#include "kernels/cuda/launch.h"
#include "kernels/experts/cuda.h"
#include "kernels/matmul/cuda.h"
#include "kernels/packing/cuda_packing.h"

namespace bulkhead {

CudaBackend::CudaBackend(Device& device, CudaDriver& driver, std::unique_ptr<GemmLibrary> library,
                         bool in_fp8)
    : device_(device),
      driver_(driver),
      sizes_(NewCudaSizes(library != nullptr)),
      products_(std::make_unique<CudaProducts>(driver, std::move(library),
                                               CudaProductScratch::kUnpackedBytes, in_fp8)),
      experts_(std::make_unique<CudaExperts>(driver, *products_)),
      attention_(std::make_unique<CudaAttention>(device, driver)) {
  cuda::LoadRegisteredKernels(driver_);
}

CudaBackend::~CudaBackend() = default;

int64_t CudaBackend::PackedBytes(const LinearShape& shape) const {
  return sizes_->PackedBytes(shape);
}

std::unique_ptr<WeightSink> CudaBackend::Pack(const Linear& linear) {
  return NewPackingSink(linear, [this](const void* host, std::byte* packed, int64_t bytes) {
    const absl::MutexLock lock(&packing_);
    device_.CopyFromHost(host, packed, bytes);
    // A lost device reports it again at the next step.
    device_.Synchronize().IgnoreError();
  });
}

int64_t CudaBackend::WorkspaceBytes(const StepLimits& limits, const HeadLayout& heads) const {
  return sizes_->WorkspaceBytes(limits, heads);
}

int64_t CudaBackend::PackingHostBytes(const LinearShape& shape) const {
  return sizes_->PackingHostBytes(shape);
}

int64_t CudaBackend::WorkspaceHostBytes(const StepLimits& limits, const HeadLayout& heads) const {
  return sizes_->WorkspaceHostBytes(limits, heads);
}

void CudaBackend::SetWorkspace(std::byte* workspace, const StepLimits& limits,
                               const HeadLayout& heads) {
  BumpAllocator allocator(workspace);
  products_->SetScratch(products_->LayOut(limits, allocator));
  experts_->SetScratch(CudaExpertScratch(limits, allocator));
  attention_->SetScratch(CudaAttentionScratch(limits, heads, allocator), heads, limits.full_heads);
}

absl::Status CudaBackend::WarmUpMatMul(ConstMatrixView x, const Linear& weight, MatrixView out) {
  experts_->BeginWarmUp();
  attention_->BeginWarmUp();
  return products_->WarmUp(x, weight, out);
}

DType CudaBackend::product_input_dtype(WeightFormat weights) const {
  return sizes_->product_input_dtype(weights);
}

std::unique_ptr<Backend> NewCudaBackend(Device& device, CudaDriver& driver,
                                        std::unique_ptr<GemmLibrary> library, bool in_fp8) {
  return std::make_unique<CudaBackend>(device, driver, std::move(library), in_fp8);
}

}  // namespace bulkhead
