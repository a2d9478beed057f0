// NCCL as a communicator between the ranks' devices. The library is loaded at run time;
// UNIMPLEMENTED in a build without its header, UNAVAILABLE on a machine without it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "comm/communicator.h"
#include "comm/group.h"
#include "memory/cuda_driver.h"
#include "memory/ledger.h"

namespace bulkhead {

// A rank's memory for NCCL, in one allocation: the partial sum, reduced in place; this rank's part
// of a gather; and the parts of all ranks.
struct NcclWindow {
  NcclWindow(const CommLimits& limits, int size);
  int64_t part_offset_bytes = 0;
  int64_t whole_offset_bytes = 0;
  int64_t total_bytes = 0;  // rounded up to NCCL's granularity
};

// The first NCCL version that supports two ranks on one device.
inline constexpr int kNcclVersionOfSharedDevices = 23000;

// The version of this machine's NCCL, 22809 for 2.28.9. UNIMPLEMENTED in a build without it;
// UNAVAILABLE if not found: BULKHEAD_NCCL names the library, otherwise libnccl.so.2 is searched by
// the loader and in the CUDA toolkit.
absl::StatusOr<int> NcclVersion();

// Partial sums for the element-wise check of sums at start: integers whose sum stays below 2^24 for
// every supported group size, so that f32 adds them exactly in any order.
inline constexpr int kKnownPeriod = 1000;

// Element i of rank r's partial sum.
constexpr int KnownOffset(int r) { return r % 8; }
constexpr int64_t KnownValue(int64_t i, int r) { return i % kKnownPeriod + KnownOffset(r); }

// Element i of the sum of `size` ranks.
constexpr int64_t KnownSum(int64_t i, int64_t size) {
  const int64_t rest = size % 8;
  return i % kKnownPeriod * size + size / 8 * (0 + 1 + 2 + 3 + 4 + 5 + 6 + 7) +
         rest * (rest - 1) / 2;
}

// Enqueues a kernel that writes (first + i) % period + offset to out[i], i < count, some
// microseconds after it has allowed the next kernel to start.
using WritePartialSumLate =
    std::function<void(float* out, int64_t count, int64_t first, int period, int offset)>;

// Collective, as Group::Connect; takes CommunicationBytes from `ledger`. Rank 0's id is shared over
// the group's exchange; the ranks connect within `timeout`, then sum known numbers, small messages
// and the largest allowed, and check every result: with inputs copied there, and with inputs
// written by `write_late` just before the sum. Calls of the communicator may block while a rank is
// missing: the watchdog ends such waits. `driver` and `group` outlive the communicator. UNAVAILABLE
// names this rank and NCCL's error; INTERNAL reports a wrong sum.
absl::StatusOr<std::unique_ptr<Communicator>> ConnectNccl(Group& group, const CommLimits& limits,
                                                          CudaDriver& driver, MemoryLedger& ledger,
                                                          absl::Duration timeout,
                                                          const WritePartialSumLate& write_late);

}  // namespace bulkhead
