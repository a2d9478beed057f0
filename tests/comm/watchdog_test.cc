#include "runtime/engine/watchdog.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <optional>
#include <thread>
#include <tuple>
#include <vector>

#include "base/exit_code.h"
#include "base/lost_rank.h"
#include "tests/support/run_ranks.h"

namespace bulkhead {
namespace {

using testing::HasSubstr;

class FakeLiveness final : public GroupLiveness {
 public:
  void Beat() override {
    if (beats++ == 0) first_beat_thread = std::this_thread::get_id();
  }
  absl::Status Check(absl::Duration) override { return check; }
  void Rearm() override { ++rearms; }
  void ReportIdle(absl::Duration still) override { told_still = still; }
  Stragglers FindStragglers() override { return stragglers; }
  int fd() const override { return -1; }
  void Abort(const absl::Status& why) override { aborted = why; }
  void Ending() override {}
  bool CoordinatorEnded() override { return false; }

  int beats = 0;
  std::thread::id first_beat_thread;
  int rearms = 0;
  absl::Status check;
  absl::Status aborted;
  Stragglers stragglers;
  absl::Duration told_still;
};

// Compute threads that are idle from a given time on, or never.
class FakeStandstill final : public IdleClock {
 public:
  int64_t IdleNanos(int64_t now_ns) override { return now_ns - since_ns.value_or(now_ns); }
  std::optional<int64_t> since_ns;
};

// `tokens` of one sequence with a context of `start` tokens.
internal::StepPlan PlanOf(uint64_t seq, int tokens = 1, int start = 0) {
  internal::StepPlan plan;
  plan.set_seq(seq);
  plan.add_slot(0);
  plan.add_num_tokens(tokens);
  plan.add_start_position(start);
  plan.add_num_logits(1);
  plan.set_padded_tokens(tokens);
  return plan;
}

class WatchdogRulesTest : public testing::Test {
 protected:
  absl::Status TickAfter(absl::Duration time) {
    now_ns_ += absl::ToInt64Nanoseconds(time);
    return rules_.Tick(now_ns_);
  }
  // Ticks until `time` has passed or one is not ok.
  absl::Status TickFor(absl::Duration time) {
    absl::Status status;
    for (; status.ok() && time > absl::ZeroDuration(); time -= absl::Seconds(1)) {
      status = TickAfter(absl::Seconds(1));
    }
    return status;
  }

