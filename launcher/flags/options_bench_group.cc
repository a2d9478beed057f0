// The bench commands that measure groups of ranks.
#include "absl/strings/str_cat.h"
#include "launcher/flags/command_flags.h"
#include "launcher/flags/engine_flags.h"
#include "launcher/flags/flag_values.h"
#include "memory/status.h"

namespace bulkhead {
namespace {

constexpr int64_t kMaxMessageBytes = int64_t{64} << 20;

}  // namespace

absl::StatusOr<Command> ParseComm(CommandArgs args) {
  Flags flags(
      "bench comm", "[FLAGS]",
      "Measures what the ranks of a group say to each other, at powers of two and, with --model, "
      "at the sizes\n"
      "of that model's messages: time of the slowest rank, algorithm and bus bandwidth by "
      "nccl-tests' formulas.\n"
      "Every answer is checked. Between two ranks of one host a bare loop of two processes stands "
      "beside it.",
      "mpirun --bind-to none -n 2 bulkhead bench comm --model DIR\n"
      "mpirun --bind-to none -n 4 bulkhead bench comm --collective all_reduce --pairs");
  CommOptions options;
  std::vector<std::pair<std::string, Collective>> collectives;
  for (const Collective collective : kCollectives) {
    collectives.emplace_back(CollectiveName(collective), collective);
  }
  flags.Group("Measurement");
  flags.Add("--model", "DIR", "also the sizes of its messages; a config.json is enough",
            TextValue(&options.engine.model));
  flags.Add("--collective", "NAME",
            "all_reduce (sums of activations), gather (of logits), all_gather (of start-up), "
            "broadcast (of step plans) (default: all)",
            OptionalChoiceValue(&options.collective, collectives));
  flags.Add("--min-bytes", "SIZE", "the smallest message (default 1KiB)",
            IntegerValue(&options.min_bytes, 4, kMaxMessageBytes));
  flags.Add("--max-bytes", "SIZE", "the largest message (default 16MiB)",
            IntegerValue(&options.max_bytes, 4, kMaxMessageBytes));
  flags.AddSwitch("--pairs", "also a bare loop between every two ranks, alone on the machine",
                  [&options](bool on) { options.pairs = on; });
  flags.AddSwitch("--quick", "a few calls of each", [&options](bool on) { options.quick = on; });
  flags.AddSwitch("--json", "print JSON instead of a table",
                  [&options](bool on) { options.json = on; });
  flags.Add("--startup-timeout", "TIME", "until the group is together (default 600)",
            DurationValue(&options.engine.startup_timeout));
  BH_ASSIGN_OR_RETURN(const bool help, flags.Parse(args));
  if (help) return PrintText{flags.Help()};
  if (options.min_bytes > options.max_bytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--min-bytes ", options.min_bytes, " is more than --max-bytes ", options.max_bytes));
  }
  return options;
}

}  // namespace bulkhead
