// The host version of kernels/cuda/device/peer_intrinsics.h (peer_memory.h).
#pragma once

#include "tests/support/emulator/intrinsics.h"

namespace bulkhead::cuda {

void SendWords(uint32_t* to, const Words4& x);
Words4 ReceivedWords(const uint32_t* at);
void ClearWords(uint32_t* at, uint32_t nothing);
void WaitTurn();
int64_t DeviceNanos();

}  // namespace bulkhead::cuda
