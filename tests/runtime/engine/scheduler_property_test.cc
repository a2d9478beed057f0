// Random requests, cancels, stops and priorities, shared prefixes and salts that prevent sharing,
// against all rules of the scheduler. BH_PROPERTY_STEPS raises the number of steps per
// configuration.
#include <array>
#include <cstdlib>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "gtest/gtest.h"
#include "tests/runtime/engine/toy_model.h"

namespace bulkhead {
namespace {

int64_t StepsPerConfiguration() {
  int64_t steps = 20000;
  const char* text = std::getenv("BH_PROPERTY_STEPS");
  if (text != nullptr && !absl::SimpleAtoi(text, &steps))
    ADD_FAILURE() << "BH_PROPERTY_STEPS=" << text;
  return steps;
}

// The expected result of a request, token by token.
struct Expected {
  uint64_t history = 0;
  int64_t generated = 0;
  StopRule rule;
  std::string cache_salt;
  std::vector<TokenId> tokens;
  int64_t prompt_tokens = 0;
  LogitsParams logits;
};

using Windows = std::vector<int>;  // of the KV groups after the first
// In place of a depth: 1, with drafts by prompt lookup or by a draft model; 2, by prompt lookup.
constexpr int kDrafting = 0;
constexpr int kDraftModel = -1;
constexpr int kMtp = -2;
constexpr int kDraftingAhead = -3;
constexpr int kDraftModelWithStates = -4;
using Configuration = std::tuple<Admission, int, SchedulingPolicy, int, bool, Windows>;

class SchedulerPropertyTest : public testing::TestWithParam<Configuration> {
 protected:
  SchedulerPropertyTest() : limits_(Limits()), loop_(limits_), random_(Seed()) {}

  static uint32_t Seed() { return 20260101; }

  static SchedulerLimits Limits() {
    const auto [admission, depth, policy, blocks, prefix_caching, windows] = GetParam();
    SchedulerLimits limits = ToyLimits();
    limits.max_num_seqs = 7;
    limits.max_num_batched_tokens = blocks % 2 == 0 ? 5 : 24;
    limits.num_kv_blocks = blocks;
    limits.max_num_queued_reqs = 12;
    limits.admission = admission;
    limits.depth = depth;
    limits.policy = policy;
    limits.prefix_caching = prefix_caching;
    if (!windows.empty()) limits.kv_groups.emplace_back();
    for (const int window : windows) limits.kv_groups.push_back({.window = window});
    if (depth <= kDrafting) limits.depth = depth == kDraftingAhead ? 2 : 1;
    if (depth == kDraftingAhead) {
      limits.drafts = {.num_speculative_tokens = 3, .prompt_lookup_max = 3, .prompt_lookup_min = 3};
    } else if (depth == kMtp) {
      limits.drafts = {
          .num_speculative_tokens = 3, .draft_model_len = limits.max_model_len, .mtp = true};
    } else if (depth == kDraftModel) {
      limits.drafts = {.num_speculative_tokens = 3, .draft_model_len = limits.max_model_len - 9};
    } else if (depth == kDraftModelWithStates) {
      limits.drafts = {.num_speculative_tokens = 3,
                       .draft_model_len = limits.max_model_len,
                       .draft_state_tokens = 8};
    } else if (depth == kDrafting) {
      limits.drafts = {.num_speculative_tokens = 3, .prompt_lookup_max = 2, .prompt_lookup_min = 1};
    }
    return limits;
  }

  uint32_t Below(uint32_t bound) { return static_cast<uint32_t>(random_() % bound); }

  // The next turn of a conversation, a retry, or the same tokens with another salt.
  void BeginAsAnEarlierOne(Request& request) {
    const auto& [salt, tokens] = earlier_[Below(earlier_.size())];
    if (Below(4) > 0) {
      request.cache_salt = salt;
    } else {
      request.cache_salt = std::string(Below(3), 's');
    }
    if (tokens.empty()) return;
    const auto shared = 1 + static_cast<int64_t>(Below(static_cast<uint32_t>(tokens.size())));
    std::vector<TokenId> prompt(tokens.begin(), tokens.begin() + shared);
    for (uint32_t i = Below(6); i > 0; --i) prompt.push_back(static_cast<TokenId>(Below(3)));
    request.prompt = std::move(prompt);
  }

