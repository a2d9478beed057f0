#include "comm/group.h"

#include "absl/strings/str_cat.h"

namespace bulkhead {

absl::Status AgreeOrAbort(Group& group, absl::string_view phase, const absl::Status& mine,
                          absl::Duration timeout) {
  const RankTopology& topology = group.exchange().topology();
  if (mine.ok() || topology.size == 1) return Agree(group.exchange(), phase, mine, timeout);
  GroupLiveness& liveness = group.liveness();
  liveness.Abort(Prefixed(absl::StrCat(topology.NameOf(topology.rank), ": "), mine));
  return liveness.Check(absl::InfiniteDuration());  // what the first rank that failed said
}

}  // namespace bulkhead
