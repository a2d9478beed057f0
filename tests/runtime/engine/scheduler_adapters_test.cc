// Requests with adapters: what plans say of them, and what they share.
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/runtime/engine/toy_model.h"

namespace bulkhead {
namespace {

using ::testing::ElementsAre;

Request Adapted(Request request, int adapter) {
  request.adapter = adapter;
  if (adapter > 0)
    request.adapter_name = "adapter " + std::string(1, static_cast<char>('0' + adapter));
  return request;
}

TEST(SchedulerAdaptersTest, SequencesOfAnAdapterAreNeighbours) {
  ToyLoop loop(ToyLimits());
  for (const int adapter : {0, 2, 1, 2}) {
    ASSERT_TRUE(loop.Submit(Adapted(ToyRequest(3, 8), adapter)).ok());
  }
  loop.Step();  // prompts
  loop.Step();
  EXPECT_THAT(loop.plan().adapter(), ElementsAre(0, 2, 2, 1));
  EXPECT_THAT(loop.plan().slot(), ElementsAre(0, 1, 3, 2));
  loop.RunToEnd();
}

TEST(SchedulerAdaptersTest, PlansWithoutThemSayNothing) {
  ToyLoop loop(ToyLimits());
  ASSERT_TRUE(loop.Submit(Adapted(ToyRequest(3, 2), 1)).ok());
  ASSERT_TRUE(loop.Submit(ToyRequest(3, 8)).ok());
  loop.Step();
  EXPECT_THAT(loop.plan().adapter(), ElementsAre(1));  // the last ones have none
  for (int i = 0; i < 4; ++i) loop.Step();             // the first has ended
  EXPECT_THAT(loop.plan().adapter(), ElementsAre());
  loop.RunToEnd();
}

TEST(SchedulerAdaptersTest, CachedPrefixesAreOfOneAdapter) {
  SchedulerLimits limits = ToyLimits();  // blocks of 4 tokens
  limits.prefix_caching = true;
  ToyLoop loop(limits);
  const Request request = ToyRequest(14, 3);
  const auto cached = [&](int adapter) {
    const SequenceId id = *loop.Submit(Adapted(request, adapter));
    loop.Step();
    const int64_t tokens = loop.scheduler().cached_prompt_tokens(id);
    loop.RunToEnd();
    return tokens;
  };
  EXPECT_EQ(cached(0), 0);
  EXPECT_EQ(cached(1), 0);
  EXPECT_EQ(cached(2), 0);
  EXPECT_EQ(cached(1), 12);
  EXPECT_EQ(cached(0), 12);
}

}  // namespace
}  // namespace bulkhead
