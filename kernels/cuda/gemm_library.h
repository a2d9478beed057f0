// GemmLibrary: products of many tokens by a library found on the machine. Callers do not depend on
// which one it is.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "memory/cuda_driver.h"

namespace bulkhead {

// out [tokens][outputs] = x [tokens][depth] weight [outputs][depth]^T; operands in bf16, f16 or
// E4M3 with scales, row-major without gaps, 16-byte aligned; sums in f32, out in f32 or rounded to
// bf16.
struct GemmProblem {
  bool f16 = false;
  bool fp8 = false;  // both operands; f16 is false then
  bool out_bf16 = false;
  int64_t tokens = 0;
  int64_t outputs = 0;
  int64_t depth = 0;
  int64_t out_stride = 0;            // numbers from row to row of out
  int64_t out_alignment_bytes = 16;  // 4, 8 or 16

  auto operator<=>(const GemmProblem&) const = default;
};

// Device memory. In fp8 a number is its code times the scale of its row and of its group of
// kGemmScaleGroup inputs: scales are [depth / kGemmScaleGroup, rounded up][rows], 16-byte aligned.
inline constexpr int64_t kGemmScaleGroup = 128;
struct GemmOperands {
  const void* x = nullptr;
  const void* weight = nullptr;
  const float* x_scales = nullptr;
  const float* weight_scales = nullptr;
};

class GemmLibrary {
 public:
  // Device memory, 64-byte aligned, that each Multiply may use.
  static constexpr int64_t kWorkspaceBytes = int64_t{32} << 20;

  virtual ~GemmLibrary() = default;
  // UNIMPLEMENTED, with why, unless it may have algorithms for problems in fp8.
  virtual absl::Status CheckFp8() const = 0;
  // Chooses once and for all how a problem is computed: equal operands then give equal bits.
  // NOT_FOUND when the library has no algorithm for it.
  virtual absl::Status Prepare(const GemmProblem& problem) = 0;
  virtual bool IsPrepared(const GemmProblem& problem) const = 0;
  // Enqueues a prepared problem; pointers are device memory. Errors surface at the driver's next
  // Synchronize.
  virtual void Multiply(const GemmProblem& problem, const GemmOperands& operands, void* out,
                        std::byte* workspace) = 0;
};

// "cuBLASLt 13.1.0" if found: only $BULKHEAD_CUBLASLT if that is set, else by the loader and in the
// toolkit's folder. UNAVAILABLE, with the remedy, if no usable one is found; UNIMPLEMENTED in a
// build without its header.
absl::StatusOr<std::string> CublasLtName();
// For the device of `driver`, which outlives it. UNAVAILABLE also when it does not start.
absl::StatusOr<std::unique_ptr<GemmLibrary>> NewCublasLt(CudaDriver& driver);

}  // namespace bulkhead
