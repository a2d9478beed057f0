#include "comm/mpi/mpi_link.h"

#define OMPI_SKIP_MPICXX 1
#include <mpi.h>

#include <cstddef>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/exit_code.h"
#include "base/status.h"
#include "comm/wait.h"

namespace bulkhead {
namespace {

// Separate from MpiSession's collectives, which have their own context.
constexpr int kFirstTag = 100;

int TagOf(LinkKind kind) { return kFirstTag + static_cast<int>(kind); }

absl::Status FromMpi(int error, absl::string_view call) {
  if (error == MPI_SUCCESS) return absl::OkStatus();
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  MPI_Error_string(error, text, &length);
  return WithExitCode(absl::UnavailableError(absl::StrCat(call, ": ", text)), ExitCode::kRankLost);
}

void CheckLength(int64_t bytes) { BH_CHECK(bytes > 0 && bytes <= kMaxLinkMessageBytes); }

}  // namespace

struct MpiLink::Batch {
  absl::Span<const Outgoing> sends;
  absl::Span<const Incoming> receives;
  std::vector<MPI_Request> requests;  // receives, then sends
};

absl::Status MpiLink::Transfer(LinkKind kind, absl::Span<const Outgoing> sends,
                               absl::Span<const Incoming> receives, int64_t deadline_ns) {
  if (!failed_.ok()) return failed_;
  Batch batch{sends, receives, {}};
  failed_ = Begin(kind, batch);
  if (failed_.ok()) failed_ = Await(batch, deadline_ns);
  // After a wait is given up its target stays marked, so that a watchdog can still report it.
  if (failed_.ok()) region_->set_awaited_node(-1, MonotonicNanos());
  return failed_;
}

absl::Status MpiLink::Begin(LinkKind kind, Batch& batch) {
  for (const Incoming& in : batch.receives) {
    CheckLength(in.row_bytes * in.rows);
    MPI_Request& request = batch.requests.emplace_back(MPI_REQUEST_NULL);
    const int from = leaders_[in.node];
    if (in.rows == 1) {
      BH_RETURN_IF_ERROR(FromMpi(MPI_Irecv(in.data, static_cast<int>(in.row_bytes), MPI_BYTE, from,
                                           TagOf(kind), MPI_COMM_WORLD, &request),
                                 "MPI_Irecv"));
      continue;
    }
    MPI_Datatype rows;
    MPI_Type_create_hvector(static_cast<int>(in.rows), static_cast<int>(in.row_bytes),
                            in.stride_bytes, MPI_BYTE, &rows);
    MPI_Type_commit(&rows);
    const int error = MPI_Irecv(in.data, 1, rows, from, TagOf(kind), MPI_COMM_WORLD, &request);
    MPI_Type_free(&rows);  // stays valid until the message is received
    BH_RETURN_IF_ERROR(FromMpi(error, "MPI_Irecv"));
  }
  for (const Outgoing& out : batch.sends) {
    CheckLength(out.bytes);
    BH_RETURN_IF_ERROR(FromMpi(
        MPI_Isend(out.data, static_cast<int>(out.bytes), MPI_BYTE, leaders_[out.node], TagOf(kind),
                  MPI_COMM_WORLD, &batch.requests.emplace_back(MPI_REQUEST_NULL)),
        "MPI_Isend"));
  }
  return absl::OkStatus();
}

absl::Status MpiLink::Await(Batch& batch, int64_t deadline_ns) {
  BackOff back_off(may_spin_);
  for (size_t i = 0; i < batch.requests.size(); ++i) {
    const bool receiving = i < batch.receives.size();
    const int peer =
        receiving ? batch.receives[i].node : batch.sends[i - batch.receives.size()].node;
    MPI_Status arrived;
    while (true) {
      const int64_t now_ns = MonotonicNanos();
      region_->set_awaited_node(peer, now_ns);
      int done = 0;
      BH_RETURN_IF_ERROR(FromMpi(MPI_Test(&batch.requests[i], &done, &arrived), "MPI_Test"));
      if (done != 0) break;
      BH_RETURN_IF_ERROR(region_->abort_status());
      if (now_ns > deadline_ns) return absl::DeadlineExceededError("");
      back_off.Pause();
    }
    if (!receiving) continue;
    const Incoming& in = batch.receives[i];
    int bytes = 0;
    MPI_Get_count(&arrived, MPI_BYTE, &bytes);
    if (in.length != nullptr) {
      *in.length = bytes;
    } else if (bytes != in.row_bytes * in.rows) {
      return WithExitCode(
          absl::InternalError(absl::StrCat("node ", in.node, " sends ", bytes, " bytes where node ",
                                           node_, " expects ", in.row_bytes * in.rows)),
          ExitCode::kBug);
    }
  }
  return absl::OkStatus();
}

}  // namespace bulkhead