  FakeLiveness liveness_;
  FakeStandstill standstill_;
  std::vector<std::string> warnings_;
  WatchdogRules rules_{liveness_,
                       {.silence = absl::Seconds(3),
                        .step = {.timeout = absl::Seconds(60)},
                        .name = "rank 0 (host a, pid 4)",
                        .rank = {0, "a"}},
                       standstill_,
                       [this](const std::string& text) { warnings_.push_back(text); }};
  int64_t now_ns_ = 1'000'000'000;
};

TEST_F(WatchdogRulesTest, BeatsAtEveryTick) {
  EXPECT_TRUE(TickFor(absl::Seconds(5)).ok());
  EXPECT_EQ(liveness_.beats, 5);
}

TEST_F(WatchdogRulesTest, AnIdleRankHasNoLimit) { EXPECT_TRUE(TickFor(absl::Hours(1)).ok()); }

TEST_F(WatchdogRulesTest, AStepThatLastsTooLongIsALossThatNamesTheStragglers) {
  liveness_.stragglers = {.names = "rank 1 (host a, pid 5)", .lost = {1, "a"}};
  rules_.StepBegins(PlanOf(42), now_ns_);
  EXPECT_TRUE(TickFor(absl::Seconds(60)).ok());
  const absl::Status lost = TickAfter(absl::Seconds(1));
  EXPECT_EQ(ExitCodeOf(lost), ExitCode::kRankLost);
  EXPECT_EQ(lost.message(),
            "step 42 did not end within 1m; the others wait for rank 1 (host a, pid 5); "
            "--step-timeout sets another limit");
  EXPECT_EQ(LostRankOf(lost), (LostRank{1, "a"}));
}

TEST_F(WatchdogRulesTest, AHostThatOthersWaitForHasASecondMoreToSayWhichOfItsRanksItIs) {
  liveness_.stragglers = {.names = "ranks 2, 3 (host b)", .elsewhere = true};
  rules_.StepBegins(PlanOf(42), now_ns_);
  EXPECT_TRUE(TickFor(absl::Seconds(61)).ok());
  EXPECT_THAT(std::string(TickAfter(absl::Seconds(1)).message()),
              HasSubstr("within 1m; the others wait for ranks 2, 3 (host b)"));
}

TEST_F(WatchdogRulesTest, AHostOfWhichAllRanksMayHangHasTwoSecondsMoreToBeNamedByOthers) {
  liveness_.stragglers = {.elsewhere = true};
  rules_.PhaseBegins("start-up", absl::Seconds(60), now_ns_);
  EXPECT_TRUE(TickFor(absl::Seconds(62)).ok());
  EXPECT_FALSE(TickAfter(absl::Seconds(1)).ok());
}

TEST_F(WatchdogRulesTest, EveryStepHasItsOwnTime) {
  for (uint64_t step = 0; step < 10; ++step) {
    rules_.StepBegins(PlanOf(step), now_ns_);
    EXPECT_TRUE(TickFor(absl::Seconds(50)).ok());
    rules_.StepEnds(now_ns_);
    EXPECT_TRUE(TickFor(absl::Seconds(100)).ok());
  }
}

TEST_F(WatchdogRulesTest, AStepThatBeginsBehindAnotherHasItsTimeFromThatOnesEnd) {
  rules_.StepBegins(PlanOf(1), now_ns_);
  EXPECT_TRUE(TickFor(absl::Seconds(40)).ok());
  rules_.StepBegins(PlanOf(2), now_ns_);
  EXPECT_TRUE(TickFor(absl::Seconds(20)).ok());
  rules_.StepEnds(now_ns_);
  EXPECT_TRUE(TickFor(absl::Seconds(60)).ok());
  EXPECT_THAT(std::string(TickAfter(absl::Seconds(1)).message()), HasSubstr("step 2 did not end"));
  rules_.StepEnds(now_ns_);
  EXPECT_TRUE(TickFor(absl::Hours(1)).ok());
}

TEST_F(WatchdogRulesTest, TheOlderOfTwoStepsIsTheOneThatIsLate) {
  rules_.StepBegins(PlanOf(1), now_ns_);
  rules_.StepBegins(PlanOf(2), now_ns_);
  EXPECT_THAT(std::string(TickFor(absl::Seconds(61)).message()), HasSubstr("step 1 did not end"));
}

// A step takes 10 ms per token and 1 us per (token, attended position) pair.
constexpr StepEstimate kEstimate = {
    .least_s = 0.5, .fixed_s = 0, .token_s = 0.01, .logit_row_s = 0, .context_s = 1e-6};

TEST_F(WatchdogRulesTest, AStepThatTakesTenTimesItsEstimateIsAWarningThatNamesWhoItWaitsFor) {
  liveness_.stragglers.names = "rank 1 (host a, pid 5)";
  rules_.SetStepLimits({.estimate = kEstimate});
  rules_.StepBegins(PlanOf(3, 100), now_ns_);
  EXPECT_TRUE(TickFor(absl::Seconds(10)).ok());
  EXPECT_TRUE(warnings_.empty());
  EXPECT_TRUE(TickAfter(absl::Seconds(1)).ok());
  ASSERT_EQ(warnings_.size(), 1);
  EXPECT_EQ(warnings_[0],
            "step 3 of 100 tokens has taken 11s; estimated were 1.005s; the others wait for rank "
            "1 (host a, "
            "pid 5)");
}

TEST_F(WatchdogRulesTest, ThereIsOneWarningAMinute) {
  rules_.SetStepLimits({.timeout = absl::Hours(1), .estimate = kEstimate});
  rules_.StepBegins(PlanOf(1), now_ns_);
  EXPECT_TRUE(TickFor(absl::Seconds(65)).ok());
  EXPECT_EQ(warnings_.size(), 1);
  EXPECT_TRUE(TickFor(absl::Minutes(1)).ok());
  EXPECT_EQ(warnings_.size(), 2);
}

TEST_F(WatchdogRulesTest, RowsTokensAndContextEachHaveTheirTime) {
  rules_.SetStepLimits({.estimate = kEstimate});
  for (const auto& [tokens, start, late_s] :
       {std::tuple(1, 0, 5), std::tuple(200, 0, 20), std::tuple(100, 10000, 20)}) {
    warnings_.clear();
    rules_.StepBegins(PlanOf(1, tokens, start), now_ns_);
    EXPECT_TRUE(TickFor(absl::Seconds(late_s)).ok());
    EXPECT_TRUE(warnings_.empty()) << tokens << " behind " << start;
    rules_.StepEnds(now_ns_);
    EXPECT_TRUE(TickFor(absl::Minutes(2)).ok());
    rules_.StepBegins(PlanOf(1, tokens, start), now_ns_);
    EXPECT_TRUE(TickFor(absl::Seconds(late_s + 2)).ok());
    EXPECT_EQ(warnings_.size(), 1) << tokens << " behind " << start;
    rules_.StepEnds(now_ns_);
    EXPECT_TRUE(TickFor(absl::Minutes(2)).ok());
  }
}

TEST_F(WatchdogRulesTest, ALateStepWhoseStragglersStandStillIsALoss) {
  liveness_.stragglers = {
      .names = "rank 1 (host a, pid 5)", .lost = {1, "a"}, .still = absl::Milliseconds(4900)};
  rules_.SetStepLimits({.estimate = kEstimate});
  rules_.StepBegins(PlanOf(9), now_ns_);
  EXPECT_TRUE(TickFor(absl::Seconds(20)).ok());
  liveness_.stragglers.still = absl::Milliseconds(5100);
  const absl::Status lost = TickAfter(absl::Seconds(1));
  EXPECT_EQ(ExitCodeOf(lost), ExitCode::kRankLost);
  EXPECT_EQ(lost.message(),
            "step 9 did not end within 21s, and rank 1 (host a, pid 5), which the others wait for, "
            "used no CPU time for the last 5.1s");
  EXPECT_EQ(LostRankOf(lost), (LostRank{1, "a"}));
}

TEST_F(WatchdogRulesTest, ARankThatStoodStillWhileItWaitedItselfHasTimeToWake) {
  liveness_.stragglers.names = "rank 1 (host a, pid 5)";
  rules_.SetStepLimits({.estimate = kEstimate});
  rules_.StepBegins(PlanOf(9), now_ns_);
  EXPECT_TRUE(TickFor(absl::Seconds(30)).ok());
  liveness_.stragglers = {.names = "rank 2 (host a, pid 6)", .still = absl::Seconds(25)};
  EXPECT_TRUE(TickFor(absl::Seconds(5)).ok());
  EXPECT_THAT(std::string(TickAfter(absl::Seconds(1)).message()),
              HasSubstr("and rank 2 (host a, pid 6), which the others wait for, used no CPU"));
}

TEST_F(WatchdogRulesTest, AStepThatIsNotLateIsNoLossWhateverStandsStill) {
  liveness_.stragglers = {.names = "rank 1 (host a, pid 5)", .still = absl::Seconds(30)};
  standstill_.since_ns = now_ns_;
  rules_.SetStepLimits({.estimate = kEstimate});
  rules_.StepBegins(PlanOf(1, 300), now_ns_);
  EXPECT_TRUE(TickFor(absl::Seconds(30)).ok());
  EXPECT_FALSE(TickFor(absl::Seconds(7)).ok());
}

TEST_F(WatchdogRulesTest, ARankThatIsMerelySlowHasUntilTheTimeout) {
  liveness_.stragglers.names = "rank 1 (host a, pid 5)";
  standstill_.since_ns = now_ns_;  // this rank waits for the other, and may sleep
  rules_.SetStepLimits({.estimate = kEstimate});
  rules_.StepBegins(PlanOf(1), now_ns_);
  EXPECT_TRUE(TickFor(absl::Seconds(60)).ok());
  EXPECT_THAT(std::string(TickAfter(absl::Seconds(1)).message()), HasSubstr("1m (estimated were "));
}

TEST_F(WatchdogRulesTest, WhereNobodyLagsBehindThisRanksOwnThreadsCount) {
  rules_.SetStepLimits({.estimate = kEstimate});
  rules_.StepBegins(PlanOf(1), now_ns_);
  EXPECT_TRUE(TickFor(absl::Seconds(20)).ok());
  standstill_.since_ns = now_ns_;
  EXPECT_TRUE(TickFor(absl::Seconds(4)).ok());
  EXPECT_EQ(liveness_.told_still, absl::Seconds(4));
  const absl::Status lost = TickAfter(absl::Seconds(1));
  EXPECT_EQ(
      lost.message(),
      "step 1 did not end within 25s, and rank 0 (host a, pid 4) used no CPU time for the last "
      "5s");
  EXPECT_EQ(LostRankOf(lost), (LostRank{0, "a"}));
}

TEST_F(WatchdogRulesTest, ARankOnAnotherHostIsForThatHostToJudge) {
  liveness_.stragglers = {.names = "ranks 2, 3 (host b)", .elsewhere = true};
  standstill_.since_ns = now_ns_;
  rules_.SetStepLimits({.estimate = kEstimate});
  rules_.StepBegins(PlanOf(1), now_ns_);
  EXPECT_TRUE(TickFor(absl::Seconds(61)).ok());
  EXPECT_EQ(warnings_.size(), 1);
}

TEST_F(WatchdogRulesTest, ARankWithoutAStepStandsStillAsLongAsItLikes) {
  standstill_.since_ns = now_ns_;
  rules_.SetStepLimits({.estimate = kEstimate});
  EXPECT_TRUE(TickFor(absl::Hours(1)).ok());
  EXPECT_EQ(liveness_.told_still, absl::ZeroDuration());
}

TEST_F(WatchdogRulesTest, AStepOfWhichMuchIsExpectedHasSomeTimesItsEstimate) {
  rules_.SetStepLimits({.least_estimates = 2, .estimate = kEstimate});
  rules_.StepBegins(PlanOf(1, 10000), now_ns_);  // 150 s with their context
  EXPECT_TRUE(TickFor(absl::Seconds(300)).ok());
  EXPECT_THAT(std::string(TickAfter(absl::Seconds(1)).message()),
              HasSubstr("estimated were 2m30s"));
}

TEST_F(WatchdogRulesTest, AStepOfTheDraftModelHasItsOwnEstimate) {
  StepEstimate of_draft = kEstimate;
  of_draft.token_s = 0.1;
  rules_.SetStepLimits({.least_estimates = 2, .estimate = kEstimate, .draft_estimate = of_draft});
  internal::StepPlan plan = PlanOf(1, 1000);
  plan.set_draft(true);
  rules_.StepBegins(plan, now_ns_);  // 100.5 s; as many tokens of the model would take 10.5 s
  EXPECT_TRUE(TickFor(absl::Seconds(201)).ok());
  EXPECT_TRUE(warnings_.empty());
  EXPECT_THAT(std::string(TickAfter(absl::Seconds(1)).message()), HasSubstr("within 3m21s"));
}

TEST_F(WatchdogRulesTest, AStartUpPhaseHasItsOwnLimitAndExitCode) {
  rules_.PhaseBegins("load weights", absl::Seconds(600), now_ns_);
  EXPECT_TRUE(TickFor(absl::Seconds(600)).ok());
  const absl::Status late = TickAfter(absl::Seconds(1));
  EXPECT_EQ(ExitCodeOf(late), ExitCode::kGroupNotUp);
  EXPECT_THAT(std::string(late.message()),
              HasSubstr("'load weights' did not end within 10m; --startup-timeout sets another"));
}

TEST_F(WatchdogRulesTest, AnotherLimitOfAPhaseCountsFromItsBegin) {
  rules_.PhaseBegins("start-up", absl::Seconds(600), now_ns_);
  EXPECT_TRUE(TickFor(absl::Seconds(20)).ok());
  rules_.SetPhaseLimit(absl::Seconds(30));
  EXPECT_TRUE(TickFor(absl::Seconds(10)).ok());
  EXPECT_THAT(std::string(TickAfter(absl::Seconds(1)).message()), HasSubstr("within 30s"));
}

TEST_F(WatchdogRulesTest, AStalledWatchdogRearmsOnceRatherThanFiring) {
  EXPECT_TRUE(TickFor(absl::Seconds(5)).ok());
  rules_.StepBegins(PlanOf(1), now_ns_);
  EXPECT_TRUE(TickAfter(absl::Seconds(100)).ok());  // everything was suspended, including the step
  EXPECT_EQ(liveness_.rearms, 1);
  EXPECT_TRUE(TickFor(absl::Seconds(60)).ok());  // the step's own time continues from there
  EXPECT_FALSE(TickAfter(absl::Seconds(1)).ok());
}

TEST_F(WatchdogRulesTest, ASecondStallInARowIsJudged) {
  EXPECT_TRUE(TickFor(absl::Seconds(5)).ok());
  rules_.StepBegins(PlanOf(1), now_ns_);
  EXPECT_TRUE(TickAfter(absl::Seconds(100)).ok());
  EXPECT_FALSE(TickAfter(absl::Seconds(100)).ok());
  EXPECT_EQ(liveness_.rearms, 1);
}

TEST_F(WatchdogRulesTest, AProcessThatEndedIsAFactEvenAfterAStall) {
  EXPECT_TRUE(TickFor(absl::Seconds(5)).ok());
  liveness_.check = absl::UnavailableError("rank 1 ended");
  EXPECT_EQ(TickAfter(absl::Seconds(100)), liveness_.check);
}

TEST(Watchdog, TellsOnceAndAbortsTheGroupFirst) {
  const absl::Status why =
      WithExitCode(absl::UnavailableError("rank 2 ended"), ExitCode::kRankLost);
  FakeLiveness liveness;
  liveness.check = why;
  std::mutex mutex;
  std::condition_variable changed;
  int calls = 0;
  {
    Watchdog watchdog(liveness, {}, [&](const absl::Status& status) {
      EXPECT_EQ(status, why);
      EXPECT_EQ(liveness.aborted, why);
      const std::lock_guard lock(mutex);
      ++calls;
      changed.notify_one();
    });
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return calls > 0; });
  }
  EXPECT_EQ(calls, 1);
}