  void SubmitOne() {
    const bool is_long = Below(4) == 0;
    Request request = ToyRequest(1 + static_cast<int>(Below(is_long ? 63 : 6)),
                                 1 + static_cast<int>(Below(Below(3) == 0 ? 80 : 12)),
                                 static_cast<int>(Below(1000)));
    if (Below(2) == 0) BeginAsAnEarlierOne(request);
    request.priority = static_cast<int>(Below(3));
    if (Below(16) == 0) request.num_logprobs = 1;  // sampled from whole rows of logits
    if (Below(4) == 0) request.logits = ToyLogitsParams(Below(30030));
    if (limits_.drafts.num_speculative_tokens > 0 && Below(2) == 0) {
      // Every other draft token is right.
      if (request.logits.grammar != nullptr) {
        request.logits.bias = {{5, 8.0F}, {6, 8.0F}, {30, 8.0F}, {31, 8.0F}};
      } else {
        request.logits.allowed = {5, 6};
      }
    }
    request.stopping.ignore_eos = Below(2) == 0;
    request.stopping.min_tokens = static_cast<int>(Below(4));
    if (Below(4) == 0) request.stopping.stop_token_ids = {3, 8};
    if (Below(8) == 0) {
      request.emitted.assign(Below(static_cast<uint32_t>(request.stopping.max_tokens)), 21);
      // Of ToyLogitsParams' grammar: ids below 25 and others by turns.
      for (size_t i = 1; i < request.emitted.size() && request.logits.grammar != nullptr; i += 2) {
        request.emitted[i] = 30;
      }
      if (request.logits.grammar != nullptr) FollowGrammar(request.emitted, request.logits);
    }
    std::vector<TokenId> tokens = request.prompt;
    tokens.insert(tokens.end(), request.emitted.begin(), request.emitted.end());
    uint64_t history = ToyStart(request.cache_salt);
    for (const TokenId token : tokens) history = ToyHash(history, token);
    Expected expected{history,
                      static_cast<int64_t>(request.emitted.size()),
                      StopRule(request.stopping, {kToyEos}, limits_.max_model_len),
                      request.cache_salt,
                      std::move(tokens),
                      static_cast<int64_t>(request.prompt.size()),
                      request.logits};
    const absl::StatusOr<SequenceId> id = loop_.Submit(std::move(request));
    if (!id.ok()) {
      ++refused_[id.status().code()];
      return;
    }
    live_.emplace(*id, std::move(expected));
  }

  void EndOneEarly() {
    auto at = live_.begin();
    std::advance(at, Below(static_cast<uint32_t>(live_.size())));
    loop_.scheduler().Finish(at->first);
    Forget(at);
    ++ended_early_;
  }

  void Forget(std::map<SequenceId, Expected>::iterator at) {
    Expected& expected = at->second;
    earlier_[Below(earlier_.size())] = {expected.cache_salt, std::move(expected.tokens)};
    live_.erase(at);
  }

  void Check(const std::vector<Emission>& emissions) {
    for (const Emission& emission : emissions) {
      const auto at = live_.find(emission.id);
      ASSERT_NE(at, live_.end()) << "an emission for a request that has ended";
      ASSERT_TRUE(emission.token.has_value() && emission.status.ok());
      Expected& expected = at->second;
      const bool bans = expected.rule.Bans(++expected.generated);
      const TokenId want =
          ToyDrawNext(expected.history, bans ? expected.rule.stop_ids() : std::vector<TokenId>{},
                      expected.logits, expected.tokens, expected.prompt_tokens);
      ASSERT_EQ(emission.token->id, want);
      expected.history = ToyHash(expected.history, want);
      expected.tokens.push_back(want);
      const auto total = static_cast<int64_t>(expected.tokens.size());
      ASSERT_LE(total, limits_.max_model_len);
      const std::optional<TokenFinish> finish =
          expected.rule.Check(want, expected.generated, total);
      ASSERT_EQ(emission.finish.has_value(), finish.has_value());
      if (!finish.has_value()) continue;
      ASSERT_EQ(emission.finish->reason, finish->reason);
      Forget(at);
      ++finished_;
    }
  }

  void Round() {
    loop_.PlanAndRun();
    if (Below(12) == 0 && !live_.empty()) EndOneEarly();  // with steps in flight
    Check(loop_.CommitOldest());
    loop_.scheduler().CheckInvariants();
    ASSERT_LE(loop_.scheduler().load().num_running, limits_.max_num_seqs);
  }

