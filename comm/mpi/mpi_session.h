// MpiSession: MPI from initialisation to finalisation, used to connect ranks. Only it and MpiLink
// call MPI, on the thread that started it (MPI_THREAD_FUNNELED).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "comm/exchange.h"
#include "comm/launch_environment.h"
#include "comm/mpi/mpi_files.h"

namespace bulkhead {

class MpiSession final : public GroupExchange {
 public:
  // Collective. Errors carry ExitCode::kGroupNotUp. If a rank does not reach MPI_Init within
  // `timeout`, or a minute, this process exits with that code: the call cannot be interrupted.
  static absl::StatusOr<std::unique_ptr<MpiSession>> Start(const LaunchEnvironment& launch,
                                                           absl::Duration timeout);
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;
  // Without Finalize MPI is left as it is: the process is expected to exit with an error, and the
  // launcher to end the others.
  ~MpiSession() override;

  const RankTopology& topology() const override { return topology_; }
  // Polls with short sleeps: a missing rank is a timeout, never a hang or a busy core.
  absl::StatusOr<std::vector<std::string>> AllGather(absl::string_view mine,
                                                     absl::Duration timeout) override;
  // Collective: the exchange of this node's ranks only, valid during the session.
  absl::StatusOr<std::unique_ptr<MpiSession>> SplitByNode(absl::Duration timeout) const;
  // Collective, for an orderly shutdown. After 30 s this process exits with ExitCode::kRankLost and
  // names this host's missing ranks.
  void Finalize(const LaunchEnvironment& launch);
  // Ends all ranks at once; the launcher's exit code is `code`.
  [[noreturn]] static void Abort(int code);

 private:
  struct Pending;
  struct Ranks;  // the communicator
  explicit MpiSession(int local_rank);
  absl::Status Gather(Pending& pending, absl::string_view mine, int64_t deadline_ns);

  RankTopology topology_;
  std::unique_ptr<Ranks> ranks_;
  MpiSegment segment_;
  // Buffers that MPI may still write to after a timeout; kept until the process ends.
  std::unique_ptr<Pending> pending_;
};

// The version string of the MPI library in use, in one line. May be called at any time, even if MPI
// was never started.
std::string MpiVersion();

}  // namespace bulkhead
