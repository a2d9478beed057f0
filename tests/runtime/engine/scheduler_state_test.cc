// Prefix caching of a model with states: a sequence starts behind a block with a snapshot of them.
#include <random>

#include "gtest/gtest.h"
#include "tests/runtime/engine/toy_model.h"

namespace bulkhead {
namespace {

SchedulerLimits StateLimits(int depth = 1) {
  SchedulerLimits limits = ToyLimits();
  limits.prefix_caching = true;
  limits.state_tokens = 8;
  limits.depth = depth;
  return limits;
}

std::vector<TokenId> Want(const Request& request) {
  return ToyGenerate(request, {kToyEos}, ToyLimits().max_model_len).tokens;
}

// Runs it alone, to its end; what it found in the cache.
int64_t CachedTokensOf(ToyLoop& loop, const Request& request) {
  const SequenceId id = *loop.Submit(request);
  loop.Step();
  const int64_t cached = loop.scheduler().cached_prompt_tokens(id);
  loop.RunToEnd();
  EXPECT_EQ(loop.TokensOf(id), Want(request));
  return cached;
}

TEST(SchedulerStateTest, APromptStartsBehindTheLastBorderOfAnEqualOne) {
  for (const int depth : {1, 2}) {
    ToyLoop loop(StateLimits(depth));
    EXPECT_EQ(CachedTokensOf(loop, ToyRequest(30, 6)), 0);
    EXPECT_EQ(CachedTokensOf(loop, ToyRequest(30, 6)), 24);
    EXPECT_EQ(CachedTokensOf(loop, ToyRequest(30, 6)), 24);
  }
}

TEST(SchedulerStateTest, TheNextTurnStartsInTheAnswer) {
  ToyLoop loop(StateLimits());
  Request request = ToyRequest(10, 25);
  EXPECT_EQ(CachedTokensOf(loop, request), 0);
  for (const TokenId token : Want(request)) request.prompt.push_back(token);
  request.prompt.push_back(3);
  EXPECT_EQ(CachedTokensOf(loop, request), 32);  // of 34 that were computed
}

// The second prompt keeps its states where it leaves the first, and the third one starts there.
TEST(SchedulerStateTest, ASharedBeginningIsKeptWhenItIsSeenAgain) {
  ToyLoop loop(StateLimits());
  const auto with_end = [](int salt) {
    Request request = ToyRequest(20, 4);
    for (int i = 0; i < 20; ++i) request.prompt.push_back((salt + i * 3) % kToyVocab);
    return request;
  };
  EXPECT_EQ(CachedTokensOf(loop, with_end(1)), 0);
  EXPECT_EQ(CachedTokensOf(loop, with_end(2)), 0);
  EXPECT_EQ(CachedTokensOf(loop, with_end(3)), 16);
}

TEST(SchedulerStateTest, AnEvictedBlockTakesItsSnapshotAlong) {
  SchedulerLimits limits = StateLimits();
  limits.num_kv_blocks = 16;
  ToyLoop loop(limits);
  for (int turn = 0; turn < 3; ++turn) {
    for (const int salt : {0, 1}) EXPECT_EQ(CachedTokensOf(loop, ToyRequest(60, 4, salt)), 0);
  }
}

TEST(SchedulerStateTest, TheLeastRecentlyUsedSnapshotGoesFirst) {
  SchedulerLimits limits = StateLimits();
  limits.max_num_seqs = 2;  // and as many snapshots
  limits.num_kv_blocks = 200;
  ToyLoop loop(limits);
  CachedTokensOf(loop, ToyRequest(20, 4, 1));
  CachedTokensOf(loop, ToyRequest(20, 4, 2));
  EXPECT_EQ(CachedTokensOf(loop, ToyRequest(20, 4, 1)), 16);
  CachedTokensOf(loop, ToyRequest(20, 4, 3));
  EXPECT_EQ(CachedTokensOf(loop, ToyRequest(20, 4, 1)), 16);
  EXPECT_EQ(CachedTokensOf(loop, ToyRequest(20, 4, 2)), 0);
}

// The toy compares the slot's state with the keys of the block before, at every step.
void ExpectOwnStates(bool drafts) {
  uint64_t accepted = 0;
  uint64_t drafted = 0;
  for (const uint32_t seed : {1, 2, 3, 4, 5, 6}) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const auto below = [&](int n) { return static_cast<int>(random() % static_cast<uint32_t>(n)); };
    SchedulerLimits limits = StateLimits(1 + static_cast<int>(seed) % 2);
    limits.admission = seed % 3 == 0 ? Admission::kReserve : Admission::kOptimistic;
    limits.max_num_seqs = 1 + below(5);
    limits.max_num_batched_tokens = 4 + below(30);
    limits.num_kv_blocks = 20 + below(40);
    limits.state_tokens = 4 << below(3);
    if (drafts) {
      limits.drafts = {.num_speculative_tokens = 6, .prompt_lookup_max = 2, .prompt_lookup_min = 1};
    }
    ToyLoop loop(limits);
    std::vector<std::pair<SequenceId, Request>> live;
    for (int round = 0; round < 400; ++round) {
      if (below(3) == 0) {
        Request request = ToyRequest(1 + below(45), 1 + below(15), below(3));
        if (below(2) == 0) request.prompt.back() = below(kToyVocab);
        if (drafts && below(2) == 0)
          request.logits.allowed = {5, 6};  // every other draft token is right
        const auto id = loop.Submit(request);
        if (id.ok()) live.emplace_back(*id, std::move(request));
      }
      if (!live.empty() && below(20) == 0) {
        const size_t at = below(static_cast<int>(live.size()));
        loop.scheduler().Finish(live[at].first);
        live.erase(live.begin() + static_cast<int64_t>(at));
      }
      loop.Step();
      loop.scheduler().CheckInvariants();
    }
    loop.RunToEnd();
    for (const auto& [id, request] : live) EXPECT_EQ(loop.TokensOf(id), Want(request));
    EXPECT_GT(loop.scheduler().load().prefix_hits_total, 0);
    accepted += loop.scheduler().load().drafts.accepted_tokens;
    drafted += loop.scheduler().load().drafts.draft_tokens;
    EXPECT_EQ(loop.pool().num_free(), limits.num_kv_blocks);
  }
  EXPECT_EQ(accepted > 200, drafts);
  EXPECT_EQ(drafted > accepted + 200, drafts);
}

TEST(SchedulerStateTest, AnyMixtureOfRequestsGetsItsOwnStates) { ExpectOwnStates(false); }

TEST(SchedulerStateTest, RejectedDraftsLeaveStatesAsTheyWere) { ExpectOwnStates(true); }

}  // namespace
}  // namespace bulkhead
