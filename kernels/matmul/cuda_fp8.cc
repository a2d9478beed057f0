// Products in fp8 by a library that multiplies E4M3 by E4M3 (GemmProblem::fp8): the codes of a
// weight as they are stored, and inputs quantised in groups of 128.
#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/arithmetic.h"
#include "base/check.h"
#include "base/log.h"
#include "base/status.h"
#include "kernels/cuda/alike.h"
#include "kernels/cuda/launch.h"
#include "kernels/matmul/cuda.h"
#include "memory/bf16.h"

namespace bulkhead {
namespace {

static_assert(cuda::kFp8Group == kGemmScaleGroup);

// That both ways multiply in the warm-up: different ones, with groups of different magnitudes.
constexpr int64_t kTrialRows = 16;
// CudaProductScratch has room for that many beside all tokens' if they are this long.
constexpr int64_t kMinFp8Depth = 128;

std::vector<uint16_t> TrialRows(int64_t inputs, int64_t depth) {
  std::vector<uint16_t> rows(kTrialRows * depth);
  for (int64_t row = 0; row < kTrialRows; ++row) {
    for (int64_t i = 0; i < inputs; ++i) {
      const int64_t steps = (i * 7 + row * 13) % 31 - 15;
      const int64_t factor = 1 + (i / kGemmScaleGroup + row) % 4;
      rows[row * depth + i] = Bf16OfF32(static_cast<float>(steps * factor) / 16);
    }
  }
  return rows;
}

int64_t GroupsOf(const GemmProblem& problem) { return CeilDiv(problem.depth, kGemmScaleGroup); }

}  // namespace

bool CudaProducts::HasFp8() const {
  const CudaProperties& gpu = driver_.properties();
  std::string why;
  if (gpu.capability() != 90) {
    why = absl::StrCat("compute capability 9.0 is needed, and ", gpu.name, " has ",
                       gpu.capability_major, ".", gpu.capability_minor);
  } else if (library_ == nullptr) {
    why = "cuBLASLt is not used";
  } else if (const absl::Status has = library_->CheckFp8(); !has.ok()) {
    why = std::string(has.message());
  }
  if (why.empty()) return true;
  BH_LOG(kWarning) << "--activation-dtype fp8: products stay in bf16: " << why;
  return false;
}

bool CudaProducts::TakesFp8(WeightFormat format, const PackedLayout& layout) const {
  return in_fp8_ && format == WeightFormat::kFp8 && layout.is_in_128s() &&
         layout.depth() >= kMinFp8Depth;
}

CudaProducts::Cut CudaProducts::InFp8(Cut cut) {
  cut.piece.fp8 = cut.last.fp8 = true;
  return cut;
}

absl::Status CudaProducts::WarmUpInFp8(const Cut& in_bf16, const cuda::PackedWeight& weight,
                                       MatrixView out) {
  const Cut cut = InFp8(in_bf16);
  if (IsPrepared(cut) || !Prepare(cut)) return absl::OkStatus();
  BH_RETURN_IF_ERROR(CheckThatItWaits(cut, WeightFormat::kFp8, weight, out));
  if (!IsPrepared(cut)) return absl::OkStatus();
  const GemmProblem& problem = cut.piece;
  const std::vector<uint16_t> numbers = TrialRows(weight.inputs, weight.depth);
  uint16_t* const at = scratch_.inputs + scratch_.inputs_count - std::ssize(numbers);
  BH_CHECK(problem.tokens * problem.depth <= at - scratch_.inputs);
  auto* const bytes = reinterpret_cast<std::byte*>(at);
  driver_.CopyToDevice(numbers.data(), bytes, std::ssize(numbers) * 2);
  const ConstMatrixView trial(bytes, DType::kBF16, kTrialRows, weight.inputs, weight.depth);
  const auto multiply = [&](const Cut& way) {
    for (int64_t first = 0; first < problem.tokens; first += kTrialRows) {
      const int64_t rows = std::min(kTrialRows, problem.tokens - first);
      if (way.piece.fp8) {
        QuantizeInputs(problem, trial.Rows(0, rows), first);
      } else {
        driver_.Copy(bytes, reinterpret_cast<std::byte*>(scratch_.inputs + first * weight.depth),
                     rows * weight.depth * 2);
      }
    }
    MultiplyByLibrary(way, WeightFormat::kFp8, scratch_.inputs, weight,
                      out.Rows(0, problem.tokens));
  };
  BH_ASSIGN_OR_RETURN(in_fp8_, ComputeAlike(
                                   driver_, out.Rows(0, problem.tokens), kFp8Tolerance,
                                   [&] { multiply(cut); }, [&] { multiply(in_bf16); }));
  if (in_fp8_) return absl::OkStatus();
  BH_LOG(kWarning) << "products of " << problem.tokens << " tokens in fp8 with weights of "
                   << weight.rows << " x " << weight.inputs
                   << " are not near those in bf16 on this GPU: going on in bf16";
  return absl::OkStatus();
}

float* CudaProducts::InputScales(const GemmProblem& problem) const {
  auto* const codes = reinterpret_cast<std::byte*>(scratch_.inputs);
  return reinterpret_cast<float*>(codes + problem.tokens * problem.depth);
}

void CudaProducts::SetInputScales(const GemmProblem& problem) {
  constexpr std::byte kByte{0x3F};  // four of them are 0.747
  driver_.Fill(reinterpret_cast<std::byte*>(InputScales(problem)), kByte,
               GroupsOf(problem) * problem.tokens * 4);
}

void CudaProducts::QuantizeInputs(const GemmProblem& problem, ConstMatrixView x, int64_t first) {
  BH_CHECK(x.dtype() != DType::kF16 && first + x.rows() <= problem.tokens);
  BH_CHECK(problem.tokens * problem.depth <= scratch_.inputs_count);
  Enqueue(driver_, cuda::QuantizeInputsKernel(),
          {.grid = {static_cast<int>(x.rows()),
                    cuda::NumBlocks(GroupsOf(problem), cuda::kQuantizeWarps), 1},
           .block = {cuda::kQuantizeWarps * 32, 1, 1}},
          {.x = x.data(),
           .x_stride = x.row_stride(),
           .numbers = cuda::NumbersOf(x.dtype()),
           .vec4 = cuda::IsVec4(x),
           .inputs = static_cast<int>(x.cols()),
           .depth = static_cast<int>(problem.depth),
           .scales_stride = static_cast<int>(problem.tokens),
           .codes = reinterpret_cast<unsigned char*>(scratch_.inputs) + first * problem.depth,
           .scales = InputScales(problem) + first});
}

const uint16_t* CudaProducts::LibraryInputs(const Cut& cut, ConstMatrixView x, WeightFormat format,
                                            const cuda::PackedWeight& weight) {
  if (!cut.piece.fp8) return Inputs(x, format, weight);
  QuantizeInputs(cut.piece, x, 0);
  return scratch_.inputs;
}

GemmOperands CudaProducts::Fp8OperandsOf(const GemmProblem& problem, const LaunchShape& shape,
                                         int first_row, const cuda::PackedWeight& weight) {
  auto* const codes = reinterpret_cast<unsigned char*>(scratch_.unpacked);
  auto* const scales = reinterpret_cast<float*>(
      codes + RoundUp(problem.outputs, int64_t{cuda::kTileRows}) * problem.depth);
  Enqueue(driver_, cuda::UnpackFp8Kernel(), shape,
          {weight, first_row, static_cast<int>(problem.outputs), codes, scales});
  return {scratch_.inputs, codes, InputScales(problem), scales};
}

}  // namespace bulkhead
