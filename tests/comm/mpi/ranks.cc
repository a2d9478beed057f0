// A small program of ranks, for tests under a real launcher: ranks MODE. Every output line starts
// with a word that the tests look for. Its exit code is the group's.
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/exit_code.h"
#include "base/status.h"
#include "comm/launch_environment.h"
#include "comm/local/local_group.h"
#include "comm/mpi/mpi_group.h"
#include "comm/wait.h"
#include "runtime/engine/watchdog.h"
#include "tests/comm/terms.h"

namespace bulkhead {
namespace {

constexpr absl::Duration kTimeout = absl::Seconds(60);
constexpr int kVictim = 1;

// One line in one write, so that lines of several ranks do not interleave.
void Say(const std::string& line) {
  const std::string text = line + "\n";
  BH_CHECK(write(STDOUT_FILENO, text.data(), text.size()) >= 0);
}

struct Rank {
  Group& group;
  Communicator& comm;
};

absl::Status Sums(Rank& rank) {
  const int size = rank.comm.size();
  const int64_t lengths[] = {1, 7, 256, 257, 1000, 16385, 262144};
  std::string message;
  for (int round = 0; round < 60; ++round) {
    const int64_t elements = lengths[round % 6];
    const std::vector<float> partial = MakePartialSum(round, rank.comm.rank(), elements);
    std::copy(partial.begin(), partial.end(), rank.comm.PartialSum(1, elements).F32());
    BH_ASSIGN_OR_RETURN(const ConstMatrixView sum, rank.comm.AllReduceSum());
    BH_CHECK(SameBits(sum.F32(), ExpectedSum(round, size, elements)));

    const std::vector<int64_t> cols(size, 2);
    const float own[2] = {static_cast<float>(rank.comm.rank()), static_cast<float>(round)};
    std::vector<float> all(2 * size);
    const bool first = rank.comm.rank() == 0;
    BH_RETURN_IF_ERROR(rank.comm.GatherCols(
        ConstMatrixView(reinterpret_cast<const std::byte*>(own), DType::kF32, 1, 2), cols,
        first ? MatrixView(reinterpret_cast<std::byte*>(all.data()), DType::kF32, 1, 2 * size)
              : MatrixView()));
    for (int r = 0; first && r < size; ++r) BH_CHECK(all[2 * r] == r && all[2 * r + 1] == round);
    if (size > 1) BH_CHECK(GatherRowsOnce(rank.comm, round).empty());

    const std::string plan(round * 1000, static_cast<char>('a' + round % 26));
    if (first) {
      BH_RETURN_IF_ERROR(rank.group.bus().Publish(plan));
    } else {
      BH_RETURN_IF_ERROR(rank.group.bus().Receive(&message));
      BH_CHECK(message == plan);
    }
  }
  Say(absl::StrCat("OK rank ", rank.comm.rank(), " of ", size));
  return absl::OkStatus();
}

// Sums in a loop; the victim gets `signal` meanwhile.
absl::Status Fault(Rank& rank, int signal) {
  Say(absl::StrCat("PID ", getpid()));
  for (int round = 0;; ++round) {
    if (round == 500 && signal != 0 && rank.comm.rank() == kVictim) {
      Say(absl::StrCat("FAULT ", MonotonicNanos()));
      raise(signal);
    }
    std::fill_n(rank.comm.PartialSum(1, 100).F32(), 100, 1.0F);
    BH_RETURN_IF_ERROR(rank.comm.AllReduceSum().status());
  }
}

double CpuSeconds() {
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// Readers wait for a message that arrives after two seconds.
absl::Status Idle(Rank& rank) {
  const double begin = CpuSeconds();
  std::string message;
  if (rank.comm.rank() == 0) {
    sleep(2);
    BH_RETURN_IF_ERROR(rank.group.bus().Publish("go on"));
  } else {
    BH_RETURN_IF_ERROR(rank.group.bus().Receive(&message));
  }
  Say(absl::StrCat("CPU ", CpuSeconds() - begin));
  return absl::OkStatus();
}

absl::Status Refuse(Rank& rank) {
  const absl::Status mine =
      rank.comm.rank() == kVictim
          ? WithExitCode(absl::DataLossError("the file is cut"), ExitCode::kModelRefused)
          : absl::OkStatus();
  return Agree(rank.group.exchange(), "load", mine, kTimeout);
}

absl::Status Missing(Rank& rank) {
  if (rank.comm.rank() == kVictim) sleep(30);
  return Agree(rank.group.exchange(), "load", absl::OkStatus(), absl::Milliseconds(300));
}

// Times out waiting for the others, and tries once more.
absl::Status Twice(Rank& rank) {
  if (rank.comm.rank() == kVictim) sleep(3);
  GroupExchange& exchange = rank.group.exchange();
  const absl::Status first = exchange.AllGather("first", absl::ZeroDuration()).status();
  const int64_t begin = MonotonicNanos();
  const absl::Status second = exchange.AllGather("second", kTimeout).status();
  BH_CHECK(first == second);
  Say(absl::StrCat("AGAIN ", MonotonicNanos() - begin, " ", second.message()));
  return second;
}

// The median time of a sum, by size.
absl::Status Bench(Rank& rank) {
  for (const int64_t bytes : {64, 4096, 16384, 65536, 262144, 1048576}) {
    const int64_t elements = bytes / 4;
    std::vector<int64_t> times;
    for (int i = 0; i < (bytes > 65536 ? 1000 : 5000); ++i) {
      std::fill_n(rank.comm.PartialSum(1, elements).F32(), elements, 1.0F);
      const int64_t begin = MonotonicNanos();
      BH_RETURN_IF_ERROR(rank.comm.AllReduceSum().status());
      times.push_back(MonotonicNanos() - begin);
    }
    std::nth_element(times.begin(), times.begin() + times.size() / 2, times.end());
    if (rank.comm.rank() == 0) {
      Say(absl::StrCat("SUM ", bytes, " bytes: ", times[times.size() / 2], " ns"));
    }
  }
  return absl::OkStatus();
}

absl::Status Run(const std::string& mode, Rank& rank) {
  if (mode == "sums") return Sums(rank);
  if (mode == "kill") return Fault(rank, SIGKILL);
  if (mode == "stop") return Fault(rank, SIGSTOP);
  if (mode == "run") return Fault(rank, 0);
  if (mode == "idle") return Idle(rank);
  if (mode == "refuse") return Refuse(rank);
  if (mode == "missing") return Missing(rank);
  if (mode == "twice") return Twice(rank);
  if (mode == "bench") return Bench(rank);
  return WithExitCode(absl::InvalidArgumentError("unknown mode"), ExitCode::kUsage);
}

absl::Status RunMode(const std::string& mode, Group& group) {
  const CommLimits limits{.max_sum_elements = 262144, .max_gather_elements = 200};
  const std::unique_ptr<Device> device = NewHostDevice(0);
  MemoryLedger ledger(*device);
  ledger.Claim(MemoryCategory::kCommunication,
               CommunicationBytes(limits, group.exchange().topology().size));
  BH_ASSIGN_OR_RETURN(const std::unique_ptr<Communicator> comm, group.Connect(limits, ledger));
  ledger.Seal();
  // Where silence is no part of the test, a rank that the machine pauses is not lost.
  WatchdogLimits limits_of_mode;
  limits_of_mode.silence = mode == "stop" ? absl::Seconds(3) : absl::Minutes(1);
  Watchdog watchdog(group.liveness(), limits_of_mode, [&mode](const absl::Status& status) {
    Say(absl::StrCat("LOST ", MonotonicNanos(), " ", status.message()));
    // The launcher returns the first exit code it sees, which should be the killed rank's; then it
    // ends the others.
    usleep(mode == "kill" ? 10'000'000 : 200'000);
    _exit(static_cast<int>(ExitCodeOf(status)));
  });
  Rank rank{group, *comm};
  const absl::Status status = Run(mode, rank);
  if (!status.ok()) Say(absl::StrCat("ENDED ", status.message()));
  // The watchdog reports a lost rank, and ends this process.
  while (ExitCodeOf(status) == ExitCode::kRankLost) pause();
  return status;
}

absl::StatusOr<std::unique_ptr<Group>> Join() {
  if (!LaunchedAsGroup()) return NewSingleGroup();
  return NewMpiGroup(kTimeout);
}

int Main(const std::string& mode) {
  signal(SIGPIPE, SIG_IGN);
  const auto group = Join();
  if (!group.ok()) {
    Say(absl::StrCat("REFUSED ", group.status().message()));
    return static_cast<int>(ExitCodeOf(group.status()));
  }
  const absl::Status status = RunMode(mode, **group);
  (*group)->Leave(status);
  return static_cast<int>(ExitCodeOf(status));
}

}  // namespace
}  // namespace bulkhead

int main(int argc, char** argv) {
  bulkhead::SetMpiEnvironment(bulkhead::ReadLaunchEnvironment(&std::getenv));
  return bulkhead::Main(argc > 1 ? argv[1] : "sums");
}
