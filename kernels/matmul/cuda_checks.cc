// What CudaProducts checks of the device and the library while it warms up.
#include <algorithm>
#include <vector>

#include "base/log.h"
#include "base/status.h"
#include "kernels/cuda/alike.h"
#include "kernels/cuda/write_late.h"
#include "kernels/matmul/cuda.h"
#include "memory/bf16.h"

namespace bulkhead {

absl::Status CudaProducts::CheckWarpgroups(const Linear& weight, const PackedLayout& layout,
                                           MatrixView out) {
  const LinearShape& shape = weight.shape;
  if (!has_warpgroups_ || !IsQuantized(shape.format)) return absl::OkStatus();
  if (!checked_.insert({shape.format, shape.rows, shape.cols}).second) return absl::OkStatus();
  const int64_t max_tokens = std::min({int64_t{kMaxFewTokens}, out.rows(), RowsAtOnce(layout)});
  std::vector<uint16_t> inputs(max_tokens * layout.depth());
  for (size_t i = 0; i < inputs.size(); ++i) {
    inputs[i] = Bf16OfF32(static_cast<float>(static_cast<int>(i % 31) - 15) / 16);
  }
  driver_.CopyToDevice(inputs.data(), reinterpret_cast<std::byte*>(scratch_.inputs),
                       static_cast<int64_t>(inputs.size() * sizeof(uint16_t)));
  const cuda::PackedWeight packed = layout.Parameters(shape, weight.packed);
  for (const int64_t tokens : {9, 16, 17, 32, 33, 64}) {  // each kernel with its most and fewest
    if (tokens > max_tokens || !has_warpgroups_) break;
    const MatrixView rows = out.Rows(0, tokens);
    const auto multiply = [&](bool by_warpgroups) {
      has_warpgroups_ = by_warpgroups;
      MultiplyByKernel(static_cast<int>(tokens), shape.format, scratch_.inputs, packed, rows);
    };
    BH_ASSIGN_OR_RETURN(has_warpgroups_, ComputeAlike(
                                             driver_, rows, kProductTolerance,
                                             [&] { multiply(true); }, [&] { multiply(false); }));
    if (has_warpgroups_) continue;
    BH_LOG(kWarning) << "products of " << tokens << " tokens by warpgroups (wgmma) with weights in "
                     << WeightFormatName(shape.format) << " of " << shape.rows << " x "
                     << shape.cols << " are wrong on this GPU: going on without them";
  }
  return absl::OkStatus();
}

absl::Status CudaProducts::CheckThatItWaits(const Cut& cut, WeightFormat format,
                                            const cuda::PackedWeight& weight, MatrixView out) {
  for (const GemmProblem& problem : {cut.piece, cut.last}) {
    const GemmOperands operands = OperandsOf(problem, 0, format, scratch_.inputs, weight);
    BH_RETURN_IF_ERROR(CheckThatItWaits(problem, operands, out));
    if (cut.pieces == 1) break;
  }
  return absl::OkStatus();
}

absl::Status CudaProducts::CheckThatItWaits(const GemmProblem& problem,
                                            const GemmOperands& operands, MatrixView out) {
  constexpr int kPeriod = 97;  // their bits are finite operands: pairs, or four codes
  auto* const inputs = reinterpret_cast<std::byte*>(scratch_.inputs);
  const int64_t input_bytes = problem.depth * (problem.fp8 ? 1 : 2);
  if (problem.fp8) SetInputScales(problem);
  const int64_t bytes = problem.outputs * DTypeBytes(out.dtype());
  std::vector<std::byte> in_time(bytes);
  std::vector<std::byte> at_once(bytes);
  for (std::vector<std::byte>* const product : {&in_time, &at_once}) {
    driver_.Fill(inputs, std::byte{0}, input_bytes);
    BH_RETURN_IF_ERROR(driver_.Synchronize());
    WriteLate(driver_, reinterpret_cast<float*>(inputs), input_bytes / 4, /*first=*/0, kPeriod,
              /*offset=*/1);
    if (product == &in_time) BH_RETURN_IF_ERROR(driver_.Synchronize());
    library_->Multiply(problem, operands, out.data(), scratch_.library);
    driver_.CopyToHost(out.data(), product->data(), bytes);
    BH_RETURN_IF_ERROR(driver_.Synchronize());
  }
  if (in_time == at_once) return absl::OkStatus();
  BH_LOG(kWarning) << "cuBLASLt multiplies " << problem.tokens << " tokens of " << problem.depth
                   << " inputs with " << problem.outputs << " outputs"
                   << (problem.fp8 ? " in fp8" : "")
                   << " before the kernel ahead has written them; "
                   << (problem.fp8 ? "multiplying in bf16" : "using our own kernel")
                   << " (BULKHEAD_EARLY_LAUNCH=0 lets kernels wait for each other's end)";
  refused_.insert(problem);
  return absl::OkStatus();
}

}  // namespace bulkhead
