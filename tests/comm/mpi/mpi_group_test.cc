// Real ranks under a real mpirun.
#include "comm/mpi/mpi_group.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace bulkhead {
namespace {

using testing::ContainsRegex;
using testing::HasSubstr;
using testing::SizeIs;

// The limit is 3 s; a slow machine notices later.
constexpr char kSilence[] = "was silent for ([3-9]|[1-9][0-9]+)[.]";
constexpr int kQuietMillis = 60'000;  // longer than any of these programs is silent

// A command and its output, standard output and error combined.
class Process {
 public:
  Process(const std::vector<std::string>& command,
          const std::vector<std::pair<std::string, std::string>>& environment) {
    int pipe_fds[2];
    EXPECT_EQ(pipe(pipe_fds), 0);
    pid_ = fork();
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      dup2(pipe_fds[1], STDOUT_FILENO);
      dup2(pipe_fds[1], STDERR_FILENO);
      close(pipe_fds[0]);
      close(pipe_fds[1]);
      for (const auto& [name, value] : environment) setenv(name.c_str(), value.c_str(), 1);
      std::vector<char*> argv;
      for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
      argv.push_back(nullptr);
      execvp(argv[0], argv.data());
      _exit(127);
    }
    close(pipe_fds[1]);
    output_fd_ = pipe_fds[0];
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;
  ~Process() {
    close(output_fd_);
    if (!waited_) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
  }
  pid_t pid() const { return pid_; }

