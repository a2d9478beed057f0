// The commands that load or plan a model: serve, plan, run and score.
#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/status.h"
#include "launcher/flags/changed_args.h"
#include "launcher/flags/command_flags.h"
#include "launcher/flags/engine_flags.h"
#include "launcher/flags/flag_values.h"
#include "launcher/flags/request_flags.h"
#include "launcher/planning/gpu_models.h"

namespace bulkhead {
namespace {

constexpr int kMaxQueuedReqs = 1 << 20;

// By its spelling: no name is looked up.
bool IsLoopback(const std::string& host) {
  return host == "localhost" || host == "::1" || host == "[::1]" ||
         (absl::StartsWith(host, "127.") &&
          host.find_first_not_of("0123456789.") == std::string::npos);
}

Flags::Apply HostMemoryValue(std::optional<int64_t>* out) {
  return [=](const std::string& text) {
    if (IntegerValue(out, 1, kMostHostMemory)(text).ok()) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("'", text, "' is no memory for clients: at least ", kLeastHostMiB,
                     "MiB, the least with any model, at most ", kMostHostMemory >> 40,
                     "TiB; leave it out for what is left, or give ", kLeastHostMiB,
                     "MiB: where this model needs more, the refusal says how much"));
  };
}

// The control port is on 127.0.0.1; on other addresses --port may have the same number.
absl::Status CheckPorts(const ServeOptions& options) {
  const bool meet = options.host == "127.0.0.1" || options.host == "localhost" ||
                    options.host == "0.0.0.0" || options.host == "::" || options.host == "[::]";
  if (!meet || options.port == 0 || options.control_port != options.port) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--control-port: ", options.control_port,
                   " is --port already; give another from 1 to 65535, or 0 for any that is free"));
}

void AddServeFlags(RawEngineFlags* draft, ServeOptions* options, Flags* flags) {
  AddModelFlags(draft, flags);
  flags->Add("--served-model-name", "NAME",
             "the name that requests may give (default: what --model says)",
             TextValue(&options->served_model_name));
  flags->Group("Network");
  flags->Add("--host", "ADDRESS", "where to listen (default 127.0.0.1)", TextValue(&options->host));
  flags->Add("--port", "PORT", "0 takes any that is free (default 50051)",
             PortValue(&options->port));
  flags->Add(
      "--control-port", "PORT",
      "where health, drain and all of Control are also served, on 127.0.0.1 by a thread that "
      "clients of --port cannot crowd out; 0, the default, takes any that is free",
      PortValue(&options->control_port));
  flags->AddSwitch("--insecure",
                   "allow a host that is not loopback: there is no TLS and no password",
                   [options](bool on) { options->insecure = on; });
  AddDeviceFlags(draft, flags);
  AddLimitFlags(draft, flags);
  AddSchedulingFlags(draft, flags);
  flags->Add(
      "--max-num-queued-reqs", "N",
      "requests in flight beside the max-num-seqs that may run, and N x max-model-len tokens "
      "that wait; more are refused with a hint when to retry (default auto: 1024, or what "
      "fits)",
      IntegerValue(&options->max_num_queued_reqs, 1, kMaxQueuedReqs));
  flags->Add("--host-memory", "SIZE",
             "what rank 0's host may hold for clients beside the arenas: their connections, "
             "requests and answers (default auto: serve measures what is left; plan shows the "
             "largest quotas)",
             HostMemoryValue(&options->host_memory));
  AddTimeFlags(draft, flags);
  flags->Add("--drain-timeout", "TIME", "what runs may take to finish once draining (default 120)",
             DurationValue(&options->drain_timeout));
  flags->Group("Process");
  flags->AddSwitch("--no-parent",
                   "a group of one runs as one process, for a debugger: nobody says so when the "
                   "kernel kills it",
                   [options](bool on) { options->parent = !on; });
  flags->Group("Report");
  flags->Add("--report", "FILE",
             "write what fits as JSON, rank by rank: once READY, when refused, and at the end",
             TextValue(&options->report));
}

// `args` without its own comparisons, and with `more` laid over.
absl::StatusOr<EngineOptions> LaidOver(CommandArgs args, const std::string& more) {
  const std::vector<std::string> added =
      absl::StrSplit(more, absl::ByAnyChar(" \t"), absl::SkipEmpty());
  const std::vector<std::string> all = ChangedArgs(WithoutFlags(args, {"--compare"}), added);
  const absl::StatusOr<Command> parsed = ParsePlan(all);
  if (!parsed.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--compare \"", more, "\": ", parsed.status().message()));
  }
  const auto* plan = std::get_if<PlanOptions>(&*parsed);
  if (plan == nullptr || !plan->compare.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("--compare \"", more, "\": no flags of a plan"));
  }
  return plan->serve.engine;
}

}  // namespace

absl::StatusOr<Command> ParseServe(CommandArgs args) {
  Flags flags(
      "serve", "[--model] DIR [FLAGS]",
      "Serves a model over gRPC. Prints READY grpc=HOST:PORT on standard output when it does.",
      "bulkhead serve --model ~/models/Llama-3.2-1B\n"
      "mpirun -n 4 --bind-to none bulkhead serve --model ~/models/Llama-3.2-1B --max-model-len "
      "32K");
  ServeOptions options;
  RawEngineFlags draft;
  AddServeFlags(&draft, &options, &flags);
  BH_ASSIGN_OR_RETURN(const bool help, flags.Parse(args));
  if (help) return PrintText{flags.Help()};
  BH_ASSIGN_OR_RETURN(options.engine, CompleteEngine(draft, "serve"));
  BH_RETURN_IF_ERROR(CheckPorts(options));
  if (!options.insecure && !IsLoopback(options.host)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--host: ", options.host,
                     " is not loopback, and traffic is neither encrypted nor "
                     "authenticated; add --insecure if its network is trusted"));
  }
  return options;
}

