// The mixture of experts of the CUDA backend: how its ops are split into launches, and the memory
// that they need besides their operands.
#pragma once

#include <cstdint>
#include <set>

#include "absl/types/span.h"
#include "kernels/backend.h"
#include "kernels/cuda/alike.h"
#include "kernels/cuda/cuda_sizes.h"
#include "kernels/experts/cuda_kernels.h"
#include "kernels/matmul/cuda.h"
#include "memory/cuda_driver.h"

namespace bulkhead {

class CudaExperts {
 public:
  // Both must outlive this.
  CudaExperts(CudaDriver& driver, CudaProducts& products)
      : driver_(driver), products_(products), has_warpgroups_(HasWarpgroups(driver.properties())) {}

  void SetScratch(const CudaExpertScratch& scratch) { scratch_ = scratch; }
  // From now on the first product of many pairs in each format is checked, in the largest step of
  // the warm-up; no graph is recorded before it.
  void BeginWarmUp() { warming_up_ = true; }

  // As in Backend.
  void RouteTokens(ConstMatrixView logits, ConstMatrixView bias, ConstMatrixView scales,
                   const RouterOptions& options, const ExpertRouting& routing);
  void MatMulExperts(ConstMatrixView x, absl::Span<const Linear> experts,
                     const ExpertRouting& routing, MatrixView out);
  // `adds`: to the contents of out.
  void SumExperts(ConstMatrixView x, absl::Span<const Linear> experts, const ExpertRouting& routing,
                  bool adds, MatrixView out);

 private:
  // Outputs [begin, end) of a product, stored in columns of `out` from 0 on.
  struct Outputs {
    int64_t begin;
    int64_t end;
    MatrixView out;  // [P]
  };

  // `row_of_pair`: the row of x for each pair; null: its own.
  void Multiply(ConstMatrixView x, const int32_t* row_of_pair, absl::Span<const Linear> experts,
                const ExpertRouting& routing, const Outputs& outputs);
  void Launch(WeightFormat format, cuda::ExpertProductParameters p);
  // For `tiles` tiles of many pairs: by warpgroups, if their results equal the other kernel's.
  void LaunchMany(WeightFormat format, cuda::ExpertProductParameters p, int tiles);
  void LaunchGemm(WeightFormat format, const cuda::ExpertProductParameters& p, int tiles);
  void CheckRouted(const ExpertRouting& routing, int64_t pairs) const;

  CudaDriver& driver_;
  CudaProducts& products_;
  bool has_warpgroups_;
  bool warming_up_ = false;
  std::set<WeightFormat> checked_;
  CudaExpertScratch scratch_;
  // The routing of the tiles and positions in scratch_: the last RouteTokens'.
  const int32_t* routed_ = nullptr;  // its expert_begin
  int64_t pairs_ = 0;
  int tile_pairs_ = 0;
  int64_t max_tiles_ = 0;
};

}  // namespace bulkhead
