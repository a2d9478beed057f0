// PlainBackend: what the two reference backends share: weights kept as stored, and the ops that
// have one rounding at most per output, so that there is only one right answer.
#pragma once

#include <memory>

#include "kernels/backend.h"

namespace bulkhead {

class PlainBackend : public Backend {
 public:
  explicit PlainBackend(Device& device) : device_(device) {}

  Device& device() override { return device_; }
  int64_t PackedBytes(const LinearShape& shape) const override;
  std::unique_ptr<WeightSink> Pack(const Linear& linear) override;
  int64_t WorkspaceBytes(const StepLimits& limits, const HeadLayout& heads) const override;
  void SetWorkspace(std::byte* workspace, const StepLimits& limits,
                    const HeadLayout& heads) override;

  void Embed(const int32_t* tokens, const Linear& table, int64_t first_row,
             MatrixView out) override;
  void AddBias(ConstMatrixView bias, MatrixView x) override;
  void AppendKv(const StepIndex& index, const HeadLayout& heads, ConstMatrixView qkv,
                const KvLayerView& kv) override;
  void AddResidual(ConstMatrixView sum, ConstMatrixView bias, MatrixView hidden) override;
  void SelectRows(ConstMatrixView x, const int32_t* rows, MatrixView out) override;
  void Fill(float value, MatrixView x) override;

 protected:
  // One output's weights, as f32: out [K].
  static void WeightRow(const Linear& linear, int64_t row, float* out);

 private:
  Device& device_;
};

}  // namespace bulkhead
