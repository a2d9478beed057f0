// `bench serve`.
#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status.h"
#include "launcher/flags/command_flags.h"
#include "launcher/flags/flag_values.h"
#include "launcher/flags/request_flags.h"

namespace bulkhead {
namespace {

constexpr int kMaxPrompts = 10'000'000;
constexpr int kMaxTokens = 1 << 24;
constexpr int kMaxConcurrency = 1 << 16;
constexpr double kMaxRate = 1e6;

// A number, or "inf".
Flags::Apply RateValue(double* out, double min) {
  return ParsedValue(out, [=](const std::string& text) -> absl::StatusOr<double> {
    if (text == "inf") return std::numeric_limits<double>::infinity();
    return ParseReal(text, min, kMaxRate, Border::kIncluded);
  });
}

Flags::Apply PercentilesValue(std::vector<double>* out) {
  return [=](const std::string& text) -> absl::Status {
    BH_RETURN_IF_ERROR(ListValue(out, [](const std::string& part) {
      return ParseReal(part, 1, 99.99, Border::kIncluded);
    })(text));
    for (const double value : *out) {
      if (std::count(out->begin(), out->end(), value) == 1) continue;
      return absl::InvalidArgumentError(absl::StrCat(value, " is named twice"));
    }
    return absl::OkStatus();
  };
}

// "ttft:2000,tpot:100,e2el:30000", may be repeated.
Flags::Apply GoodputValue(Goodput* out) {
  return [=](const std::string& text) -> absl::Status {
    std::set<std::optional<double>*> named;
    for (const absl::string_view part : absl::StrSplit(text, absl::ByAnyChar(", "))) {
      const std::pair<std::string, std::string> pair =
          absl::StrSplit(part, absl::MaxSplits(':', 1));
      std::optional<double>* limit = pair.first == "ttft"                          ? &out->ttft_ms
                                     : pair.first == "tpot"                        ? &out->tpot_ms
                                     : pair.first == "e2el" || pair.first == "e2e" ? &out->e2el_ms
                                                                                   : nullptr;
      if (limit == nullptr || !absl::StrContains(part, ':')) {
        return absl::InvalidArgumentError(
            absl::StrCat("'", part, "' is none of ttft:MS, tpot:MS, e2el:MS"));
      }
      if (!named.insert(limit).second) {
        return absl::InvalidArgumentError(absl::StrCat(pair.first, " is named twice"));
      }
      BH_ASSIGN_OR_RETURN(*limit, ParseReal(pair.second, 0, 1e9, Border::kIncluded));
    }
    return absl::OkStatus();
  };
}

Flags::Apply MetadataValue(std::map<std::string, std::string>* out) {
  return [=](const std::string& text) -> absl::Status {
    const std::pair<std::string, std::string> pair = absl::StrSplit(text, absl::MaxSplits('=', 1));
    if (pair.first.empty() || text.find('=') == std::string::npos) {
      return absl::InvalidArgumentError(absl::StrCat("'", text, "' is not KEY=VALUE"));
    }
    (*out)[pair.first] = pair.second;
    return absl::OkStatus();
  };
}

// Lengths as given; defaults depend on the data set.
struct RawLengths {
  std::optional<int> input_len, output_len, prefix_len;
};

void AddDatasetFlags(DatasetOptions* dataset, RawLengths* lengths, Flags* flags) {
  flags->Group("Data");
  flags->Add("--dataset-name", "NAME",
             "data set: random (random token IDs), prefix_repetition (groups of prompts with a "
             "common prefix), text (a built-in text), custom (JSON lines as for generate "
             "--prompts) or trace (JSON lines with timestamp in ms, input_length, output_length "
             "and optionally hash_ids) (default random)",
             ChoiceValue<DatasetName>(&dataset->name,
                                      {{"random", DatasetName::kRandom},
                                       {"prefix_repetition", DatasetName::kPrefixRepetition},
                                       {"text", DatasetName::kText},
                                       {"custom", DatasetName::kCustom},
                                       {"trace", DatasetName::kTrace}}));
  flags->Add("--dataset-path", "FILE", "file of the data set, for custom and trace",
             TextValue(&dataset->path));
  flags->Add("--num-prompts", "N",
             "number of requests in each run (default 1000, or all lines of the file)",
             IntegerValue(&dataset->num_prompts, 1, kMaxPrompts));
  flags->Add("--random-input-len,--input-len,--prefix-repetition-suffix-len", "N",
             "number of tokens of each prompt after the shared prefix (default 1024; 256 for "
             "prefix_repetition)",
             IntegerValue(&lengths->input_len, 1, kMaxTokens));
  flags->Add(
      "--random-output-len,--output-len,--prefix-repetition-output-len,--custom-output-len", "N",
      "number of tokens of each answer; for custom, of lines without max_tokens (default 128)",
      IntegerValue(&lengths->output_len, 1, kMaxTokens));
  flags->Add("--random-range-ratio", "R",
             "draw these lengths from (1 - R) to (1 + R) times the given ones (default 0)",
             RealValue(&dataset->range_ratio, 0, 0.99, Border::kIncluded));
  flags->Add("--random-prefix-len,--prefix-repetition-prefix-len", "N",
             "number of tokens in the prefix that all prompts share, or with prefix_repetition all "
             "prompts of a group (default 0; 256 for prefix_repetition)",
             IntegerValue(&lengths->prefix_len, 0, kMaxTokens));
  flags->Add("--prefix-repetition-num-prefixes", "N",
             "number of groups of prefix_repetition (default 10)",
             IntegerValue(&dataset->num_prefixes, 1, kMaxPrompts));
  flags->Add("--seed", "N", "random seed of prompts and arrivals (default 0)",
             SeedValue(&dataset->seed));
  flags->AddSwitch("--ignore-eos",
                   "generate answers of full length, past the end-of-sequence token (default: on, "
                   "except for custom)",
                   [dataset](bool on) { dataset->ignore_eos = on; });
  flags->Add("--temperature", "X", "sampling temperature; 0 selects greedy decoding (default 0)",
             RealValue(&dataset->temperature, 0, 100, Border::kIncluded));
}

void AddArrivalFlags(ServeBenchOptions* options, Flags* flags) {
  ArrivalOptions* arrivals = &options->arrivals;
  flags->Add("--burstiness", "X",
             "regularity of arrivals: 1 is a Poisson process, smaller values are burstier, larger "
             "ones more regular, inf is a constant interval (default 1)",
             RateValue(&arrivals->burstiness, 1e-3));
  flags->Add("--ramp-up-strategy", "NAME",
             "change the request rate from --ramp-up-start-rps to --ramp-up-end-rps during the "
             "run: linear or exponential",
             ChoiceValue<RampUp>(&arrivals->ramp_up, {{"linear", RampUp::kLinear},
                                                      {"exponential", RampUp::kExponential}}));
  flags->Add("--ramp-up-start-rps", "X", "requests per second at the start of the run",
             RealValue(&arrivals->ramp_up_start_rps, 1e-3, kMaxRate, Border::kIncluded));
  flags->Add("--ramp-up-end-rps", "X", "requests per second at the end of the run",
             RealValue(&arrivals->ramp_up_end_rps, 1e-3, kMaxRate, Border::kIncluded));
  flags->Add("--trace-speed", "X",
             "factor by which a trace is replayed faster: its times are divided by X (default 1)",
             RealValue(&options->dataset.trace_speed, 1e-3, 1e6, Border::kIncluded));
}

void AddMeasurementFlags(ServeBenchOptions* options, Flags* flags) {
  flags->Group("Measurement");
  flags->Add("--num-warmups", "N",
             "number of requests before the measurement, which are not counted (default 8)",
             IntegerValue(&options->num_warmups, 0, kMaxPrompts));
  flags->Add("--repeats", "N",
             "number of runs, each with new prompts, that are evaluated together (default 1)",
             IntegerValue(&options->repeats, 1, 1000));
  flags->Add("--metric-percentiles", "LIST", "percentiles in the table (default 90,95,99,99.9)",
             PercentilesValue(&options->percents));
  flags->Add("--goodput", "LIST",
             "count the requests within these limits in ms, such as ttft:2000,tpot:100,e2el:30000",
             GoodputValue(&options->goodput));
  flags->Add("--timeout", "TIME",
             "time limit for each request, in seconds or with a unit (90s, 2m) (default: none)",
             DurationValue(&options->timeout));
  flags->Add("--client-threads", "N",
             "number of threads that receive answers, each on its own connection (default 2)",
             IntegerValue(&options->client_threads, 1, 64));
  flags->AddSwitch("--no-self-check", "do not measure the client's own peak rate before the run",
                   [options](bool on) { options->self_check = !on; });
  flags->AddSwitch("--null-server", "measure the client alone, against a server that does no work",
                   &options->null_server);
  flags->AddSwitch("--allow-failures", "exit with code 0 even if requests failed",
                   &options->allow_failures);
  flags->AddSwitch("--no-progress,--disable-tqdm", "do not print progress on standard error",
                   [options](bool on) { options->progress = !on; });
  flags->Group("Result");
  flags->Add("--result-dir", "DIR", "folder for result.json, requests.jsonl and report.html",
             TextValue(&options->result_dir));
  flags->AddSwitch("--save-result", "the same as --result-dir . if --result-dir is not given",
                   [options](bool on) {
                     if (on && !options->result_dir.has_value()) options->result_dir = ".";
                   });
  flags->AddSwitch("--save-detailed", "also write vLLM's lists of all requests to result.json",
                   &options->save_detailed);
  flags->Add("--label", "TEXT", "text to keep in result.json", TextValue(&options->label));
  flags->Add("--metadata", "KEY=VALUE", "entry to keep in result.json; may be given several times",
             MetadataValue(&options->metadata));
}

absl::Status Complete(const RawLengths& lengths, ServeBenchOptions* options) {
  DatasetOptions& dataset = options->dataset;
  const bool prefixes = dataset.name == DatasetName::kPrefixRepetition;
  dataset.input_len = lengths.input_len.value_or(prefixes ? 256 : 1024);
  dataset.output_len = lengths.output_len.value_or(128);
  dataset.prefix_len = lengths.prefix_len.value_or(prefixes ? 256 : 0);
  const bool file = dataset.name == DatasetName::kCustom || dataset.name == DatasetName::kTrace;
  if (file && !dataset.path.has_value()) {
    return absl::InvalidArgumentError("--dataset-name custom and trace need --dataset-path FILE");
  }
  if (!file && dataset.path.has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--dataset-path ", *dataset.path, " needs --dataset-name custom or trace"));
  }
  ArrivalOptions& arrivals = options->arrivals;
  const bool rates = arrivals.ramp_up_start_rps > 0 && arrivals.ramp_up_end_rps > 0;
  if (arrivals.ramp_up != RampUp::kNone && !rates) {
    return absl::InvalidArgumentError(
        "--ramp-up-strategy needs --ramp-up-start-rps and --ramp-up-end-rps");
  }
  if (arrivals.ramp_up == RampUp::kNone &&
      (arrivals.ramp_up_start_rps > 0 || arrivals.ramp_up_end_rps > 0)) {
    return absl::InvalidArgumentError(
        "--ramp-up-start-rps and --ramp-up-end-rps need --ramp-up-strategy linear or exponential");
  }
  if (arrivals.ramp_up != RampUp::kNone && !std::isinf(arrivals.request_rate)) {
    return absl::InvalidArgumentError(
        "--request-rate and --ramp-up-strategy exclude each other; the ramp has its own rates");
  }
  if (dataset.name == DatasetName::kTrace && arrivals.open_loop()) {
    return absl::InvalidArgumentError(
        "a trace has its own times: leave out --request-rate and --ramp-up-strategy, or scale it "
        "with --trace-speed");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Command> ParseServeBench(CommandArgs args) {
  Flags flags("bench serve", "[FLAGS]",
              "Measures a running server: sends requests at their scheduled times, and reports\n"
              "latencies, throughput and the server's memory use. Flags with the same meaning as\n"
              "in vLLM's benchmark have the same names.",
              "bulkhead bench serve --request-rate 4 --num-prompts 500 --random-input-len 512\n"
              "bulkhead bench serve --max-concurrency 16 --num-prompts 200 --result-dir result\n"
              "bulkhead bench serve --goodput ttft:500,tpot:50 --request-rate 8 --repeats 3");
  ServeBenchOptions options;
  RawLengths lengths;
  options.args.assign(args.begin(), args.end());
  AddServerFlags(&options.target, &options.credentials, &flags);
  AddDatasetFlags(&options.dataset, &lengths, &flags);
  flags.Group("Arrivals");
  flags.Add("--request-rate", "X",
            "mean number of requests per second; inf sends all at once or, with --max-concurrency, "
            "each one as soon as another ends (default inf)",
            RateValue(&options.arrivals.request_rate, 1e-3));
  flags.Add("--max-concurrency", "N", "maximum number of requests in flight (default: no limit)",
            IntegerValue(&options.max_concurrency, 1, kMaxConcurrency));
  AddArrivalFlags(&options, &flags);
  AddMeasurementFlags(&options, &flags);
  BH_ASSIGN_OR_RETURN(const bool help, flags.Parse(args));
  if (help) return PrintText{flags.Help()};
  BH_RETURN_IF_ERROR(Complete(lengths, &options));
  return options;
}

}  // namespace bulkhead
