// ProductOps: MatMul and Embed of the CPU backend, on a thread pool and with the kernels of one
// instruction set. Their contract is that of kernels/backend.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/backend.h"
#include "kernels/cpu/convert.h"
#include "kernels/cpu/int8_products.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/packing_kernels.h"
#include "kernels/cpu/products.h"
#include "kernels/cpu/thread_pool.h"
#include "memory/ledger.h"

namespace bulkhead {

const ProductKernels& ProductKernelsOf(Isa isa);
const ConvertKernels& ConvertKernelsOf(Isa isa);
const PackingKernels& PackingKernelsOf(Isa isa);
const Int8Kernels& Int8KernelsOf(Isa isa);

class ProductOps {
 public:
  // `pool` must outlive this.
  ProductOps(ThreadPool& pool, Isa isa, ActivationDType activation)
      : pool_(pool),
        kernels_(ProductKernelsOf(isa)),
        int8_kernels_(Int8KernelsOf(isa)),
        activation_(activation) {}

  // Blocks of x and unfinished sums, for each of kMaxThreads threads; quantised inputs.
  int64_t WorkspaceBytes(const StepLimits& limits) const;
  // 64-byte aligned, WorkspaceBytes long, not owned.
  void SetWorkspace(std::byte* workspace, const StepLimits& limits);

  void Embed(const int32_t* tokens, const Linear& table, int64_t first_row, MatrixView out);
  void MatMul(ConstMatrixView x, const Linear& weight, MatrixView out);

 private:
  float* ScratchOf(int thread) const { return workspace_ + thread * scratch_floats_; }
  QuantizedInputs LayOutInputs(const StepLimits& limits, BumpAllocator& allocator) const;
  bool IsInInt8(const Linear& weight) const;
  void MatMulInInt8(ConstMatrixView x, const Linear& weight, MatrixView out);
  void MultiplyMany(const Product& product, int64_t rows, int64_t panels);
  void MultiplySlices(const Product& product, int64_t rows, int64_t panels);

  ThreadPool& pool_;
  const ProductKernels& kernels_;
  const Int8Kernels& int8_kernels_;
  const ActivationDType activation_;
  float* workspace_ = nullptr;
  int64_t scratch_floats_ = 0;  // of one thread
  int max_rows_ = 0;
  // Of quantised inputs: the most that one product has.
  int64_t max_inputs_ = 0;
  QuantizedInputs inputs_{};
};

}  // namespace bulkhead
