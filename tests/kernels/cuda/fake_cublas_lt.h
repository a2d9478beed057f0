// A library that answers as cuBLASLt does, for an emulated device: what is enqueued runs in the
// device's queue, over the device's memory, and lets the kernel behind it begin at once. It refuses
// what cuBLASLt would refuse, and the test says what else goes wrong.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <vector>

namespace bulkhead {

enum class FakeCublasLtFault : int {
  kNone,
  kDoesNotStart,    // no handle
  kKnowsNoWay,      // the heuristic has no algorithm for `unknown_tokens`
  kWantsMore,       // its algorithm needs more memory than was offered
  kFailsToEnqueue,  // products
  kDoesNotWait,  // they begin while the kernel before them runs, and read what it has not written
  kScalesByRow,  // those in fp8 read the scales of the inputs row by row
};

struct FakeCublasLtRange {
  const void* begin;
  int64_t bytes;
  bool written;
};

struct FakeCublasLtControls {
  std::atomic<FakeCublasLtFault> fault{FakeCublasLtFault::kNone};
  std::atomic<bool> fault_of_fp8{false};  // of products in fp8 alone
  std::atomic<int64_t> unknown_tokens{0};
  std::atomic<int> handles{0};       // not yet destroyed
  std::atomic<int> descriptors{0};   // likewise
  std::atomic<int> products{0};      // enqueued so far
  std::atomic<int> fp8_products{0};  // those in fp8
  std::atomic<int64_t> last_tokens{0};
  std::atomic<bool> last_out_bf16{false};
  std::atomic<int> version{130100};  // of the library
  // Puts work that uses device memory into the queue of a stream; `early`: it does not wait for the
  // kernel before it.
  void (*enqueue)(void* stream, const std::vector<FakeCublasLtRange>& uses,
                  std::function<void()> work, bool early) = nullptr;
};

}  // namespace bulkhead

// The library's one.
extern "C" bulkhead::FakeCublasLtControls* fake_cublas_lt_controls();
