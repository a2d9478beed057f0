// The products of the CUDA backend: how a MatMul is cut into launches, and the memory that it needs
// beside its operands.
#pragma once

#include <cstdint>

#include "kernels/backend.h"
#include "kernels/cuda/kernels.h"
#include "memory/cuda_driver.h"
#include "memory/ledger.h"
#include "memory/linear.h"

namespace bulkhead {

class CudaProducts {
 public:
  // `driver` outlives this.
  explicit CudaProducts(CudaDriver& driver) : driver_(driver) {}

  // Takes its part of the workspace; without memory behind the carver only counts.
  void LayOut(const StepLimits& limits, Carver& carver);

  // Backend::MatMul.
  void MatMul(ConstMatrixView x, const Linear& weight, MatrixView out);

 private:
  void MultiplyRows(ConstMatrixView x, WeightFormat format, const cuda::PackedWeight& weight,
                    MatrixView out);

  CudaDriver& driver_;
  uint16_t* inputs_ = nullptr;  // of a product, in 16 bits
  int64_t inputs_count_ = 0;
};

}  // namespace bulkhead
