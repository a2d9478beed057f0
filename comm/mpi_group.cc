#include "comm/mpi_group.h"

#include <cstdlib>
#include <utility>

#include "comm/launch_environment.h"
#include "comm/mpi_session.h"
#include "comm/node_group.h"
#include "memory/exit_code.h"
#include "memory/status.h"

namespace bulkhead {
namespace {

LaunchEnvironment OwnLaunch() {
  return ReadLaunchEnvironment([](const char* name) { return std::getenv(name); });
}

// A node's group, and the session that brought it together.
class MpiGroup final : public Group {
 public:
  MpiGroup(std::unique_ptr<MpiSession> session, std::unique_ptr<Group> node)
      : session_(std::move(session)), node_(std::move(node)) {}
  GroupExchange& exchange() override { return node_->exchange(); }
  ControlBus& bus() override { return node_->bus(); }
  GroupLiveness& liveness() override { return node_->liveness(); }
  void AllowSpinning(bool allowed) override { node_->AllowSpinning(allowed); }
  absl::StatusOr<std::unique_ptr<Communicator>> Connect(const CommLimits& limits,
                                                        MemoryLedger& ledger) override {
    return node_->Connect(limits, ledger);
  }
  void Leave(const absl::Status& status) override {
    node_->Leave(status);
    if (!IsAgreed(status)) MpiSession::Abort(static_cast<int>(ExitCodeOf(status)));
    session_->Finalize();
  }

 private:
  std::unique_ptr<MpiSession> session_;
  std::unique_ptr<Group> node_;
};

}  // namespace

bool LaunchedAsGroup() { return OwnLaunch().by_launcher(); }

absl::StatusOr<std::unique_ptr<Group>> NewMpiGroup(absl::Duration timeout) {
  BH_ASSIGN_OR_RETURN(std::unique_ptr<MpiSession> session, MpiSession::Start(OwnLaunch(), timeout));
  absl::StatusOr<std::unique_ptr<Group>> node = NewNodeGroup(*session, timeout);
  if (!node.ok()) {
    if (IsAgreed(node.status())) session->Finalize();
    return node.status();
  }
  return std::make_unique<MpiGroup>(std::move(session), *std::move(node));
}

}  // namespace bulkhead
