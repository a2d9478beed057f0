// SamplingOps as launches on a CUDA device.
#pragma once

#include "kernels/sampling_ops.h"
#include "memory/cuda_driver.h"

namespace bulkhead {

class CudaSamplingOps final : public SamplingOps {
 public:
  explicit CudaSamplingOps(CudaDriver& driver) : driver_(driver) {}  // outlives the ops
  void SelectCandidates(ConstMatrixView logits, int64_t first_id, MatrixView lists) override;
  void Draw(ConstMatrixView lists, const TokenSampling* draws, const int32_t* banned,
            int32_t* drawn, int32_t* last_sampled) override;
  void FillInSampled(const StepIndex& index, const int32_t* last_sampled,
                     int32_t* token_ids) override;

 private:
  CudaDriver& driver_;
};

}  // namespace bulkhead
