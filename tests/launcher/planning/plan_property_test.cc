// Random plans: what they say of themselves is true. BULKHEAD_TEST_RANDOM_PLANS says how many
// (100), BULKHEAD_TEST_SEED where they begin (1).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <map>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/bytes.h"
#include "base/message_json.h"
#include "launcher/planning/capacity_report.h"
#include "launcher/planning/plan.h"
#include "nlohmann/json.hpp"
#include "tests/launcher/planning/random_plans.h"

namespace bulkhead {
namespace {

std::string JsonOf(const Capacity& capacity, const Remedies& remedies, const ReportFacts& facts) {
  return MessageToJsonText(ReportOf(capacity, remedies, facts));
}

using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

constexpr int64_t kAbsurd = int64_t{1} << 46;

int FromEnvironment(const char* name, int otherwise) {
  const char* const text = std::getenv(name);
  int value = 0;
  return text != nullptr && absl::SimpleAtoi(text, &value) ? value : otherwise;
}

// Null if the command line or the model refuses it.
std::unique_ptr<Planned> Plan(const PlanFlags& flags) {
  const absl::StatusOr<Command> command = ParseCommandLine(ArgsOf(flags));
  if (!command.ok()) return nullptr;
  const auto& options = std::get<PlanOptions>(*command);
  auto plan = MakePlan(options.serve.engine, options);
  return plan.ok() ? *std::move(plan) : nullptr;
}

bool Fits(const PlanFlags& flags) {
  const auto plan = Plan(flags);
  return plan != nullptr && plan->fits();
}

bool ArenasFit(const PlanFlags& flags) {
  const auto plan = Plan(flags);
  return plan != nullptr && plan->capacity.fits;
}

// Two changes, and --host-memory.
bool IsTriple(const Remedy& remedy) {
  return absl::StrContains(remedy.text, " and --host-memory ");
}

class PlanPropertyTest : public testing::Test {
 protected:
  void CheckSums(const Capacity& plan);
  void CheckLeast(const PlanFlags& flags, const Planned& plan);
  void CheckTexts(const Planned& plan, const Remedies& remedies);
  void CheckRemedies(const PlanFlags& flags, const Remedies& remedies);
  void CheckNothingElseFits(const PlanFlags& flags, const Remedies& remedies);

