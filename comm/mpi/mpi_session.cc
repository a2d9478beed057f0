#include "comm/mpi/mpi_session.h"

#define OMPI_SKIP_MPICXX 1
#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <functional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/exit_code.h"
#include "base/log.h"
#include "base/periodic_thread.h"
#include "base/status.h"
#include "comm/mpi/missing_ranks.h"
#include "comm/wait.h"

namespace bulkhead {
namespace {

// Ranks are started together; loading comes later.
constexpr absl::Duration kInitLimit = absl::Minutes(1);

// Ends the process if an uninterruptible MPI call does not return in time.
class CallLimit {
 public:
  // `cause`: evaluated when the limit has passed. `name`: of the thread, visible to other
  // processes.
  CallLimit(
      const char* call, absl::Duration limit, ExitCode code,
      const std::function<std::string()>& cause = [] { return "a rank is missing"; },
      const char* name = "bh-call-limit")
      : thread_(
            limit, PeriodicThread::First::kAfterPeriod,
            [call, limit, code, cause] {
              BH_LOG(kError) << call << " did not return within " << absl::FormatDuration(limit)
                             << ": " << cause();
              _exit(static_cast<int>(code));
            },
            name) {}

 private:
  const PeriodicThread thread_;
};

absl::Status NotUp(absl::Status status) {
  return WithExitCode(std::move(status), ExitCode::kGroupNotUp);
}

absl::Status FromMpi(int error, absl::string_view call) {
  if (error == MPI_SUCCESS) return absl::OkStatus();
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  MPI_Error_string(error, text, &length);
  return NotUp(absl::UnavailableError(absl::StrCat(call, ": ", text)));
}

// The rank that knows which one is missing reports first: the launcher then stops the others.
std::string FindMissingRanks(const LaunchEnvironment& launch, const char* call_name) {
  constexpr int kGraceMicros = 1'000'000;
  const std::string missing = MissingRanks(launch, call_name, &std::getenv);
  if (!missing.empty()) return missing;
  usleep(kGraceMicros);
  return launch.one_host ? "MPI hangs, all ranks are in it"
                         : "all ranks of this host are in it, one of another host is missing";
}

// Polls with sleeps growing from 50 us to 1 ms.
absl::Status Poll(MPI_Request* request, int64_t deadline_ns) {
  constexpr int kLongestSleepMicros = 1000;
  int sleep_micros = 50;
  while (true) {
    int done = 0;
    BH_RETURN_IF_ERROR(FromMpi(MPI_Test(request, &done, MPI_STATUS_IGNORE), "MPI_Test"));
    if (done != 0) return absl::OkStatus();
    if (MonotonicNanos() > deadline_ns) return absl::DeadlineExceededError("");
    usleep(sleep_micros);
    sleep_micros = std::min(sleep_micros * 2, kLongestSleepMicros);
  }
}

}  // namespace

struct MpiSession::Pending {
  std::string mine;
  int length = 0;
  std::vector<int> lengths;  // [size]
  std::vector<int> offsets;  // [size]
  std::string all;
};

struct MpiSession::Ranks {
  MPI_Comm comm = MPI_COMM_WORLD;
};

absl::StatusOr<std::unique_ptr<MpiSession>> MpiSession::Start(const LaunchEnvironment& launch,
                                                              absl::Duration timeout) {
  BH_RETURN_IF_ERROR(CheckCanConnect(launch));
  BH_RETURN_IF_ERROR(CheckRoomForSegments(launch, SegmentFolder(launch, &std::getenv)));
  {
    const CallLimit limit(
        "MPI_Init", std::min(timeout, kInitLimit), ExitCode::kGroupNotUp,
        [&launch] { return FindMissingRanks(launch, kInMpiInit); }, kInMpiInit);
    int provided = 0;
    BH_RETURN_IF_ERROR(FromMpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided),
                               "MPI_Init_thread"));
    if (provided < MPI_THREAD_FUNNELED) {
      return NotUp(absl::FailedPreconditionError("this MPI does not offer MPI_THREAD_FUNNELED"));
    }
  }
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  auto session = std::unique_ptr<MpiSession>(new MpiSession(launch.local_rank));
  MPI_Comm_rank(MPI_COMM_WORLD, &session->topology_.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &session->topology_.size);
  BH_RETURN_IF_ERROR(CheckSize(launch, session->topology_.size));
  BH_ASSIGN_OR_RETURN(const std::vector<std::string> identities,
                      session->AllGather(HostIdentity(), timeout));
  absl::StatusOr<RankTopology> topology = TopologyFrom(session->topology_.rank, identities);
  if (!topology.ok()) return MarkAgreed(NotUp(topology.status()));
  session->topology_ = *std::move(topology);
  session->segment_.RemoveName();
  return session;
}

