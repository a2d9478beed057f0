// NCCL as a communicator: the ranks' devices talk to each other. The library is found at run time;
// a build without its header, and a machine without it, say so.
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

// The memory of a rank that NCCL reads and writes, one piece: the partial sum, which becomes the
// sum in place; this rank's part of a gather; and the parts of all ranks.
struct NcclWindow {
  NcclWindow(const CommLimits& limits, int size);
  int64_t part_offset_bytes = 0;
  int64_t whole_offset_bytes = 0;
  int64_t total_bytes = 0;  // whole granules, as NCCL takes them
};

// The first NCCL that has two ranks on one device.
inline constexpr int kNcclVersionOfSharedDevices = 23000;

// The version of this machine's NCCL, 22809 for 2.28.9. UNIMPLEMENTED in a build without it;
// UNAVAILABLE where it is not found: BULKHEAD_NCCL names the library, else libnccl.so.2 is looked
// for where the loader and the CUDA toolkit have it.
absl::StatusOr<int> NcclVersion();

// Enqueues a kernel that writes (first + i) % period + offset to out[i], i < count, some
// microseconds after it has let the next kernel begin.
using WriteTermLate =
    std::function<void(float* out, int64_t count, int64_t first, int period, int offset)>;

// Collective, as Group::Connect; takes CommunicationBytes from `ledger`. Rank 0's id reaches the
// others over the group's exchange; the ranks connect within `timeout` and then sum known numbers,
// small and as large as the limits allow, and check every one of them: copied there, and as
// `write_late` leaves them for the sum right behind it. Calls of the communicator
// may block as long as a rank does not come: the watchdog ends such a wait. `driver` and `group`
// outlive the communicator. UNAVAILABLE names this rank and what NCCL says; INTERNAL a sum that is
// wrong.
absl::StatusOr<std::unique_ptr<Communicator>> ConnectNccl(Group& group, const CommLimits& limits,
                                                          CudaDriver& driver, MemoryLedger& ledger,
                                                          absl::Duration timeout,
                                                          const WriteTermLate& write_late);

}  // namespace bulkhead
