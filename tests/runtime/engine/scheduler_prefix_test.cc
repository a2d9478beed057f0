// Prefix caching: which prefixes are shared, from when on, and what happens to the blocks.
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/runtime/engine/toy_model.h"
#include "tests/support/find_prefix.h"

namespace bulkhead {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;

SchedulerLimits CachingLimits(int depth = 1) {
  SchedulerLimits limits = ToyLimits();  // blocks of 4 tokens
  limits.prefix_caching = true;
  limits.depth = depth;
  return limits;
}

uint64_t SameHash(uint64_t /*before*/, absl::Span<const int32_t> /*tokens*/) { return 1; }

std::vector<TokenId> Want(const Request& request) {
  return ToyGenerate(request, {kToyEos}, ToyLimits().max_model_len).tokens;
}

// The start position of each sequence in the last planned step.
std::vector<int> Starts(const internal::StepPlan& plan) {
  return {plan.start_position().begin(), plan.start_position().end()};
}

TEST(SchedulerPrefixTest, EqualPromptBeginsBehindTheCachedBlocks) {
  ToyLoop loop(CachingLimits());
  const Request request = ToyRequest(14, 3);
  const SequenceId first = *loop.Submit(request);
  loop.RunToEnd();
  EXPECT_EQ(loop.scheduler().load().num_blocks_used, 0);
  EXPECT_EQ(loop.scheduler().load().num_blocks_cached, 4);  // of 17 tokens, 16 were computed
  const SequenceId second = *loop.Submit(request);
  loop.Step();
  EXPECT_THAT(Starts(loop.plan()), ElementsAre(12));
  EXPECT_EQ(loop.plan().token_ids_size(), 2);
  EXPECT_EQ(loop.plan().table_slot_size(), 4);  // the ranks also receive the shared blocks
  EXPECT_EQ(loop.scheduler().cached_prompt_tokens(second), 12);
  loop.RunToEnd();
  EXPECT_EQ(loop.TokensOf(first), Want(request));
  EXPECT_EQ(loop.TokensOf(second), Want(request));
  const SchedulerLoad load = loop.scheduler().load();
  EXPECT_EQ(load.prefix_queries_total, 28);
  EXPECT_EQ(load.prefix_hits_total, 12);
  EXPECT_EQ(load.prompt_tokens_total, 16);  // computed ones
}

TEST(SchedulerPrefixTest, LastTokenIsComputedWhereAllAreCached) {
  ToyLoop loop(CachingLimits());
  const Request request = ToyRequest(8, 5);
  ASSERT_TRUE(loop.Submit(request).ok());
  loop.RunToEnd();
  const SequenceId id = *loop.Submit(request);
  loop.Step();
  EXPECT_THAT(Starts(loop.plan()), ElementsAre(4));
  loop.RunToEnd();
  EXPECT_EQ(loop.TokensOf(id), Want(request));
  // Only one token after a full block remains of this one.
  Request longer = request;
  longer.prompt.push_back(7);
  const SequenceId one = *loop.Submit(longer);
  loop.Step();
  EXPECT_THAT(Starts(loop.plan()), ElementsAre(8));
  EXPECT_EQ(loop.TokensOf(one).size(), 1);
  loop.RunToEnd();
  EXPECT_EQ(loop.TokensOf(one), Want(longer));
}

TEST(SchedulerPrefixTest, NextTurnFindsWhatTheLastOneGenerated) {
  for (const int depth : {1, 2}) {
    ToyLoop loop(CachingLimits(depth));
    Request request = ToyRequest(5, 20);
    const SequenceId first = *loop.Submit(request);
    loop.RunToEnd();
    for (const TokenId token : loop.TokensOf(first)) request.prompt.push_back(token);
    request.prompt.insert(request.prompt.end(), {1, 2, 3});
    const SequenceId second = *loop.Submit(request);
    loop.Step();
    EXPECT_EQ(loop.scheduler().cached_prompt_tokens(second), 24);  // of 28
    loop.RunToEnd();
    EXPECT_EQ(loop.TokensOf(second), Want(request));
  }
}

TEST(SchedulerPrefixTest, SaltsShareNothing) {
  ToyLoop loop(CachingLimits());
  Request request = ToyRequest(14, 3);
  for (const char* salt : {"", "a", "b", "a", ""}) {
    request.cache_salt = salt;
    const SequenceId id = *loop.Submit(request);
    loop.RunToEnd();
    EXPECT_EQ(loop.TokensOf(id), Want(request));
  }
  EXPECT_EQ(loop.scheduler().load().prefix_hits_total, 24);  // the last two
}

TEST(SchedulerPrefixTest, CollidingHashesNeverGiveWrongText) {
  ToyLoop loop(CachingLimits(), SameHash);
  std::vector<Request> requests;
  for (int i = 0; i < 12; ++i) {
    requests.push_back(ToyRequest(9 + i % 5, 7, i / 2));
    requests.back().cache_salt = i % 3 == 0 ? "salt" : "";
  }
  std::vector<SequenceId> ids;
  for (const Request& request : requests) {
    ids.push_back(*loop.Submit(request));
    loop.Step();
  }
  loop.RunToEnd();
  for (size_t i = 0; i < ids.size(); ++i) EXPECT_EQ(loop.TokensOf(ids[i]), Want(requests[i]));
  EXPECT_GT(loop.scheduler().load().prefix_hits_total, 0);
}

class NoRows final : public LogitsSink {
 public:
  absl::Status OnRows(int64_t first_position, int64_t rows, int64_t /*vocab_size*/,
                      const float* /*logits*/) override {
    EXPECT_EQ(first_position, next);
    next += rows;
    return absl::OkStatus();
  }
  int64_t next = 0;
};

TEST(SchedulerPrefixTest, PromptLogitsTakeNoHitButFill) {
  ToyLoop loop(CachingLimits());
  Request request = ToyRequest(14, 3);
  for (int turn = 0; turn < 2; ++turn) {
    NoRows rows;
    request.prompt_logits = &rows;
    ASSERT_TRUE(loop.Submit(request).ok());
    loop.RunToEnd();
    EXPECT_EQ(rows.next, 14);
  }
  EXPECT_EQ(loop.scheduler().load().prefix_queries_total, 0);
  request.prompt_logits = nullptr;
  const SequenceId id = *loop.Submit(request);
  loop.RunToEnd();
  EXPECT_EQ(loop.scheduler().load().prefix_hits_total, 12);
  EXPECT_EQ(loop.TokensOf(id), Want(request));
}

TEST(SchedulerPrefixTest, BlocksAreSharedOnceTheirStepIsCommitted) {
  // By hand: two steps are planned before the first is committed.
  SchedulerLimits limits = CachingLimits(2);
  KvBlockPool pool(64, std::make_unique<PrefixCache>(64, 4));
  Scheduler scheduler(limits, {kToyEos}, pool);
  ASSERT_TRUE(scheduler.Submit(ToyRequest(20, 1)).ok());
  ASSERT_EQ(scheduler.PlanStep()->plan.token_ids_size(), 16);
  ASSERT_TRUE(scheduler.Submit(ToyRequest(18, 1)).ok());
  const std::optional<Step> second = scheduler.PlanStep();
  EXPECT_THAT(Starts(second->plan), ElementsAre(16, 0));
  scheduler.Commit({});
  EXPECT_EQ(FindPrefix(pool, {.tokens = ToyRequest(20, 1).prompt}).blocks.size(), 4U);
  StepResult result;
  result.samples.emplace_back(GeneratedToken{7, {}, {}});
  scheduler.Commit(std::move(result));
  EXPECT_EQ(FindPrefix(pool, {.tokens = ToyRequest(20, 1).prompt}).blocks.size(), 5U);
  scheduler.Finish(2);
  EXPECT_TRUE(scheduler.idle());
}

TEST(SchedulerPrefixTest, GivenRowsAreSharedByTheirContent) {
  ToyLoop loop(CachingLimits());
  Request request = ToyRequest(20, 5);
  EmbeddingSpan& span = request.embeddings.emplace_back();
  span.where = {.begin = 6, .end = 11};  // in the second and the third block
  span.where.content.fill(1);
  span.rows.resize(5 * 2);
  const auto cached_tokens = [&] {
    const SequenceId id = *loop.Submit(request);
    loop.Step();
    const int64_t tokens = loop.scheduler().cached_prompt_tokens(id);
    loop.RunToEnd();
    return tokens;
  };
  EXPECT_EQ(cached_tokens(), 0);
  EXPECT_EQ(cached_tokens(), 16);
  request.prompt[8] = 3;  // not looked at
  EXPECT_EQ(cached_tokens(), 16);
  request.embeddings[0].where.content.fill(2);
  EXPECT_EQ(cached_tokens(), 4);
  request.embeddings.clear();
  EXPECT_EQ(cached_tokens(), 4);
}

TEST(SchedulerPrefixTest, GivenRowsOutsideThePromptAreRefused) {
  ToyLoop loop(CachingLimits());
  Request request = ToyRequest(20, 1);
  request.embeddings.resize(2);
  request.embeddings[0] = {{.begin = 3, .end = 5}, std::vector<float>(4)};
  const std::vector<std::pair<int, int>> spans = {{4, 6}, {18, 21}, {7, 7}};
  for (const auto& [begin, end] : spans) {
    request.embeddings[1] = {{.begin = begin, .end = end}, std::vector<float>(4)};
    EXPECT_EQ(loop.Submit(request).status().code(), absl::StatusCode::kInvalidArgument) << begin;
  }
}

int64_t num_hashed_blocks = 0;

uint64_t CountingHash(uint64_t before, absl::Span<const int32_t> tokens) {
  ++num_hashed_blocks;
  return PrefixCache::GoodHash(before, tokens);
}

// A prompt is looked up at submission; while it waits for blocks, each step only looks up the
// blocks after those found.
TEST(SchedulerPrefixTest, APromptThatWaitsIsLookedForOnce) {
  SchedulerLimits limits = CachingLimits();
  limits.num_kv_blocks = 40;
  limits.max_model_len = 120;
  ToyLoop loop(limits, CountingHash);
  ASSERT_TRUE(loop.Submit(ToyRequest(80, 1)).ok());
  loop.RunToEnd();
  EXPECT_EQ(loop.scheduler().load().num_blocks_cached, 20);
  ASSERT_TRUE(loop.Submit(ToyRequest(1, 75, 5)).ok());  // takes 19 of the 20 uncached blocks
  loop.Step();
  const Request request = ToyRequest(80, 40);
  const SequenceId waiting = *loop.Submit(request);  // 30 blocks; 19 of them are found
  num_hashed_blocks = 0;
  int64_t steps = 0;
  for (; loop.scheduler().load().num_waiting > 0; ++steps) loop.Step();
  EXPECT_GT(steps, 60);
  EXPECT_LT(num_hashed_blocks, 2 * steps);  // those filled by the running one
  EXPECT_EQ(loop.scheduler().cached_prompt_tokens(waiting), 76);
  loop.RunToEnd();
  EXPECT_EQ(loop.TokensOf(waiting), Want(request));
}

TEST(SchedulerPrefixTest, EqualPromptsAtOnceEndUpWithTheSameBlocks) {
  for (const int depth : {1, 2}) {
    SchedulerLimits limits = CachingLimits(depth);
    limits.max_num_batched_tokens = 64;
    ToyLoop loop(limits);
    const Request request = ToyRequest(13, 30);
    const SequenceId a = *loop.Submit(request);
    const SequenceId b = *loop.Submit(request);
    loop.Step();
    EXPECT_EQ(loop.scheduler().cached_prompt_tokens(b), 0);
    EXPECT_EQ(loop.scheduler().load().num_blocks_used, 2 * 11 - 3);
    loop.RunToEnd();
    EXPECT_EQ(loop.TokensOf(a), Want(request));
    EXPECT_EQ(loop.TokensOf(b), Want(request));
  }
}

TEST(SchedulerPrefixTest, OfPromptsThatBeginAlikeOneIsComputed) {
  for (const int depth : {1, 2}) {
    for (const int step_tokens : {128, 1024}) {  // of which 100 are a long prompt, or a short one
      SchedulerLimits limits = CachingLimits(depth);
      limits.max_model_len = 256;
      limits.max_num_seqs = 8;
      limits.max_num_batched_tokens = step_tokens;
      limits.num_kv_blocks = 400;
      ToyLoop loop(limits);
      std::vector<Request> requests;
      std::vector<SequenceId> ids;
      for (int i = 0; i < 6; ++i) {
        requests.push_back(ToyRequest(i < 5 ? 101 : 90, 20, i < 5 ? 1 : 2));
        if (i >= 3) requests.back().prompt.back() = i;  // the last token is another
        if (i == 4) requests.back().cache_salt = "apart";
        ids.push_back(*loop.Submit(requests.back()));
      }
      loop.RunToEnd();
      for (int i = 0; i < 6; ++i) EXPECT_EQ(loop.TokensOf(ids[i]), Want(requests[i])) << i;
      EXPECT_EQ(loop.scheduler().load().prompt_tokens_total, 101 + 3 * 1 + 101 + 90);
    }
  }
}

TEST(SchedulerPrefixTest, ReserveAdmitsByWhatIsNotShared) {
  SchedulerLimits limits = CachingLimits();
  limits.num_kv_blocks = 10;
  ToyLoop loop(limits);
  ASSERT_TRUE(loop.Submit(ToyRequest(17, 10)).ok());  // 7 blocks
  loop.Step();
  loop.Step();
  ASSERT_TRUE(loop.Submit(ToyRequest(17, 10)).ok());  // 3 besides the shared ones
  loop.Step();
  EXPECT_EQ(loop.scheduler().load().num_running, 2);
  loop.RunToEnd();
}

TEST(SchedulerPrefixTest, IdleBlocksAreFreeBlocks) {
  SchedulerLimits limits = CachingLimits();
  limits.num_kv_blocks = 16;
  ToyLoop loop(limits);
  for (int turn = 0; turn < 3; ++turn) {  // the whole pool, each time
    for (const int salt : {0, 1}) {
      const Request request = ToyRequest(60, 4, salt);
      const SequenceId id = *loop.Submit(request);
      loop.RunToEnd();
      EXPECT_EQ(loop.TokensOf(id), Want(request));
      EXPECT_EQ(loop.pool().num_free(), 16);
    }
  }
  EXPECT_EQ(loop.scheduler().load().prefix_hits_total, 0);
}

TEST(SchedulerPrefixTest, PreemptedSequenceFindsItsOwnBlocks) {
  for (const int depth : {1, 2}) {
    SchedulerLimits limits = CachingLimits(depth);
    limits.admission = Admission::kOptimistic;
    limits.num_kv_blocks = 10;
    ToyLoop loop(limits);
    const Request first = ToyRequest(4, 24, 1);
    const Request second = ToyRequest(4, 24, 2);
    const SequenceId old = *loop.Submit(first);
    const SequenceId young = *loop.Submit(second);
    while (loop.scheduler().preemptions(young) == 0) loop.Step();
    const uint64_t computed = loop.scheduler().load().prompt_tokens_total;
    loop.RunToEnd();
    EXPECT_EQ(loop.TokensOf(old), Want(first));
    EXPECT_EQ(loop.TokensOf(young), Want(second));
    const SchedulerLoad load = loop.scheduler().load();
    EXPECT_EQ(load.prompt_tokens_total, computed);  // its prompt was still cached
    EXPECT_EQ(load.prefix_queries_total, 8);        // first admissions only
  }
}

TEST(SchedulerPrefixTest, CancelledSequenceLeavesWhatItComputed) {
  for (const int depth : {1, 2}) {
    ToyLoop loop(CachingLimits(depth));
    const Request request = ToyRequest(30, 20);
    const SequenceId cancelled = *loop.Submit(request);
    loop.Step();
    loop.scheduler().Finish(cancelled);
    loop.RunToEnd();
    const SequenceId id = *loop.Submit(request);
    loop.Step();
    EXPECT_EQ(loop.scheduler().cached_prompt_tokens(id), depth == 1 ? 16 : 28);
    loop.RunToEnd();
    EXPECT_EQ(loop.TokensOf(id), Want(request));
  }
}

TEST(SchedulerPrefixTest, RowWithoutATokenLeavesNothing) {
  for (const int depth : {1, 2}) {
    KvBlockPool pool(64, std::make_unique<PrefixCache>(64, 4));
    Scheduler scheduler(CachingLimits(depth), {kToyEos}, pool);
    ASSERT_TRUE(scheduler.Submit(ToyRequest(9, 6)).ok());
    for (int step = 0; step < depth; ++step) ASSERT_TRUE(scheduler.PlanStep().has_value());
    for (int step = 0; step < depth; ++step) {
      StepResult result;
      if (step == 0) result.samples.emplace_back(absl::InternalError("not finite"));
      if (step == 1) result.samples.emplace_back(GeneratedToken{7, {}, {}});
      scheduler.Commit(std::move(result));
    }
    EXPECT_EQ(pool.num_idle(), 0);
    EXPECT_TRUE(scheduler.idle());
  }
}

TEST(SchedulerPrefixTest, ResumedRequestFindsItsOwnBlocks) {
  ToyLoop loop(CachingLimits());
  Request request = ToyRequest(6, 20);
  const SequenceId whole = *loop.Submit(request);
  loop.RunToEnd();
  const std::vector<TokenId> tokens = loop.TokensOf(whole);
  request.emitted.assign(tokens.begin(), tokens.begin() + 11);
  const SequenceId id = *loop.Submit(request);
  loop.Step();
  EXPECT_THAT(Starts(loop.plan()), ElementsAre(16));
  EXPECT_EQ(loop.scheduler().cached_prompt_tokens(id), 6);
  loop.RunToEnd();
  EXPECT_THAT(loop.TokensOf(id),
              ElementsAreArray(std::vector<TokenId>(tokens.begin() + 11, tokens.end())));
}

TEST(SchedulerPrefixTest, LaneIsChosenByWhatIsLeftToCompute) {
  SchedulerLimits limits = CachingLimits();
  limits.max_num_seqs = 8;
  ToyLoop loop(limits);
  Request chat = ToyRequest(40, 2);
  ASSERT_TRUE(loop.Submit(chat).ok());
  loop.RunToEnd();
  // Two long prompts would be computed one after the other; the next turn goes before the second.
  const SequenceId long_one = *loop.Submit(ToyRequest(50, 2, 1));
  const SequenceId long_two = *loop.Submit(ToyRequest(50, 2, 2));
  chat.prompt.push_back(9);
  const SequenceId turn = *loop.Submit(chat);
  loop.Step();
  EXPECT_EQ(loop.TokensOf(turn).size(), 1);
  EXPECT_TRUE(loop.TokensOf(long_one).empty() && loop.TokensOf(long_two).empty());
  loop.RunToEnd();
}

}  // namespace
}  // namespace bulkhead
