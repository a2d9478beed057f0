#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <memory>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/exit_code.h"
#include "base/lost_rank.h"
#include "comm/shm/region.h"
#include "comm/shm/shm_liveness.h"
#include "comm/tree/multi_host_group.h"

namespace bulkhead {
namespace {

using testing::HasSubstr;

constexpr absl::Duration kSilence = absl::Seconds(3);

std::atomic<int64_t> g_now_ns = 0;
int64_t FakeNow() { return g_now_ns.load(); }
void Pass(absl::Duration time) { g_now_ns += absl::ToInt64Nanoseconds(time); }

// A process that sleeps until it is killed.
class Child {
 public:
  Child() : pid_(fork()) {
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      while (true) pause();
    }
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  pid_t pid() const { return pid_; }
  void Kill() const { kill(pid_, SIGKILL); }

 private:
  pid_t pid_;
};

// Three ranks; the test acts as rank 0 with `liveness` and as the others directly.
class LivenessTest : public testing::Test {
 protected:
  LivenessTest() {
    auto memory = NewThreadSharedMemory(Region::Bytes(3));
    for (int rank = 0; rank < 3; ++rank) {
      regions_[rank] = std::make_shared<Region>(*memory, rank, 3);
      regions_[rank]->liveness(rank).pid = 100 + rank;
    }
    topology_.size = topology_.local_size = 3;
    topology_.hosts = {"a", "b", "c"};
    liveness_ = std::make_unique<ShmLiveness>(regions_[0], topology_, &FakeNow);
  }
  void BeatOthers() {
    for (int rank = 1; rank < 3; ++rank) ++regions_[rank]->liveness(rank).beats;
  }
  // Waits for fd() to become readable, which the kernel does when the process is gone.
  bool Notices() {
    pollfd watched = {liveness_->fd(), POLLIN, 0};
    return poll(&watched, 1, 30'000) == 1;
  }
  bool Readable() {
    pollfd watched = {liveness_->fd(), POLLIN, 0};
    return poll(&watched, 1, 0) == 1;
  }

  std::shared_ptr<Region> regions_[3];
  RankTopology topology_;
  std::unique_ptr<ShmLiveness> liveness_;
};

TEST_F(LivenessTest, ARankIsLostAfterItsSilence) {
  BeatOthers();
  EXPECT_TRUE(liveness_->Check(kSilence).ok());
  Pass(absl::Seconds(2.9));
  ++regions_[1]->liveness(1).beats;
  EXPECT_TRUE(liveness_->Check(kSilence).ok());
  Pass(absl::Seconds(0.2));
  const absl::Status lost = liveness_->Check(kSilence);
  EXPECT_EQ(lost.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(lost.message(), "rank 2 (host c, pid 102) was silent for 3.1 s");
  EXPECT_EQ(ExitCodeOf(lost), ExitCode::kRankLost);
  EXPECT_EQ(LostRankOf(lost), (LostRank{2, "c"}));
  BeatOthers();
  EXPECT_EQ(liveness_->Check(kSilence), lost);  // never ok again
}

TEST_F(LivenessTest, ARankThatHasNotStartedToBeatIsNotJudged) {
  EXPECT_TRUE(liveness_->Check(kSilence).ok());
  Pass(absl::Seconds(100));
  EXPECT_TRUE(liveness_->Check(kSilence).ok());
}

TEST_F(LivenessTest, RearmForgetsTheSilenceSoFar) {
  BeatOthers();
  EXPECT_TRUE(liveness_->Check(kSilence).ok());
  Pass(absl::Seconds(10));
  liveness_->Rearm();
  EXPECT_TRUE(liveness_->Check(kSilence).ok());
  Pass(absl::Seconds(3.1));
  EXPECT_FALSE(liveness_->Check(kSilence).ok());
}

TEST_F(LivenessTest, WhatOneRankFoundAllRanksReport) {
  const absl::Status why =
      WithExitCode(absl::UnavailableError("rank 2 ended"), ExitCode::kRankLost);
  regions_[1]->Abort(why);
  EXPECT_EQ(liveness_->Check(kSilence), why);
}

TEST_F(LivenessTest, AKilledProcessIsNoticedByItsDescriptorAndNamed) {
  const Child one;
  const Child two;
  regions_[0]->liveness(1).pid = one.pid();
  regions_[0]->liveness(2).pid = two.pid();
  ASSERT_TRUE(liveness_->WatchProcesses(0).ok());
  EXPECT_FALSE(Readable());
  EXPECT_TRUE(liveness_->Check(kSilence).ok());
  two.Kill();
  ASSERT_TRUE(Notices());
  const absl::Status lost = liveness_->Check(kSilence);
  EXPECT_EQ(lost.message(), absl::StrCat("rank 2 (host c, pid ", two.pid(), ") ended"));
  EXPECT_EQ(LostRankOf(lost), (LostRank{2, "c"}));
}

TEST_F(LivenessTest, ARankThatLeavesInGoodOrderIsNoLossAndDoesNotKeepTheDescriptorReadable) {
  const Child one;
  const Child two;
  regions_[0]->liveness(1).pid = one.pid();
  regions_[0]->liveness(2).pid = two.pid();
  ASSERT_TRUE(liveness_->WatchProcesses(0).ok());
  BeatOthers();
  regions_[1]->liveness(1).ending = 1;
  one.Kill();
  ASSERT_TRUE(Notices());
  EXPECT_TRUE(liveness_->Check(kSilence).ok());
  EXPECT_FALSE(Readable());
  // After its own Ending neither an end nor silence of another rank is a loss.
  liveness_->Ending();
  two.Kill();
  ASSERT_TRUE(Notices());
  Pass(absl::Seconds(100));
  EXPECT_TRUE(liveness_->Check(kSilence).ok());
  EXPECT_FALSE(Readable());
}

TEST_F(LivenessTest, OtherRanksSeeTheEndOfRank0EvenIfItIsNoLoss) {
  const Child first;
  const Child other;
  regions_[0]->liveness(0).pid = first.pid();
  regions_[0]->liveness(2).pid = other.pid();
  ShmLiveness second(regions_[1], topology_, &FakeNow);
  ASSERT_TRUE(second.WatchProcesses(0).ok());
  EXPECT_FALSE(liveness_->CoordinatorEnded());
  EXPECT_FALSE(second.CoordinatorEnded());
  second.Ending();
  first.Kill();
  pollfd watched = {second.fd(), POLLIN, 0};
  ASSERT_EQ(poll(&watched, 1, 30'000), 1);
  EXPECT_TRUE(second.CoordinatorEnded());
  EXPECT_TRUE(second.Check(kSilence).ok());
  EXPECT_TRUE(second.CoordinatorEnded());
}

TEST_F(LivenessTest, TheLaunchersEndIsALoss) {
  const Child launcher;
  regions_[0]->liveness(1).pid = getpid();
  regions_[0]->liveness(2).pid = getpid();
  ASSERT_TRUE(liveness_->WatchProcesses(launcher.pid()).ok());
  launcher.Kill();
  ASSERT_TRUE(Notices());
  EXPECT_EQ(liveness_->Check(kSilence).message(),
            absl::StrCat("the launcher (pid ", launcher.pid(), ") ended"));
}

TEST_F(LivenessTest, AProcessThatIsGoneAlreadyCannotBeWatched) {
  regions_[0]->liveness(1).pid = getpid();
  regions_[0]->liveness(2).pid = 999'999'999;
  EXPECT_EQ(liveness_->WatchProcesses(0).code(), absl::StatusCode::kUnavailable);
}

TEST_F(LivenessTest, StragglersAreTheRanksThatOthersWaitFor) {
  EXPECT_EQ(liveness_->FindStragglers().names, "");
  const uint32_t wrapped = 3;  // the counts of ranks 0 and 2 wrapped around
  Raise(regions_[0]->sums(0), wrapped);
  Raise(regions_[1]->sums(1), 0xFFFFFFFE);
  Raise(regions_[2]->sums(2), wrapped);
  EXPECT_EQ(liveness_->FindStragglers().names, "rank 1 (host b, pid 101)");
}

TEST_F(LivenessTest, BetweenPhasesOfTheStartStragglersAreTheRanksThatTheExchangeWaitsFor) {
  Raise(regions_[0]->exchange(0), 4);
  Raise(regions_[1]->exchange(1), 4);
  Raise(regions_[2]->exchange(2), 3);
  EXPECT_EQ(liveness_->FindStragglers().names, "rank 2 (host c, pid 102)");
  EXPECT_EQ(liveness_->FindStragglers().lost, (LostRank{2, "c"}));
  Raise(regions_[0]->sums(0), 1);  // in the warm-up
  Raise(regions_[2]->sums(2), 1);
  EXPECT_EQ(liveness_->FindStragglers().names, "rank 1 (host b, pid 101)");
}

TEST_F(LivenessTest, AHostWaitsForAnotherOneOnlyWhileItsLeaderLooks) {
  RankTopology world;
  world.size = 5;
  world.local_size = 3;
  world.hosts = {"a", "a", "a", "z", "z"};
  world.nodes = {0, 0, 0, 1, 1};
  MultiHostLiveness host(*liveness_, world, *regions_[0], nullptr);
  EXPECT_EQ(host.FindStragglers().names, "");
  EXPECT_TRUE(host.FindStragglers().elsewhere);  // all ranks of this host may hang
  Raise(regions_[0]->sums(0), 1);                // as if the others hung in a step
  EXPECT_THAT(host.FindStragglers().names, HasSubstr("rank 1 "));
  EXPECT_FALSE(host.FindStragglers().elsewhere);
  regions_[0]->set_awaited_node(1, MonotonicNanos());
  EXPECT_EQ(host.FindStragglers().names, "ranks 3, 4 (host z)");
  EXPECT_EQ(host.FindStragglers().lost, LostRank{});
  EXPECT_TRUE(host.FindStragglers().elsewhere);
  regions_[0]->set_awaited_node(1, MonotonicNanos() - absl::ToInt64Nanoseconds(absl::Minutes(1)));
  EXPECT_EQ(host.FindStragglers().names, "rank 0 (host a, pid 100)");
  EXPECT_FALSE(host.FindStragglers().elsewhere);
}

}  // namespace
}  // namespace bulkhead
