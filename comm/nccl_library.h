// NCCL as it is found on the machine: its functions, by name. Built only where its header is.
#pragma once

#include <nccl.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace bulkhead {

// Whether the sums of this version over symmetric windows wait for the kernels before them in the
// stream. They are launched with programmatic serialization, which lets them begin as soon as the
// kernel before them says so, and ours do at their very beginning; from 2.28.3 to 2.30.6 they do
// not wait for its end either (no cudaGridDependencySynchronize) and sum partial sums that are
// still being written. Windows of 2.27 leak memory.
inline constexpr int kWindowsFrom = 23007;
constexpr bool WindowsWaitForStream(int version) { return version >= kWindowsFrom; }

struct NcclLibrary {
  // The library, opened once for the process's life; errors as NcclVersion (nccl_communicator.h).
  static absl::StatusOr<const NcclLibrary*> Get();

  int Version() const;  // 22809 for 2.28.9
  // Whether a buffer may be registered as a window.
  bool HasWindows() const;

  decltype(&::ncclGetVersion) get_version = nullptr;
  decltype(&::ncclGetUniqueId) get_unique_id = nullptr;
  decltype(&::ncclCommInitRankConfig) comm_init_rank_config = nullptr;
  decltype(&::ncclCommSplit) comm_split = nullptr;
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
  // Null where the library has none.
  decltype(&::ncclCommWindowRegister) window_register = nullptr;
  decltype(&::ncclCommWindowDeregister) window_deregister = nullptr;
};

}  // namespace bulkhead
