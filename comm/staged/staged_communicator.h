// StagedCommunicator: sums, gathers and broadcasts of tensors on devices, staged through shared
// host memory: for devices without NCCL support, such as one shared by several ranks. Every
// operation synchronizes the device's stream; results are bit-identical to the host communicator's,
// whose sums between hosts may be in bf16.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "comm/communicator.h"
#include "comm/group.h"
#include "memory/device.h"
#include "memory/ledger.h"

namespace bulkhead {

// Device memory per rank; part of CommunicationBytes.
int64_t StagedPartialBytes(const CommLimits& limits);

// Pinned host memory per rank, through which all copies go; in addition to the device's ledger and
// to the host communicator's memory.
int64_t StagedHostBytes(const CommLimits& limits, int rank, int size);
// Shared memory of the host communicator per rank.
int64_t StagedSharedBytes(const CommLimits& limits, int size);
// The sum of both with Transport::kStaged; 0 with others.
int64_t SumHostBytes(const CommLimits& limits, int rank, int size);

// Collective, as Group::Connect, which it calls with separate host memory for the host
// communicator. `device` outlives the communicator; `ledger` is the device's and provides the
// partial sum.
absl::StatusOr<std::unique_ptr<Communicator>> ConnectStaged(Group& group, const CommLimits& limits,
                                                            Device& device, MemoryLedger& ledger);

}  // namespace bulkhead
