#include "launcher/bench/comm_result.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "launcher/bench/quantile.h"
#include "nlohmann/json.hpp"

namespace bulkhead {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

CommFacts FactsOf(std::vector<std::string> hosts) {
  CommFacts facts;
  facts.hosts = std::move(hosts);
  facts.may_spin = true;
  return facts;
}

TEST(CommResultTest, BusBandwidthFollowsNcclTests) {
  EXPECT_DOUBLE_EQ(BusFactor(Collective::kAllReduce, 8), 1.75);
  EXPECT_DOUBLE_EQ(BusFactor(Collective::kAllReduce, 2), 1);
  EXPECT_DOUBLE_EQ(BusFactor(Collective::kAllGather, 4), 0.75);
  EXPECT_DOUBLE_EQ(BusFactor(Collective::kGather, 4), 0.75);
  EXPECT_DOUBLE_EQ(BusFactor(Collective::kBroadcast, 4), 1);
}

TEST(CommResultTest, QuantilesLieBetweenNeighbours) {
  EXPECT_EQ(QuantileOf({}, 0.5), 0);
  EXPECT_EQ(QuantileOf({7}, 0.99), 7);
  EXPECT_EQ(QuantileOf({4, 1, 3, 2}, 0.5), 2.5);
  EXPECT_EQ(QuantileOf({4, 1, 3, 2}, 1), 4);
  EXPECT_EQ(QuantileOf({4, 1, 3, 2}, 0), 1);
  EXPECT_DOUBLE_EQ(QuantileOf({0, 10}, 0.99), 9.9);
  // numpy.percentile([1, 2, 4, 8], [25, 50, 90]) = [1.75, 3, 6.8].
  EXPECT_DOUBLE_EQ(QuantileOfSorted({1, 2, 4, 8}, 0.25), 1.75);
  EXPECT_DOUBLE_EQ(QuantileOfSorted({1, 2, 4, 8}, 0.5), 3);
  EXPECT_DOUBLE_EQ(QuantileOfSorted({1, 2, 4, 8}, 0.9), 6.8);
}

TEST(CommResultTest, ABareLoopStandsBesideItsSize) {
  const CommCase with{Collective::kAllReduce, 4000, "hidden x 1", {3e-6, 1e-6, 2e-6}, {1e-6}};
  const std::string table = CommTable(FactsOf({"a", "a"}), {with}, {});
  EXPECT_THAT(table, HasSubstr("of bare"));
  EXPECT_THAT(table, HasSubstr("2.00x"));
  const auto json = nlohmann::json::parse(CommJson(FactsOf({"a", "a"}), {with}, {}));
  EXPECT_DOUBLE_EQ(json["cases"][0]["of_bare"], 2);
  EXPECT_DOUBLE_EQ(json["cases"][0]["algorithm_gb_per_s"], 2);
  EXPECT_DOUBLE_EQ(json["cases"][0]["bus_gb_per_s"], 2);
  EXPECT_DOUBLE_EQ(json["cases"][0]["p50_us"], 2);
}

TEST(CommResultTest, WithoutABareLoopItsColumnsAreAbsent) {
  const CommCase without{Collective::kAllReduce, 4000, "", {2e-6}, {}};
  EXPECT_THAT(CommTable(FactsOf({"a", "a", "a"}), {without}, {}), Not(HasSubstr("bare")));
  const auto json = nlohmann::json::parse(CommJson(FactsOf({"a", "a", "a"}), {without}, {}));
  EXPECT_FALSE(json["cases"][0].contains("of_bare"));
}

TEST(CommResultTest, RanksThatSharedACoreAreTold) {
  const CommCase one{Collective::kBroadcast, 4000, "", {2e-6}, {}};
  CommFacts facts = FactsOf({"a", "a"});
  EXPECT_THAT(CommTable(facts, {one}, {}), Not(HasSubstr("taking turns")));
  facts.shared_core_share = 0.25;
  EXPECT_THAT(CommTable(facts, {one}, {}), HasSubstr("behind 25 % of the turns"));
}

TEST(CommResultTest, PairsHaveATableOfTheirOwn) {
  const CommCase one{Collective::kBroadcast, 4000, "", {2e-6}, {}};
  EXPECT_THAT(CommTable(FactsOf({"a", "b"}), {one}, {{0, 1, 5e-7, 4e9}}),
              HasSubstr("0 - 1          0.50  4.00"));
}

}  // namespace
}  // namespace bulkhead
