// CudaBackend: the ops of Backend as launches on a CUDA device. Activations are f32; products and
// attention round their inputs to bf16 (f16 if weights or cache are f16) for the tensor cores and
// sum in f32. The same sequence of steps gives the same bits on the same kind of device; they
// differ from the CPU's and depend on the group's size. Each op is in its folder's cuda.cu, beside
// its kernel.
#pragma once

#include <memory>

#include "absl/synchronization/mutex.h"
#include "kernels/backend.h"
#include "kernels/cuda/gemm_library.h"
#include "memory/cuda_driver.h"

namespace bulkhead {

class CudaAttention;  // kernels/attend/cuda.h
class CudaExperts;    // kernels/experts/cuda.h
class CudaProducts;   // kernels/matmul/cuda.h

class CudaBackend : public Backend {
 public:
  CudaBackend(Device& device, CudaDriver& driver, std::unique_ptr<GemmLibrary> library,
              bool in_fp8 = false);
  ~CudaBackend() override;

  Device& device() override { return device_; }
  int64_t PackedBytes(const LinearShape& shape) const override;
  int64_t PackingHostBytes(const LinearShape& shape) const override;
  int64_t WorkspaceHostBytes(const StepLimits& limits, const HeadLayout& heads) const override;
  bool host_memory() const override { return false; }
  std::unique_ptr<WeightSink> Pack(const Linear& linear) override;
  int64_t WorkspaceBytes(const StepLimits& limits, const HeadLayout& heads) const override;
  void SetWorkspace(std::byte* workspace, const StepLimits& limits,
                    const HeadLayout& heads) override;
  bool samples_tokens() const override { return true; }
  DType product_input_dtype(WeightFormat weights) const override;
  void BeginStep(const StepIndex& host_index) override;
  absl::Status WarmUpMatMul(ConstMatrixView x, const Linear& weight, MatrixView out) override;
  absl::Status WarmUpMatMulGated(ConstMatrixView x, const Linear& weight,
                                 MatrixView gate_up) override;
  // If the library multiplies (WarmUpMatMulGated), gates and ups are in bf16.
  void MatMulGated(Activation activation, ConstMatrixView x, const Linear& weight,
                   MatrixView gate_up, MatrixView out) override;

#define BH_OP(name, ...) void name(__VA_ARGS__) override;
#define BH_OPTIONAL_OP(name, ...) void name(__VA_ARGS__) override;
#include "kernels/ops.inc"

 private:
  Device& device_;
  CudaDriver& driver_;
  const std::unique_ptr<BackendSizes> sizes_;
  absl::Mutex packing_;  // one copy at a time, from several loading threads
  const std::unique_ptr<CudaProducts> products_;
  const std::unique_ptr<CudaExperts> experts_;
  const std::unique_ptr<CudaAttention> attention_;
};

// `device` and `driver` are one GPU; both outlive the backend. Used by one thread, except weight
// sinks, which several threads may fill. `library` multiplies weights that WarmUpMatMul has seen;
// null: our own kernels multiply everything. in_fp8: ActivationDType::kFp8.
std::unique_ptr<Backend> NewCudaBackend(Device& device, CudaDriver& driver,
                                        std::unique_ptr<GemmLibrary> library = nullptr,
                                        bool in_fp8 = false);

}  // namespace bulkhead
