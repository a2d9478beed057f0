// Selects the command; one file per command.
#include <fcntl.h>
#include <unistd.h>
#include <csignal>

#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/exit_code.h"
#include "base/fatal_end.h"
#include "comm/launch_environment.h"
#include "launcher/bench/comm.h"
#include "launcher/bench/kernels.h"
#include "launcher/bench/serve/serve.h"
#include "launcher/bench/simulate.h"
#include "launcher/bench/throughput.h"
#include "launcher/bench/verify.h"
#include "launcher/clients/chat.h"
#include "launcher/clients/doctor.h"
#include "launcher/clients/drain.h"
#include "launcher/clients/generate.h"
#include "launcher/clients/limits.h"
#include "launcher/exit_status.h"
#include "launcher/flags/options.h"
#include "launcher/group/rank_parent.h"
#include "launcher/group/run.h"
#include "launcher/group/score.h"
#include "launcher/group/serve.h"
#include "launcher/model_path.h"
#include "launcher/planning/plan.h"
#include "launcher/process_environment.h"
#include "launcher/python_tool.h"
#include "launcher/tokenize.h"
#include "launcher/version_text.h"

namespace bulkhead {
namespace {

// Returns only when it cannot run.
absl::Status RunTool(const ToolCommand& command) {
  const LaunchEnvironment launch = ReadLaunchEnvironment(&std::getenv);
  if (command.starts_groups && launch.by_launcher()) {
    return WithExitCode(absl::FailedPreconditionError(absl::StrCat(
                            "bench ", command.args[0],
                            " starts its groups itself; run it alone, "
                            "without ",
                            launch.launcher, " (--launcher says how groups are started)")),
                        ExitCode::kUsage);
  }
  return BecomePythonTool(command.args);
}

struct RunCommand {
  int operator()(const ServeOptions& options) const {
    const absl::StatusOr<pid_t> parent = ForkUnderParent(options);
    return ExitRankWith(parent.ok() ? RunServe(options, *parent) : parent.status());
  }
  int operator()(const RunOptions& options) const { return ExitRankWith(RunRun(options)); }
  int operator()(const ScoreOptions& options) const { return ExitRankWith(RunScore(options)); }
  int operator()(const KernelsOptions& options) const { return ExitRankWith(RunKernels(options)); }
  int operator()(const CommOptions& options) const { return ExitRankWith(RunComm(options)); }
  int operator()(const VerifyOptions& options) const { return ExitRankWith(RunVerify(options)); }
  int operator()(const SimulateOptions& options) const { return ExitWith(RunSimulate(options)); }
  int operator()(const ThroughputOptions& options) const {
    return ExitRankWith(RunThroughput(options));
  }
  int operator()(const ServeBenchOptions& options) const {
    return ExitWith(RunServeBench(options));
  }
  int operator()(const ToolCommand& command) const { return ExitRankWith(RunTool(command)); }
  int operator()(const PlanOptions& options) const { return ExitWith(RunPlan(options)); }
  int operator()(const GenerateOptions& options) const { return ExitWith(RunGenerate(options)); }
  int operator()(const ChatOptions& options) const { return ExitWith(RunChat(options)); }
  int operator()(const TokenizeOptions& options) const {
    const absl::StatusOr<std::string> dir = ResolveModelPath(options.model);
    return ExitWith(dir.ok() ? RunTokenize(*dir, std::cin, std::cout) : dir.status());
  }
  int operator()(const DrainOptions& options) const { return ExitWith(RunDrain(options)); }
  int operator()(const LimitsOptions& options) const { return ExitWith(RunLimits(options)); }
  int operator()(const DoctorOptions& options) const { return ExitWith(RunDoctor(options)); }
  int operator()(const PrintText& print) const {
    std::fputs(print.text.c_str(), stdout);
    const absl::Status printed = FlushStandardOutput();
    return ExitWith(printed.ok() ? print.status : printed);
  }
};

// The number of a closed standard stream would be reused by the next file or socket, which would
// then receive our output. Writing to what is opened here fails instead, and is detected.
void OpenStandardStreams() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDONLY) < 0) std::abort();
  }
}

// A drain requested before the rank handles the signal stays pending, and does not kill.
void BlockDrainSignal() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGUSR1);
  sigprocmask(SIG_BLOCK, &set, nullptr);
}

}  // namespace
}  // namespace bulkhead

int main(int argc, char** argv) {
  bulkhead::SetProcessEnvironment();
  bulkhead::OpenStandardStreams();
  bulkhead::InstallFatalEnds();
  std::signal(SIGXFSZ, SIG_IGN);  // exceeding ulimit -f fails the write, which is reported
  const std::string name = argc > 1 ? argv[1] : "";
  const bool is_rank = name == "serve" || name == "run" || name == "score" || name == "bench";
  if (is_rank) bulkhead::BlockDrainSignal();
  const auto refuse = [is_rank](const absl::Status& why) {
    return is_rank ? bulkhead::ExitUnjoinedRankWith(why) : bulkhead::ExitWith(why);
  };
  if (const absl::Status stacks = bulkhead::EnsureStacks(); !stacks.ok()) return refuse(stacks);
  const std::vector<std::string> args(argv + 1, argv + argc);
  if (bulkhead::AsksForVersion(args)) {
    return bulkhead::RunCommand()(bulkhead::PrintText{bulkhead::VersionText()});
  }
  const auto command = bulkhead::ParseCommandLine(args);
  if (!command.ok()) return refuse(command.status());
  return std::visit(bulkhead::RunCommand(), *command);
}
