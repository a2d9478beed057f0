// ServingState: what the server can do right now, shared by all its services: starting, serving,
// draining, or lost for good. It answers why a request is refused now, with typed details.
// Thread-safe.
//
//   kStarting -> kServing -> kDraining
//        any  -> kLost (final)
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/lost_rank.h"
#include "bulkhead/v1/generation.pb.h"
#include "runtime/engine/request.h"
#include "runtime/service/engine_control.h"
#include "runtime/service/request_builder.h"

namespace bulkhead {

enum class ServingPhase { kStarting, kServing, kDraining, kLost };

// What a server needs to answer. The pointers outlive the server's Shutdown().
struct ServingParts {
  RequestInbox* inbox = nullptr;
  EngineControl* control = nullptr;
  RequestRules rules;
  v1::ServerInfo server_info;  // `epoch` is filled in by the server
  v1::ModelInfo model_info;
  v1::RankTable rank_table;
};

class ServingState {
 public:
  explicit ServingState(std::string epoch);

  // Called with true or false whenever serving begins or ends, one call after the other, and the
  // last one tells how it is. It must not change the state itself. Set before any call.
  void SetListener(std::function<void(bool serving)> listener);

  // Ignored unless starting: a drain or a loss during start-up stands.
  void SetReady(ServingParts parts);
  void SetDraining();
  void SetLost(const absl::Status& why, LostRank lost);

  const std::string& epoch() const { return epoch_; }
  ServingPhase phase() const;

  // For new work: UNAVAILABLE (STARTING, DRAINING, RANK_LOST) unless serving.
  absl::StatusOr<std::shared_ptr<const ServingParts>> ForNewRequest() const;
  // For questions and commands, which a draining server still answers.
  // UNSUPPORTED_PARAMETER for a field that this version does not know.
  absl::StatusOr<std::shared_ptr<const ServingParts>> ForControl(
      const google::protobuf::Message& request) const;

  // The status with which the engine refused or ended a request, with details for the client: the
  // reason that fits its code and this state, and the numbers of the load.
  absl::Status Explain(absl::Status status, absl::string_view request_id) const;

 private:
  absl::Status WhyUnavailableLocked() const;
  void Announce();

  const std::string epoch_;
  std::function<void(bool)> listener_;
  std::mutex announce_mutex_;  // taken before mutex_, which is not held while the listener runs
  mutable std::mutex mutex_;
  ServingPhase phase_ = ServingPhase::kStarting;
  std::shared_ptr<const ServingParts> parts_;
  absl::Status lost_;
};

}  // namespace bulkhead
