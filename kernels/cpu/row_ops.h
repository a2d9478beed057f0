// RowOps: the ops of the CPU backend that work row by row (norms, rotary embedding, attention,
// SwiGlu), on a thread pool and with the kernels of one instruction set. Their contract is that of
// kernels/backend.h; their bits are those of kernels/reference/ordered_*.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/backend.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/thread_pool.h"

namespace bulkhead {

struct RowKernels;

class RowOps {
 public:
  // `pool` must outlive this.
  RowOps(ThreadPool& pool, Isa isa);

  // Scratch for attention: per thread for kMaxThreads threads, the list of work units of a step,
  // and the partial results of contexts that several threads share. Depends on nothing but the
  // arguments.
  static int64_t WorkspaceBytes(const StepLimits& limits, const HeadLayout& heads);
  // 64-byte aligned, WorkspaceBytes long, not owned.
  void SetWorkspace(std::byte* workspace, const StepLimits& limits, const HeadLayout& heads);

  void RmsNorm(ConstMatrixView x, ConstMatrixView weight, float epsilon, MatrixView out);
  void NormRope(const StepIndex& index, const HeadLayout& heads, ConstMatrixView q_norm,
                ConstMatrixView k_norm, float epsilon, ConstMatrixView rope, MatrixView qkv);
  void AppendKv(const StepIndex& index, const HeadLayout& heads, ConstMatrixView qkv,
                const KvLayerView& kv);
  void Attend(const StepIndex& index, const HeadLayout& heads, ConstMatrixView qkv,
              const KvLayerView& kv, float scale, int window, MatrixView out);
  void SwiGlu(ConstMatrixView gate_up, MatrixView out);

 private:
  ThreadPool& pool_;
  const RowKernels& kernels_;
  StepLimits limits_;
  HeadLayout heads_;
  std::byte* workspace_ = nullptr;
};

}  // namespace bulkhead
