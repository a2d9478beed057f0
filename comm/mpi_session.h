// MpiSession: MPI from its beginning to its end, used to bring ranks together. It and MpiLink alone
// call MPI, on the thread that started it (MPI_THREAD_FUNNELED).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "comm/exchange.h"
#include "comm/launch_environment.h"
#include "comm/mpi_files.h"

namespace bulkhead {

class MpiSession final : public GroupExchange {
 public:
  // Collective. Errors carry ExitCode::kGroupNotUp. A rank that does not come into MPI_Init within
  // `timeout`, or a minute, ends this process with that code: MPI offers no way out of that call.
  static absl::StatusOr<std::unique_ptr<MpiSession>> Start(const LaunchEnvironment& launch,
                                                           absl::Duration timeout);
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;
  // Leaves MPI as it is unless Finalize was called: the process is expected to end with an error,
  // and the launcher to end the others.
  ~MpiSession() override;

  const RankTopology& topology() const override { return topology_; }
  // Polled with short sleeps: a rank that is missing is a timeout and never a hang, nor a busy
  // core.
  absl::StatusOr<std::vector<std::string>> AllGather(absl::string_view mine,
                                                     absl::Duration timeout) override;
  // Collective: the exchange of this node's ranks alone, for as long as the session lasts.
  absl::StatusOr<std::unique_ptr<MpiSession>> SplitByNode(absl::Duration timeout) const;
  // Collective, for an end in good order.
  void Finalize();
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
  // Buffers of calls that MPI may still write to: given up by a timeout, kept to the end of the
  // process.
  std::unique_ptr<Pending> pending_;
};

}  // namespace bulkhead
