// The fake NCCL library between emulated devices. Its path is BH_FAKE_NCCL.
#pragma once

#include <dlfcn.h>

#include <cstdlib>
#include <map>
#include <utility>
#include <vector>

#include "tests/comm/nccl/fake_nccl.h"
#include "tests/support/emulator/emulated_device.h"

namespace bulkhead {

inline void EnqueueInEmulator(void* stream, const std::vector<FakeNcclRange>& uses,
                              std::function<void()> work, bool early) {
  std::vector<emulator::EmulatedCudaDriver::Range> ranges;
  for (const FakeNcclRange& use : uses) ranges.push_back({use.begin, use.bytes});
  static_cast<emulator::EmulatedCudaDriver*>(stream)->EnqueueForLibrary(
      ranges, [work = std::move(work)] { return work(), absl::OkStatus(); }, early);
}

inline void EnqueueEndlessInEmulator(void* stream) {
  static_cast<emulator::EmulatedCudaDriver*>(stream)->EnqueueEndless();
}

// The library allocates from the calling rank's device; a rank is a thread.
inline thread_local CudaDriver* rank_driver = nullptr;
inline thread_local std::map<void*, int64_t> rank_memory;

inline void* AllocateOnDevice(size_t bytes) {
  const auto size = static_cast<int64_t>(bytes);
  const auto at = rank_driver->Reserve(size);
  if (!at.ok() || !rank_driver->Map(*at, size).ok()) {
    if (at.ok()) rank_driver->ReleaseRange(*at, size);
    return nullptr;
  }
  rank_memory[*at] = size;
  return *at;
}

inline void FreeOnDevice(void* memory) {
  auto* const at = static_cast<std::byte*>(memory);
  rank_driver->Unmap(at, rank_memory[memory]);
  rank_driver->ReleaseRange(at, rank_memory[memory]);
}

// The library is opened once per process: set the name before anything uses it.
inline FakeNcclControls& Controls() {
  static FakeNcclControls* const controls = [] {
    setenv("BULKHEAD_NCCL", BH_FAKE_NCCL, 1);
    setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1", 1);  // as the program does at start
    void* const library = dlopen(BH_FAKE_NCCL, RTLD_NOW | RTLD_LOCAL);
    auto* const made =
        reinterpret_cast<FakeNcclControls* (*)()>(dlsym(library, "fake_nccl_controls"))();
    made->enqueue = &EnqueueInEmulator;
    made->enqueue_endless = &EnqueueEndlessInEmulator;
    made->allocate = &AllocateOnDevice;
    made->free = &FreeOnDevice;
    return made;
  }();
  return *controls;
}

}  // namespace bulkhead