MpiSession::MpiSession(int local_rank) : ranks_(std::make_unique<Ranks>()), segment_(local_rank) {}

MpiSession::~MpiSession() = default;

absl::StatusOr<std::unique_ptr<MpiSession>> MpiSession::SplitByNode(absl::Duration timeout) const {
  constexpr int kNoSegment = -1;
  auto node = std::unique_ptr<MpiSession>(new MpiSession(kNoSegment));
  node->topology_ = NodeTopology(topology_);
  const CallLimit limit("MPI_Comm_split", timeout, ExitCode::kGroupNotUp);
  BH_RETURN_IF_ERROR(
      FromMpi(MPI_Comm_split(MPI_COMM_WORLD, topology_.node(), topology_.rank, &node->ranks_->comm),
              "MPI_Comm_split"));
  return node;
}

absl::StatusOr<std::vector<std::string>> MpiSession::AllGather(absl::string_view mine,
                                                               absl::Duration timeout) {
  BH_CHECK(pending_ == nullptr && static_cast<int64_t>(mine.size()) <= kMaxExchangeBytes);
  pending_ = std::make_unique<Pending>();
  const int64_t deadline_ns = MonotonicNanos() + absl::ToInt64Nanoseconds(timeout);
  const absl::Status status = Gather(*pending_, mine, deadline_ns);
  if (absl::IsDeadlineExceeded(status)) {
    static_cast<void>(
        pending_.release());  // MPI still holds the buffers; the process is about to end
    return NotUp(absl::DeadlineExceededError(
        absl::StrCat("a rank did not arrive within ", absl::FormatDuration(timeout),
                     " (this is rank ", topology_.rank, " of ", topology_.size, ")")));
  }
  BH_RETURN_IF_ERROR(status);
  std::vector<std::string> all;
  for (int rank = 0; rank < topology_.size; ++rank) {
    all.push_back(pending_->all.substr(pending_->offsets[rank], pending_->lengths[rank]));
  }
  pending_.reset();
  return all;
}

absl::Status MpiSession::Gather(Pending& pending, absl::string_view mine, int64_t deadline_ns) {
  pending.mine = std::string(mine);
  pending.length = static_cast<int>(mine.size());
  pending.lengths.resize(topology_.size);
  MPI_Request request;
  BH_RETURN_IF_ERROR(FromMpi(MPI_Iallgather(&pending.length, 1, MPI_INT, pending.lengths.data(), 1,
                                            MPI_INT, ranks_->comm, &request),
                             "MPI_Iallgather"));
  BH_RETURN_IF_ERROR(Poll(&request, deadline_ns));
  int64_t total = 0;
  for (const int length : pending.lengths) {
    pending.offsets.push_back(static_cast<int>(std::min<int64_t>(total, INT_MAX)));
    total += length;
  }
  if (total > INT_MAX) {
    return MarkAgreed(NotUp(absl::ResourceExhaustedError(
        absl::StrCat("the ranks' messages add up to ", total, " bytes; at most ", INT_MAX,
                     " can be gathered"))));
  }
  pending.all.resize(total);
  BH_RETURN_IF_ERROR(
      FromMpi(MPI_Iallgatherv(pending.mine.data(), pending.length, MPI_CHAR, pending.all.data(),
                              pending.lengths.data(), pending.offsets.data(), MPI_CHAR,
                              ranks_->comm, &request),
              "MPI_Iallgatherv"));
  return Poll(&request, deadline_ns);
}

void MpiSession::Finalize(const LaunchEnvironment& launch) {
  // All ranks have just agreed. Where a watchdog runs, a silent rank is found in 3 s.
  constexpr absl::Duration kLimit = absl::Seconds(30);
  const CallLimit limit(
      "MPI_Finalize", kLimit, ExitCode::kRankLost,
      [&launch] { return FindMissingRanks(launch, kInMpiFinalize); }, kInMpiFinalize);
  segment_.PutNameBack();
  MPI_Finalize();
}

void MpiSession::Abort(int code) {
  MPI_Abort(MPI_COMM_WORLD, code);
  _exit(code);
}

std::string MpiVersion() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = {};
  int length = 0;
  if (MPI_Get_library_version(text, &length) != MPI_SUCCESS) return "unknown";
  const std::string version = text;  // Open MPI counts the terminating zero in `length`
  return version.substr(0, version.find('\n'));
}

}  // namespace bulkhead
