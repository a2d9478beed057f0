// intrinsics.h for kernels that write to other devices' memory. The emulator of the tests has a
// header of the same name.
#pragma once

#include "intrinsics.h"

namespace bulkhead::cuda {

// ---- 16 bytes between devices, each word independent: not ordered with each other or with any
// other access. A word is sent to another device's memory once between two clearings by its owner.
BH_DEVICE void SendWords(uint32_t* to, const Words4& x) {
  asm volatile("st.relaxed.sys.global.v4.u32 [%0], {%1,%2,%3,%4};" ::"l"(to), "r"(x.w[0]),
               "r"(x.w[1]), "r"(x.w[2]), "r"(x.w[3])
               : "memory");
}
BH_DEVICE Words4 ReceivedWords(const uint32_t* at) {
  Words4 r;
  asm volatile("ld.relaxed.sys.global.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(r.w[0]), "=r"(r.w[1]), "=r"(r.w[2]), "=r"(r.w[3])
               : "l"(at)
               : "memory");
  return r;
}
BH_DEVICE void ClearWords(uint32_t* at, uint32_t nothing) {
  SendWords(at, {{nothing, nothing, nothing, nothing}});
}
// Called in loops that wait for another device.
BH_DEVICE void WaitTurn() {}
// A clock, in nanoseconds.
BH_DEVICE int64_t DeviceNanos() {
  int64_t now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  return now;
}

}  // namespace bulkhead::cuda
