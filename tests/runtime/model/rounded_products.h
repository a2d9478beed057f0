// The bits of the CPU, but for products and attention: they round their inputs to bf16, as those of
// a GPU do. What a model that amplifies that rounding is compared with.
#pragma once

#include <memory>
#include <vector>

#include "kernels/reference/reference_backend.h"
#include "kernels/simd/number_format.h"
#include "tests/support/model_rig.h"

namespace bulkhead {

class RoundedProducts : public ReferenceBackend {
 public:
  explicit RoundedProducts(Device& device, bool rounds = true)
      : ReferenceBackend(device, Order::kPromised, ActivationDType::kF32), rounds_(rounds) {}

  void MatMul(ConstMatrixView x, const Linear& weight, MatrixView out) override {
    std::vector<float> numbers;
    ReferenceBackend::MatMul(Rounded(x, numbers), weight, out);
  }
  void MatMulExperts(ConstMatrixView x, absl::Span<const Linear> experts,
                     const ExpertRouting& routing, MatrixView out) override {
    std::vector<float> numbers;
    ReferenceBackend::MatMulExperts(Rounded(x, numbers), experts, routing, out);
  }
  void SumExperts(ConstMatrixView x, absl::Span<const Linear> experts, const ExpertRouting& routing,
                  ConstMatrixView shared_x, const Linear* shared, MatrixView out) override {
    std::vector<float> numbers;
    std::vector<float> shared_numbers;
    ReferenceBackend::SumExperts(Rounded(x, numbers), experts, routing,
                                 Rounded(shared_x, shared_numbers), shared, out);
  }
  void Attend(const StepIndex& index, const HeadLayout& heads, ConstMatrixView qkv,
              const KvLayerView& kv, const AttentionOptions& options, MatrixView out) override {
    std::vector<float> numbers;
    ReferenceBackend::Attend(index, heads, Rounded(qkv, numbers), kv, options, out);
  }

 private:
  // x in `numbers`, which outlives the view.
  ConstMatrixView Rounded(ConstMatrixView x, std::vector<float>& numbers) const {
    if (!rounds_ || x.empty()) return x;
    for (int64_t row = 0; row < x.rows(); ++row) {
      for (int64_t i = 0; i < x.cols(); ++i) {
        numbers.push_back(F32OfBf16(Bf16OfF32(x.F32(row)[i])));
      }
    }
    return {reinterpret_cast<const std::byte*>(numbers.data()), DType::kF32, x.rows(), x.cols(),
            x.cols()};
  }

  const bool rounds_;
};

inline RigDevice DeviceOfRoundedProducts() {
  RigDevice rig;
  rig.device = NewHostDevice(0);
  rig.backend = std::make_unique<RoundedProducts>(*rig.device);
  return rig;
}

}  // namespace bulkhead
