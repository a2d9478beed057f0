// The lost rank as a payload of a status, so that nothing has to parse the message.
#pragma once

#include <optional>
#include <string>

#include "absl/status/status.h"

namespace bulkhead {

struct LostRank {
  std::optional<int> rank;  // absent if unknown
  std::string host;

  bool operator==(const LostRank&) const = default;
};

// `status` with `lost` attached. An ok status is returned unchanged.
absl::Status WithLostRank(absl::Status status, const LostRank& lost);

// The LostRank attached to `status`; its `rank` is absent if there is none.
LostRank LostRankOf(const absl::Status& status);

}  // namespace bulkhead
