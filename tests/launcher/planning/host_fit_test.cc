#include "launcher/planning/host_fit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

#include "launcher/planning/capacity_report.h"
#include "memory/device.h"
#include "tests/support/family_named.h"

namespace bulkhead {
namespace {

using testing::HasSubstr;

constexpr int64_t kMiB = int64_t{1} << 20;

class HostFitTest : public testing::Test {
 protected:
  HostFitTest() {
    config_.family = FamilyNamed("llama");
    config_.architecture = "LlamaForCausalLM";
    config_.hidden_size = 256;
    config_.intermediate_size = 640;
    config_.num_hidden_layers = 6;
    config_.num_attention_heads = 8;
    config_.num_key_value_heads = 4;
    config_.head_dim = 32;
    config_.vocab_size = 2048;
    config_.max_position_embeddings = 2048;
    config_.layer_uses_window.assign(6, false);
  }
  static std::vector<DeviceBudget> Budgets(int size, int64_t free_bytes, bool measured) {
    std::vector<DeviceBudget> budgets(size);
    for (int rank = 0; rank < size; ++rank) {
      budgets[rank].rank = rank;
      budgets[rank].device = "cpu";
      budgets[rank].total_bytes = free_bytes;
      budgets[rank].probed = measured;
      budgets[rank].reserve_bytes = measured ? free_bytes / 10 : 0;
    }
    return budgets;
  }
  GroupPlan Measured(int size, int64_t free_bytes) {
    HostAvailability available;
    for (int rank = 0; rank < size; ++rank) available.sharers.push_back(rank);
    const auto plan =
        PlanGroup(Model(), Budgets(size, free_bytes / size, true), request_, available);
    EXPECT_TRUE(plan.ok()) << plan.status();
    return plan.value_or(GroupPlan());
  }
  static int64_t Reserve(const GroupPlan& plan) {
    int64_t sum = 0;
    for (const DeviceBudget& budget : plan.budgets()) sum += budget.reserve_bytes;
    return sum;
  }
  ModelCapacity Model() { return {config_, formats_, options_, *backend_}; }

  ModelConfig config_;
  EngineOptions options_;
  HostRequest request_;
  ModelLimits formats_ = {{.block_tokens = 16},
                          WeightFormats::Of(DType::kBF16),
                          ActivationDType::kF32,
                          KvFormat::kBF16};
  std::unique_ptr<Device> device_ = NewHostDevice(0);
  std::unique_ptr<Backend> backend_ = NewCpuBackend(*device_, {}).value();
};

TEST_F(HostFitTest, TheReserveOfAMeasuredHostHoldsTheBudgetWhateverItsSize) {
  for (const int size : {1, 2, 4}) {
    for (const int64_t mib : {300, 512, 1000, 4000, 100000}) {
      const GroupPlan plan = Measured(size, mib * kMiB);
      ASSERT_TRUE(plan.fits()) << mib;
      EXPECT_GE(Reserve(plan), plan.host->total_bytes()) << mib;
      EXPECT_GE(Reserve(plan), mib * kMiB / 10 - size) << mib;
    }
  }
  EXPECT_EQ(Measured(1, 100000 * kMiB).host->step, 0);
  EXPECT_GT(Measured(1, 512 * kMiB).host->step, 2);
}

TEST_F(HostFitTest, AKvRuleGivesWayToTheReserve) {
  options_.kv_rule = {.kind = KvRule::Kind::kUtilization, .fraction = 0.9};
  const GroupPlan plan = Measured(1, 1000 * kMiB);
  ASSERT_TRUE(plan.fits());
  int64_t arenas = 0;
  for (const int64_t bytes : plan.capacity.ranks[0].arena_bytes) arenas += bytes;
  EXPECT_LE(arenas + plan.host->total_bytes(), 1000 * kMiB);
}

TEST_F(HostFitTest, QuotasGiveWayBeforeLimitsDo) {
  request_.prefix_caching = false;
  const GroupPlan roomy = Measured(1, 3000 * kMiB);
  ASSERT_EQ(roomy.host->step, 1);
  int64_t beside_kv = 0;
  for (const int64_t bytes : roomy.capacity.ranks[0].arena_bytes) beside_kv += bytes;
  beside_kv -= roomy.capacity.ranks[0].arena_bytes[static_cast<int>(MemoryCategory::kKv)];
  // With these quotas the other arenas would have half of what they need.
  options_.kv_rule = {.kind = KvRule::Kind::kBytes,
                      .count = 3000 * kMiB - roomy.host->total_bytes() - beside_kv / 2};
  const GroupPlan tight = Measured(1, 3000 * kMiB);
  ASSERT_TRUE(tight.fits());
  EXPECT_EQ(GivenLimits(tight.capacity.limits), GivenLimits(roomy.capacity.limits));
  EXPECT_EQ(tight.host->step, 2);
}

TEST_F(HostFitTest, AHostThatIsTooSmallIsRefusedAndTheHostIsNamed) {
  const GroupPlan plan = Measured(1, 150 * kMiB);
  EXPECT_FALSE(plan.fits());
  EXPECT_THAT(ShortageText(plan.capacity, plan.host), HasSubstr("rank 0's host"));
  EXPECT_THAT(ShortageText(plan.capacity, plan.host), HasSubstr("(host)"));
}

TEST_F(HostFitTest, UnderACapTheRanksKeepAllOfItAndTheHostHasWhatIsLeft) {
  const auto budgets = Budgets(1, 100 * kMiB, false);
  const auto unknown = PlanGroup(Model(), budgets, request_, {});
  ASSERT_TRUE(unknown.ok());
  EXPECT_EQ(unknown->host->step, 0);
  EXPECT_EQ(Reserve(*unknown), 0);
  const auto known = PlanGroup(Model(), budgets, request_, {.available_bytes = 400 * kMiB});
  EXPECT_GT(known->host->step, 0);
  EXPECT_TRUE(known->fits());
  EXPECT_EQ(known->capacity.limits.num_kv_blocks, unknown->capacity.limits.num_kv_blocks);
  const auto none = PlanGroup(Model(), budgets, std::nullopt, {});
  EXPECT_FALSE(none->host.has_value());
  EXPECT_TRUE(none->fits());
}

TEST_F(HostFitTest, HostMemoryIsTheSameWhereverItIsPlanned) {
  request_.host_memory = 300 * kMiB;
  const auto budgets = Budgets(1, 100 * kMiB, false);
  const auto planned = PlanGroup(Model(), budgets, request_, {});
  const auto served = PlanGroup(Model(), budgets, request_, {.available_bytes = 9000 * kMiB});
  EXPECT_EQ(planned->host->part_bytes, served->host->part_bytes);
  EXPECT_LE(planned->host->total_bytes(), 300 * kMiB);
  EXPECT_LE(Measured(1, 9000 * kMiB).host->total_bytes(), 300 * kMiB);
}

TEST_F(HostFitTest, TooLittleHostMemoryIsRefusedAndTheLeastIsKnown) {
  request_.host_memory = 10 * kMiB;
  const auto budgets = Budgets(1, 100 * kMiB, false);
  const auto refused = PlanGroup(Model(), budgets, request_, {});
  ASSERT_FALSE(refused->fits());
  request_.host_memory = EnoughHostMemory(refused->capacity, *refused->host);
  EXPECT_TRUE(PlanGroup(Model(), budgets, request_, {})->fits());
  request_.host_memory = *request_.host_memory - 1;
  EXPECT_FALSE(PlanGroup(Model(), budgets, request_, {})->fits());
}

}  // namespace
}  // namespace bulkhead
