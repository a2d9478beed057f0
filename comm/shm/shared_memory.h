// Memory mapped by all ranks of a host.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "comm/exchange.h"

namespace bulkhead {

// Zeroed, page aligned; unmapped by its last owner.
using SharedMemory = std::shared_ptr<std::byte>;

// Plain memory for ranks that are threads. RESOURCE_EXHAUSTED when out of memory.
absl::StatusOr<SharedMemory> NewThreadSharedMemory(int64_t bytes);

// How the ranks of a group map the same `bytes` (at least 4096). Collective; ends in agreement.
using ShareMemory = absl::StatusOr<SharedMemory> (*)(GroupExchange& exchange, int64_t bytes,
                                                     absl::Duration timeout);

// For threads of one process: rank 0 allocates and shares its pointer.
absl::StatusOr<SharedMemory> ShareBetweenThreads(GroupExchange& exchange, int64_t bytes,
                                                 absl::Duration timeout);

// For processes of one host: rank 0 creates a memfd, the others open it through /proc. Verified by
// writing and reading on every rank; ExitCode::kGroupNotUp if ranks cannot see each other's
// processes. Uses neither POSIX shared memory nor /dev/shm, which is small in containers.
absl::StatusOr<SharedMemory> ShareBetweenProcesses(GroupExchange& exchange, int64_t bytes,
                                                   absl::Duration timeout);

}  // namespace bulkhead
