// The products of the CUDA backend: how a MatMul is split into launches, and the memory that it
// needs besides its operands. A library multiplies if there is one and it has warmed up the product
// (quantised weights: for many tokens; others: for two or more), in fp8 if that is asked for and
// supported (cuda_fp8.cc); otherwise LinearKernel multiplies few tokens, or LinearWarpgroupKernel
// where that reads less, and GemmKernel more.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "absl/status/status.h"
#include "kernels/backend.h"
#include "kernels/cuda/alike.h"
#include "kernels/cuda/cuda_sizes.h"
#include "kernels/cuda/gemm_library.h"
#include "kernels/matmul/cuda_kernels.h"
#include "kernels/packing/cuda_packing.h"
#include "memory/cuda_driver.h"
#include "memory/ledger.h"
#include "memory/linear.h"

namespace bulkhead {

class CudaProducts {
 public:
  // `driver` must outlive this; `library` may be null. in_fp8: products with weights in fp8 have
  // inputs in fp8 if the library can; otherwise a warning says why not.
  CudaProducts(CudaDriver& driver, std::unique_ptr<GemmLibrary> library,
               int64_t unpacked_bytes = CudaProductScratch::kUnpackedBytes, bool in_fp8 = false)
      : driver_(driver),
        library_(std::move(library)),
        unpacked_bytes_(unpacked_bytes),
        has_warpgroups_(HasWarpgroups(driver.properties())),
        in_fp8_(in_fp8 && HasFp8()) {}

  // The part of the workspace for products; an allocator without memory only counts it.
  CudaProductScratch LayOut(const StepLimits& limits, BumpAllocator& allocator) const {
    return {limits, library_ != nullptr, unpacked_bytes_, allocator};
  }
  void SetScratch(const CudaProductScratch& scratch) { scratch_ = scratch; }

  // Backend::MatMul, WarmUpMatMul. WarmUp is also for MatMulInBf16, with `out` in bf16.
  void MatMul(ConstMatrixView x, const Linear& weight, MatrixView out);
  absl::Status WarmUp(ConstMatrixView x, const Linear& weight, MatrixView out);
  // MatMul's sums rounded to bf16, if the library multiplies all rows; otherwise returns false and
  // does nothing.
  bool MatMulInBf16(ConstMatrixView x, const Linear& weight, MatrixView out);

  // Whether x already has the layout of products with this weight.
  static bool AreInputs(ConstMatrixView x, const cuda::PackedWeight& weight);
  // Number of rows of this depth that GatherInputs has room for.
  int64_t RowsAtOnce(const PackedLayout& layout) const;
  // Rows of x, the first ones or those in `row_at`, in the products' layout [rows][depth], in the
  // scratch until the next call.
  const uint16_t* GatherInputs(ConstMatrixView x, const int32_t* row_at, int64_t rows,
                               WeightFormat format, const cuda::PackedWeight& weight);
  // The memory that inputs are gathered in; overwritten by the next call.
  struct InputScratch {
    uint16_t* inputs = nullptr;
    int64_t count = 0;
  };
  InputScratch input_scratch() const { return {scratch_.inputs, scratch_.inputs_count}; }

 private:
  // A product by the library: the outputs of a quantised weight are split into pieces that are
  // unpacked one after the other; all have the same size except the last.
  struct Cut {
    GemmProblem piece;
    GemmProblem last;
    int64_t pieces = 1;
  };

  Cut CutOf(const LinearShape& shape, int64_t depth, int64_t tokens, MatrixView out) const;
  // How the library multiplies the rows of `out`, which begin at row `first` of the warmed-up
  // matrix; none if our kernels do.
  std::optional<Cut> LibraryCut(const Linear& weight, const PackedLayout& layout, int64_t first,
                                MatrixView out) const;
  bool IsPrepared(const Cut& cut) const;
  bool Prepare(const Cut& cut);

  // ---- in fp8: codes of E4M3 with a scale for each 128 inputs of a row
  bool HasFp8() const;
  // Of a weight whose cells are such groups.
  bool TakesFp8(WeightFormat format, const PackedLayout& layout) const;
  static Cut InFp8(Cut cut);
  // Does without fp8 where it does not multiply nearly as `in_bf16` does. Overwrites `out`.
  absl::Status WarmUpInFp8(const Cut& in_bf16, const cuda::PackedWeight& weight, MatrixView out);
  // Where the scales of a problem's inputs are: behind the codes, in scratch_.inputs.
  float* InputScales(const GemmProblem& problem) const;
  void SetInputScales(const GemmProblem& problem);  // all to the same number
  // Rows `first` and on of the problem's inputs.
  void QuantizeInputs(const GemmProblem& problem, ConstMatrixView x, int64_t first);
  GemmOperands Fp8OperandsOf(const GemmProblem& problem, const LaunchShape& shape, int first_row,
                             const cuda::PackedWeight& weight);

  // Does without warpgroups where they do not multiply as LinearKernel does. Overwrites `out`.
  absl::Status CheckWarpgroups(const Linear& weight, const PackedLayout& layout, MatrixView out);
  // Refuses a problem that the library begins while the kernel before it still writes the inputs:
  // multiplies a row that is there, and the same one written late. Overwrites `out`.
  absl::Status CheckThatItWaits(const Cut& cut, WeightFormat format,
                                const cuda::PackedWeight& weight, MatrixView out);
  absl::Status CheckThatItWaits(const GemmProblem& problem, const GemmOperands& operands,
                                MatrixView out);
  // x itself, or gathered; LibraryInputs: or quantised.
  const uint16_t* Inputs(ConstMatrixView x, WeightFormat format, const cuda::PackedWeight& weight);
  const uint16_t* LibraryInputs(const Cut& cut, ConstMatrixView x, WeightFormat format,
                                const cuda::PackedWeight& weight);
  // Unpacks a quantised weight's rows.
  GemmOperands OperandsOf(const GemmProblem& problem, int64_t first_row, WeightFormat format,
                          const uint16_t* inputs, const cuda::PackedWeight& weight);
  void MultiplyByLibrary(const Cut& cut, WeightFormat format, const uint16_t* inputs,
                         const cuda::PackedWeight& weight, MatrixView out);
  void MultiplyInF32(ConstMatrixView x, const Linear& weight, MatrixView out);
  void MultiplyByKernel(int tokens, WeightFormat format, const uint16_t* inputs,
                        const cuda::PackedWeight& weight, MatrixView out);
  // False, and does nothing, unless its busiest multiprocessor reads clearly less than that.
  bool MultiplyByWarpgroups(const cuda::LinearParameters& product, WeightFormat format,
                            int64_t than_bytes);
  // Adds the parts in the scratch.
  void AddParts(const cuda::LinearParameters& product, int num_parts);
  void MultiplyByGemm(const cuda::LinearParameters& product, WeightFormat format);

  CudaDriver& driver_;
  const std::unique_ptr<GemmLibrary> library_;
  const int64_t unpacked_bytes_;
  bool has_warpgroups_;
  bool in_fp8_;
  bool told_of_fp8_ = false;                                      // that a problem is refused
  std::set<std::tuple<WeightFormat, int64_t, int64_t>> checked_;  // with rows and cols
  CudaProductScratch scratch_;
  std::set<GemmProblem> refused_;  // by the library, or for its results
  // For each weight that the library may multiply, by its numbers and the output's type: the number
  // of rows that its output has room for.
  std::map<std::pair<const std::byte*, DType>, int64_t> warmed_up_rows_;
};

}  // namespace bulkhead
