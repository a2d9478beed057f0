// ProductVerbs: MatMul and Embed of the CPU backend, on a thread pool and with the kernels of one
// instruction set. Their contract is that of kernels/backend.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/backend.h"
#include "kernels/cpu/convert.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/products.h"
#include "kernels/cpu/thread_pool.h"

namespace bulkhead {

const ProductKernels& ProductKernelsOf(Isa isa);
const ConvertKernels& ConvertKernelsOf(Isa isa);

class ProductVerbs {
 public:
  // `pool` must outlive this.
  ProductVerbs(ThreadPool& pool, Isa isa) : pool_(pool), kernels_(ProductKernelsOf(isa)) {}

  // Blocks of x and unfinished sums, for each of kMaxThreads threads.
  static int64_t WorkspaceBytes(const StepLimits& limits);
  // 64-byte aligned, WorkspaceBytes long, not owned.
  void SetWorkspace(std::byte* workspace, const StepLimits& limits);

  void Embed(const int32_t* tokens, const Linear& table, int64_t first_row, MatrixView out);
  void MatMul(ConstMatrixView x, const Linear& weight, MatrixView out);

 private:
  float* ScratchOf(int thread) const { return workspace_ + thread * scratch_floats_; }
  void MultiplyMany(const Product& product, int64_t rows, int64_t panels);
  void MultiplySlices(const Product& product, int64_t rows, int64_t panels);

  ThreadPool& pool_;
  const ProductKernels& kernels_;
  float* workspace_ = nullptr;
  int64_t scratch_floats_ = 0;  // of one thread
  int max_rows_ = 0;
};

}  // namespace bulkhead
