// Memory that all ranks of one host map.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "comm/exchange.h"

namespace bulkhead {

// Zeroed, page aligned; unmapped with its last owner.
using SharedMemory = std::shared_ptr<std::byte>;

// Plain memory for ranks that are threads. RESOURCE_EXHAUSTED when the system refuses.
absl::StatusOr<SharedMemory> NewThreadSharedMemory(int64_t bytes);

// How the ranks of a group come to map the same `bytes` (at least 4096). Collective; ends in
// agreement.
using ShareMemory = absl::StatusOr<SharedMemory> (*)(GroupExchange& exchange, int64_t bytes,
                                                     absl::Duration timeout);

// Ranks are threads of one process: rank 0 allocates and hands out its pointer.
absl::StatusOr<SharedMemory> ShareBetweenThreads(GroupExchange& exchange, int64_t bytes,
                                                 absl::Duration timeout);

// Ranks are processes of one host: rank 0 makes a memfd, the others open it through /proc. Written
// and read back on every rank before it is trusted; ExitCode::kGroupNotUp when ranks do not see
// each other's processes. Neither POSIX shared memory nor /dev/shm, which containers make small.
absl::StatusOr<SharedMemory> ShareBetweenProcesses(GroupExchange& exchange, int64_t bytes,
                                                   absl::Duration timeout);

}  // namespace bulkhead
