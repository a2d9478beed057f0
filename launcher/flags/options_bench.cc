// The bench commands.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "launcher/flags/command_flags.h"
#include "launcher/flags/engine_flags.h"
#include "launcher/flags/flag_values.h"
#include "nlohmann/json.hpp"

namespace bulkhead {
namespace {

constexpr int kMaxLen = 1 << 24;
constexpr int kMaxBatch = 1 << 16;

}  // namespace

absl::StatusOr<Command> ParseThroughput(CommandArgs args) {
  Flags flags(
      "bench throughput", "[--model] DIR [FLAGS]",
      "Measures the prefill and decode speed of a group of ranks, without a server and a\n"
      "network client. Also runs under mpirun. Prompts are random token IDs. The first run of\n"
      "each case is a warm-up and is not counted.",
      "bulkhead bench throughput --model DIR --batch-size 1,8,16 --input-len 128 --output-len "
      "64\n"
      "mpirun -n 2 bulkhead bench throughput --model DIR --json > result.json");
  ThroughputOptions options;
  RawEngineFlags raw;
  flags.Group("Measurement");
  flags.Add("--batch-size", "LIST",
            "numbers of sequences that run at the same time (default 1,8,16)",
            IntegersValue(&options.batch_sizes, 1, kMaxBatch));
  flags.Add("--input-len", "LIST", "numbers of tokens of each prompt (default 128)",
            IntegersValue(&options.input_lens, 1, kMaxLen));
  flags.Add("--output-len", "N", "number of tokens to generate for each sequence (default 64)",
            IntegerValue(&options.output_len, 1, kMaxLen));
  flags.Add("--shared-prefix-len", "N",
            "number of tokens that all prompts have in common at their start, taken from the "
            "prefix cache (default 0)",
            IntegerValue(&options.shared_prefix_len, 0, kMaxLen));
  flags.Add("--repeats", "N", "number of runs of each case (default 3)",
            IntegerValue(&options.repeats, 1, 1000));
  flags.AddSwitch("--json", "print JSON instead of a table", &options.json);
  flags.Add("--out", "FILE", "also write the JSON to this file", TextValue(&options.out));
  AddEngineFlags(&raw, &flags);
  BH_ASSIGN_OR_RETURN(const bool help, flags.Parse(args));
  if (help) return PrintText{flags.Help()};
  BH_ASSIGN_OR_RETURN(options.engine, CompleteEngine(raw, flags));
  const int longest = *std::max_element(options.input_lens.begin(), options.input_lens.end());
  const int shortest = *std::min_element(options.input_lens.begin(), options.input_lens.end());
  if (options.shared_prefix_len >= shortest && options.shared_prefix_len > 0) {
    return absl::InvalidArgumentError(absl::StrCat("--shared-prefix-len ",
                                                   options.shared_prefix_len,
                                                   " must be less than --input-len ", shortest));
  }
  EngineOptions& engine = options.engine;
  engine.enable_prefix_caching = options.shared_prefix_len > 0;
  // No more memory than the measurement needs.
  if (!engine.limits.max_num_seqs.has_value()) {
    engine.limits.max_num_seqs =
        *std::max_element(options.batch_sizes.begin(), options.batch_sizes.end());
  }
  if (!engine.limits.max_model_len.has_value()) {
    engine.limits.max_model_len = std::max(longest + options.output_len, 2);
    engine.length_flags =
        absl::StrCat("--input-len ", longest, " + --output-len ", options.output_len);
  }
  return options;
}

absl::StatusOr<Command> ParseKernels(CommandArgs args) {
  Flags flags(
      "bench kernels", "[FLAGS]",
      "Measures the peak rates of the machine (memory reads, f32 FMA, int8 and bf16 dot\n"
      "products, AMX) and, in the same rounds, matrix products and attention in every format.\n"
      "On a GPU the sizes are those of Llama 3 8B, and the peaks are memory reads and a product\n"
      "of 8192^3 by cuBLASLt. Under mpirun all ranks measure at the same time. Needs no model.",
      "bulkhead bench kernels --threads 2\n"
      "bulkhead bench kernels --filter product/gate_up");
  KernelsOptions options;
  RawEngineFlags raw;
  flags.Group("Measurement");
  flags.Add("--filter", "NAME",
            "measure only cases whose name begins with NAME: product/..., attend/..., and on GPUs "
            "library/..., experts/..., launch/...",
            TextValue(&options.filter));
  flags.AddSwitch("--quick", "measure only the small cases, in a few rounds", &options.quick);
  flags.AddSwitch("--json", "print JSON instead of a table", &options.json);
  AddDeviceFlags(&raw, &flags);
  BH_ASSIGN_OR_RETURN(const bool help, flags.Parse(args));
  if (help) return PrintText{flags.Help()};
  options.engine = raw.options;
  options.engine.command_line = flags.Resolved();
  return options;
}

namespace {

struct BenchEntry {
  const char* name;
  const char* summary;
  CommandParser parse;  // null: the Python tool parses its own flags
};

constexpr BenchEntry kBenches[] = {
    {"comm", "measure sums, gathers and broadcasts between the ranks of a group", ParseComm},
    {"compare", "compare two results of 'bench serve'", nullptr},
    {"definitions", "explain the metrics of 'bench serve', and list their names in other tools",
     nullptr},
    {"kernels", "measure matrix products and attention against the machine's peak rates",
     ParseKernels},
    {"report", "write the table and the page for a result folder of 'bench serve' again", nullptr},
    {"scale", "measure groups of several sizes, and compare them with their plans", nullptr},
    {"serve", "measure a running server as a client", ParseServeBench},
    {"simulate", "estimate what a step costs rank 0 of a large group", ParseSimulate},
    {"sweep", "measure a running server at several loads", nullptr},
    {"throughput", "measure prefill and decode of a group, without a server and a network client",
     ParseThroughput},
    {"verify", "check whether groups of ranks give the same answers as one rank", ParseVerify},
};

std::string BenchHelp() {
  std::string out = "Usage: bulkhead bench WHAT [FLAGS]\n\n";
  for (const BenchEntry& bench : kBenches) {
    const std::string name = bench.name;
    absl::StrAppend(&out, "  ", name, std::string(13 - name.size(), ' '), bench.summary, "\n");
  }
  return out + "\n'bulkhead bench WHAT --help' shows the flags.\n";
}

std::string BenchJson() {
  nlohmann::ordered_json pages = nlohmann::ordered_json::array();
  for (const BenchEntry& bench : kBenches) {
    pages.push_back(HelpPage(absl::StrCat("bench ", bench.name), bench.summary, bench.parse));
  }
  const auto verify_rank = [](CommandArgs args) { return ParseVerify({"--save=FILE", args[0]}); };
  pages.push_back(HelpPage("bench verify",
                           "one rank of a group whose answers are saved or compared", verify_rank));
  return pages.dump();
}

}  // namespace

absl::StatusOr<Command> ParseBench(CommandArgs args) {
  if (args.empty()) {
    return absl::InvalidArgumentError(
        "bench needs the name of a benchmark; 'bulkhead bench --help' lists them");
  }
  if (args[0] == "--help" || args[0] == "-h") return PrintText{BenchHelp()};
  if (args[0] == kHelpAsJson) return PrintText{BenchJson()};
  std::vector<std::string> names;
  for (const BenchEntry& bench : kBenches) {
    if (args[0] == bench.name && bench.parse != nullptr) return bench.parse(args.subspan(1));
    if (args[0] == bench.name) {
      return ToolCommand{{args.begin(), args.end()}, /*starts_groups=*/args[0] == "scale"};
    }
    names.emplace_back(bench.name);
  }
  const std::string nearest = Nearest(args[0], names);
  return absl::InvalidArgumentError(
      absl::StrCat("no 'bench ", args[0], "'; ",
                   nearest.empty() ? "'bulkhead bench --help' lists the benchmarks"
                                   : absl::StrCat("did you mean ", nearest, "?")));
}

}  // namespace bulkhead
