// ServingState: the state machine of a server's life, shared by all its services. Explains why a
// request is refused, with typed details. Thread-safe.
//
//   kStarting -> kServing -> kDraining -> kLost -> kStopping
//
// goes forward only, and may skip phases.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "base/lost_rank.h"
#include "bulkhead/v1/generation.pb.h"
#include "memory/kv_event_log.h"
#include "memory/limits.h"
#include "runtime/engine/request.h"
#include "runtime/service/engine_control.h"
#include "runtime/service/request_builder.h"

namespace bulkhead {

enum class ServingPhase {
  kStarting,
  kServing,
  kDraining,  // running requests are finished, new ones refused
  kLost,      // a rank is gone, and with it all requests
  kStopping,  // the last calls are ended
};

// The files with which a client renders chats and tokenises like this server, as a zip.
struct TokenizerArchive {
  std::string zip;
  std::string sha256;  // of the zip, in hexadecimal
};

// What a server needs to serve. The pointers outlive the server's Shutdown().
struct ServingParts {
  RequestInbox* inbox = nullptr;
  EngineControl* control = nullptr;
  RequestRules rules;
  v1::ServerInfo server_info;  // `epoch` is filled in by the server
  v1::ModelInfo model_info;
  v1::RankTable rank_table;
  Limits limits;  // as planned
  // Or why there is no archive.
  absl::StatusOr<std::shared_ptr<const TokenizerArchive>> tokenizer_archive =
      absl::NotFoundError("the model has no tokenizer.json");
  std::shared_ptr<KvEventLog> kv_events;  // null: not recorded
};

// The rules under the current limits, which an operator may have lowered.
RequestRules RulesNow(const ServingParts& parts);

class ServingState {
 public:
  ServingState();

  // Called with every phase that is entered, in order, one call at a time, without a lock: by the
  // thread that enters it, or by a thread that was then already calling the listener. Set before
  // any other call.
  void SetListener(std::function<void(ServingPhase phase)> listener);

  // Ignored if the phase is this one or a later one: a drain or a loss during start-up takes
  // precedence, and the first loss is kept.
  void SetReady(ServingParts parts);
  void SetDraining();
  void SetLost(const absl::Status& why, LostRank lost);
  void SetStopping();

  // Identifies this run of the group; included in every event.
  const std::string& epoch() const { return epoch_; }
  ServingPhase phase() const;

  // For new work: UNAVAILABLE (STARTING, DRAINING, RANK_LOST) unless serving.
  absl::StatusOr<std::shared_ptr<const ServingParts>> ForNewRequest() const;
  // For control calls, which a draining server still answers. UNSUPPORTED_PARAMETER for an unknown
  // field.
  absl::StatusOr<std::shared_ptr<const ServingParts>> ForControl(
      const google::protobuf::Message& request) const;

  // The status of a refused or ended request with a reason for the client: its own, the rank that
  // was lost, or what follows from its code and this state.
  absl::Status Explain(absl::Status status, absl::string_view request_id) const;

 private:
  // The only phase transition; call Announce after it. False if it is not allowed.
  bool EnterLocked(ServingPhase phase) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Announce() ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status WhyUnavailableLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::string epoch_;
  std::function<void(ServingPhase)> listener_;  // constant once set
  mutable absl::Mutex mutex_;
  ServingPhase phase_ ABSL_GUARDED_BY(mutex_) = ServingPhase::kStarting;
  std::deque<ServingPhase> unannounced_ ABSL_GUARDED_BY(mutex_);
  bool announcing_ ABSL_GUARDED_BY(mutex_) = false;  // a thread is in Announce
  std::shared_ptr<const ServingParts> parts_ ABSL_GUARDED_BY(mutex_);
  absl::Status lost_ ABSL_GUARDED_BY(mutex_);  // ok: no rank was lost
};

}  // namespace bulkhead
