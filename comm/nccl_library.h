// NCCL as it is found on the machine: its functions, by name. Built only where its header is.
#pragma once

#include <nccl.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace bulkhead {

struct NcclLibrary {
  // The library, opened once for the process's life; errors as NcclVersion (nccl_communicator.h).
  static absl::StatusOr<const NcclLibrary*> Get();

  int version = 0;  // 22809 for 2.28.9
  decltype(&::ncclGetUniqueId) get_unique_id = nullptr;
  decltype(&::ncclCommInitRankConfig) comm_init_rank_config = nullptr;
  decltype(&::ncclCommGetAsyncError) comm_get_async_error = nullptr;
  decltype(&::ncclCommFinalize) comm_finalize = nullptr;
  decltype(&::ncclCommDestroy) comm_destroy = nullptr;
  decltype(&::ncclCommAbort) comm_abort = nullptr;
  decltype(&::ncclGetErrorString) error_text = nullptr;
  decltype(&::ncclGetLastError) last_error = nullptr;
  decltype(&::ncclMemAlloc) mem_alloc = nullptr;
  decltype(&::ncclMemFree) mem_free = nullptr;
  decltype(&::ncclAllReduce) all_reduce = nullptr;
  decltype(&::ncclAllGather) all_gather = nullptr;
  decltype(&::ncclBroadcast) broadcast = nullptr;
  // Null before 2.28, whose own leak memory.
  decltype(&::ncclCommWindowRegister) window_register = nullptr;
  decltype(&::ncclCommWindowDeregister) window_deregister = nullptr;
};

}  // namespace bulkhead