  // Reads until there are `count` lines that start with `word`, or the output ends.
  std::vector<std::string> Lines(const std::string& word, size_t count) {
    while (true) {
      std::vector<std::string> found;
      for (const absl::string_view line : absl::StrSplit(output_, '\n')) {
        if (absl::StartsWith(line, word + " ")) found.emplace_back(line.substr(word.size() + 1));
      }
      char buffer[4096];
      if (found.size() >= count) return found;
      pollfd readable = {output_fd_, POLLIN, 0};
      if (poll(&readable, 1, kQuietMillis) != 1) {
        ADD_FAILURE() << "nothing was printed for " << kQuietMillis << " ms after:\n" << output_;
        kill(pid_, SIGKILL);
        return found;
      }
      const ssize_t n = read(output_fd_, buffer, sizeof(buffer));
      if (n <= 0) return found;
      output_.append(buffer, n);
    }
  }
  // Reads the rest of the output and returns the exit code; 128 + n for signal n.
  int Wait() {
    Lines("", SIZE_MAX);
    int status = 0;
    waitpid(pid_, &status, 0);
    waited_ = true;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  const std::string& output() const { return output_; }

 private:
  pid_t pid_;
  int output_fd_;
  bool waited_ = false;
  std::string output_;
};

using Environment = std::vector<std::pair<std::string, std::string>>;

Process Mpirun(int ranks, const std::string& mode) {
  return Process({"mpirun", "--oversubscribe", "--bind-to", "none", "-n", std::to_string(ranks),
                  BH_RANKS_PROGRAM, mode},
                 {{"OMPI_ALLOW_RUN_AS_ROOT", "1"}, {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"}});
}

// Rank r runs as if on host hosts[r]. One program: Open MPI 5.0's mpirun crashes where there are
// several, with ":" between them.
Process MpirunOnHosts(const std::vector<std::string>& hosts, const std::string& mode) {
  const std::string script =
      absl::StrCat("hosts=(", absl::StrJoin(hosts, " "),
                   "); BULKHEAD_NODE_NAME=${hosts[OMPI_COMM_WORLD_RANK]} exec \"$0\" \"$1\"");
  return Process({"mpirun", "--oversubscribe", "--bind-to", "none", "-n",
                  std::to_string(hosts.size()), "bash", "-c", script, BH_RANKS_PROGRAM, mode},
                 {{"OMPI_ALLOW_RUN_AS_ROOT", "1"}, {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"}});
}

Process Alone(const Environment& environment) {
  return Process({BH_RANKS_PROGRAM, "sums"}, environment);
}

int64_t FirstNumber(const std::string& line) {
  int64_t value = 0;
  const std::pair<std::string, std::string> parts = absl::StrSplit(line, absl::MaxSplits(' ', 1));
  EXPECT_TRUE(absl::SimpleAtoi(parts.first, &value)) << line;
  return value;
}

// Whether `count` ranks take less than `limit` CPU seconds together in two idle seconds. In one of
// a few runs, as the kernel may charge them what others did.
bool IdleBelow(double limit, Process (*start)(), int count) {
  double least = std::numeric_limits<double>::infinity();
  for (int run = 0; run < 5 && least >= limit; ++run) {
    Process ranks = start();
    double sum = 0;
    for (const std::string& line : ranks.Lines("CPU", count)) {
      double seconds = 0;
      EXPECT_TRUE(absl::SimpleAtod(line, &seconds)) << line;
      sum += seconds;
    }
    EXPECT_EQ(ranks.Wait(), 0) << ranks.output();
    least = std::min(least, sum);
  }
  return least < limit;
}

class MpiGroup : public testing::TestWithParam<int> {};

TEST_P(MpiGroup, SumsGathersAndMessagesAreRightAndTheEndIsClean) {
  Process ranks = Mpirun(GetParam(), "sums");
  EXPECT_THAT(ranks.Lines("OK", GetParam()), SizeIs(GetParam())) << ranks.output();
  EXPECT_EQ(ranks.Wait(), 0) << ranks.output();
}

INSTANTIATE_TEST_SUITE_P(Ranks, MpiGroup, testing::Values(1, 2, 3, 4));

TEST(MpiNodes, SumsGathersAndMessagesAreRightWhereverTheRanksAre) {
  const std::vector<std::string> layouts[] = {
      {"a", "b"}, {"a", "a", "b", "b"}, {"a", "b", "a", "b"}, {"a", "a", "b"}, {"a", "b", "c"}};
  for (const std::vector<std::string>& hosts : layouts) {
    Process ranks = MpirunOnHosts(hosts, "sums");
    EXPECT_THAT(ranks.Lines("OK", hosts.size()), SizeIs(hosts.size())) << ranks.output();
    EXPECT_EQ(ranks.Wait(), 0) << ranks.output();
  }
}

TEST(MpiNodes, WaitingBetweenHostsCostsLittle) {
  EXPECT_TRUE(IdleBelow(
      0.5,
      [] {
        return MpirunOnHosts({"a", "b", "b"}, "idle");
      },
      3));
}

TEST(MpiNodes, ARefusalOnOneHostIsEverybodys) {
  Process ranks = MpirunOnHosts({"a", "b"}, "refuse");
  const std::vector<std::string> ended = ranks.Lines("ENDED", 2);
  ASSERT_THAT(ended, SizeIs(2)) << ranks.output();
  for (const std::string& line : ended) EXPECT_EQ(line, "rank 1 (host b): the file is cut");
  EXPECT_EQ(ranks.Wait(), 3) << ranks.output();
}

// MPI still holds the buffers of abandoned messages: it must not be called again.
TEST(MpiNodes, AHostThatWasGivenUpIsNotAskedAgain) {
  Process ranks = MpirunOnHosts({"a", "b"}, "twice");
  const std::vector<std::string> again = ranks.Lines("AGAIN", 1);
  ASSERT_THAT(again, SizeIs(1)) << ranks.output();
  EXPECT_THAT(again[0], HasSubstr("the ranks of host b did not arrive in time"));
  EXPECT_LT(FirstNumber(again[0]), 30'000'000'000);  // instead of the minute it could have taken
  EXPECT_EQ(ranks.Wait(), 5) << ranks.output();
}

// On the lost rank's host its neighbour detects it at once, the other host is notified.
TEST(MpiNodes, AKilledRankIsNamedOnEveryHost) {
  Process ranks = MpirunOnHosts({"a", "b", "b"}, "kill");
  const std::vector<std::string> lost = ranks.Lines("LOST", 2);
  ASSERT_THAT(lost, SizeIs(2)) << ranks.output();
  for (const std::string& line : lost) {
    EXPECT_THAT(line, HasSubstr("rank 1 (host b"));
    EXPECT_THAT(line, HasSubstr(" ended"));
  }
  EXPECT_EQ(ranks.Wait(), 137) << ranks.output();
}

TEST(MpiNodes, AStoppedHostIsNamedByItsSilence) {
  Process ranks = MpirunOnHosts({"a", "b"}, "stop");
  const std::vector<std::string> lost = ranks.Lines("LOST", 1);
  ASSERT_THAT(lost, SizeIs(1)) << ranks.output();
  EXPECT_THAT(lost[0], HasSubstr("rank 1 (host b"));
  EXPECT_THAT(lost[0], ContainsRegex(kSilence));
  EXPECT_EQ(ranks.Wait(), 6) << ranks.output();
}

TEST(MpiGroupFault, AKilledRankIsNamedByAllOthersWithinTwoSeconds) {
  constexpr int64_t kLimitNs = 2'000'000'000;
  // A loaded machine may hold up any one run.
  int64_t took_ns = kLimitNs;
  for (int run = 0; run < 5 && took_ns >= kLimitNs; ++run) {
    Process ranks = Mpirun(3, "kill");
    const std::vector<std::string> fault = ranks.Lines("FAULT", 1);
    const std::vector<std::string> lost = ranks.Lines("LOST", 2);
    ASSERT_THAT(fault, SizeIs(1)) << ranks.output();
    ASSERT_THAT(lost, SizeIs(2)) << ranks.output();
    took_ns = 0;
    for (const std::string& line : lost) {
      EXPECT_THAT(line, HasSubstr("rank 1 (host "));
      EXPECT_THAT(line, HasSubstr(" ended"));
      took_ns = std::max(took_ns, FirstNumber(line) - FirstNumber(fault[0]));
    }
    EXPECT_EQ(ranks.Wait(), 137) << ranks.output();
  }
  EXPECT_LT(took_ns, kLimitNs);
}

TEST(MpiGroupFault, AStoppedRankIsNamedByItsSilence) {
  Process ranks = Mpirun(2, "stop");
  const std::vector<std::string> lost = ranks.Lines("LOST", 1);
  ASSERT_THAT(lost, SizeIs(1)) << ranks.output();
  EXPECT_THAT(lost[0], HasSubstr("rank 1 (host "));
  EXPECT_THAT(lost[0], ContainsRegex(kSilence));
  EXPECT_EQ(ranks.Wait(), 6) << ranks.output();
}

TEST(MpiGroupFault, RanksDoNotOutliveTheirLauncher) {
  Process ranks = Mpirun(2, "run");
  const std::vector<std::string> pids = ranks.Lines("PID", 2);
  ASSERT_THAT(pids, SizeIs(2)) << ranks.output();
  std::vector<pollfd> watched;
  for (const std::string& pid : pids) {
    const long fd = syscall(SYS_pidfd_open, static_cast<pid_t>(FirstNumber(pid)), 0);
    watched.push_back({static_cast<int>(fd), POLLIN, 0});
  }
  kill(ranks.pid(), SIGKILL);
  for (pollfd& rank : watched) {
    ASSERT_GE(rank.fd, 0);
    EXPECT_EQ(poll(&rank, 1, 30'000), 1) << "a rank is still there";
    close(rank.fd);
  }
}

TEST(MpiGroupFault, ARefusalThatAllAgreedOnLeavesInGoodOrderWithItsCode) {
  Process ranks = Mpirun(3, "refuse");
  const std::vector<std::string> ended = ranks.Lines("ENDED", 3);
  ASSERT_THAT(ended, SizeIs(3)) << ranks.output();
  for (const std::string& line : ended) {
    EXPECT_THAT(line, HasSubstr("rank 1 (host "));
    EXPECT_THAT(line, HasSubstr("the file is cut"));
  }
  EXPECT_EQ(ranks.Wait(), 3) << ranks.output();
}

TEST(MpiGroupFault, ARankThatIsMissingFromAPhaseIsNamedAndEndsTheGroup) {
  Process ranks = Mpirun(2, "missing");
  const std::vector<std::string> ended = ranks.Lines("ENDED", 1);
  ASSERT_THAT(ended, SizeIs(1)) << ranks.output();
  EXPECT_THAT(ended[0], HasSubstr("load: rank 1 (host "));
  EXPECT_EQ(ranks.Wait(), 5) << ranks.output();
}

TEST(MpiGroupIdle, FourIdleRanksUseUnderAFewPercentOfACore) {
  EXPECT_TRUE(IdleBelow(
      0.1, [] { return Mpirun(4, "idle"); }, 4));
}

TEST(SingletonTrap, AloneIsAGroupOfOneWithoutMpi) {
  Process rank = Alone({});
  EXPECT_EQ(rank.Wait(), 0) << rank.output();
  EXPECT_THAT(rank.output(), HasSubstr("OK rank 0 of 1"));
}

TEST(SingletonTrap, RanksThatCannotMeetAreRefusedWithTheRightCommand) {
  const Environment traps[] = {
      {{"SLURM_STEP_ID", "0"}, {"SLURM_PROCID", "1"}, {"SLURM_STEP_NUM_TASKS", "2"}},
      {{"OMPI_COMM_WORLD_SIZE", "2"}},
      {{"PMI_SIZE", "2"}, {"PMI_RANK", "0"}},
  };
  for (const Environment& trap : traps) {
    Process rank = Alone(trap);
    EXPECT_EQ(rank.Wait(), 5) << rank.output();
    EXPECT_THAT(rank.output(), HasSubstr("mpirun -n 2"));
  }
}

}  // namespace
}  // namespace bulkhead
