#include "runtime/engine/group_state.h"

namespace bulkhead {
namespace {

constexpr absl::Duration kStartRetry = absl::Seconds(2);

}  // namespace

absl::Status WhyClosed(GroupState state, const absl::Status& failure, Metadata metadata) {
  const auto closed = [&](absl::string_view why, const char* word, absl::Duration retry) {
    return WithRetryAfter(WithReason(absl::UnavailableError(why), word, metadata), retry);
  };
  switch (state) {
    case GroupState::kServing:
      return absl::OkStatus();
    case GroupState::kStarting:
      return closed("starting: the model is being loaded; try again soon", reason::kStarting,
                    kStartRetry);
    case GroupState::kDraining:
      return closed(
          "draining: the server finishes running requests and accepts no new ones; send it to "
          "another server",
          reason::kDraining, kRestartRetry);
    case GroupState::kLost:
      break;
  }
  return closed(failure.message(), reason::kRankLost, kRestartRetry);
}

}  // namespace bulkhead
