// Heap use of waiting requests, besides their prompts.
#include <gtest/gtest.h>
#include <malloc.h>

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
  const auto heap_bytes = [] {  // 0 with a sanitizer's heap
    const struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
  };
  const size_t before = heap_bytes();
  for (int i = 0; i < kRequests; ++i) {
    Request request = ToyRequest(5, 9, i);
    for (int k = 0; k < 16; ++k)
      request.stopping.stop.emplace_back(256, static_cast<char>('a' + k));
    request.stopping.stop_token_ids.assign(256, 1);
    ASSERT_TRUE(coordinator.Submit(std::move(request), sink).ok());
  }
  ASSERT_TRUE(coordinator.NextStep().ok());  // all but a few wait for a slot now
  ASSERT_GE(coordinator.Load().scheduler.num_waiting, kRequests - 10);
  const size_t held = heap_bytes() - before;
  std::printf("%zu bytes a request\n", held / kRequests);
  EXPECT_LT(held / kRequests, kMaxBytes);
}

}  // namespace
}  // namespace bulkhead
