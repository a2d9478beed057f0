// Heap use of waiting requests, besides their prompts.
#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <string>

#include "runtime/engine/coordinator.h"
#include "tests/runtime/engine/recording_sink.h"
#include "tests/runtime/engine/toy_model.h"

namespace bulkhead {
namespace {

class DeafSink final : public RequestSink {
 public:
  void OnDelta(OutputDelta /*delta*/) override {}
  void OnEnd(RequestEnd /*end*/) override {}
};

size_t HeapBytes() {  // 0 with a sanitizer's heap
  const struct mallinfo2 info = mallinfo2();
  return info.uordblks + info.hblkhd;
}

// With the longest stop strings and the maximum number of stop ids. The limit is the planned memory
// per request (kRequestBytes of runtime/service/host_quotas.h), and leaves room for the service's
// own state.
TEST(QueueMemoryTest, ARequestThatWaitsHoldsLittleMoreThanItsStopStrings) {
  constexpr int kRequests = 400;
  constexpr size_t kMaxBytes = size_t{10} << 10;
  const LetterTokenizer tokenizer;
  Coordinator::Options options;
  options.limits = ToyLimits();
  options.tokenizer = &tokenizer;
  Coordinator coordinator(std::move(options));
  coordinator.SetServing();
  const auto sink = std::make_shared<DeafSink>();
  const size_t before = HeapBytes();
  for (int i = 0; i < kRequests; ++i) {
    Request request = ToyRequest(5, 9, i);
    for (int k = 0; k < 16; ++k)
      request.stopping.stop.emplace_back(256, static_cast<char>('a' + k));
    request.stopping.stop_token_ids.assign(256, 1);
    ASSERT_TRUE(coordinator.Submit(std::move(request), sink).ok());
  }
  ASSERT_TRUE(coordinator.NextStep().ok());  // all but a few wait for a slot now
  ASSERT_GE(coordinator.Load().scheduler.num_waiting, kRequests - 10);
  const size_t held = HeapBytes() - before;
  std::printf("%zu bytes a request\n", held / kRequests);
  EXPECT_LT(held / kRequests, kMaxBytes);
}

// With a prompt whose vector grew, and emitted tokens behind it.
TEST(QueueMemoryTest, ARequestHoldsNoMoreTokensThanItMayHave) {
  constexpr int kRequests = 200;
  constexpr size_t kBesides = size_t{4} << 10;
  const LetterTokenizer tokenizer;
  Coordinator::Options options;
  options.limits = ToyLimits();
  options.limits.max_model_len = 9000;
  options.limits.num_kv_blocks = 9000;
  options.tokenizer = &tokenizer;
  Coordinator coordinator(std::move(options));
  coordinator.SetServing();
  const auto sink = std::make_shared<DeafSink>();
  const size_t before = HeapBytes();
  const auto held = [&] { return (HeapBytes() - std::min(HeapBytes(), before)) / kRequests; };
  for (int i = 0; i < kRequests; ++i) {
    Request request = ToyRequest(6000, 3000, i);
    request.prompt.reserve(20000);
    request.emitted.assign(2900, 1);
    request.wants_text = i % 2 == 0;
    ASSERT_TRUE(coordinator.Submit(std::move(request), sink).ok());
  }
  // Their text is in the answers' part.
  constexpr size_t kText = 2900 / 2;
  EXPECT_LT(held(), 9000 * sizeof(TokenId) + kText + kBesides);
  ASSERT_TRUE(coordinator.NextStep().ok());
  ASSERT_GE(coordinator.Load().scheduler.num_waiting, kRequests - 10);
  std::printf("%zu bytes a request\n", held());
  EXPECT_LT(held(), 9000 * sizeof(TokenId) + kText + kBesides);
}

// What each of many requests holds that wait with a prompt of which `salt`'s blocks are cached.
size_t HeldWithPrompt(const std::string& salt) {
  constexpr int kRequests = 200;
  Coordinator::Options options;
  options.limits = ToyLimits();
  options.limits.max_num_seqs = 1;
  options.limits.max_model_len = 4096;
  options.limits.num_kv_blocks = 3000;
  options.limits.max_num_batched_tokens = 4096;
  options.limits.prefix_caching = true;
  options.limits.policy = SchedulingPolicy::kPriority;
  ToyRunner runner(options.limits);
  Coordinator coordinator(std::move(options));
  coordinator.SetServing();
  const auto sink = std::make_shared<DeafSink>();
  EXPECT_TRUE(coordinator.Submit(ToyRequest(4000, 1), sink).ok());
  do {
    absl::StatusOr<Step> step = coordinator.NextStep();
    EXPECT_TRUE(step.ok() && runner.Submit(*std::move(step)).ok());
    absl::StatusOr<StepResult> result = runner.Collect();
    EXPECT_TRUE(result.ok());
    coordinator.Commit(*std::move(result));
  } while (coordinator.Load().scheduler.num_running > 0);
  const size_t before = HeapBytes();
  for (int i = 1; i <= kRequests; ++i) {
    Request request = ToyRequest(4000, 96);
    request.request_id += std::to_string(i);
    request.cache_salt = salt;
    request.priority = i % 2 == 0 ? i : 0;  // half of them are the head when they arrive
    EXPECT_TRUE(coordinator.Submit(std::move(request), sink).ok());
  }
  EXPECT_TRUE(coordinator.NextStep().ok());
  EXPECT_EQ(coordinator.Load().scheduler.num_waiting, kRequests - 1);
  return (HeapBytes() - std::min(HeapBytes(), before)) / kRequests;
}

TEST(QueueMemoryTest, ARequestThatWaitsHoldsNoBlocksOfItsCachedPrefix) {
  EXPECT_LT(HeldWithPrompt(""), HeldWithPrompt("another") + 500);
}

}  // namespace
}  // namespace bulkhead
