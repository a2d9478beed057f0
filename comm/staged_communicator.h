// StagedCommunicator: sums, gathers and broadcasts of ranks whose tensors lie on devices, by way of
// the host memory that the ranks share: for devices that NCCL does not serve, such as one that
// several ranks share. Every operation waits for the device's queue; the bits are the host
// communicator's.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "comm/communicator.h"
#include "comm/group.h"
#include "memory/device.h"
#include "memory/ledger.h"

namespace bulkhead {

// What a rank takes of its device; part of CommunicationBytes.
int64_t StagedPartialBytes(const CommLimits& limits);

// What it takes of pinned host memory, through which all copies go: beside the device's ledger, and
// as all of the host's part before it returns.
int64_t StagedHostBytes(const CommLimits& limits, int rank, int size);

// Collective, as Group::Connect, which it calls with host memory of its own for the host's part.
// `device` outlives the communicator; `ledger` is the device's and gives the partial sum.
absl::StatusOr<std::unique_ptr<Communicator>> ConnectStaged(Group& group, const CommLimits& limits,
                                                            Device& device, MemoryLedger& ledger);

}  // namespace bulkhead
