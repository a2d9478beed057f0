// The device that the tests of kernels/cuda run on: the emulator, or in a build of its own a real
// one.
#pragma once

#include <memory>
#include <vector>

#include "memory/cuda_driver.h"

namespace bulkhead {

// One driver for each order in which the emulator runs threads, or of `few` for the three that find
// most; a real device is one. Dies when there is none. `host_memory_too`: what is allocated with
// `new` may be used like device memory (on a real device always). None where the real device has
// another capability than `capability_major`.0, 0 being any.
std::vector<std::unique_ptr<CudaDriver>> DevicesUnderTest(bool few = false,
                                                          bool host_memory_too = false,
                                                          int capability_major = 0);

}  // namespace bulkhead
