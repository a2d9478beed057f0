// A kernel that writes known numbers on an emulated device, as WritePartialSumLate asks for them.
#pragma once

#include <cstdint>

#include "base/arithmetic.h"
#include "comm/known_sums.h"
#include "tests/support/emulator/emulated_device.h"
#include "tests/support/emulator/intrinsics.h"

namespace bulkhead {

constexpr int kRampThreads = 256;
struct Ramp {
  float* out = nullptr;
  int64_t count = 0;
  int64_t first = 0;
  int period = 1;
  int offset = 0;
};

inline void WriteRamp(Ramp p) {
  cuda::GridDependencySynchronize();
  const int64_t i = int64_t{blockIdx.x} * kRampThreads + threadIdx.x;
  if (i < p.count) p.out[i] = static_cast<float>((p.first + i) % p.period + p.offset);
}

inline void EnqueueRamp(CudaDriver& driver, const Ramp& ramp) {
  Enqueue(driver, cuda::KernelOf<1024>("ramp", &WriteRamp),
          {.grid = {static_cast<int>(CeilDiv(ramp.count, int64_t{kRampThreads})), 1, 1},
           .block = {kRampThreads, 1, 1}},
          ramp);
}

inline WritePartialSumLate RampWriter(CudaDriver& driver) {
  return [&driver](float* out, int64_t count, int64_t first, int period, int offset) {
    EnqueueRamp(driver, {out, count, first, period, offset});
  };
}

}  // namespace bulkhead
