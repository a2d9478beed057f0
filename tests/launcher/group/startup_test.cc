#include "launcher/group/startup.h"

#include <gtest/gtest.h>

#include <memory>

#include "runtime/engine/coordinator.h"
#include "runtime/engine/refusal.h"

namespace bulkhead {
namespace {

TEST(StartUpTest, CommunicatorsThatDoNotConnectSaySoBeforeTheStartIsOver) {
  const absl::Duration whole = absl::Seconds(600);
  for (const int passed_s : {0, 30, 300, 599}) {
    const absl::Duration passed = absl::Seconds(passed_s);
    const absl::Duration given = ConnectTimeout(whole, passed);
    EXPECT_GT(given, absl::ZeroDuration()) << passed;
    EXPECT_LE(given, 0.9 * (whole - passed)) << passed;
  }
  EXPECT_EQ(ConnectTimeout(whole, absl::Seconds(700)), absl::ZeroDuration());
}

class DeafSink final : public RequestSink {
  void OnDelta(OutputDelta /*delta*/) override {}
  void OnEnd(RequestEnd /*end*/) override {}
};

TEST(StartUpTest, AnIdleGroupTakesAPromptOfFullLengthForEachPlaceThatRunsOrWaits) {
  RankEngine engine;
  engine.limits.max_num_seqs = 4;
  engine.limits.max_model_len = 100;
  engine.limits.max_num_batched_tokens = 100;
  engine.limits.block_tokens = 10;
  engine.limits.num_kv_blocks = 100;
  for (const int queue : {0, 1, 3}) {
    Coordinator::Options options;
    options.limits = SchedulerLimitsOf(engine, EngineOptions{}, queue);
    Coordinator coordinator(options);
    coordinator.SetServing();
    const auto submit = [&](int i) {
      Request request;
      request.request_id = std::to_string(i);
      request.prompt.assign(99, 7);
      request.stopping.max_tokens = 1;
      return coordinator.Submit(std::move(request), std::make_shared<DeafSink>());
    };
    for (int i = 0; i < 4 + queue; ++i) EXPECT_TRUE(submit(i).ok()) << queue << " " << i;
    EXPECT_EQ(ReasonOf(submit(4 + queue)), "QUEUE_FULL") << queue;
  }
}

}  // namespace
}  // namespace bulkhead
