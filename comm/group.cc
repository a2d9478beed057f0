#include "comm/group.h"

#include "absl/strings/str_cat.h"

namespace bulkhead {

absl::Status AgreeOrAbort(Group& group, absl::string_view phase, const absl::Status& mine,
                          absl::Duration timeout) {
  const RankTopology& topology = group.exchange().topology();
  if (mine.ok() || topology.size == 1) return Agree(group.exchange(), phase, mine, timeout);
  GroupLiveness& liveness = group.liveness();
  const absl::Status named = Prefixed(absl::StrCat(topology.NameOf(topology.rank), ": "), mine);
  liveness.Abort(named);
  // The status of the first rank that failed; ok if a signal ends the group.
  const absl::Status said = liveness.Check(absl::InfiniteDuration());
  return said.ok() ? named : said;
}

}  // namespace bulkhead
