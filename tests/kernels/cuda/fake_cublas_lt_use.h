// fake_cublas_lt.h as cuBLASLt of this process, for emulated devices. BH_FAKE_CUBLASLT is its path.
#pragma once

#include <dlfcn.h>

#include <cstdlib>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/kernels/cuda/fake_cublas_lt.h"
#include "tests/support/emulator/emulated_device.h"

namespace bulkhead {

inline void EnqueueInEmulator(void* stream, const std::vector<FakeCublasLtRange>& uses,
                              std::function<void()> work, bool early) {
  std::vector<emulator::EmulatedCudaDriver::Range> ranges;
  for (const FakeCublasLtRange& use : uses) ranges.push_back({use.begin, use.bytes, use.written});
  static_cast<emulator::EmulatedCudaDriver*>(stream)->EnqueueForLibrary(
      ranges, [work = std::move(work)] { return work(), absl::OkStatus(); }, early);
}

// The library is opened once for the process: this is called before anything asks for it.
inline FakeCublasLtControls& FakeCublasLt() {
  static FakeCublasLtControls* const controls = [] {
    setenv("BULKHEAD_CUBLASLT", BH_FAKE_CUBLASLT, 1);
    void* const library = dlopen(BH_FAKE_CUBLASLT, RTLD_NOW | RTLD_LOCAL);
    auto* const made =
        reinterpret_cast<FakeCublasLtControls* (*)()>(dlsym(library, "fake_cublas_lt_controls"))();
    made->enqueue = &EnqueueInEmulator;
    return made;
  }();
  return *controls;
}

class GemmLibraryTest : public testing::Test {
 protected:
  void SetUp() override {
    FakeCublasLt().fault = FakeCublasLtFault::kNone;
    FakeCublasLt().fault_of_fp8 = false;
  }
  void TearDown() override {
    EXPECT_EQ(FakeCublasLt().handles, 0);
    EXPECT_EQ(FakeCublasLt().descriptors, 0);
  }
};

}  // namespace bulkhead
