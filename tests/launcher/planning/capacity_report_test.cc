#include "launcher/planning/capacity_report.h"

#include "launcher/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/message_json.h"
#include "nlohmann/json.hpp"

namespace bulkhead {
namespace {

std::string JsonOf(const Capacity& capacity, const Remedies& remedies, const ReportFacts& facts) {
  return MessageToJsonText(ReportOf(capacity, remedies, facts));
}

using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

constexpr int64_t kMiB = int64_t{1} << 20;

Capacity Planned(int64_t second_total_bytes) {
  std::vector<DeviceBudget> budgets(2);
  for (int rank = 0; rank < 2; ++rank) {
    budgets[rank].rank = rank;
    budgets[rank].host = "host" + std::to_string(rank);
    budgets[rank].device = "cpu";
    budgets[rank].total_bytes = rank == 0 ? 100 * kMiB : second_total_bytes;
  }
  CapacityRequest request;
  request.start = {4, 256, 64, 16};
  request.given.max_model_len = 256;
  return PlanCapacity(budgets, request, [](int, const Limits&) {
    RankNeeds needs;
    needs.category_bytes[static_cast<int>(MemoryCategory::kWeights)] = 10 * kMiB;
    needs.kv_block_bytes = kMiB;
    return needs;
  });
}

TEST(CapacityReportTest, TheBindingRankAndWhatItStrandsAreNamed) {
  const std::string table = CapacityTable(Planned(40 * kMiB));
  EXPECT_THAT(table, HasSubstr("host1 cpu"));
  EXPECT_THAT(table, HasSubstr("1 <"));
  EXPECT_THAT(table, HasSubstr("30.0 MiB *"));
  EXPECT_THAT(table, HasSubstr("limited by rank 1"));
  EXPECT_THAT(table, HasSubstr("unused: 34.0 MiB"));
}

TEST(CapacityReportTest, LimitsThatNeedNoMoreMemoryAreNamedInPlaceOfTheRank) {
  EXPECT_THAT(CapacityText(Planned(90 * kMiB)),
              HasSubstr("limited by max_num_seqs x max_model_len; least memory: rank 1 on host1 "
                        "(max_num_seqs x max_model_len takes 64.0 MiB of 80.0 MiB left after"));
}

TEST(CapacityReportTest, NumaNodesHaveAColumnWhereRanksHaveDifferentOnesOrSeveral) {
  Capacity capacity = Planned(40 * kMiB);
  const auto table = [&](const char* first, const char* second) {
    capacity.ranks[0].budget.numa_nodes = first;
    capacity.ranks[1].budget.numa_nodes = second;
    return CapacityTable(capacity);
  };
  EXPECT_THAT(table("-", "-"), Not(HasSubstr("NUMA")));
  EXPECT_THAT(table("0", "0"), Not(HasSubstr("NUMA")));
  EXPECT_THAT(table("0", "1"), HasSubstr("device  NUMA"));
  EXPECT_THAT(table("0,1", "0,1"), HasSubstr("host1 cpu   0,1"));
}

TEST(CapacityReportTest, JsonHasTheDocumentedKeys) {
  const json report = json::parse(JsonOf(Planned(40 * kMiB), {}, {.kv_cache_dtype = "bfloat16"}));
  EXPECT_EQ(report["fits"], true);
  EXPECT_EQ(report["num_kv_blocks"], 30);
  EXPECT_EQ(report["kv_tokens"], 480);
  EXPECT_EQ(report["kv_cache_dtype"], "bfloat16");
  EXPECT_EQ(report["device_allocations_after_ready"], 0);
  EXPECT_EQ(report["binding"], json({{"rank", 1}, {"term", "kv"}}));
  ASSERT_EQ(report["ranks"].size(), 2U);
  const json& rank = report["ranks"][1];
  EXPECT_EQ(rank["total_bytes"], 40 * kMiB);
  EXPECT_EQ(rank["required_bytes"], 26 * kMiB);
  EXPECT_EQ(rank["kv_bytes_per_token"], kMiB / 16);
  EXPECT_EQ(rank["arenas"]["kv"], 30 * kMiB);
  EXPECT_EQ(rank["arenas"].size(), 8U);
  EXPECT_FALSE(report.contains("short"));
}

TEST(CapacityReportTest, TheRankTableSaysTheSame) {
  const v1::RankTable table = RankTableOf(ReportOf(
      Planned(40 * kMiB), {}, {.kv_cache_dtype = "bfloat16", .device_allocations_after_ready = 0}));
  EXPECT_EQ(table.binding_rank(), 1U);
  EXPECT_EQ(table.binding_term(), "kv");
  EXPECT_EQ(table.num_kv_blocks(), 30U);
  ASSERT_EQ(table.ranks_size(), 2);
  const v1::RankRow& row = table.ranks(1);
  EXPECT_EQ(row.host(), "host1");
  EXPECT_EQ(row.arenas_size(), 8);
  EXPECT_EQ(row.arenas(7).term(), "kv");
  EXPECT_EQ(row.arenas(7).bytes(), 30U * kMiB);
  EXPECT_EQ(row.required_bytes(), 26U * kMiB);
}

TEST(CapacityReportTest, ARefusalSaysRankTermBytesAndWhatHelps) {
  const Capacity refused = Planned(20 * kMiB);
  const Remedies remedies{{{{"--max-model-len", "160"}, "--max-model-len 160"}}, ""};
  EXPECT_THAT(ShortageText(refused), HasSubstr("rank 1 on host1"));
  EXPECT_THAT(ShortageText(refused), HasSubstr("6291456 bytes"));
  const json report = json::parse(JsonOf(refused, remedies, {}));
  EXPECT_EQ(report["fits"], false);
  EXPECT_EQ(report["short"]["rank"], 1);
  EXPECT_EQ(report["short"]["term"], "kv");
  EXPECT_EQ(report["short"]["bytes"], 6 * kMiB);
  EXPECT_EQ(report["remedies"][0]["flags"], json({"--max-model-len", "160"}));
  EXPECT_FALSE(report.contains("no_remedy"));
  EXPECT_EQ(json::parse(JsonOf(refused, {{}, "why not"}, {}))["no_remedy"], "why not");
  EXPECT_THAT(RemediesText({{}, "why not"}), HasSubstr("why not"));
}

TEST(CapacityReportTest, ALeastThatNoMemoryIsHasNoNumber) {
  Capacity refused = Planned(20 * kMiB);
  for (RankCapacity& rank : refused.ranks) rank.required_bytes = 0;
  EXPECT_THAT(CapacityTable(refused), testing::ContainsRegex(" -\n"));
  EXPECT_EQ(json::parse(JsonOf(refused, {}, {}))["ranks"][0]["required_bytes"], 0);
}

TEST(CapacityReportTest, TheDriversPartIsToldOnceAndAsARange) {
  Capacity plan = Planned(40 * kMiB);
  EXPECT_THAT(CapacityTable(plan), testing::Not(HasSubstr("driver:")));
  for (RankCapacity& rank : plan.ranks) rank.budget.driver_bytes = 3 * kMiB;
  EXPECT_THAT(CapacityTable(plan), HasSubstr("driver: 3.0 MiB of each GPU for"));
  plan.ranks[1].budget.driver_bytes = 5 * kMiB;
  EXPECT_THAT(CapacityTable(plan),
              HasSubstr("driver: 3.0 MiB to 5.0 MiB of each GPU (most on rank 1"));
  const std::string range = DriverRangeText(plan, {kMiB, 5 * kMiB, 1000});
  EXPECT_THAT(range, HasSubstr("480 to 1,000 tokens"));
  EXPECT_THAT(range, HasSubstr("10511"));
  const json report = json::parse(JsonOf(plan, {}, {.driver = DriverRange{1, 2, 3}}));
  EXPECT_EQ(report["driver_guess"]["kv_tokens_of_least"], 3);
}

TEST(CapacityReportTest, HostIsAnObjectOfItsOwnAndInNoRanksBytes) {
  const Capacity capacity = Planned(40 * kMiB);
  const HostBudget host = FitHostBudget({}, capacity, 400 * kMiB);
  const json report = json::parse(JsonOf(capacity, {}, {.host = host}));
  const json without = json::parse(JsonOf(capacity, {}, {}));
  EXPECT_EQ(report["ranks"], without["ranks"]);
  EXPECT_EQ(report["host"]["terms"].size(), static_cast<size_t>(kNumHostParts));
  EXPECT_EQ(report["host"]["total_bytes"], host.total_bytes());
  EXPECT_EQ(report["host"]["available_bytes"], 400 * kMiB);
  int64_t sum = 0;
  for (const auto& [term, bytes] : report["host"]["terms"].items()) sum += bytes.get<int64_t>();
  EXPECT_EQ(sum, host.total_bytes());
  const v1::RankTable table = RankTableOf(ReportOf(capacity, {}, {.host = host}));
  EXPECT_EQ(table.host_bytes(), static_cast<uint64_t>(host.total_bytes()));
  EXPECT_EQ(table.host().total_bytes(), table.host_bytes());
  EXPECT_EQ(table.host().terms(0).term(), "grpc");
  EXPECT_EQ(table.host().max_connections(), static_cast<uint32_t>(host.quotas.max_connections));
  EXPECT_THAT(HostText(host), HasSubstr("host: at most"));
  EXPECT_THAT(HostText(host), HasSubstr("heap_slack"));
}

TEST(CapacityReportTest, AHostThatDoesNotFitIsTheTermThatIsShort) {
  const HostBudget host = FitHostBudget({}, Planned(40 * kMiB), 1 * kMiB);
  const json report = json::parse(JsonOf(Planned(40 * kMiB), {{}, "no more"}, {.host = host}));
  EXPECT_EQ(report["fits"], false);
  EXPECT_EQ(report["short"]["term"], "host");
  EXPECT_EQ(report["short"]["left_bytes"], 1 * kMiB);
  EXPECT_EQ(report["short"]["bytes"], host.total_bytes() - 1 * kMiB);
  EXPECT_EQ(report["no_remedy"], "no more");
  EXPECT_THAT(ShortageText(Planned(40 * kMiB), host), HasSubstr("for host"));
}

TEST(CapacityReportTest, TooLittleHostMemoryIsNamedWithTheLeastAndTheRemedy) {
  const Capacity capacity = Planned(40 * kMiB);
  const Capacity refused = Planned(1 * kMiB);
  ASSERT_FALSE(refused.fits);
  const auto fitted = [&](int64_t given) {
    return FitHostBudget({.host_memory = given}, capacity, given);
  };
  for (const int64_t given : {int64_t{1}, int64_t{1024}, 100 * kMiB}) {
    const HostBudget host = fitted(given);
    const int64_t least = (host.total_bytes() + kMiB - 1) / kMiB;
    EXPECT_TRUE(fitted(least * kMiB).fits());
    EXPECT_FALSE(fitted((least - 1) * kMiB).fits());
    const std::string remedy = absl::StrCat("give at least --host-memory ", least, "MiB");
    const std::string text = ShortageText(capacity, host);
    EXPECT_THAT(text, HasSubstr(absl::StrCat("--host-memory gives ", FormatBytes(given), ";")));
    EXPECT_THAT(text, HasSubstr(remedy));
    // In addition to arenas that do not fit either.
    EXPECT_THAT(ShortageText(refused, host), HasSubstr("rank 1 on host1"));
    EXPECT_THAT(ShortageText(refused, host), HasSubstr(remedy));
  }
}

TEST(CapacityReportTest, MoreRanksShrinkKvUntilEveryHeadHasItsRank) {
  ModelConfig config;
  config.num_key_value_heads = 8;
  EXPECT_THAT(MoreRanksText(config, 2), HasSubstr("fall until there are 8"));
  EXPECT_THAT(MoreRanksText(config, 8), HasSubstr("stay as they are"));
}

TEST(CapacityReportTest, MoreRanksNeverShrinkWhatLatentAttentionCaches) {
  ModelConfig config;
  config.num_key_value_heads = 1;
  config.latent = {.kv_rank = 512, .rope_dim = 64};
  for (const int size : {1, 2, 8}) {
    EXPECT_THAT(MoreRanksText(config, size), HasSubstr("one vector of 576 numbers (512 + 64)"));
    EXPECT_THAT(MoreRanksText(config, size), HasSubstr("every rank has all of it"));
  }
}

TEST(CapacityReportTest, StatesHaveAColumnAndALineWhereThereAreAny) {
  Capacity capacity;
  capacity.fits = true;
  capacity.limits = {
      .max_num_seqs = 4, .max_model_len = 64, .block_tokens = 16, .num_kv_blocks = 8};
  capacity.ranks.resize(1);
  EXPECT_THAT(CapacityTable(capacity), Not(HasSubstr("state")));
  capacity.ranks[0].arena_bytes[static_cast<int>(MemoryCategory::kState)] = 4 << 20;
  EXPECT_THAT(CapacityTable(capacity), HasSubstr("logits    state  workspace"));
  EXPECT_THAT(CapacityTable(capacity), HasSubstr("state: 1.0 MiB on rank 0 for each of"));
}

TEST(CapacityReportTest, ADraftModelHasAColumnALineAndItsParts) {
  Capacity capacity = Planned(40 * kMiB);
  EXPECT_THAT(CapacityTable(capacity), Not(HasSubstr("draft")));
  for (RankCapacity& rank : capacity.ranks) {
    rank.arena_bytes[static_cast<int>(MemoryCategory::kDraftModel)] = 5 * kMiB;
    rank.draft_bytes[static_cast<int>(MemoryCategory::kWeights)] = 3 * kMiB;
    rank.draft_bytes[static_cast<int>(MemoryCategory::kLogits)] = 2 * kMiB;
    rank.draft_bytes[static_cast<int>(MemoryCategory::kKv)] = 7 * kMiB;
  }
  EXPECT_THAT(CapacityTable(capacity), HasSubstr("workspace    draft"));
  EXPECT_THAT(
      CapacityTable(capacity),
      HasSubstr("draft model: on rank 1 weights 3.0 MiB, logits 2.0 MiB, kv 7.0 MiB; its kv "
                "is a part of every block\n"));
  const json rank = json::parse(JsonOf(capacity, {}, {}))["ranks"][1];
  EXPECT_EQ(rank["arenas"]["draft_model"], 5 * kMiB);
  EXPECT_EQ(rank["draft_model"],
            json({{"weights", 3 * kMiB}, {"logits", 2 * kMiB}, {"kv", 7 * kMiB}}));
}

TEST(CapacityReportTest, WindowsHaveALineWithWhatFullAttentionWouldTake) {
  Capacity capacity;
  capacity.fits = true;
  capacity.limits = {.max_num_seqs = 4,
                     .max_model_len = 1024,
                     .max_num_batched_tokens = 64,
                     .block_tokens = 16,
                     .num_kv_blocks = 1000};
  capacity.ranks.resize(1);
  capacity.ranks[0].kv_block_bytes = 1 << 20;
  capacity.ranks[0].kv_layers_bytes = 3 << 20;
  EXPECT_THAT(CapacityTable(capacity), Not(HasSubstr("KV groups")));
  EXPECT_TRUE(json::parse(JsonOf(capacity, {}, {}))["kv_groups"].empty());
  capacity.limits.kv_groups = {
      {.num_layers = 1}, {.num_layers = 1, .window = 17}, {.num_layers = 1, .window = 17}};
  // 64 blocks, and twice 1 + 2 of 17 tokens; 4 of a step in each of two groups.
  EXPECT_THAT(CapacityTable(capacity),
              HasSubstr("KV groups: all tokens in 1 of 3 layers (1 group), the last 17 in 2 (2 "
                        "groups); on rank 0 a sequence of max_model_len takes 70.0 MiB (192.0 MiB "
                        "if all layers kept all tokens), and steps in flight up to 8.0 MiB"));
  const json groups = json::parse(JsonOf(capacity, {}, {}))["kv_groups"];
  ASSERT_EQ(groups.size(), 3);
  EXPECT_FALSE(groups[0].contains("window"));
  EXPECT_EQ(groups[2]["window"], 17);
  EXPECT_EQ(groups[0]["blocks_per_sequence"], 64);
  EXPECT_EQ(groups[2]["blocks_per_sequence"], 3);
}

}  // namespace
}  // namespace bulkhead
