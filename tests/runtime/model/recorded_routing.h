// Where a token's scores of two experts are close, rounding decides which one it is sent to, and
// its logits are others. For models with experts the CUDA backend therefore routes by the CPU's
// scores, which its own must be near to at every layer.
#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "kernels/cuda/cuda_backend.h"
#include "tests/runtime/model/rounded_products.h"
#include "tests/support/golden.h"

namespace bulkhead {

using RouterLogits = std::vector<std::vector<float>>;  // of each call for any token

// The bits of the CPU.
class RecordsRouting final : public RoundedProducts {
 public:
  RecordsRouting(Device& device, bool rounds, RouterLogits& calls)
      : RoundedProducts(device, rounds), calls_(calls) {}

  void RouteTokens(ConstMatrixView logits, ConstMatrixView bias, ConstMatrixView scales,
                   const RouterOptions& options, const ExpertRouting& routing) override {
    if (!logits.empty()) {
      calls_.emplace_back(logits.F32(), logits.F32() + logits.rows() * logits.cols());
    }
    ReferenceBackend::RouteTokens(logits, bias, scales, options, routing);
  }

 private:
  RouterLogits& calls_;
};

class RoutedAsRecorded final : public CudaBackend {
 public:
  RoutedAsRecorded(Device& device, CudaDriver& driver, const RouterLogits& calls, double tolerance)
      : CudaBackend(device, driver, nullptr), calls_(calls), tolerance_(tolerance) {}

  void RouteTokens(ConstMatrixView logits, ConstMatrixView bias, ConstMatrixView scales,
                   const RouterOptions& options, const ExpertRouting& routing) override {
    if (!logits.empty()) {
      ASSERT_LT(next_, calls_.size());
      const std::vector<float>& recorded = calls_[next_++];
      std::vector<float> own(logits.rows() * logits.cols());
      ASSERT_EQ(own.size(), recorded.size());
      const auto bytes = static_cast<int64_t>(own.size() * sizeof(float));
      device().CopyToHost(logits.data(), own.data(), bytes);
      ASSERT_TRUE(device().Synchronize().ok());
      EXPECT_LT(RelativeError(own, recorded), tolerance_) << "call " << next_;
      // The model's buffer, which the router's product has written.
      device().CopyFromHost(recorded.data(), const_cast<std::byte*>(logits.data()), bytes);
    }
    CudaBackend::RouteTokens(logits, bias, scales, options, routing);
  }

 private:
  const RouterLogits& calls_;
  const double tolerance_;
  size_t next_ = 0;
};

}  // namespace bulkhead
