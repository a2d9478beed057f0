// Whether two kernels compute the same on this device: on GPUs where a new kernel has not been
// tested, it is compared with a proven one while a rank warms up.
#pragma once

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "memory/cuda_driver.h"
#include "memory/matrix.h"

namespace bulkhead {

// Whether our kernels may use warpgroup products (wgmma): on compute capability 9.0, unless
// BULKHEAD_WARPGROUPS=0 is in the environment.
bool HasWarpgroups(const CudaProperties& gpu);

// `first` and `second` enqueue work that writes all of `out` [rows, columns], f32, bf16 or f16 in
// device memory, which begins as NaNs and ends as the second's. Up to 64 rows, evenly spread, are
// compared: no number may differ by more than `tolerance` times the largest; numbers that are not
// finite in both are equal. Waits for the device and returns its errors.
absl::StatusOr<bool> ComputeAlike(CudaDriver& driver, MatrixView out, float tolerance,
                                  absl::FunctionRef<void()> first,
                                  absl::FunctionRef<void()> second);

// For f32 sums of the same products in different orders.
inline constexpr float kProductTolerance = 1e-3F;
// Of sums over inputs that are rounded to E4M3, of 3 bits of fraction: an input's error is at most
// 2^-4 of it, and 2^-5 on average (its root of squares). So is the sum's, of what sums with random
// signs are on average; five of those, against the largest of many sums, four of what they are on
// average: 0.04. A scale of another row or group is off by a large part of its number.
inline constexpr float kFp8Tolerance = 0.1F;

}  // namespace bulkhead
