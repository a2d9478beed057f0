// ReferenceBackend: plain loops on the host, which the tests compare with. Weights are kept as
// stored. In double it rounds every sum, quotient and exponential to f32 once: the reference
// values. In the promised order it computes in f32 with std::fma and exactly the roundings that
// every SIMD variant must equal by memcmp: the reference bits. Ops with at most one rounding per
// output are the same in both.
#pragma once

#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "kernels/backend.h"

namespace bulkhead {

class ReferenceBackend : public Backend {
 public:
  enum class Order { kDouble, kPromised };

  ReferenceBackend(Device& device, Order order, ActivationDType activation,
                   AttentionDType attention = AttentionDType::kF32)
      : device_(device),
        in_order_(order == Order::kPromised),
        activation_(activation),
        attention_(attention) {}

  Device& device() override { return device_; }
  int64_t PackedBytes(const LinearShape& shape) const override;
  std::unique_ptr<WeightSink> Pack(const Linear& linear) override;
  int64_t WorkspaceBytes(const StepLimits&, const HeadLayout&) const override { return 0; }
  void SetWorkspace(std::byte*, const StepLimits&, const HeadLayout&) override {}

#define BH_OP(name, ...) void name(__VA_ARGS__) override;
#define BH_OPTIONAL_OP(name, ...)
#include "kernels/ops.inc"

  // Gets a row of x, an output, and the sums of its slices, which it may overwrite.
  using SliceSumsVisitor =
      absl::FunctionRef<void(int64_t row, int64_t output, std::vector<float>& sums)>;

 private:
  // One output's weights, as f32: out [K].
  static void WeightRow(const Linear& linear, int64_t row, float* out);
  static double DotInDouble(const float* x, const std::vector<float>& weight);
  // In the promised order, for all rows of x and all outputs.
  void VisitSliceSums(const Linear& weight, ConstMatrixView x, SliceSumsVisitor visit) const;
  // Joins slices in pairs, pairs of pairs and so on; overwrites `sums`.
  static float Join(std::vector<float>& sums);

  Device& device_;
  const bool in_order_;  // the promised order
  const ActivationDType activation_;
  const AttentionDType attention_;
};

}  // namespace bulkhead
