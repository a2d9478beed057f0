// The devices under test (device_under_test.h) as peers of one another.
#pragma once

#include "memory/cuda_driver.h"
#include "memory/peer_driver.h"

namespace bulkhead {

// What gives a device memory that the kernels of another device of this process write to, too, at
// the same address.
PeerDriver& PeersOf(CudaDriver& driver);

}  // namespace bulkhead
