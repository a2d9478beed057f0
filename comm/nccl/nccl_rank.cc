#include "comm/nccl/nccl_rank.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/status.h"

namespace bulkhead {
namespace {

constexpr absl::Duration kLookAgain = absl::Microseconds(200);
constexpr absl::Duration kFarewell = absl::Seconds(5);

}  // namespace

NcclRank::NcclRank(const NcclLibrary& nccl, Group& group) : nccl_(nccl), group_(group) {
  const RankTopology& topology = group_.exchange().topology();
  lost_rank_ = topology.LostRankAt(topology.rank);
  name_ = absl::StrCat("rank ", topology.rank, " (host ", topology.hosts[topology.rank], ")");
}

NcclRank::~NcclRank() {
  if (connecting_ != nullptr) EndConnecting(absl::Now() + kFarewell).IgnoreError();
  if (comm_ == nullptr) return;
  // Destroy if all is well; a broken communicator can only be aborted.
  const bool good = !broken_ && group_.liveness().Check(absl::InfiniteDuration()).ok() &&
                    nccl_.comm_finalize(comm_) == ncclSuccess;
  (good ? nccl_.comm_destroy : nccl_.comm_abort)(comm_);
}

absl::Status NcclRank::Init(const ncclUniqueId& id, absl::Time deadline) {
  const RankTopology& topology = group_.exchange().topology();
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  const ncclResult_t begun =
      nccl_.comm_init_rank_config(&connecting_, topology.size, id, topology.rank, &config);
  BH_RETURN_IF_ERROR(WaitUntilReady(begun, "ncclCommInitRank", deadline));
  config.blocking = 1;
  const ncclResult_t split =
      nccl_.comm_split(connecting_, /*color=*/0, /*key=*/topology.rank, &comm_, &config);
  BH_RETURN_IF_ERROR(WaitUntilReady(split, "ncclCommSplit", deadline));
  return EndConnecting(deadline);
}

absl::Status NcclRank::AsyncError() {
  ncclResult_t answer = ncclSuccess;
  const ncclResult_t asked = nccl_.comm_get_async_error(comm_, &answer);
  if (asked != ncclSuccess) answer = asked;
  if (answer == ncclSuccess || answer == ncclInProgress) return absl::OkStatus();
  return Failure(answer, "a collective", comm_);
}

// Waits until the operation started on connecting_ is complete. Even ncclSuccess may only mean
// that it was started, and NCCL refuses further calls until it is complete. UNAVAILABLE with
// NCCL's message, or with the rank that the group has lost; DEADLINE_EXCEEDED.
absl::Status NcclRank::WaitUntilReady(ncclResult_t answer, const char* call, absl::Time deadline) {
  while (answer == ncclSuccess || answer == ncclInProgress) {
    const ncclResult_t asked = nccl_.comm_get_async_error(connecting_, &answer);
    if (asked != ncclSuccess) answer = asked;
    if (answer == ncclSuccess) return absl::OkStatus();
    if (answer != ncclInProgress) break;
    BH_RETURN_IF_ERROR(group_.liveness().Check(absl::InfiniteDuration()));
    if (absl::Now() > deadline) {
      broken_ = true;
      return absl::DeadlineExceededError(
          absl::StrCat(name_, ": ", call, " timed out; NCCL_DEBUG=INFO shows more"));
    }
    absl::SleepFor(kLookAgain);
  }
  return Failure(answer, call, connecting_);
}

absl::Status NcclRank::EndConnecting(absl::Time deadline) {
  absl::Status ended = absl::UnavailableError("");
  if (!broken_)
    ended = WaitUntilReady(nccl_.comm_finalize(connecting_), "ncclCommFinalize", deadline);
  (ended.ok() ? nccl_.comm_destroy : nccl_.comm_abort)(std::exchange(connecting_, nullptr));
  return ended;
}

absl::Status NcclRank::Failure(ncclResult_t answer, const char* call, ncclComm_t comm) {
  broken_ = true;
  return WithLostRank(
      absl::UnavailableError(absl::StrCat(name_, ": ", call, ": ", nccl_.error_text(answer), ", ",
                                          nccl_.last_error(comm))),
      lost_rank_);
}

NcclMemory::~NcclMemory() {
  if (window_ != nullptr) rank_.nccl().window_deregister(rank_.comm(), window_);
  if (data_ != nullptr) rank_.nccl().mem_free(data_);
}

absl::Status NcclMemory::Allocate(int64_t bytes) {
  const ncclResult_t answer = rank_.nccl().mem_alloc(&data_, static_cast<size_t>(bytes));
  bytes_ = bytes;
  if (answer == ncclSuccess) return absl::OkStatus();
  data_ = nullptr;
  return absl::ResourceExhaustedError(
      absl::StrCat("communication: ncclMemAlloc: ", rank_.nccl().error_text(answer)));
}

absl::Status NcclMemory::Register() {
  if (!rank_.nccl().HasWindows()) return absl::OkStatus();
  const ncclResult_t answer = rank_.nccl().window_register(
      rank_.comm(), data_, static_cast<size_t>(bytes_), &window_, NCCL_WIN_COLL_SYMMETRIC);
  return rank_.Check(answer, "ncclCommWindowRegister");
}

std::string NcclMemory::WindowText() const {
  if (window_ != nullptr) return "yes";
  if (!rank_.nccl().HasWindows()) {
    return absl::StrCat("no, since sums over them wait for the kernels before them only from ",
                        kWindowsFrom, " on");
  }
  return "no, since the ranks' devices have no peer access";
}

}  // namespace bulkhead
