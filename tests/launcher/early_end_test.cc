// Commands that end early, as seen by a shell: interrupted, without a reader, refused before a
// model is loaded.
#include <poll.h>
#include <sys/socket.h>

#include <csignal>
#include <filesystem>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "tests/launcher/program.h"

namespace bulkhead {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;
using EarlyEndTest = ProgramTest;

constexpr char kModel[] = BH_TEST_DATA "/models/llama3_gqa_bf16";

TEST_F(EarlyEndTest, AnInterruptedFileSaysHowMuchOfItIsDone) {
  std::string lines;
  for (int i = 0; i < 50000; ++i) lines += "{\"prompt_token_ids\": [1, 2, 3]}\n";
  const std::string file = Write("lines", lines);
  for (const auto& [command, flag, what] :
       {std::tuple("score", "--texts", "texts"), {"run", "--prompts", "prompts"}}) {
    std::filesystem::remove(dir_ + "/out");
    const pid_t pid = Start({command, "--model", kModel, flag, file, "--max-model-len", "8",
                             "--device-memory", "4GiB"});
    while (Read("out").empty() && waitpid(pid, nullptr, WNOHANG) == 0) std::this_thread::yield();
    ASSERT_EQ(kill(pid, SIGINT), 0);
    const Ended ended = Wait(pid);
    EXPECT_EQ(ended.exit_code, 128 + SIGINT) << ended.err;
    EXPECT_THAT(ended.err, ContainsRegex(absl::StrCat("[1-9][0-9]* of 50000 ", what, " in ")));
  }
}

TEST_F(EarlyEndTest, AnInterruptedRunCountsTheTokensOfAnswersThatItCutsOff) {
  const std::string file =
      Write("lines",
            "{\"prompt_token_ids\": [1], \"max_tokens\": 1}\n"
            "{\"prompt_token_ids\": [1], \"max_tokens\": 2000, \"ignore_eos\": true}\n");
  const pid_t pid = Start({"run", "--model", BH_SOURCE_DIR "/examples/models/sample", "--prompts",
                           file, "--out", dir_ + "/results", "--device-memory", "4GiB"});
  while (Read("results").empty() && waitpid(pid, nullptr, WNOHANG) == 0) std::this_thread::yield();
  absl::SleepFor(absl::Milliseconds(50));
  ASSERT_EQ(kill(pid, SIGINT), 0);
  const Ended ended = Wait(pid);
  EXPECT_EQ(ended.exit_code, 128 + SIGINT) << ended.err;
  EXPECT_THAT(ended.err,
              ContainsRegex("1 of 2 prompts in .* and ([2-9]|[1-9][0-9,]+) generated tokens"));
}

TEST_F(EarlyEndTest, AnInterruptedFileEndsAlsoWhereTheReaderStalls) {
  std::string lines;
  for (int i = 0; i < 50000; ++i) lines += "{\"prompt_token_ids\": [1, 2, 3]}\n";
  const std::string file = Write("lines", lines);
  for (const int signal : {SIGINT, SIGTERM}) {
    int ends[2];
    ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
    pipe_ = ends[1];
    const pid_t pid = Start({"score", "--model", kModel, "--texts", file, "--max-model-len", "8",
                             "--device-memory", "4GiB"});
    pollfd full{ends[1], POLLOUT, 0};
    while (poll(&full, 1, 0) == 1 && waitpid(pid, nullptr, WNOHANG) == 0) std::this_thread::yield();
    ASSERT_EQ(kill(pid, signal), 0);
    siginfo_t ended = {};
    for (const absl::Time until = absl::Now() + absl::Seconds(20);
         ended.si_pid == 0 && absl::Now() < until; absl::SleepFor(absl::Milliseconds(10))) {
      ASSERT_EQ(waitid(P_PID, pid, &ended, WEXITED | WNOHANG | WNOWAIT), 0);
    }
    kill(pid, SIGKILL);  // one that hangs
    EXPECT_EQ(Wait(pid).exit_code, 128 + signal);
    close(ends[0]);
    close(ends[1]);
  }
}

TEST_F(EarlyEndTest, OutputWithoutAReaderEndsWith141AndNoMessage) {
  const std::string prompts = Write("p", "{\"prompt_token_ids\": [1], \"max_tokens\": 2}\n");
  for (const std::vector<std::string>& args :
       {std::vector<std::string>{"--help"},
        {"bench", "definitions"},
        {"plan", "--model", kModel},
        {"run", "--model", kModel, "--prompts", prompts},
        {"bench", "throughput", "--model", kModel, "--batch-size=1", "--input-len=4",
         "--output-len=2", "--repeats=1"}}) {
    for (const auto& [is_socket, ignored] :
         {std::pair(false, false), {false, true}, {true, true}}) {
      int ends[2];
      ASSERT_EQ(is_socket ? socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends)
                          : pipe2(ends, O_CLOEXEC),
                0);
      close(ends[0]);
      pipe_ = ends[1];
      const auto before = std::signal(SIGPIPE, ignored ? SIG_IGN : SIG_DFL);
      const pid_t pid = Start(args);
      std::signal(SIGPIPE, before);
      close(ends[1]);
      const Ended ended = Wait(pid);
      EXPECT_EQ(ended.exit_code, 128 + SIGPIPE) << args[0] << ended.err;
      EXPECT_THAT(ended.err, Not(HasSubstr("bulkhead: ")));
    }
  }
}

TEST_F(EarlyEndTest, AFileWithoutAPromptInOrderIsRefusedBeforeTheModelIsLoaded) {
  for (const auto& [command, flag] : {std::pair("run", "--prompts"), {"score", "--texts"}}) {
    const Ended ended = Run({command, "--model", kModel, flag, Write("p", "{\n}\n")});
    ExpectFailure(ended, 2, absl::StrCat(flag, ": line 1: the line is not"));
    EXPECT_THAT(ended.err, Not(HasSubstr("KV cache")));
  }
}

TEST_F(EarlyEndTest, ANumaNodeThatThisHostDoesNotHaveIsRefusedByThePlanToo) {
  ExpectFailure(Run({"plan", "--model", kModel, "--numa", "999"}), 2,
                "--numa: 999 is not a NUMA node with memory for this process");
  // For whatever machine.
  EXPECT_EQ(Run({"plan", "--model", kModel, "--numa", "999", "--device-memory", "1GiB"}).exit_code,
            0);
}

// srun ends with the largest exit code of its tasks.
TEST_F(EarlyEndTest, ARankThatItsLauncherEndsAtTheFirstOnesErrorHasThatErrorsCode) {
  sigset_t end, before;
  sigemptyset(&end);
  sigaddset(&end, SIGTERM);
  ASSERT_EQ(sigprocmask(SIG_BLOCK, &end, &before), 0);  // comes when the rank is ready for it
  setenv("OMPI_COMM_WORLD_RANK", "1", 1);
  const pid_t pid = Start({"serve", "--nonsense"});
  unsetenv("OMPI_COMM_WORLD_RANK");
  ASSERT_EQ(sigprocmask(SIG_SETMASK, &before, nullptr), 0);
  ASSERT_EQ(kill(pid, SIGTERM), 0);
  const Ended ended = Wait(pid);
  EXPECT_EQ(ended.exit_code, 2);
  EXPECT_EQ(ended.err, "");
}

}  // namespace
}  // namespace bulkhead
