#include "launcher/planning/host_limits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/exit_code.h"

namespace bulkhead {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr int64_t kMiB = int64_t{1} << 20;

HostLimit Host(const char* id, int64_t total, int64_t available) {
  return {.id = id,
          .name = "the host",
          .total_bytes = total * kMiB,
          .available_bytes = available * kMiB};
}

HostLimit Cgroup(const char* id, int64_t total, int64_t available) {
  HostLimit limit = Host(id, total, available);
  limit.name = "the cgroup /x";
  limit.cgroup = true;
  return limit;
}

// Ranks with caps and arenas in MiB.
GroupPlan Capped(std::initializer_list<int64_t> caps, int64_t arenas, const HostRequest* request) {
  GroupPlan plan;
  plan.capacity.fits = true;
  plan.capacity.limits = {4, 2048, 512, 16, 100};
  for (const int64_t cap : caps) {
    RankCapacity& rank = plan.capacity.ranks.emplace_back();
    rank.budget.rank = static_cast<int>(plan.capacity.ranks.size()) - 1;
    rank.budget.device = "cpu";
    rank.budget.total_bytes = cap * kMiB;
    rank.arena_bytes[0] = arenas * kMiB;
  }
  if (request != nullptr) plan.host = FitHostBudget(*request, plan.capacity, std::nullopt);
  return plan;
}

TEST(ShareOfTest, RanksShareWhatLimitsThemTogetherAndARankAloneHasAllOfItsCgroup) {
  const LimitsOfRanks limits = {{Host("a", 8000, 6000)},
                                {Host("a", 8000, 6000), Cgroup("own", 160, 150)},
                                {Host("b", 900, 800)}};
  EXPECT_EQ(ShareOf(limits, 0).total_bytes, 4000 * kMiB);
  EXPECT_EQ(ShareOf(limits, 0).available_bytes, 3000 * kMiB);
  EXPECT_EQ(ShareOf(limits, 1).total_bytes, 160 * kMiB);
  EXPECT_EQ(ShareOf(limits, 1).available_bytes, 150 * kMiB);
  EXPECT_EQ(ShareOf(limits, 2).available_bytes, 800 * kMiB);
}

TEST(AvailabilityOfTest, TheRanksThatShareWhatLimitsRankZeroMostHoldTheBudget) {
  const LimitsOfRanks limits = {{Host("a", 8000, 6000), Cgroup("c", 500, 400)},
                                {Host("a", 8000, 6000), Cgroup("c", 500, 400)},
                                {Host("a", 8000, 6000)}};
  std::vector<DeviceBudget> budgets(3);
  for (DeviceBudget& budget : budgets) {
    budget.device = "cpu";
    budget.probed = true;
    budget.total_bytes = 250 * kMiB;
  }
  EXPECT_THAT(AvailabilityOf(limits, budgets).sharers, ElementsAre(0, 1));
  const LimitsOfRanks apart = {{Host("a", 8000, 6000)},
                               {Host("a", 8000, 6000), Cgroup("own", 160, 150)},
                               {Host("a", 8000, 6000)}};
  EXPECT_THAT(AvailabilityOf(apart, budgets).sharers, ElementsAre(0, 2));
  for (DeviceBudget& budget : budgets) budget.probed = false;
  const HostAvailability capped = AvailabilityOf(limits, budgets);
  EXPECT_THAT(capped.sharers, IsEmpty());
  EXPECT_EQ(capped.available_bytes, 0);  // 500 - 2 x 250
  for (DeviceBudget& budget : budgets) budget.device = "a-gpu";
  EXPECT_EQ(AvailabilityOf(limits, budgets).available_bytes, 500 * kMiB);
}

TEST(SettleHostTest, CapsBeyondACgroupAreRefusedAndBothAreNamed) {
  const HostRequest request;
  GroupPlan plan = Capped({1024}, 100, &request);
  std::string warning;
  const absl::Status refused =
      FinalizeHost({{Host("a", 8000, 6000), Cgroup("c", 256, 250)}}, request, plan, warning);
  EXPECT_EQ(ExitCodeOf(refused), ExitCode::kDoesNotFit);
  EXPECT_THAT(std::string(refused.message()),
              AllOf(HasSubstr("(host)"), HasSubstr("the cgroup /x has 256.0 MiB"),
                    HasSubstr("1.0 GiB"), HasSubstr("`plan`")));
  EXPECT_FALSE(plan.fits());
}

TEST(SettleHostTest, ACapThatIsTooLargeForAnyRanksCgroupIsRefusedWithoutAServer) {
  GroupPlan plan = Capped({100, 300}, 50, nullptr);
  std::string warning;
  const LimitsOfRanks limits = {{Host("a", 8000, 6000)},
                                {Host("a", 8000, 6000), Cgroup("c", 256, 250)}};
  EXPECT_THAT(std::string(FinalizeHost(limits, std::nullopt, plan, warning).message()),
              AllOf(HasSubstr("rank 1"), HasSubstr("at most 256MiB each")));
  plan = Capped({100, 256}, 50, nullptr);
  EXPECT_TRUE(FinalizeHost(limits, std::nullopt, plan, warning).ok());
}

TEST(SettleHostTest, QuotasGiveWayToWhatIsFreeNowAndWhereTheyCannotItIsAWarning) {
  const HostRequest request;
  std::string warning;
  GroupPlan plan = Capped({200}, 150, &request);
  const int64_t full = plan.host->total_bytes();
  ASSERT_TRUE(FinalizeHost({{Host("a", 8000, 8000)}}, request, plan, warning).ok());
  EXPECT_EQ(plan.host->total_bytes(), full);
  ASSERT_TRUE(FinalizeHost({{Host("a", 8000, 500)}}, request, plan, warning).ok());
  EXPECT_LE(plan.host->total_bytes(), 350 * kMiB);
  EXPECT_THAT(warning, IsEmpty());
  ASSERT_TRUE(FinalizeHost({{Host("a", 8000, 160)}}, request, plan, warning).ok());
  EXPECT_THAT(warning,
              AllOf(HasSubstr("the host has only 10.0 MiB left now"), HasSubstr("kernel")));
  EXPECT_TRUE(plan.fits());
}

TEST(SettleHostTest, ArenasThatAreMoreThanIsFreeNowAreRefused) {
  const HostRequest request;
  std::string warning;
  GroupPlan plan = Capped({900}, 630, &request);
  plan.host = FitHostBudget(request, plan.capacity, 124 * kMiB);
  LimitsOfRanks limits = {{Host("a", 8000, 6000), Cgroup("c", 1100, 290)}};
  const absl::Status refused = FinalizeHost(limits, request, plan, warning);
  EXPECT_EQ(ExitCodeOf(refused), ExitCode::kDoesNotFit);
  EXPECT_THAT(std::string(refused.message()),
              AllOf(HasSubstr("630.0 MiB"), HasSubstr("290.0 MiB left now")));
  limits[0][1].available_bytes = 690 * kMiB;
  EXPECT_TRUE(FinalizeHost(limits, request, plan, warning).ok());
}

TEST(SettleHostTest, LoadingWeightsNeedsRoomBesideTheArenas) {
  std::string warning;
  GroupPlan plan = Capped({900}, 630, nullptr);
  plan.capacity.ranks[0].loading_bytes = 100 * kMiB;
  EXPECT_TRUE(FinalizeHost({{Host("a", 8000, 730)}}, std::nullopt, plan, warning).ok());
  const absl::Status refused = FinalizeHost({{Host("a", 8000, 729)}}, std::nullopt, plan, warning);
  EXPECT_EQ(ExitCodeOf(refused), ExitCode::kDoesNotFit);
  EXPECT_THAT(std::string(refused.message()),
              AllOf(HasSubstr("the arenas of rank 0 take 630.0 MiB"),
                    HasSubstr("loading their weights 100.0 MiB more"),
                    HasSubstr("729.0 MiB left now"), HasSubstr("--device-memory")));
}

TEST(SettleHostTest, WhatGpusTakeOfTheHostLeavesClientsTheRestOfIt) {
  const HostRequest request;
  std::string warning;
  GroupPlan plan = Capped({80000, 80000}, 60000, &request);
  for (RankCapacity& rank : plan.capacity.ranks) {
    rank.budget.device = "a-gpu";
    rank.host_bytes = 800 * kMiB;
    rank.loading_bytes = 1000 * kMiB;
  }
  const int64_t full = plan.host->total_bytes();
  const auto both = [](const HostLimit& limit) { return LimitsOfRanks{{limit}, {limit}}; };
  ASSERT_TRUE(FinalizeHost(both(Host("a", 8000, 8000)), request, plan, warning).ok());
  EXPECT_EQ(plan.host->total_bytes(), full);
  // Clients come when the weights are loaded.
  ASSERT_TRUE(FinalizeHost(both(Cgroup("c", 3700, 3600)), request, plan, warning).ok());
  EXPECT_LE(plan.host->total_bytes(), 2000 * kMiB);
  EXPECT_THAT(warning, IsEmpty());
  const absl::Status now = FinalizeHost(both(Cgroup("c", 8000, 3500)), request, plan, warning);
  EXPECT_EQ(ExitCodeOf(now), ExitCode::kDoesNotFit);
  EXPECT_THAT(std::string(now.message()),
              AllOf(HasSubstr("ranks 0 to 1 take 1.6 GiB of host memory"),
                    HasSubstr("2.0 GiB more"), HasSubstr("fewer --threads")));
  const absl::Status never = FinalizeHost(both(Cgroup("c", 1610, 1610)), request, plan, warning);
  EXPECT_THAT(std::string(never.message()),
              AllOf(HasSubstr("ranks 0 to 1 need 1.6 GiB of host memory"),
                    HasSubstr("has 1.6 GiB in all"), HasSubstr("use smaller limits")));
}

TEST(SettleHostTest, WhatIsGivenDoesNotGiveWay) {
  const HostRequest request{.host_memory = 400 * kMiB};
  std::string warning;
  GroupPlan plan = Capped({200}, 150, &request);
  plan.host = FitHostBudget(request, plan.capacity, request.host_memory);
  const int64_t given = plan.host->total_bytes();
  ASSERT_TRUE(FinalizeHost({{Host("a", 8000, 300)}}, request, plan, warning).ok());
  EXPECT_EQ(plan.host->total_bytes(), given);
  EXPECT_THAT(warning, HasSubstr("left now"));
  EXPECT_FALSE(FinalizeHost({{Host("a", 300, 300)}}, request, plan, warning).ok());
  EXPECT_FALSE(plan.fits());
}

}  // namespace
}  // namespace bulkhead
