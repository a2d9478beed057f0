// A kernel and the shape of its launch, as host code passes them around. Plain: .cu files include
// this.
#pragma once

#include <stdint.h>

#include <type_traits>

namespace bulkhead {

// A kernel whose only argument is one struct of parameters, its type erased. The .cu files make
// these: compiled for a device `function` is what cudaLaunchKernelExC takes and `run_thread` is null;
// compiled for the host, run_thread(function, parameters) runs one thread of it.
struct CudaKernel {
  const char* name = "";
  const void* function = nullptr;
  void (*run_thread)(const void* function, const void* parameters) = nullptr;
  int64_t parameter_bytes = 0;
};

// The same, of known parameters.
template <typename Parameters>
struct CudaKernelOf {
  static_assert(std::is_trivially_copyable_v<Parameters>);
  static_assert(sizeof(Parameters) <= 4096);  // what a launch can carry
  CudaKernel kernel;
};

struct LaunchShape {
  int grid[3] = {1, 1, 1};   // blocks; a launch of none does nothing
  int block[3] = {1, 1, 1};  // threads
  int64_t shared_bytes = 0;  // dynamic shared memory of a block; above 48 KiB, too

  bool empty() const { return grid[0] == 0 || grid[1] == 0 || grid[2] == 0; }
};

}  // namespace bulkhead
