#include "base/fatal_end.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <stdexcept>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "base/exit_code.h"

namespace bulkhead {
namespace {

// Runs `end` in a process with the fatal ends installed: expects exactly one line, starting with
// its name, and this exit code.
void ExpectEnd(const std::function<void()>& end, ExitCode code, const std::string& says) {
  EXPECT_EXIT(
      {
        const rlimit no_core = {};
        setrlimit(RLIMIT_CORE, &no_core);
        InstallFatalEnds();
        SetFatalName("rank 3 (host a, pid 7)");
        end();
        _exit(99);
      },
      testing::ExitedWithCode(static_cast<int>(code)),
      "^bulkhead: rank 3 \\(host a, pid 7\\): " + says + "[^\n]*\n$");
}

void LimitAddressSpace() {
  const rlimit limit = {size_t{1} << 30, size_t{1} << 30};
  setrlimit(RLIMIT_AS, &limit);
}

TEST(FatalEndTest, AnAllocationThatFailsNamesTermAndLimits) {
  ExpectEnd(
      [] {
        LimitAddressSpace();
        std::vector<std::vector<char>> all;
        while (true) all.emplace_back(16 << 20);
      },
      ExitCode::kRankLost,
      "out of host memory \\(category host\\): an allocation failed; resident [0-9]+ MiB, address "
      "space [0-9]+ MiB of 1024 MiB \\(ulimit -v\\)");
}

// As gRPC does.
TEST(FatalEndTest, ALibraryThatAbortsWhereMallocFailsIsOutOfMemoryToo) {
  ExpectEnd(
      [] {
        LimitAddressSpace();
        void* volatile last = nullptr;  // so that the compiler keeps the calls
        do last = malloc(1 << 20);
        while (last != nullptr);
        abort();
      },
      ExitCode::kRankLost, "out of host memory \\(category host\\): signal 6 \\(ABRT\\); ");
}

TEST(FatalEndTest, ALibraryThatUsesTheNullOfMallocIsOutOfMemoryToo) {
  ExpectEnd(
      [] {
        LimitAddressSpace();
        while (true) *static_cast<volatile char*>(malloc(1 << 20)) = 1;
      },
      ExitCode::kRankLost,
      "out of host memory \\(category host\\): signal 11 \\(SEGV\\) at address 0x0; ");
}

TEST(FatalEndTest, ACrashIsABugThatNamesItsAddress) {
  ExpectEnd([] { *reinterpret_cast<volatile char*>(0x1234) = 1; }, ExitCode::kBug,
            "crashed, a bug: signal 11 \\(SEGV\\) at address 0x1234; resident ");
}

TEST(FatalEndTest, AFileThatIsCutBelowItsMappingIsToldApart) {
  ExpectEnd(
      [] {
        FILE* const file = tmpfile();
        void* const at = mmap(nullptr, 4096, PROT_READ, MAP_SHARED, fileno(file), 0);
        static_cast<void>(*static_cast<volatile char*>(at));
      },
      ExitCode::kBug, "memory of a file or of /dev/shm is gone: signal 7 \\(BUS\\)");
}

TEST(FatalEndTest, AnExceptionThatNobodyCatchesIsTold) {
  ExpectEnd([] { std::thread([] { throw std::length_error("too long"); }).join(); }, ExitCode::kBug,
            "an exception, a bug: too long");
}

TEST(FatalEndTest, AThreadThatCannotBeStartedNamesTheLimits) {
  ExpectEnd(
      [] {
        const auto refused = std::make_error_code(std::errc::resource_unavailable_try_again);
        std::thread([&] { throw std::system_error(refused); }).join();
      },
      ExitCode::kGroupNotUp, "cannot start a thread: .*; raise ulimit -u, ");
}

TEST(FatalEndTest, MutexesLockedInBothOrdersAreNoEnd) {
  EXPECT_EXIT(
      {
        absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kAbort);
        InstallFatalEnds();
        absl::Mutex first;
        absl::Mutex second;
        for (const auto& [outer, inner] : {std::pair(&first, &second), {&second, &first}}) {
          absl::MutexLock lock(outer);
          absl::MutexLock further(inner);
        }
        _exit(0);
      },
      testing::ExitedWithCode(0), "^$");
}

TEST(FatalEndTest, ASignalOfSomebodyElseKillsAsEver) {
  EXPECT_EXIT(
      {
        InstallFatalEnds();
        const pid_t target = getpid();
        if (fork() == 0) {
          kill(target, SIGSEGV);
          _exit(0);
        }
        while (true) pause();
      },
      testing::KilledBySignal(SIGSEGV), "^$");
}

}  // namespace
}  // namespace bulkhead