  SchedulerLimits limits_;
  ToyLoop loop_;
  std::mt19937 random_;
  std::map<SequenceId, Expected> live_;
  std::array<std::pair<std::string, std::vector<TokenId>>, 12> earlier_;  // salts and tokens
  std::map<absl::StatusCode, int64_t> refused_;
  int64_t finished_ = 0;
  int64_t ended_early_ = 0;
};

TEST_P(SchedulerPropertyTest, EveryRequestEndsOnceAndEveryBlockReturns) {
  const int64_t steps = StepsPerConfiguration();
  SCOPED_TRACE(testing::Message() << "seed " << Seed());
  for (int64_t step = 0; step < steps && !HasFailure(); ++step) {
    // Phases of low and high load, so that the queue runs empty and overflows.
    const uint32_t arrivals = step / 500 % 2 == 0 ? 3 : 12;
    while (Below(16) < arrivals) SubmitOne();
    if (Below(12) == 0 && !live_.empty()) EndOneEarly();
    if (Below(200) == 0)
      loop_.scheduler().SetMaxNumSeqs(1 + static_cast<int>(Below(limits_.max_num_seqs)));
    Round();
  }
  loop_.scheduler().SetMaxNumSeqs(1);
  for (int64_t step = 0; !loop_.scheduler().idle() && !HasFailure(); ++step) {
    ASSERT_LT(step, 100000) << live_.size() << " requests never end";
    Round();
  }
  EXPECT_TRUE(live_.empty()) << live_.size() << " requests were forgotten";
  EXPECT_EQ(loop_.pool().num_free(), limits_.num_kv_blocks);
  const SchedulerLoad load = loop_.scheduler().load();
  EXPECT_EQ(load.num_blocks_used, 0);
  EXPECT_EQ(load.num_blocks_cached > 0, limits_.prefix_caching);
  // A pool of little more than a sequence has little left to cache in, and the last block of a
  // prefix is computed again where an MTP layer has not seen it.
  const uint64_t few = limits_.num_kv_groups() > 1 || limits_.drafts.mtp ? 500 : 50;
  EXPECT_EQ(load.prefix_hits_total > load.prefix_queries_total / few, limits_.prefix_caching);
  EXPECT_GT(finished_, steps / 50);
  EXPECT_GT(ended_early_, steps / 50);
  EXPECT_GT(refused_[absl::StatusCode::kResourceExhausted], 0);
  EXPECT_GT(refused_[absl::StatusCode::kInvalidArgument], 0);
  const bool drafts = limits_.drafts.num_speculative_tokens > 0;
  EXPECT_EQ(load.drafts.accepted_by_position[1] > 0, drafts);
  EXPECT_EQ(load.drafts.accepted_tokens > static_cast<uint64_t>(steps) / 1000, drafts);
  EXPECT_EQ(load.drafts.draft_tokens > load.drafts.accepted_tokens, drafts);
  EXPECT_EQ(loop_.runner().steps_planned_ahead() > 0, limits_.depth > 1);
  if (limits_.admission == Admission::kReserve) {
    EXPECT_EQ(load.preemptions_total, 0);
  } else {
    EXPECT_GT(load.preemptions_total, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, SchedulerPropertyTest,
    testing::Combine(testing::Values(Admission::kReserve, Admission::kOptimistic),
                     testing::Values(1, 2, kDrafting, kDraftModel, kMtp, kDraftingAhead,
                                     kDraftModelWithStates),
                     testing::Values(SchedulingPolicy::kFcfs, SchedulingPolicy::kPriority),
                     testing::Values(12, 16, 25), testing::Bool(), testing::Values(Windows{})));

// 28 and 49 blocks are little more than one sequence and the steps in flight take.
INSTANTIATE_TEST_SUITE_P(
    Windows, SchedulerPropertyTest,
    testing::Combine(testing::Values(Admission::kReserve, Admission::kOptimistic),
                     testing::Values(1, 2, kDrafting, kDraftModel, kMtp, kDraftingAhead),
                     testing::Values(SchedulingPolicy::kFcfs), testing::Values(28, 49, 64),
                     testing::Bool(), testing::Values(Windows{3, 9}, Windows{1, 4})));

// A second group without a window.
INSTANTIATE_TEST_SUITE_P(
    TwoFullGroups, SchedulerPropertyTest,
    testing::Combine(testing::Values(Admission::kReserve, Admission::kOptimistic),
                     testing::Values(1, 2, kDrafting, kDraftModel, kMtp, kDraftingAhead),
                     testing::Values(SchedulingPolicy::kPriority), testing::Values(40, 49),
                     testing::Bool(), testing::Values(Windows{0, 5})));

}  // namespace
}  // namespace bulkhead
