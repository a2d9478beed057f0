#include "intrinsics.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/launch.h"

namespace bulkhead {
namespace cuda {

struct SetEntriesParameters {
  const int32_t* changes = nullptr;
  int count = 0;
  int32_t* entries = nullptr;
};

namespace {

BH_KERNEL(kRowThreads) SetEntries(SetEntriesParameters p) {
  GridDependencySynchronize();
  const int i = int(blockIdx.x) * kRowThreads + int(threadIdx.x);
  if (i < p.count) p.entries[p.changes[2 * i]] = p.changes[2 * i + 1];
}

CudaKernelOf<SetEntriesParameters> SetEntriesKernel() {
  return KernelOf<kRowThreads>("set_entries", SetEntries);
}

const KernelRegistration kRegistered(SetEntriesKernel());

}  // namespace
}  // namespace cuda

void CudaBackend::SetEntries(const int32_t* changes, int count, int32_t* entries) {
  if (count == 0) return;
  Enqueue(driver_, cuda::SetEntriesKernel(),
          {.grid = {cuda::NumBlocks(count, cuda::kRowThreads), 1, 1},
           .block = {cuda::kRowThreads, 1, 1}},
          {changes, count, entries});
}

}  // namespace bulkhead
