#include "intrinsics.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/launch.h"
#include "kernels/sample/candidates.cuh"
#include "kernels/sample/op.h"

namespace bulkhead {
namespace cuda {

inline constexpr int kSelectSharedBytes = 8208;
struct SelectCandidatesParameters {
  ConstRows logits;
  int width = 0;
  int32_t first_id = 0;  // of column 0
  int slice = 0;         // columns of a list
  Rows out;              // lists of each row
};

namespace {

BH_KERNEL(kSelectThreads) SelectCandidates(SelectCandidatesParameters p) {
  GridDependencySynchronize();
  auto* const keys = reinterpret_cast<CandidateKey*>(SharedMemory());
  auto* const next = reinterpret_cast<int*>(keys + kSortKeys);
  const int begin = int(blockIdx.x) * p.slice;
  const int left = p.width - begin;
  const float* const logits = p.logits.data + int(blockIdx.y) * p.logits.stride + begin;
  const int32_t first_id = p.first_id + begin;
  SelectBest([=](int at) { return KeyOf(logits[at], first_id + at); },
             left < p.slice ? left : p.slice, keys, next);
  float* const out =
      p.out.data + int(blockIdx.y) * p.out.stride + int(blockIdx.x) * 2 * kCandidates;
  for (int i = int(threadIdx.x); i < kCandidates; i += kSelectThreads) {
    const CandidateKey key = keys[i];
    out[i] = key == 0 ? 0.0F : LogitOf(key);
    reinterpret_cast<int32_t*>(out + kCandidates)[i] = key == 0 ? -1 : IdOf(key);
  }
}

CudaKernelOf<SelectCandidatesParameters> SelectCandidatesKernel() {
  static_assert(kSelectSharedBytes >= kSortKeys * sizeof(CandidateKey) + sizeof(int));
  return KernelOf("select_candidates", SelectCandidates);
}

const KernelRegistration kRegistered(SelectCandidatesKernel());

}  // namespace
}  // namespace cuda

void CudaBackend::SelectCandidates(ConstMatrixView logits, int64_t first_id, MatrixView lists) {
  BH_CHECK(lists.rows() == logits.rows() && lists.cols() % kCandidateCols == 0);
  const int64_t slices = lists.cols() / kCandidateCols;
  Enqueue(driver_, cuda::SelectCandidatesKernel(),
          {.grid = {static_cast<int>(slices), static_cast<int>(lists.rows()), 1},
           .block = {cuda::kSelectThreads, 1, 1},
           .shared_bytes = cuda::kSelectSharedBytes},
          {{logits.F32(), logits.row_stride()},
           static_cast<int>(logits.cols()),
           static_cast<int32_t>(first_id),
           cuda::NumBlocks(logits.cols(), slices),
           {lists.F32(), lists.row_stride()}});
}

}  // namespace bulkhead