  std::map<std::string, int> counts_;
};

void PlanPropertyTest::CheckSums(const Capacity& plan) {
  if (!plan.fits) {
    ASSERT_TRUE(plan.shortage.has_value());
    EXPECT_GT(plan.shortage->bytes, 0);
    return;
  }
  EXPECT_GE(plan.full_sequences, 1);
  for (const RankCapacity& rank : plan.ranks) {
    int64_t sum = rank.free_bytes + rank.budget.reserve_bytes;
    for (const int64_t bytes : rank.arena_bytes) sum += bytes;
    EXPECT_EQ(sum, rank.budget.free_bytes());
    EXPECT_GE(rank.free_bytes, 0);
    EXPECT_GE(rank.stranded_bytes, 0);
  }
}

// It starts with every rank's minimum; with one byte less on any, and the same limits, it does not.
void PlanPropertyTest::CheckLeast(const PlanFlags& flags, const Planned& plan) {
  const Limits& limits = plan.capacity.limits;
  const auto fixed =
      Plan(Applied(flags, {"--max-num-seqs", absl::StrCat(limits.max_num_seqs), "--max-model-len",
                           absl::StrCat(limits.max_model_len), "--max-num-batched-tokens",
                           absl::StrCat(limits.max_num_batched_tokens)}));
  ASSERT_NE(fixed, nullptr);
  std::vector<DeviceBudget> budgets = plan.budgets;
  for (size_t i = 0; i < budgets.size(); ++i) {
    const int64_t least = plan.capacity.ranks[i].required_bytes;
    EXPECT_EQ(least == 0, plan.capacity.ranks[0].required_bytes == 0);
    budgets[i].total_bytes = least > 0 ? least : kAbsurd;
  }
  const bool enough = plan.capacity.ranks[0].required_bytes > 0;
  ++counts_[enough ? "least to start" : "no memory is enough"];
  EXPECT_EQ(plan.model->Plan(budgets)->fits, enough);
  EXPECT_EQ(fixed->model->Plan(budgets)->fits, enough);
  if (!enough) return;
  if (!flags.contains("--gpu")) {
    std::vector<std::string> totals;
    for (const DeviceBudget& budget : budgets) totals.push_back(absl::StrCat(budget.total_bytes));
    EXPECT_TRUE(ArenasFit(Applied(flags, {"--device-memory", ListByRank(totals)})));
  }
  for (DeviceBudget& budget : budgets) {
    --budget.total_bytes;
    EXPECT_FALSE(fixed->model->Fit(budgets)->fits) << "rank " << budget.rank;
    ++budget.total_bytes;
  }
}

void PlanPropertyTest::CheckTexts(const Planned& plan, const Remedies& remedies) {
  const std::function<void(const json&)> check = [&](const json& value) {
    if (value.is_structured()) {
      for (const json& part : value) check(part);
    } else if (value.is_number_integer()) {
      EXPECT_LT(value.get<int64_t>(), kAbsurd);
      EXPECT_GT(value.get<int64_t>(), -kAbsurd);
    }
  };
  check(json::parse(JsonOf(plan.capacity, remedies, {.host = plan.host})));
  std::string text = CapacityTable(plan.capacity);
  if (!plan.fits()) {
    absl::StrAppend(&text, ShortageText(plan.capacity, plan.host), "\n", RemediesText(remedies));
  }
  for (const char* wrong : {"048576.0 TiB", "nan", "inf ", " 1 ranks", " 1 sequences", "e+"}) {
    EXPECT_THAT(text, Not(HasSubstr(wrong)));
  }
}

void PlanPropertyTest::CheckRemedies(const PlanFlags& flags, const Remedies& remedies) {
  EXPECT_EQ(remedies.list.empty(), !remedies.none_because.empty());
  for (const Remedy& remedy : remedies.list) {
    const bool pair = absl::StrContains(remedy.text, " together with ");
    const auto host = std::find(remedy.flags.begin(), remedy.flags.end(), "--host-memory");
    const bool with_host = host != remedy.flags.end();
    ++counts_[IsTriple(remedy) ? "pairs and --host-memory"
              : pair           ? absl::StrCat("pairs", with_host ? " with --host-memory" : "")
                               : absl::StrCat("remedy ", remedy.flags[0])];
    PlanFlags changed = Applied(flags, remedy.flags);
    EXPECT_TRUE(Fits(changed)) << remedy.text;
    if (with_host) {
      changed["--host-memory"] = absl::StrCat(std::stoll(*(host + 1)) - 1);
      EXPECT_FALSE(Fits(changed)) << "not the least: " << remedy.text;
    }
    if (flags.contains("--gpu") && remedy.flags[0] == "--tensor-parallel-size") {
      const int ranks = std::stoi(remedy.flags[1]);
      EXPECT_TRUE(ranks < 8 ? 8 % ranks == 0 : ranks % 8 == 0) << remedy.text;
    }
  }
}

void PlanPropertyTest::CheckNothingElseFits(const PlanFlags& flags, const Remedies& remedies) {
  const bool none = remedies.list.empty();
  if (!none && !absl::StrContains(remedies.list[0].text, " together with ")) return;
  const bool triples = !none && IsTriple(remedies.list[0]);
  ++counts_[none      ? "no change helps"
            : triples ? "no change of two helps"
                      : "no single change helps"];
  for (const PlanFlags& one : SingleChanges(flags, Grid::kFine)) {
    EXPECT_FALSE(Fits(one)) << "a single change: " << TextOf(one);
  }
  if (!none && !triples) return;
  // If nothing helps, two changes together with enough memory for clients do not either.
  PlanFlags before = flags;
  if (none && flags.contains("--host-memory")) before["--host-memory"] = kPlentyHostMemory;
  for (const PlanFlags& one : SingleChanges(before, Grid::kCoarse)) {
    for (const PlanFlags& two : SingleChanges(one, Grid::kCoarse)) {
      // Two changes of the group's size would choose whose memory new ranks have.
      if (RanksOf(one) != RanksOf(before) && RanksOf(two) != RanksOf(one)) continue;
      EXPECT_FALSE(Fits(two)) << "two changes: " << TextOf(two);
    }
  }
}

TEST_F(PlanPropertyTest, WhatAPlanSaysIsTrue) {
  const int seed = FromEnvironment("BULKHEAD_TEST_SEED", 1);
  const int wanted = FromEnvironment("BULKHEAD_TEST_RANDOM_PLANS", 100);
  std::cout << "seed " << seed << std::endl;
  RandomPlans plans(static_cast<uint32_t>(seed));
  while (counts_["plans"] < wanted) {
    const PlanFlags flags = plans.Next();
    SCOPED_TRACE(TextOf(flags));
    const auto plan = Plan(flags);
    if (plan == nullptr) {
      ASSERT_LT(++counts_["refused as a command line"], wanted);
      continue;
    }
    ++counts_["plans"];
    ++counts_[plan->fits() ? "fit" : "do not fit"];
    if (!plan->host.fits()) {
      ++counts_[plan->capacity.fits ? "the host alone is short" : "host and arenas are short"];
    }
    const Remedies remedies = plan->fits() ? Remedies() : RemediesOf(*plan);
    CheckSums(plan->capacity);
    CheckLeast(flags, *plan);
    CheckTexts(*plan, remedies);
    if (plan->fits()) continue;
    CheckRemedies(flags, remedies);
    CheckNothingElseFits(flags, remedies);
  }
  for (const auto& [what, count] : counts_) std::cout << what << ": " << count << "\n";
  EXPECT_GT(counts_["fit"], wanted / 5);
  EXPECT_GT(counts_["do not fit"], wanted / 5);
  EXPECT_GT(counts_["the host alone is short"], wanted / 50);
  EXPECT_GT(counts_["host and arenas are short"], wanted / 50);
}

// The cells of the row of `ranks`; empty if there is none.
std::vector<std::string> RowOf(const std::string& table, size_t ranks) {
  for (const absl::string_view line : absl::StrSplit(table, '\n')) {
    const std::vector<std::string> words = absl::StrSplit(line, ' ', absl::SkipEmpty());
    if (!words.empty() && words[0] == absl::StrCat(ranks)) return words;
  }
  return {};
}

TEST_F(PlanPropertyTest, TheTableOfGroupSizesSaysOfThisSizeWhatThePlanSays) {
  RandomPlans plans(static_cast<uint32_t>(FromEnvironment("BULKHEAD_TEST_SEED", 1)));
  while (counts_["plans"] < 60) {
    const PlanFlags flags = plans.NextMeasured();
    SCOPED_TRACE(TextOf(flags));
    const auto plan = Plan(flags);
    if (plan == nullptr) {
      ASSERT_LT(++counts_["refused as a command line"], 60);
      continue;
    }
    ++counts_["plans"];
    ++counts_[plan->fits() ? "fit" : "do not fit"];
    const Capacity& capacity = plan->capacity;
    const std::vector<std::string> row = RowOf(ScalingTableOf(*plan), capacity.ranks.size());
    ASSERT_GT(row.size(), 4U);
    const std::string why_not =
        capacity.fits ? "host" : MemoryCategoryName(capacity.limiting_category);
    EXPECT_EQ(row[1], plan->fits() ? "yes" : why_not);
    EXPECT_EQ(row[2], plan->fits() ? FormatCount(capacity.limits.kv_tokens()) : std::string("-"));
    EXPECT_EQ(row[3], plan->fits() ? FormatCount(capacity.full_sequences) : std::string("-"));
    EXPECT_EQ(row[4], FormatCount(capacity.limits.max_model_len));
  }
  EXPECT_GT(counts_["fit"], 10);
  EXPECT_GT(counts_["do not fit"], 10);
}

}  // namespace
}  // namespace bulkhead
