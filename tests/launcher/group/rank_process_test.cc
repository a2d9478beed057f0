#include "launcher/group/rank_process.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/lost_rank.h"

namespace bulkhead {
namespace {

using testing::ElementsAre;

// The ranks that report the loss of rank 0, of a group on these nodes.
std::vector<int> ReportersOn(const std::vector<int>& nodes) {
  std::vector<std::string> identities;
  for (const int node : nodes) identities.push_back(absl::StrCat("host", node, " boot 1"));
  std::vector<int> reporters;
  for (int rank = 1; rank < static_cast<int>(nodes.size()); ++rank) {
    const absl::StatusOr<RankTopology> topology = TopologyFrom(rank, identities);
    if (topology.ok() && ReportsLossOfRank0(*topology)) reporters.push_back(rank);
  }
  return reporters;
}

TEST(ReportsLossOfRank0, IsTrueOfAnotherRankOfItsHostAndOfOneOfEachOtherHost) {
  EXPECT_THAT(ReportersOn({0, 0, 0}), ElementsAre(1));
  EXPECT_THAT(ReportersOn({0, 0, 1, 1}), ElementsAre(1, 2));
  EXPECT_THAT(ReportersOn({0, 1, 0, 1}), ElementsAre(1, 2));  // round-robin
  EXPECT_THAT(ReportersOn({0, 1, 1, 2}), ElementsAre(1, 3));
}

TEST(CoordinatorWait, IsOfOtherRanksAndShortWhereRank0IsWhatWasLost) {
  const absl::Status lost = absl::UnavailableError("lost");
  RankTopology topology;
  topology.size = 3;
  topology.rank = 2;
  const absl::Duration longest = CoordinatorWait(topology, lost);
  EXPECT_EQ(CoordinatorWait(topology, WithLostRank(lost, {.rank = 1, .host = "a"})), longest);
  const absl::Duration shortest =
      CoordinatorWait(topology, WithLostRank(lost, {.rank = 0, .host = "a"}));
  EXPECT_GT(shortest, absl::ZeroDuration());
  EXPECT_LT(shortest, longest / 3);
  topology.rank = 0;
  EXPECT_EQ(CoordinatorWait(topology, lost), absl::ZeroDuration());
}

}  // namespace
}  // namespace bulkhead
