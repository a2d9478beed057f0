// A rank of NCCL's own group, and its memory. Built only with NCCL's header.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/lost_rank.h"
#include "comm/group.h"
#include "comm/nccl/nccl_library.h"

namespace bulkhead {

// The ranks connect with a non-blocking communicator, for a deadline, and then split off a blocking
// one: in non-blocking mode every collective outside a graph would start and join a thread. A rank
// that hangs in a blocking call is left to the watchdog.
class NcclRank {
 public:
  NcclRank(const NcclLibrary& nccl, Group& group);
  NcclRank(const NcclRank&) = delete;
  NcclRank& operator=(const NcclRank&) = delete;
  ~NcclRank();

  absl::Status Init(const ncclUniqueId& id, absl::Time deadline);
  // Checks the result of a call and the communicator's asynchronous error: ok or UNAVAILABLE with
  // NCCL's message.
  absl::Status Check(ncclResult_t answer, const char* call) {
    return answer == ncclSuccess ? AsyncError() : Failure(answer, call, comm_);
  }
  absl::Status AsyncError();
  // Enqueued work timed out: anything that waits for it would also hang.
  void SetBroken() { broken_ = true; }

  const NcclLibrary& nccl() const { return nccl_; }
  ncclComm_t comm() const { return comm_; }
  const std::string& name() const { return name_; }

 private:
  absl::Status WaitUntilReady(ncclResult_t answer, const char* call, absl::Time deadline);
  absl::Status EndConnecting(absl::Time deadline);
  absl::Status Failure(ncclResult_t answer, const char* call, ncclComm_t comm);

  const NcclLibrary& nccl_;
  Group& group_;
  std::string name_;
  LostRank lost_rank_;               // this rank, if NCCL failed on it
  ncclComm_t connecting_ = nullptr;  // non-blocking
  ncclComm_t comm_ = nullptr;        // blocking
  bool broken_ = false;
};

// Memory allocated by NCCL, registered as a symmetric window if possible.
class NcclMemory {
 public:
  explicit NcclMemory(NcclRank& rank) : rank_(rank) {}
  NcclMemory(const NcclMemory&) = delete;
  NcclMemory& operator=(const NcclMemory&) = delete;
  ~NcclMemory();

  absl::Status Allocate(int64_t bytes);
  // Collective; all ranks have the same version. From 2.30.7 on NCCL returns a null window if
  // devices have no peer access: its sums then run as without one.
  absl::Status Register();

  std::byte* data() const { return static_cast<std::byte*>(data_); }
  // For the log.
  std::string WindowText() const;

 private:
  NcclRank& rank_;
  void* data_ = nullptr;
  int64_t bytes_ = 0;
  ncclWindow_t window_ = nullptr;
};

}  // namespace bulkhead
