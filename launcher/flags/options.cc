#include "launcher/flags/options.h"

#include <iterator>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/types/span.h"
#include "base/exit_code.h"
#include "launcher/flags/command_flags.h"
#include "launcher/flags/flags.h"
#include "nlohmann/json.hpp"

namespace bulkhead {
namespace {

struct CommandEntry {
  const char* name;
  const char* summary;
  CommandParser parse;
};

constexpr CommandEntry kCommands[] = {
    {"serve", "serve a model over gRPC and HTTP, with one rank or several under mpirun or srun",
     ParseServe},
    {"generate", "send prompts to a server and print the answers", ParseGenerate},
    {"chat", "chat with the model of a server", ParseChat},
    {"run", "generate answers to a file of prompts without a server", ParseRun},
    {"score", "compute log probabilities of given texts without a server", ParseScore},
    {"plan", "show whether a model fits into memory, rank by rank, without loading it", ParsePlan},
    {"bench", "measure a server, a group of ranks or a machine", ParseBench},
    {"tokenize", "convert text to token IDs and back", ParseTokenize},
    {"limits", "show or change the limits of a running server", ParseLimits},
    {"doctor", "diagnose the memory use of a server, or a failed start", ParseDoctor},
    {"drain", "stop a server after its running requests have finished", ParseDrain},
};

constexpr char kAbout[] =
    "Bulkhead serves decoder-only language models with tensor parallelism over MPI ranks.";

constexpr std::pair<const char*, const char*> kExitCodes[] = {
    {"0", "success, or the end of a drain"},
    {"1", "a client command got an error from the server, or a prompt failed"},
    {"2", "wrong flags, or a model or format that the device does not support"},
    {"3", "the config, checkpoint or tokenizer is invalid or not supported"},
    {"4", "the model does not fit in memory"},
    {"5", "the group did not start: a missing rank, a wrong number of ranks, or a timeout"},
    {"6", "a rank was lost or stopped responding, or host memory could not be allocated"},
    {"7", "the server could not listen on one of its ports"},
    {"70", "an internal error; please report it"},
    {"128+n", "ended by signal n"},
};

// For scripts/help_files.py.
nlohmann::ordered_json AllHelp() {
  nlohmann::ordered_json help = {{"about", kAbout}, {"commands", nlohmann::ordered_json::array()}};
  for (const CommandEntry& command : kCommands) {
    nlohmann::ordered_json page = HelpPage(command.name, command.summary, command.parse);
    help["commands"].push_back(
        {{"name", command.name},
         {"summary", command.summary},
         {"pages", page.is_array() ? page : nlohmann::ordered_json::array({page})}});
  }
  for (const auto& [code, meaning] : kExitCodes) help["exit_codes"].push_back({code, meaning});
  return help;
}

std::string TopHelp() {
  std::string out = absl::StrCat(kAbout,
                                 "\n\n"
                                 "Usage: bulkhead COMMAND [FLAGS]\n"
                                 "       mpirun -n RANKS bulkhead serve --model DIR\n"
                                 "\n"
                                 "Commands:\n");
  for (const CommandEntry& command : kCommands) {
    const std::string name = command.name;
    absl::StrAppend(&out, "  ", name, std::string(12 - name.size(), ' '), command.summary, "\n");
  }
  absl::StrAppend(
      &out,
      "\n"
      "'bulkhead help COMMAND' lists a command's flags; 'bulkhead --version' shows the version.\n"
      "\n"
      "Exit codes:\n");
  for (const auto& [code, meaning] : kExitCodes) {
    absl::StrAppend(&out, absl::StrFormat("  %-7s%s\n", code, meaning));
  }
  return out;
}

absl::StatusOr<Command> Parse(const std::vector<std::string>& args) {
  if (args.empty()) {
    return PrintText{
        TopHelp(),
        WithExitCode(absl::InvalidArgumentError("no command given; 'bulkhead --help' lists them"),
                     ExitCode::kUsage)};
  }
  const std::string& name = args[0];
  if (name == "help" && args.size() == 2 && args[1] == "--json")
    return PrintText{AllHelp().dump() + "\n"};
  if (name == "help" && args.size() > 1) {
    std::vector<std::string> asked(args.begin() + 1, args.end());
    asked.emplace_back("--help");
    return Parse(asked);
  }
  if (name == "--help" || name == "-h" || name == "help") return PrintText{TopHelp()};
  std::vector<std::string> names = {"--help", "--version"};
  for (const CommandEntry& command : kCommands) {
    if (name == command.name) return command.parse(absl::MakeSpan(args).subspan(1));
    names.emplace_back(command.name);
  }
  const std::string nearest = Nearest(name, names);
  return absl::InvalidArgumentError(
      absl::StrCat("no command '", name, "'; ",
                   nearest.empty() ? "'bulkhead --help' lists them"
                                   : absl::StrCat("did you mean ", nearest, "?")));
}

}  // namespace

nlohmann::ordered_json HelpPage(const std::string& command, const char* summary,
                                CommandParser parse) {
  const std::vector<std::string> args = {std::string(kHelpAsJson)};
  const absl::StatusOr<Command> parsed = parse != nullptr ? parse(args) : PrintText{};
  if (const auto* print = parsed.ok() ? std::get_if<PrintText>(&*parsed) : nullptr) {
    auto page = nlohmann::ordered_json::parse(print->text, nullptr, /*allow_exceptions=*/false);
    if (!page.is_discarded()) return page;
  }
  return {{"command", command}, {"summary", summary}};
}

bool IsFlagOfAnyCommand(const std::string& name) {
  const nlohmann::ordered_json help = AllHelp();
  for (const auto& command : help["commands"]) {
    for (const auto& page : command["pages"]) {
      for (const auto& flag : page.value("flags", nlohmann::ordered_json::array())) {
        if (absl::c_linear_search(flag["names"], name)) return true;
      }
    }
  }
  return false;
}

absl::StatusOr<Command> ParseCommandLine(const std::vector<std::string>& args) {
  absl::StatusOr<Command> command = Parse(args);
  if (!command.ok()) return WithExitCode(command.status(), ExitCode::kUsage);
  return command;
}

const EngineOptions* EngineOf(const Command& command) {
  return std::visit(
      [](const auto& options) -> const EngineOptions* {
        if constexpr (requires { options.engine; }) return &options.engine;
        if constexpr (requires { options.serve.engine; }) return &options.serve.engine;
        return nullptr;
      },
      command);
}

const ServeOptions* ServerOf(const Command& command) {
  const auto* const plan = std::get_if<PlanOptions>(&command);
  return plan != nullptr ? &plan->serve : std::get_if<ServeOptions>(&command);
}

}  // namespace bulkhead
