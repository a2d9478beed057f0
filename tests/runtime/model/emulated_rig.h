// Emulated CUDA devices for the ranks of a model under test, and how near its logits must be to
// those of the CPU.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "kernels/cuda/cuda_backend.h"
#include "memory/cuda_device.h"
#include "tests/support/emulator/emulated_device.h"
#include "tests/support/golden.h"
#include "tests/support/model_rig.h"

namespace bulkhead {

inline constexpr double kTolerance = 3e-2;  // norm(got - want) / norm(want)
inline constexpr float kClearMargin =
    0.2F;  // of the CPU's greatest logit: then the arg max must agree

inline RigDevice EmulatedDevice(emulator::Schedule schedule, bool late,
                                std::shared_ptr<emulator::EmulatedCudaDriver>* keep = nullptr,
                                int num_sms = 4) {
  emulator::DeviceOptions options{.total_bytes = int64_t{64} << 20, .guarded = true};
  options.late = late;
  options.num_sms = num_sms;
  options.schedule = schedule;
  auto driver = std::make_shared<emulator::EmulatedCudaDriver>(options);
  RigDevice rig;
  rig.device = std::move(CudaDevice::New(*driver, 0)).value();
  rig.backend = NewCudaBackend(*rig.device, *driver);
  if (keep != nullptr) *keep = driver;
  rig.driver = std::move(driver);
  return rig;
}

// Index of the greatest, and how far it is above the second.
inline std::pair<int64_t, float> Greatest(const float* row, int64_t size) {
  const int64_t best = std::max_element(row, row + size) - row;
  float second = -HUGE_VALF;
  for (int64_t i = 0; i < size; ++i) {
    if (i != best) second = std::max(second, row[i]);
  }
  return {best, row[best] - second};
}

// Rows of logits of one prompt, by norm(got - want) / norm(want) and by the arg max.
inline void ExpectLikeCpu(const std::vector<float>& cuda, const std::vector<float>& cpu,
                          int64_t vocab, KvFormat kv_format) {
  // Of fp8 a code that rounding flips is a sixteenth of its number.
  EXPECT_LT(RelativeError(cuda, cpu), (kv_format == KvFormat::kFP8 ? 2 : 1) * kTolerance);
  for (size_t at = 0; at < cpu.size(); at += vocab) {
    const auto [want, margin] = Greatest(&cpu[at], vocab);
    // Rounding flips codes of a quantised cache, too: as much again.
    if (margin <= (IsQuantized(kv_format) ? 2 : 1) * kClearMargin) continue;
    EXPECT_EQ(Greatest(&cuda[at], vocab).first, want)
        << "row " << at / vocab << ", the CPU's margin " << margin;
  }
}

}  // namespace bulkhead
