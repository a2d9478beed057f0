// Which rank was lost, as a payload of the status that says so: nobody has to read its message.
#pragma once

#include <optional>
#include <string>

#include "absl/status/status.h"

namespace bulkhead {

struct LostRank {
  std::optional<int> rank;  // absent where it is not known
  std::string host;

  bool operator==(const LostRank&) const = default;
};

// The same status, carrying `lost`. An ok status is returned as it is.
absl::Status WithLostRank(absl::Status status, const LostRank& lost);

// What `status` carries; without: no rank.
LostRank LostRankOf(const absl::Status& status);

}  // namespace bulkhead
