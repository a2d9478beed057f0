// The NCCL library loaded at run time: its functions, by name. Built only if its header is
// available.
#pragma once

#include <nccl.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace bulkhead {

// The first version whose sums over symmetric windows wait for the preceding kernels in the stream.
// NCCL launches them with programmatic serialization, which lets them start as soon as the
// preceding kernel allows it, and our kernels allow it at their very beginning; from 2.28.3 to
// 2.30.6 they do not wait for its end either (no cudaGridDependencySynchronize) and sum partial
// sums that are still being written. Windows of 2.27 leak memory.
inline constexpr int kWindowsFrom = 23007;
constexpr bool WindowsWaitForStream(int version) { return version >= kWindowsFrom; }

struct NcclLibrary {
  // The library, opened once per process; errors as NcclVersion (nccl_communicator.h).
  static absl::StatusOr<const NcclLibrary*> Get();

  int Version() const;  // 22809 for 2.28.9
  // Whether buffers may be registered as windows.
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
  // Null if the library lacks it.
  decltype(&::ncclCommWindowRegister) window_register = nullptr;
  decltype(&::ncclCommWindowDeregister) window_deregister = nullptr;
};

}  // namespace bulkhead