absl::StatusOr<Command> ParsePlan(CommandArgs args) {
  Flags flags("plan", "[--model] DIR [FLAGS]",
              "Says whether `serve` with the same flags would fit, rank by rank to the byte. Needs "
              "the model's config.json alone, no weights and no device.",
              "bulkhead plan --model ~/models/Llama-3.1-8B --tp 8 --gpu h200\n"
              "bulkhead plan --model DIR --tp 2 --device-memory 0=24GiB,1=16GiB --json\n"
              "bulkhead plan --model DIR --gpu h200 --compare=\"--tp 2\" --compare=\"--tp 4\"");
  PlanOptions options;
  RawEngineFlags draft;
  flags.Group("Plan");
  flags.Add("--gpu", "NAME",
            absl::StrCat("plan for this GPU: ", absl::StrJoin(GpuNames(), ", "),
                         "; every arena is exact, what the driver takes a guess"),
            WithChoices(
                [&options](const std::string& text) -> absl::Status {
                  if (!FindGpu(text).has_value()) return NotOneOf(text, GpuNames());
                  options.gpu = text;
                  return absl::OkStatus();
                },
                GpuNames()));
  flags.Add("--nodes", "N", "hosts that the ranks are spread over (default 1)",
            IntegerValue(&options.nodes, 1, kMaxRanks));
  flags.Add(
      "--compare", "FLAGS",
      "set this plan beside one with FLAGS laid over it, --compare=\"--tp 4\"; given twice or "
      "more, those beside each other",
      TextListValue(&options.compare_flags));
  flags.Add("--svg", "FILE", "draw the curve of length against sequences", TextValue(&options.svg));
  flags.AddSwitch("--json", "print the report as JSON", [&options](bool on) { options.json = on; });
  AddServeFlags(&draft, &options.serve, &flags);
  BH_ASSIGN_OR_RETURN(const bool help, flags.Parse(args));
  if (help) return PrintText{flags.Help()};
  BH_ASSIGN_OR_RETURN(options.serve.engine, CompleteEngine(draft, "plan"));
  BH_RETURN_IF_ERROR(CheckPorts(options.serve));
  const int ranks = options.serve.engine.tensor_parallel_size.value_or(1);
  if (options.nodes > ranks) {
    return absl::InvalidArgumentError(
        absl::StrCat("--nodes ", options.nodes, " is more than the ", ranks,
                     " ranks of --tp: every node needs one; give at most --nodes ", ranks));
  }
  for (const std::string& more : options.compare_flags) {
    BH_ASSIGN_OR_RETURN(options.compare.emplace_back(), LaidOver(args, more));
  }
  return options;
}

absl::StatusOr<Command> ParseRun(CommandArgs args) {
  Flags flags(
      "run", "[--model] DIR --prompts FILE [FLAGS]",
      "Runs a file of prompts through a model, without a server; also under mpirun.",
      "bulkhead run --model DIR --prompts prompts.jsonl --out answers.jsonl --temperature 0\n"
      "bulkhead run --model DIR --prompts prompts.jsonl --logits logits.safetensors --max-tokens "
      "1");
  RunOptions options;
  RawEngineFlags draft;
  flags.Group("Files");
  flags.Add("--prompts", "FILE",
            "JSON lines: {\"prompt\": \"text\"} or {\"prompt_token_ids\": [1, 2]}, and max_tokens, "
            "temperature "
            "and so on; - is standard input",
            TextValue(&options.prompts));
  flags.Add("--out", "FILE",
            "JSON lines in the order of the prompts: token ids, text, finish reason (default -, "
            "standard output)",
            TextValue(&options.out));
  flags.Add("--logits", "FILE",
            "all prompt logits as f32 safetensors: logits.INDEX [tokens, vocabulary]",
            TextValue(&options.logits));
  AddRequestFlags(&options.request, &flags);
  AddEngineFlags(&draft, &flags);
  BH_ASSIGN_OR_RETURN(const bool help, flags.Parse(args));
  if (help) return PrintText{flags.Help()};
  BH_ASSIGN_OR_RETURN(options.engine, CompleteEngine(draft, "run"));
  if (options.prompts.empty()) {
    return absl::InvalidArgumentError(
        "--prompts is missing; give a file of JSON lines, or - for standard input");
  }
  return options;
}

absl::StatusOr<Command> ParseScore(CommandArgs args) {
  Flags flags(
      "score", "[--model] DIR --texts FILE [FLAGS]",
      "Tells how probable a model finds given texts: the sum of -ln p over their tokens. No "
      "server; also under mpirun.",
      "bulkhead score --model DIR --texts texts.jsonl --out scores.jsonl\n"
      "bulkhead score --model DIR --texts texts.jsonl --kv-cache-dtype bf16");
  ScoreOptions options;
  RawEngineFlags draft;
  flags.Group("Files");
  flags.Add(
      "--texts", "FILE",
      "JSON lines: {\"text\": \"...\"} or {\"prompt_token_ids\": [1, 2]}; - is standard input",
      TextValue(&options.texts));
  flags.Add("--out", "FILE",
            "JSON lines in the order of the texts: index, tokens, nll (default -, standard output)",
            TextValue(&options.out));
  AddEngineFlags(&draft, &flags);
  BH_ASSIGN_OR_RETURN(const bool help, flags.Parse(args));
  if (help) return PrintText{flags.Help()};
  BH_ASSIGN_OR_RETURN(options.engine, CompleteEngine(draft, "score"));
  if (options.texts.empty()) {
    return absl::InvalidArgumentError(
        "--texts is missing; give a file of JSON lines, or - for standard input");
  }
  return options;
}

}  // namespace bulkhead
