// ServingState: the server's state, shared by all its services. Explains why a request is refused,
// with typed details. Thread-safe.
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

// What a server needs to serve. The pointers outlive the server's Shutdown().
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

  // Called with true or false whenever serving begins or ends; calls do not overlap, and the last
  // one is current. It must not change the state. Set before any other call.
  void SetListener(std::function<void(bool serving)> listener);

  // Ignored unless starting: a drain or a loss during start-up takes precedence.
  void SetReady(ServingParts parts);
  void SetDraining();
  void SetLost(const absl::Status& why, LostRank lost);

  const std::string& epoch() const { return epoch_; }
  ServingPhase phase() const;

  // For new work: UNAVAILABLE (STARTING, DRAINING, RANK_LOST) unless serving.
  absl::StatusOr<std::shared_ptr<const ServingParts>> ForNewRequest() const;
  // For control calls, which a draining server still answers. UNSUPPORTED_PARAMETER for an unknown
  // field.
  absl::StatusOr<std::shared_ptr<const ServingParts>> ForControl(
      const google::protobuf::Message& request) const;

  // The engine's status for a refused or ended request, with details for the client: the reason for
  // its code and this state, and the load.
  absl::Status Explain(absl::Status status, absl::string_view request_id) const;

 private:
  absl::Status WhyUnavailableLocked() const;
  void Announce();

  const std::string epoch_;
  std::function<void(bool)> listener_;
  std::mutex announce_mutex_;  // acquired before mutex_, which is not held during the listener's
                               // call
  mutable std::mutex mutex_;
  ServingPhase phase_ = ServingPhase::kStarting;
  std::shared_ptr<const ServingParts> parts_;
  absl::Status lost_;
};

}  // namespace bulkhead
