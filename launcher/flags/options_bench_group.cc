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
  Flags flags(
      "bench verify", "[--model] DIR --save FILE | --against FILE [FLAGS]",
      "Generates answers to random prompts, half of them sampled, and saves the tokens and\n"
      "digests of all logits, or compares them with those that another group saved. The\n"
      "exit code is 1 if an answer differs.",
      "bulkhead bench verify --model DIR --save one.json\n"
      "srun -n 8 --mpi=pmix bulkhead bench verify --model DIR --against one.json");
  VerifyOptions options;
  RawEngineFlags raw;
  flags.Group("Measurement");
  flags.Add("--save", "FILE", "save the answers of this group in this file",
            TextValue(&options.save));
  flags.Add("--against", "FILE", "compare the answers of this group with those in this file",
            TextValue(&options.against));
  flags.Add("--num-prompts", "N", "number of prompts in each run (default 16)",
            IntegerValue(&options.num_prompts, 1, 10000));
  flags.Add("--input-len", "LIST",
            "numbers of tokens of the prompts, used in turn (default 1,17,64,200)",
            IntegersValue(&options.input_lens, 1, kMaxLen));
  flags.Add("--output-len", "N", "number of tokens to generate for each prompt (default 32)",
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
      "Runs the real scheduler of rank 0 on requests without a model, and prints what a step\n"
      "costs rank 0: to plan it, to encode and send the plan, and to commit the result, and what\n"
      "sampling and detokenising its tokens would add. How long a step takes the group is not\n"
      "measured but assumed: a time for the step, and for each decoding sequence, prompt token\n"
      "and message between nodes.",
      "bulkhead bench simulate --ranks 512 --requests 10000\n"
      "bulkhead bench simulate --measured throughput.json --plot cost.svg");
  SimulateOptions options;
  flags.Group("Simulation");
  flags.Add("--ranks", "LIST", "sizes of the group (default 8,64,512)",
            IntegersValue(&options.ranks, 1, 1 << 16));
  flags.Add("--ranks-per-node", "N", "number of ranks on each host (default 8)",
            IntegerValue(&options.ranks_per_node, 1, 1 << 16));
  flags.Add("--max-num-seqs", "LIST",
            "maximum numbers of sequences that run at the same time (default 64,256,1000)",
            IntegersValue(&options.max_num_seqs, 1, 1 << 16));
  flags.Add("--requests", "N", "number of requests in each run (default 10000)",
            IntegerValue(&options.requests, 1, 10'000'000));
  flags.Add("--request-rate", "R",
            "mean number of requests per second, as a Poisson process (default: all at once)",
            RealValue(&options.request_rate, 1e-3, 1e9, Border::kIncluded));
  flags.Add("--input-len", "N", "mean number of tokens of a prompt (default 512)",
            IntegerValue(&options.input_len, 1, kMaxLen));
  flags.Add("--output-len", "N", "mean number of tokens of an answer (default 128)",
            IntegerValue(&options.output_len, 1, kMaxLen));
  flags.Add("--max-num-batched-tokens", "N", "maximum number of tokens in one step (default 8192)",
            IntegerValue(&options.max_num_batched_tokens, 1, kMaxLen));
  flags.Add("--model", "DIR",
            "checkpoint whose tokenizer.json and vocabulary size are used for detokenising and "
            "sampling (default: a made-up vocabulary of 32,000 words)",
            TextValue(&options.model));
  flags.Group("Assumed time of a step, in microseconds (the sum of these)");
  flags.Add("--step-us", "T", "time of any step (default 8000)",
            RealValue(&options.cost.step_us, 0, 1e9, Border::kIncluded));
  flags.Add("--decode-row-us", "T", "time for each decoding sequence (default 5)",
            RealValue(&options.cost.decode_row_us, 0, 1e9, Border::kIncluded));
  flags.Add("--prompt-token-us", "T", "time for each prompt token (default 10)",
            RealValue(&options.cost.prompt_token_us, 0, 1e9, Border::kIncluded));
  flags.Add(
      "--message-us", "T",
      "time for each message from rank 0 to another node, sent one after the other (default 2)",
      RealValue(&options.cost.message_us, 0, 1e9, Border::kIncluded));
  flags.Add("--measured", "FILE",
            "take the first three values from the output of 'bench throughput --json' in this file",
            TextValue(&options.measured));
  flags.Group("Output");
  flags.AddSwitch("--json", "print JSON instead of a table", &options.json);
  flags.Add(
      "--plot,--svg", "FILE",
      "write a chart of the cost of a step by number of sequences to this .svg, .png or .pdf file",
      TextValue(&options.plot));
  BH_ASSIGN_OR_RETURN(const bool help, flags.Parse(args));
  if (help) return PrintText{flags.Help()};
  return options;
}

absl::StatusOr<Command> ParseComm(CommandArgs args) {
  Flags flags(
      "bench comm", "[FLAGS]",
      "Measures the collectives between the ranks of a group, at powers of two and, with\n"
      "--model, at the sizes of that model's messages: the time of the slowest rank, and\n"
      "algorithm and bus bandwidth as in nccl-tests. Results are checked. Between two ranks of\n"
      "one host, a minimal loop of two processes in shared memory is measured for comparison.",
      "mpirun -n 2 bulkhead bench comm --model DIR\n"
      "mpirun -n 4 bulkhead bench comm --collective all_reduce --pairs");
  CommOptions options;
  std::vector<std::pair<std::string, Collective>> collectives;
  for (size_t i = 0; i < std::size(kCollectiveNames); ++i) {
    collectives.emplace_back(kCollectiveNames[i], static_cast<Collective>(i));
  }
  flags.OfGroup();
  flags.Group("Measurement");
  flags.Add("--model", "DIR",
            "also measure the message sizes of this model; its config.json is enough",
            TextValue(&options.engine.model));
  flags.Add("--collective", "NAME",
            "collective to measure: all_reduce (sums of activations), gather (logits to rank 0), "
            "all_gather (at start-up) or broadcast (step plans) (default: all)",
            OptionalChoiceValue(&options.collective, collectives));
  flags.Add("--min-bytes", "SIZE", "size of the smallest message (default 1KiB)",
            IntegerValue(&options.min_bytes, 4, kMaxMessageBytes));
  flags.Add("--max-bytes", "SIZE", "size of the largest message (default 16MiB)",
            IntegerValue(&options.max_bytes, 4, kMaxMessageBytes));
  flags.AddSwitch("--pairs",
                  "also measure the minimal loop between every two ranks, while the others are "
                  "idle; only on one host",
                  &options.pairs);
  flags.AddSwitch("--quick", "make only a few calls in each case", &options.quick);
  flags.AddSwitch("--json", "print JSON instead of a table", &options.json);
  flags.Add(
      "--startup-timeout", "TIME",
      "maximum time until all ranks have joined, in seconds or with a unit (90s, 2m) (default 600)",
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
