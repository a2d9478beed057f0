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
#include "comm/known_sums.h"
#include "memory/cuda_driver.h"
#include "memory/ledger.h"

namespace bulkhead {

// A rank's memory for NCCL, in one allocation: the partial sum; a bf16 copy of it if sums are in
// bf16; this rank's part of a gather; and the parts of all ranks. Sums are in place.
struct NcclWindow {
  NcclWindow(const CommLimits& limits, int size);
  int64_t rounded_offset_bytes = 0;
  int64_t part_offset_bytes = 0;
  int64_t whole_offset_bytes = 0;
  int64_t total_bytes = 0;  // rounded up to NCCL's granularity
};

// Kernels that ConnectNccl needs.
struct NcclKernels {
  WritePartialSumLate write_late;
  // Enqueue the conversion of `count` numbers to bf16, rounded to nearest even, and back. Not
  // called if sums are in f32.
  std::function<void(const float* from, uint16_t* to, int64_t count)> round = nullptr;
  std::function<void(const uint16_t* from, float* to, int64_t count)> widen = nullptr;
};

// The first NCCL version that supports two ranks on one device.
inline constexpr int kNcclVersionOfSharedDevices = 23000;

// The version of this machine's NCCL, 22809 for 2.28.9. UNIMPLEMENTED in a build without it;
// UNAVAILABLE if not found: BULKHEAD_NCCL names the library, otherwise libnccl.so.2 is searched by
// the loader and in the CUDA toolkit.
absl::StatusOr<int> NcclVersion();

// Collective, as Group::Connect; takes NcclWindow::total_bytes from `ledger`. Rank 0's id is shared
// over the group's exchange; the ranks connect within `timeout`, then sum known numbers, small
// messages and the largest allowed, and check every result: with inputs copied from the host, and
// with inputs written by kernels.write_late just before the sum. Calls of the communicator may
// block while a rank is missing: the watchdog ends such waits. `driver` and `group` outlive the
// communicator. UNAVAILABLE names this rank and NCCL's error; INTERNAL reports a wrong sum.
absl::StatusOr<std::unique_ptr<Communicator>> ConnectNccl(Group& group, const CommLimits& limits,
                                                          CudaDriver& driver, MemoryLedger& ledger,
                                                          absl::Duration timeout,
                                                          NcclKernels kernels);

}  // namespace bulkhead
