#include "intrinsics.h"
#include "kernels/cuda/registered_kernels.h"
#include "kernels/matmul/cuda_kernels.h"

namespace bulkhead::cuda {
namespace {

template <bool kF16>
BH_KERNEL(kRowThreads)
GatherInputs(GatherInputsParameters p) {
  GridDependencySynchronize();
  const int from = p.row_at == nullptr ? int(blockIdx.x) : p.row_at[int(blockIdx.x)];
  const int64_t row = from * p.x.stride;
  uint16_t* const out = p.out + static_cast<int64_t>(int(blockIdx.x)) * p.depth;
  for (int at = int(threadIdx.x); at < p.depth; at += kRowThreads) {
    const int input = p.input_at == nullptr ? at : p.input_at[at];
    const bool is_there = input >= 0 && input < p.inputs;
    if (p.rounded != nullptr) {
      out[at] = is_there ? p.rounded[row + input] : uint16_t{0};
    } else {
      const float value = is_there ? p.x.data[row + input] : 0.0F;
      out[at] = kF16 ? F16OfF32(value) : Bf16OfF32(value);
    }
  }
}

}  // namespace

CudaKernelOf<GatherInputsParameters> GatherInputsKernel(bool f16) {
  return f16 ? KernelOf<kRowThreads>("gather_inputs f16", GatherInputs<true>)
             : KernelOf<kRowThreads>("gather_inputs bf16", GatherInputs<false>);
}

const KernelRegistration kRegistered(GatherInputsKernel(false), GatherInputsKernel(true));

}  // namespace bulkhead::cuda
