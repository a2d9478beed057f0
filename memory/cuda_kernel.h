// A kernel and its launch shape, as passed by host code. Plain C++: .cu files include it.
#pragma once

#include <stdint.h>

#include <type_traits>

namespace bulkhead {

// A kernel with a single parameter struct, type-erased. Created by the .cu files: compiled for a
// device, `function` is the argument of cudaLaunchKernelExC and `run_thread` is null; compiled for
// the host, run_thread(function, parameters) runs one thread.
struct CudaKernel {
  const char* name = "";
  const void* function = nullptr;
  void (*run_thread)(const void* function, const void* parameters) = nullptr;
  int64_t parameter_bytes = 0;
  int max_threads = 0;  // largest block: its launch bounds
  // Compute capability (10 x major + minor) of the only devices that it runs on; 0: all.
  int only_capability = 0;
};

// The same with its parameter type.
template <typename Parameters>
struct CudaKernelOf {
  static_assert(std::is_trivially_copyable_v<Parameters>);
  static_assert(sizeof(Parameters) <= 4096);  // limit of a launch
  CudaKernel kernel;
};

struct LaunchShape {
  int grid[3] = {1, 1, 1};   // blocks; launching 0 blocks does nothing
  int block[3] = {1, 1, 1};  // threads
  int64_t shared_bytes = 0;  // dynamic shared memory per block; may exceed 48 KiB
  // Blocks wait for lower-numbered blocks of other devices (kernels/cuda/peer_sum.cuh).
  bool in_order = false;

  bool empty() const { return grid[0] == 0 || grid[1] == 0 || grid[2] == 0; }
};

}  // namespace bulkhead
