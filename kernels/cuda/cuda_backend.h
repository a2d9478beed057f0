// The ops of Backend as launches on a CUDA device. Activations are f32; products and attention
// round their inputs to bf16 (f16 where weights or cache are f16) at the tensor cores and sum in
// f32. The same sequence of steps gives the same bits on one kind of device; they are not those of
// the CPU, and depend on the group's size.
#pragma once

#include <memory>

#include "kernels/backend.h"
#include "kernels/cuda/gemm_library.h"
#include "memory/cuda_driver.h"

namespace bulkhead {

// `device` and `driver` are one GPU; both outlive the backend. One thread uses it, but for the
// sinks of weights, which may be filled from several. `library` multiplies what WarmUpMatMul has
// seen; null: our own kernels multiply everything.
std::unique_ptr<Backend> NewCudaBackend(Device& device, CudaDriver& driver,
                                        std::unique_ptr<GemmLibrary> library = nullptr);

}  // namespace bulkhead
