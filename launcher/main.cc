// One file per command; this one only chooses among them.
#include <cstdio>
#include <iostream>
#include <string>
#include <variant>
#include <vector>

#include "launcher/drain.h"
#include "launcher/exit_status.h"
#include "launcher/generate.h"
#include "launcher/model_path.h"
#include "launcher/options.h"
#include "launcher/run.h"
#include "launcher/serve.h"
#include "launcher/tokenize.h"

namespace bulkhead {
namespace {

struct RunCommand {
  int operator()(const ServeOptions& options) const { return ExitRankWith(RunServe(options)); }
  int operator()(const RunOptions& options) const { return ExitRankWith(RunRun(options)); }
  int operator()(const GenerateOptions& options) const { return ExitWith(RunGenerate(options)); }
  int operator()(const TokenizeOptions& options) const {
    const absl::StatusOr<std::string> dir = ResolveModelPath(options.model);
    return ExitWith(dir.ok() ? RunTokenize(*dir, std::cin, std::cout) : dir.status());
  }
  int operator()(const DrainOptions& options) const { return ExitWith(RunDrain(options)); }
  int operator()(const PrintText& print) const {
    return std::fputs(print.text.c_str(), stdout) >= 0 && std::fflush(stdout) == 0 ? 0 : 1;
  }
};

}  // namespace
}  // namespace bulkhead

int main(int argc, char** argv) {
  const auto command = bulkhead::ParseCommandLine(std::vector<std::string>(argv + 1, argv + argc));
  if (!command.ok()) return bulkhead::ExitRankWith(command.status());
  return std::visit(bulkhead::RunCommand(), *command);
}
