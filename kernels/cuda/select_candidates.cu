#include "intrinsics.h"
#include "kernels/cuda/candidates.cuh"
#include "kernels/cuda/kernels.h"

namespace bulkhead::cuda {
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

}  // namespace

CudaKernelOf<SelectCandidatesParameters> SelectCandidatesKernel() {
  static_assert(kSelectSharedBytes >= kSortKeys * sizeof(CandidateKey) + sizeof(int));
  return KernelOf("select_candidates", SelectCandidates);
}

}  // namespace bulkhead::cuda
