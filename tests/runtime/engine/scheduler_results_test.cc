// The same request gives the same tokens regardless of the batch, of how its prompt is chunked and
// of how much of it is cached.
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "tests/runtime/engine/toy_model.h"

namespace bulkhead {
namespace {

std::vector<Request> Requests() {
  std::mt19937 random(7);
  std::vector<Request> requests;
  for (int i = 0; i < 120; ++i) {
    Request request =
        ToyRequest(1 + static_cast<int>(random() % 40), 1 + static_cast<int>(random() % 30), i);
    request.stopping.ignore_eos = i % 3 == 0;
    request.stopping.min_tokens = i % 5 == 0 ? 4 : 0;
    request.priority = static_cast<int>(random() % 3);
    if (i % 11 == 0) request.num_logprobs = 1;  // sampled from whole rows of logits
    if (i % 4 == 0) request.stopping.stop_token_ids = {5, 6};
    if (i % 7 == 0 && request.stopping.max_tokens > 3) request.emitted = {11, 12};
    requests.push_back(std::move(request));
  }
  return requests;
}

class SchedulerResultsTest
    : public testing::TestWithParam<std::tuple<Admission, int, int, int, bool>> {};

TEST_P(SchedulerResultsTest, EqualThoseOfEachRequestAlone) {
  const auto [admission, depth, batched_tokens, blocks, prefix_caching] = GetParam();
  SchedulerLimits limits = ToyLimits();
  limits.admission = admission;
  limits.depth = depth;
  limits.max_num_seqs = 9;
  limits.max_num_batched_tokens = batched_tokens;
  limits.num_kv_blocks = blocks;
  limits.prefix_caching = prefix_caching;
  limits.policy = depth == 1 ? SchedulingPolicy::kFcfs : SchedulingPolicy::kPriority;
  ToyLoop loop(limits);
  const std::vector<Request> requests = Requests();
  std::vector<SequenceId> ids;
  for (const Request& request : requests) {
    ids.push_back(*loop.scheduler().Submit(request));
    if (ids.size() % 3 == 0) loop.Step();
  }
  loop.RunToEnd();
  for (size_t i = 0; i < requests.size(); ++i) {
    const ToyResult want = ToyGenerate(requests[i], {kToyEos}, limits.max_model_len);
    ASSERT_NE(loop.EndOf(ids[i]), nullptr);
    EXPECT_EQ(loop.TokensOf(ids[i]), want.tokens) << "request " << i;
    EXPECT_EQ(loop.EndOf(ids[i])->finish->reason, want.reason) << "request " << i;
  }
  if (admission == Admission::kReserve) {
    EXPECT_EQ(loop.scheduler().load().preemptions_total, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(All, SchedulerResultsTest,
                         testing::Combine(testing::Values(Admission::kReserve,
                                                          Admission::kOptimistic),
                                          testing::Values(1, 2), testing::Values(1, 5, 16, 100),
                                          testing::Values(16, 23, 200), testing::Bool()));

}  // namespace
}  // namespace bulkhead
