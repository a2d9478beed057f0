#include "comm/exchange.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "base/exit_code.h"
#include "base/lost_rank.h"
#include "comm/shm/shared_memory.h"
#include "tests/support/run_ranks.h"

namespace bulkhead {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr absl::Duration kLong = absl::Minutes(1);

std::string Message(int rank, int round) {
  const size_t lengths[] = {0, 5, 4096, 4097, 50'000};
  return std::string(lengths[(rank + round) % 5], static_cast<char>('a' + (rank * 5 + round) % 26));
}

TEST(GroupExchange, EveryRankGetsWhatEveryRankPutIn) {
  for (const int size : {1, 2, 7}) {
    RunRanks(size, [&](Group& group) {
      for (int round = 0; round < 50; ++round) {
        const auto all =
            group.exchange().AllGather(Message(group.exchange().topology().rank, round), kLong);
        ASSERT_TRUE(all.ok()) << all.status();
        ASSERT_EQ(static_cast<int>(all->size()), size);
        for (int rank = 0; rank < size; ++rank) ASSERT_EQ((*all)[rank], Message(rank, round));
      }
    });
  }
}

TEST(GroupExchange, NamesTheRanksThatDoNotCome) {
  absl::Notification rank_0_came;
  RunRanks(4, [&](Group& group) {
    const int rank = group.exchange().topology().rank;
    if (rank == 1 || rank == 3) return;
    if (rank == 2) rank_0_came.WaitForNotification();
    const auto all = group.exchange().AllGather("here", absl::Milliseconds(20));
    if (rank == 0) rank_0_came.Notify();
    EXPECT_EQ(all.status().code(), absl::StatusCode::kDeadlineExceeded);
    EXPECT_EQ(ExitCodeOf(all.status()), ExitCode::kGroupNotUp);
    EXPECT_THAT(std::string(all.status().message()), HasSubstr("rank 1 (host "));
    EXPECT_THAT(std::string(all.status().message()), HasSubstr("rank 3 (host "));
    EXPECT_THAT(std::string(all.status().message()), Not(HasSubstr("rank 0")));
  });
}

TEST(Agree, IsOkWhenAllAre) {
  RunRanks(3, [&](Group& group) {
    EXPECT_TRUE(Agree(group.exchange(), "load", absl::OkStatus(), kLong).ok());
  });
}

TEST(Agree, TellsEveryRankWhatTheLowestFailingRankSaid) {
  RunRanks(4, [&](Group& group) {
    const int rank = group.exchange().topology().rank;
    absl::Status mine;
    if (rank >= 2) {
      mine = WithExitCode(absl::DataLossError(absl::StrCat("file ", rank, " is cut: \n 12 of 34")),
                          ExitCode::kModelRefused);
    }
    const absl::Status agreed = Agree(group.exchange(), "load", mine, kLong);
    EXPECT_EQ(agreed.code(), absl::StatusCode::kDataLoss);
    EXPECT_EQ(ExitCodeOf(agreed), ExitCode::kModelRefused);
    EXPECT_TRUE(IsAgreed(agreed));
    EXPECT_EQ(agreed.message(), absl::StrCat("rank 2 (host ", group.exchange().topology().hosts[2],
                                             "): file 2 is cut: \n 12 of 34"));
    // The group still works.
    EXPECT_TRUE(Agree(group.exchange(), "leave", absl::OkStatus(), kLong).ok());
  });
}

TEST(Agree, AGroupOfOneNeedsNoName) {
  RunRanks(1, [&](Group& group) {
    const absl::Status mine = WithExitCode(absl::NotFoundError("no file"), ExitCode::kModelRefused);
    const absl::Status agreed = Agree(group.exchange(), "load", mine, kLong);
    EXPECT_EQ(agreed.message(), "no file");
    EXPECT_EQ(ExitCodeOf(agreed), ExitCode::kModelRefused);
  });
}

TEST(Agree, RanksInDifferentPhasesAreABug) {
  RunRanks(2, [&](Group& group) {
    const bool first = group.exchange().topology().rank == 0;
    const absl::Status agreed =
        Agree(group.exchange(), first ? "load" : "warm-up", absl::OkStatus(), kLong);
    EXPECT_EQ(agreed.code(), absl::StatusCode::kInternal);
    EXPECT_EQ(agreed.message(), "rank 1 ends phase 'warm-up' while rank 0 ends 'load'");
  });
}

TEST(Agree, ARankThatIsMissingIsNamedWithItsPhase) {
  absl::Notification rank_0_came;
  RunRanks(3, [&](Group& group) {
    const int rank = group.exchange().topology().rank;
    if (rank == 1) return;
    if (rank == 2) rank_0_came.WaitForNotification();
    const absl::Status agreed =
        Agree(group.exchange(), "load", absl::OkStatus(), absl::Milliseconds(20));
    if (rank == 0) rank_0_came.Notify();
    EXPECT_EQ(ExitCodeOf(agreed), ExitCode::kGroupNotUp);
    EXPECT_FALSE(IsAgreed(agreed));
    EXPECT_THAT(std::string(agreed.message()), HasSubstr("load: rank 1 (host "));
  });
}

TEST(Agree, AbortEndsItOnEveryRank) {
  RunRanks(3, [&](Group& group) {
    if (group.exchange().topology().rank == 1) {
      group.liveness().Abort(
          WithExitCode(absl::UnavailableError("rank 1 ended"), ExitCode::kRankLost));
      return;
    }
    const absl::Status agreed = Agree(group.exchange(), "load", absl::OkStatus(), kLong);
    EXPECT_EQ(agreed.code(), absl::StatusCode::kUnavailable);
    EXPECT_EQ(ExitCodeOf(agreed), ExitCode::kRankLost);
    EXPECT_EQ(agreed.message(), "load: rank 1 ended");
  });
}

TEST(Agree, ARankThatFailsAbortsWhereOthersMayWaitElsewhere) {
  RunRanks(2, [&](Group& group) {
    const bool fails = group.exchange().topology().rank == 1;
    const absl::Status mine = fails ? absl::InternalError("no sum") : absl::OkStatus();
    const absl::Status agreed = AgreeOrAbort(group, "warm-up", mine, kLong);
    EXPECT_EQ(agreed.code(), absl::StatusCode::kInternal);
    EXPECT_THAT(std::string(agreed.message()), HasSubstr("rank 1 (host "));
    EXPECT_FALSE(IsAgreed(agreed));
  });
}

// As where a signal ends the group, and with it what this rank was in.
TEST(Agree, ARankThatFailsInAGroupThatEndsDoesNotGoOn) {
  RunRanks(2, [&](Group& group) {
    if (group.exchange().topology().rank == 0) {
      EXPECT_FALSE(Agree(group.exchange(), "warm-up", absl::OkStatus(), kLong).ok());
      return;
    }
    group.liveness().Ending();
    group.liveness().Abort(absl::CancelledError("stopped by signal 15"));
    EXPECT_FALSE(AgreeOrAbort(group, "warm-up", absl::InternalError("no sum"), kLong).ok());
  });
}

TEST(SharedMemory, WhatOneRankWritesTheOthersRead) {
  for (const ShareMemory share : {&ShareBetweenThreads, &ShareBetweenProcesses}) {
    RunRanks(3, [&](Group& group) {
      const int rank = group.exchange().topology().rank;
      const auto memory = share(group.exchange(), 8192, kLong);
      ASSERT_TRUE(memory.ok()) << memory.status();
      for (int i = 0; i < 8192; ++i) {
        ASSERT_EQ((*memory).get()[i], std::byte{0});  // the probe's words are reset
      }
      ASSERT_TRUE(Agree(group.exchange(), "read", absl::OkStatus(), kLong).ok());
      (*memory).get()[rank * 1000] = static_cast<std::byte>(rank + 1);
      ASSERT_TRUE(Agree(group.exchange(), "written", absl::OkStatus(), kLong).ok());
      for (int other = 0; other < 3; ++other) {
        EXPECT_EQ((*memory).get()[other * 1000], static_cast<std::byte>(other + 1));
      }
    });
  }
}

// An exchange in which rank 0 names another process, as seen from another PID namespace.
class WrongProcess final : public GroupExchange {
 public:
  WrongProcess(GroupExchange& inner, std::string ticket) : inner_(inner), ticket_(ticket) {}
  const RankTopology& topology() const override { return inner_.topology(); }
  absl::StatusOr<std::vector<std::string>> AllGather(absl::string_view mine,
                                                     absl::Duration timeout) override {
    auto all = inner_.AllGather(mine, timeout);
    const bool is_ticket = all.ok() && all->size() > 1 && (*all)[1].empty();
    if (is_ticket) (*all)[0] = ticket_;
    return all;
  }

 private:
  GroupExchange& inner_;
  std::string ticket_;
};

TEST(SharedMemory, ProcessesThatDoNotSeeEachOtherAreToldSo) {
  for (const char* ticket : {"999999999 5 77", "1 0 77"}) {
    RunRanks(2, [&](Group& group) {
      WrongProcess exchange(group.exchange(), ticket);
      const auto memory = ShareBetweenProcesses(exchange, 8192, kLong);
      EXPECT_EQ(memory.status().code(), absl::StatusCode::kFailedPrecondition) << memory.status();
      EXPECT_EQ(ExitCodeOf(memory.status()), ExitCode::kGroupNotUp);
      EXPECT_THAT(std::string(memory.status().message()), HasSubstr("PID namespace"));
      EXPECT_TRUE(IsAgreed(memory.status()));
    });
  }
}

TEST(StatusCodecTest, EveryPayloadTravels) {
  absl::Status status =
      WithLostRank(WithExitCode(absl::UnavailableError("two\nlines, 3 4\n"), ExitCode::kRankLost),
                   {.rank = 3, .host = "b"});
  status.SetPayload("bulkhead/anything", absl::Cord(std::string("a b\n\0c", 6)));
  const absl::Status there = DecodeStatus(EncodeStatus(status));
  EXPECT_EQ(there, status) << there;
  EXPECT_EQ(ExitCodeOf(there), ExitCode::kRankLost);
  EXPECT_EQ(LostRankOf(there), (LostRank{3, "b"}));
  EXPECT_TRUE(DecodeStatus(EncodeStatus(absl::OkStatus())).ok());
}

TEST(StatusCodecTest, WhatIsCutShortLosesWordsAlone) {
  const absl::Status status =
      WithExitCode(absl::UnavailableError(std::string(5000, 'x')), ExitCode::kRankLost);
  const absl::Status there = DecodeStatus(EncodeStatus(status).substr(0, 2000));
  EXPECT_EQ(ExitCodeOf(there), ExitCode::kRankLost);
  EXPECT_EQ(there.code(), status.code());
}

// A rank that shuts down in order waits for all the others to do so.
TEST(StatusCodecTest, AnAgreementDoesNotTravel) {
  EXPECT_FALSE(IsAgreed(DecodeStatus(EncodeStatus(MarkAgreed(absl::AbortedError("x"))))));
}

TEST(StatusCodecTest, WhatIsNoStatusIsRefused) {
  for (const char* text : {"", "14", "14 1", "14 1\nurl", "14 -1\nx", "14 9999999\nx", "x 0\ny"}) {
    EXPECT_EQ(DecodeStatus(text).code(), absl::StatusCode::kInternal) << text;
  }
}

}  // namespace
}  // namespace bulkhead
