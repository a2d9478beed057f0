#include "intrinsics.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/launch.h"

namespace bulkhead {
namespace cuda {

struct FillInSampledParameters {
  const int32_t* last_sampled = nullptr;
  const int32_t* seq_slot = nullptr;
  const int32_t* token_seq = nullptr;
  int32_t* token_ids = nullptr;
  int tokens = 0;
};

namespace {

BH_KERNEL(kRowThreads) FillInSampled(FillInSampledParameters p) {
  GridDependencySynchronize();
  const int token = int(blockIdx.x) * kRowThreads + int(threadIdx.x);
  if (token >= p.tokens || p.token_ids[token] >= 0) return;
  p.token_ids[token] = p.last_sampled[p.seq_slot[p.token_seq[token]]];
}

CudaKernelOf<FillInSampledParameters> FillInSampledKernel() {
  return KernelOf("fill_in_sampled", FillInSampled);
}

const KernelRegistration kRegistered(FillInSampledKernel());

}  // namespace
}  // namespace cuda

void CudaBackend::FillInSampled(const StepIndex& index, const int32_t* last_sampled,
                                int32_t* token_ids) {
  const int blocks = (index.num_tokens + cuda::kRowThreads - 1) / cuda::kRowThreads;
  Enqueue(driver_, cuda::FillInSampledKernel(),
          {.grid = {blocks, 1, 1}, .block = {cuda::kRowThreads, 1, 1}},
          {last_sampled, index.seq_slot, index.token_seq, token_ids, index.num_tokens});
}

}  // namespace bulkhead
