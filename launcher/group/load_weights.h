// Loading of a rank's weights, with its progress in the log.
#pragma once

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "comm/group.h"
#include "launcher/group/rank_engine.h"

namespace bulkhead {

// Collective. Loads the model and the draft model, if there is one.
absl::Status LoadAllWeights(Group& group, absl::Duration timeout, RankEngine& engine);

}  // namespace bulkhead