TEST(Watchdog, OneRanksLimitEndsTheWaitsOfAll) {
  std::atomic<int> told = 0;
  RunRanks(3, [&](Group& group) {
    const int rank = group.exchange().topology().rank;
    const WatchdogLimits limits{.silence = absl::Hours(1),
                                .step = {.timeout = absl::Milliseconds(rank == 0 ? 1 : 3'600'000)}};
    // Destroyed after its thread's last tick: every watchdog must report before any is destroyed.
    Watchdog watchdog(group.liveness(), limits, [&](const absl::Status& status) {
      EXPECT_THAT(std::string(status.message()), HasSubstr("step 7 did not end within 1ms"));
      ++told;
    });
    if (rank == 0) {
      watchdog.StepBegins(PlanOf(7));
      while (told < 3) std::this_thread::yield();
      watchdog.StepEnds();
      return;
    }
    std::string message;
    const absl::Status status = group.bus().Receive(&message);
    EXPECT_EQ(ExitCodeOf(status), ExitCode::kRankLost);
    while (told < 3) std::this_thread::yield();
  });
  EXPECT_EQ(told, 3);
}

TEST(Watchdog, HasBeatenBeforeTheMainThreadGoesOn) {
  FakeLiveness liveness;
  {
    const Watchdog watchdog(liveness, {}, [](const absl::Status&) {});
  }
  EXPECT_EQ(liveness.first_beat_thread, std::this_thread::get_id());
}

TEST(Watchdog, StopsWithoutAWordWhenAllIsWell) {
  RunRanks(2, [&](Group& group) {
    Watchdog watchdog(group.liveness(), {.silence = absl::Hours(1)},
                      [](const absl::Status& status) { FAIL() << status; });
    watchdog.PhaseBegins("load", absl::Hours(1));
    watchdog.PhaseEnds();
    ASSERT_TRUE(Agree(group.exchange(), "leave", absl::OkStatus(), absl::Minutes(1)).ok());
    group.Leave(absl::OkStatus());
  });
}

}  // namespace
}  // namespace bulkhead
