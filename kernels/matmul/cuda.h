// The products of the CUDA backend: how a MatMul is split into launches, and the memory that it
// needs besides its operands. A library multiplies if there is one and it has warmed up the product
// (quantised weights: for many tokens; others: for two or more); otherwise LinearKernel multiplies
// few tokens, or LinearWarpgroupKernel where that reads less, and GemmKernel more.
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
  // `driver` must outlive this; `library` may be null.
  CudaProducts(CudaDriver& driver, std::unique_ptr<GemmLibrary> library,
               int64_t unpacked_bytes = CudaProductScratch::kUnpackedBytes)
      : driver_(driver),
        library_(std::move(library)),
        unpacked_bytes_(unpacked_bytes),
        has_warpgroups_(HasWarpgroups(driver.properties())) {}

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
  // Stops using warpgroups if their products differ from LinearKernel's. Overwrites `out`.
  absl::Status CheckWarpgroups(const Linear& weight, const PackedLayout& layout, MatrixView out);
  // Refuses a problem if the library begins while the previous kernel still writes the inputs:
  // multiplies a row that is complete, and the same one written late. Overwrites `out`.
  absl::Status CheckThatItWaits(const GemmProblem& problem, const uint16_t* numbers,
                                MatrixView out);
  // x itself, or a gathered copy.
  const uint16_t* Inputs(ConstMatrixView x, WeightFormat format, const cuda::PackedWeight& weight);
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
  std::set<std::tuple<WeightFormat, int64_t, int64_t>> checked_;  // with rows and cols
  CudaProductScratch scratch_;
  std::set<GemmProblem> refused_;  // by the library, or for its results
  // For each weight that the library may multiply, by its numbers and the output's type: the number
  // of rows that its output has room for.
  std::map<std::pair<const std::byte*, DType>, int64_t> warmed_up_rows_;
};

}  // namespace bulkhead
