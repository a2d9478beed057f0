// CpuBackend: the SIMD backend, on a thread pool and with the kernels of one instruction set. Its
// ops are in the cpu.cc of each op's folder.
#pragma once

#include <memory>

#include "kernels/attend/cpu.h"
#include "kernels/backend.h"
#include "kernels/cpu/product_grid.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/gated_delta/cpu.h"
#include "kernels/matmul/cpu.h"
#include "kernels/simd/per_isa.h"

namespace bulkhead {

class CpuBackend final : public Backend {
 public:
  CpuBackend(Device& device, Isa isa, ActivationDType activation, AttentionDType attention,
             std::unique_ptr<ThreadPool> pool);

  Device& device() override { return device_; }
  int64_t PackedBytes(const LinearShape& shape) const override;
  std::unique_ptr<WeightSink> Pack(const Linear& linear) override;
  int64_t WorkspaceBytes(const StepLimits& limits, const HeadLayout& heads) const override;
  void SetWorkspace(std::byte* workspace, const StepLimits& limits,
                    const HeadLayout& heads) override;
  void OnHostThreads(int parts, absl::FunctionRef<void(int part)> body) override;
  int host_threads() const override { return pool_->num_threads(); }
  void MatMulGated(Activation activation, ConstMatrixView x, const Linear& weight,
                   MatrixView gate_up, MatrixView out) override;
  void MatMulExpertsGated(Activation activation, ConstMatrixView x,
                          absl::Span<const Linear> experts, const ExpertRouting& routing,
                          MatrixView gate_up, MatrixView out) override;

#define BH_OP(name, ...) void name(__VA_ARGS__) override;
#define BH_OPTIONAL_OP(name, ...)
#include "kernels/ops.inc"

 private:
  void Multiply(ConstMatrixView x, const Linear& weight, const ProductOutput& output);
  void MultiplyExperts(ConstMatrixView x, absl::Span<const Linear> experts,
                       const ExpertRouting& routing, const ProductOutput& output);
  // body(row) for each row of `x`.
  template <typename Body>
  void ForRows(MatrixView x, const Body& body) {
    pool_->ParallelForWork(x.rows(), x.rows() * x.cols(), [&](int, int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) body(t);
    });
  }

  Device& device_;
  const Isa isa_;
  const ActivationDType activation_;
  const AttentionDType attention_;
  const std::unique_ptr<ThreadPool> pool_;
  CpuMatMulScratch mat_mul_scratch_;
  CpuAttendScratch attend_scratch_;
  CpuDeltaScratch delta_scratch_;
};

// Whether qkv is non-empty: a rank may have no heads.
bool HasHeads(const StepIndex& index, const HeadLayout& heads, ConstMatrixView qkv);
// Checks that the cache has these heads, whole vectors of tokens per block and whole blocks per
// chunk.
void CheckCache(const KvGeometry& geometry, const HeadLayout& heads);

}  // namespace bulkhead
