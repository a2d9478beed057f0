// The bench commands that measure groups of ranks.
#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "launcher/flags/command_flags.h"
#include "launcher/flags/engine_flags.h"
#include "launcher/flags/flag_values.h"

namespace bulkhead {
namespace {

constexpr int64_t kMaxMessageBytes = int64_t{64} << 20;
constexpr int kMaxLen = 1 << 24;

// A rank of the group under test.
absl::StatusOr<Command> ParseVerifyRank(CommandArgs args) {
  Flags flags("bench verify", "[--model] DIR --save FILE | --against FILE [FLAGS]",
              "Answers random prompts, half of them sampled, and writes tokens and digests of all "
              "logits, or compares\n"
              "them with what another group wrote. Exit code 1 when an answer differs.",
              "bulkhead bench verify --model DIR --save one.json\n"
              "srun -n 8 --mpi=pmix bulkhead bench verify --model DIR --against one.json");
  VerifyOptions options;
  RawEngineFlags raw;
  flags.Group("Measurement");
  flags.Add("--save", "FILE", "write what this group answers", TextValue(&options.save));
  flags.Add("--against", "FILE", "compare with what was saved", TextValue(&options.against));
  flags.Add("--num-prompts", "N", "prompts that each run answers (default 16)",
            IntegerValue(&options.num_prompts, 1, 10000));
  flags.Add("--input-len", "LIST", "tokens of the prompts, in turn (default 1,17,64,200)",
            IntegersValue(&options.input_lens, 1, kMaxLen));
  flags.Add("--output-len", "N", "tokens that each prompt generates (default 32)",
            IntegerValue(&options.output_len, 1, kMaxLen));
  flags.AddSwitch("--json", "print JSON instead of a table", &options.json);
  AddEngineFlags(&raw, &flags);
  BH_ASSIGN_OR_RETURN(const bool help, flags.Parse(args));
  if (help) return PrintText{flags.Help()};
  BH_ASSIGN_OR_RETURN(options.engine, CompleteEngine(raw, flags));
  if (options.save.has_value() == options.against.has_value()) {
    return absl::InvalidArgumentError("give one of --save and --against");
  }
  const int longest = *std::max_element(options.input_lens.begin(), options.input_lens.end());
  EngineOptions& engine = options.engine;
  if (!engine.limits.max_num_seqs.has_value()) engine.limits.max_num_seqs = options.num_prompts;
  if (!engine.limits.max_model_len.has_value()) {
    engine.limits.max_model_len = longest + options.output_len;
    engine.length_flags =
        absl::StrCat("--input-len ", longest, " + --output-len ", options.output_len);
  }
  return options;
}

}  // namespace

absl::StatusOr<Command> ParseVerify(CommandArgs args) {
  for (const std::string& word : args) {
    const absl::string_view name = absl::string_view(word).substr(0, word.find('='));
    if (name == "--save" || name == "--against") return ParseVerifyRank(args);
  }
  ToolCommand groups{{"verify"}, /*starts_groups=*/true};
  groups.args.insert(groups.args.end(), args.begin(), args.end());
  return groups;
}

absl::StatusOr<Command> ParseSimulate(CommandArgs args) {
  Flags flags(
      "bench simulate", "[FLAGS]",
      "Drives the real scheduler of rank 0 with requests and no model, and prints what a "
      "step costs rank 0:\n"
      "planning, encoding the plan, handing it out, committing; and beside that what sampling "
      "and detokenising\n"
      "its tokens would add. Only how long a step takes the group is assumed: step + decode "
      "rows + prompt\n"
      "tokens + messages between the ranks.",
      "bulkhead bench simulate --ranks 512 --requests 10000\n"
      "bulkhead bench simulate --measured throughput.json --plot cost.svg");
  SimulateOptions options;
  flags.Group("What is simulated");
  flags.Add("--ranks", "LIST", "sizes of the group (default 8,64,512)",
            IntegersValue(&options.ranks, 1, 1 << 16));
  flags.Add("--ranks-per-node", "N", "ranks that share a host (default 8)",
            IntegerValue(&options.ranks_per_node, 1, 1 << 16));
  flags.Add("--max-num-seqs", "LIST", "sequences that run at once (default 64,256,1000)",
            IntegersValue(&options.max_num_seqs, 1, 1 << 16));
  flags.Add("--requests", "N", "requests of a run (default 10000)",
            IntegerValue(&options.requests, 1, 10'000'000));
  flags.Add("--request-rate", "R", "per second, Poisson (default: all at once)",
            RealValue(&options.request_rate, 1e-3, 1e9, Border::kIncluded));
  flags.Add("--input-len", "N", "mean tokens of a prompt (default 512)",
            IntegerValue(&options.input_len, 1, kMaxLen));
  flags.Add("--output-len", "N", "mean tokens of an answer (default 128)",
            IntegerValue(&options.output_len, 1, kMaxLen));
  flags.Add("--max-num-batched-tokens", "N", "of one step (default 8192)",
            IntegerValue(&options.max_num_batched_tokens, 1, kMaxLen));
  flags.Add("--model", "DIR",
            "its tokenizer.json detokenises, and a row of logits is as long as its vocabulary "
            "(default: one of 32,000 words, made up)",
            TextValue(&options.model));
  flags.Group("What a step takes the group (assumed, microseconds)");
  flags.Add("--step-us", "T", "any step (default 8000)",
            RealValue(&options.cost.step_us, 0, 1e9, Border::kIncluded));
  flags.Add("--decode-row-us", "T", "each decoding sequence (default 5)",
            RealValue(&options.cost.decode_row_us, 0, 1e9, Border::kIncluded));
  flags.Add("--prompt-token-us", "T", "each prompt token (default 10)",
            RealValue(&options.cost.prompt_token_us, 0, 1e9, Border::kIncluded));
  flags.Add("--message-us", "T",
            "a message between nodes, sent one after the other by rank 0 (default 2)",
            RealValue(&options.cost.message_us, 0, 1e9, Border::kIncluded));
  flags.Add("--measured", "FILE", "the first three from what 'bench throughput --json' printed",
            TextValue(&options.measured));
  flags.Group("Output");
  flags.AddSwitch("--json", "print JSON instead of a table", &options.json);
  flags.Add("--plot,--svg", "FILE", "draw the cost of a step by sequences: .svg, .png or .pdf",
            TextValue(&options.plot));
  BH_ASSIGN_OR_RETURN(const bool help, flags.Parse(args));
  if (help) return PrintText{flags.Help()};
  return options;
}

absl::StatusOr<Command> ParseComm(CommandArgs args) {
  Flags flags(
      "bench comm", "[FLAGS]",
      "Measures what the ranks of a group say to each other, at powers of two and, with --model, "
      "at the sizes\n"
      "of that model's messages: time of the slowest rank, algorithm and bus bandwidth by "
      "nccl-tests' formulas.\n"
      "Every answer is checked. Between two ranks of one host a bare loop of two processes is "
      "measured beside it.",
      "mpirun -n 2 bulkhead bench comm --model DIR\n"
      "mpirun -n 4 bulkhead bench comm --collective all_reduce --pairs");
  CommOptions options;
  std::vector<std::pair<std::string, Collective>> collectives;
  for (size_t i = 0; i < std::size(kCollectiveNames); ++i) {
    collectives.emplace_back(kCollectiveNames[i], static_cast<Collective>(i));
  }
  flags.OfGroup();
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
                  &options.pairs);
  flags.AddSwitch("--quick", "a few calls of each", &options.quick);
  flags.AddSwitch("--json", "print JSON instead of a table", &options.json);
  flags.Add("--startup-timeout", "TIME", "until the group is together (default 600)",
            DurationValue(&options.engine.startup_timeout));
  BH_ASSIGN_OR_RETURN(const bool help, flags.Parse(args));
  if (help) return PrintText{flags.Help()};
  options.engine.command_line = flags.Resolved();
  if (options.min_bytes > options.max_bytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--min-bytes ", options.min_bytes, " is more than --max-bytes ", options.max_bytes));
  }
  return options;
}

}  // namespace bulkhead
