// Whether two kernels compute alike on the device at hand: what a new kernel does on a GPU that
// nothing of it has run on is compared with a proven one's while a rank warms up.
#pragma once

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "memory/cuda_driver.h"
#include "memory/matrix.h"

namespace bulkhead {

// Whether our kernels may use the products of warpgroups (wgmma): on compute capability 9.0, unless
// BULKHEAD_WARPGROUPS=0 is in the environment.
bool HasWarpgroups(const CudaProperties& gpu);

// `first` and `second` enqueue what writes all of `out` [rows, columns], f32, bf16 or f16 in device
// memory, which begins as NaNs and ends as the second's. Up to 64 rows, evenly spread, are
// compared: no number may differ by more than `tolerance` times the largest; those that neither
// makes finite are equal. Waits for the device, whose errors are returned.
absl::StatusOr<bool> ComputeAlike(CudaDriver& driver, MatrixView out, float tolerance,
                                  absl::FunctionRef<void()> first,
                                  absl::FunctionRef<void()> second);

// Of sums of the same products in f32, in orders of their own.
inline constexpr float kProductTolerance = 1e-3F;

}  // namespace bulkhead
