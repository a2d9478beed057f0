// The commands that load or plan a model: serve, plan, run and score.
#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/status.h"
#include "launcher/flags/changed_args.h"
#include "launcher/flags/command_flags.h"
#include "launcher/flags/engine_flags.h"
#include "launcher/flags/flag_values.h"
#include "launcher/flags/gpu_models.h"
#include "launcher/flags/request_flags.h"
#include "launcher/flags/security_flags.h"

namespace bulkhead {
namespace {

constexpr int kMaxQueuedReqs = 1 << 20;

Flags::Apply HostMemoryValue(std::optional<int64_t>* out) {
  return [=](const std::string& text) {
    const absl::Status status = IntegerValue(out, 1, kMaxHostMemory)(text);
    if (status.ok()) return status;
    constexpr int64_t kAny = std::numeric_limits<int64_t>::max();
    const absl::StatusOr<int64_t> bytes = ParseInteger(text, -kAny, kAny);
    const char* const what = !bytes.ok()               ? "is not a valid number of bytes"
                             : *bytes > kMaxHostMemory ? "is too much"
                                                       : "is too little";
    return absl::InvalidArgumentError(
        absl::StrCat("'", text, "' ", what, ": memory for clients must be at least ", kMinHostMiB,
                     "MiB and at most ", kMaxHostMemory >> 40,
                     "TiB; leave the flag out to use what is left, or give ", kMinHostMiB,
                     "MiB: if this model needs more, the error says how much"));
  };
}

Flags::Apply HostValue(std::string* out) {
  return [=](const std::string& text) {
    const bool has_port =
        std::count(text.begin(), text.end(), ':') == 1 || absl::StrContains(text, "]:");
    if (!has_port) return TextValue(out)(text);
    return absl::InvalidArgumentError(
        absl::StrCat("'", text, "' has a port; give only the address, and the port with --port"));
  };
}

// The control port is on 127.0.0.1; --port may have the same number on other addresses.
absl::Status CheckPorts(const ServeOptions& options) {
  const std::pair<const char*, int> of_host[] = {
      {"--port", options.port},
      {"--http-port", options.http_port.value_or(0)},
      {"--metrics-port", options.metrics_port.value_or(0)}};
  for (const auto& [flag, port] : of_host) {
    for (const auto& [other, taken] : of_host) {
      if (flag == other) break;
      if (port == 0 || port != taken) continue;
      return absl::InvalidArgumentError(absl::StrCat(flag, ": port ", port, " is taken by ", other,
                                                     "; give another port, or 0 for any free one"));
    }
  }
  const bool meet = options.host == "127.0.0.1" || options.host == "localhost" ||
                    options.host == "0.0.0.0" || options.host == "::" || options.host == "[::]";
  if (!meet || options.port == 0 || options.control_port != options.port) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--control-port: port ", options.control_port,
                   " is taken by --port; give another from 1 to 65535, or 0 for any free one"));
}

absl::Status CheckKvEvents(const ServeOptions& options) {
  if (!options.enable_kv_cache_events || options.engine.enable_prefix_caching) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      "--enable-kv-cache-events needs the prefix cache; leave out --no-enable-prefix-caching");
}

void AddQueueFlags(ServeOptions* options, Flags* flags) {
  flags->Add("--max-num-queued-reqs", "N",
             "maximum number of waiting requests, in addition to the --max-num-seqs running ones; "
             "further requests are refused with a retry delay; 0 means no queue (default auto: "
             "1024, or fewer if memory is short)",
             IntegerValue(&options->max_num_queued_reqs, 0, kMaxQueuedReqs));
  flags->Add("--target-itl", "TIME",
             "target for the time between two tokens: while answers are generated, prompts are "
             "prefilled in smaller chunks if a step would otherwise take longer than this and "
             "longer than four times a step without prompts; a larger target gives prompts more of "
             "the time (default 250ms on CPUs, no target on GPUs)",
             DurationValue(&options->target_itl));
}

void AddServeFlags(RawEngineFlags* raw, ServeOptions* options, Flags* flags) {
  AddModelFlags(raw, flags);
  flags->Add("--served-model-name", "NAME,...",
             "names of the model in requests, separated by commas; metrics use the first one "
             "(default: the value of --model)",
             ListValue(&options->served_model_names, &ParseText));
  flags->Group("Network");
  flags->Add("--host", "ADDRESS", "listen address (default 127.0.0.1)", HostValue(&options->host));
  flags->Add("--port", "PORT", "port of the gRPC server; 0 takes any free port (default 50051)",
             PortValue(&options->port));
  flags->Add("--control-port", "PORT",
             "port on 127.0.0.1 (::1 if the host has no 127.0.0.1) that also serves health, drain "
             "and the Control service, with threads that clients of --port cannot block; 0 takes "
             "any free port (default 0)",
             PortValue(&options->control_port));
  flags->Add("--http-port", "PORT",
             "port of the OpenAI-compatible HTTP server on --host; 0 takes any free port (default: "
             "no HTTP server)",
             IntegerValue(&options->http_port, 0, 65535));
  flags->Add("--metrics-port", "PORT",
             "port of Prometheus metrics on --host, served by a thread that clients cannot block; "
             "0 takes any free port (default: metrics only at /metrics of --http-port)",
             IntegerValue(&options->metrics_port, 0, 65535));
  flags->AddSwitch("--log-requests", "log one line of lengths and times per finished request",
                   &options->log_requests);
  flags->AddSwitch("--enable-kv-cache-events",
                   "stream changes of the prefix cache by SubscribeKvEvents (see docs/clients.md)",
                   &options->enable_kv_cache_events);
  flags->Add("--chat-template", "FILE",
             "file with a Jinja chat template, or the name of one of the model's templates "
             "(default: the model's chat template)",
             TextValue(&options->chat_template));
  flags->Add("--tool-call-parser", "NAME",
             "format in which the model writes tool calls: auto (recognised from the chat "
             "template), none, or a name listed in docs/http.md (default auto)",
             TextValue(&options->tool_call_parser));
  flags->Add("--reasoning-parser", "NAME",
             "format in which the model writes its reasoning: auto (recognised from the chat "
             "template), none, or a name listed in docs/http.md (default auto)",
             TextValue(&options->reasoning_parser));
  AddSecurityFlags(&options->security, flags);
  flags->AddSwitch("--insecure",
                   "accept a non-loopback --host without TLS, or without authentication of clients "
                   "by API keys or client certificates",
                   &options->insecure);
  AddDeviceFlags(raw, flags);
  AddLimitFlags(raw, flags);
  AddSchedulingFlags(raw, flags);
  AddQueueFlags(options, flags);
  flags->Add(
      "--host-memory", "SIZE",
      "memory of rank 0's host for clients (connections, requests and answers), in addition to the "
      "arenas (default auto: serve measures what is left; plan shows the largest quotas)",
      HostMemoryValue(&options->host_memory));
  AddLogFlags(flags);
  AddTimeFlags(raw, flags);
  flags->Add("--drain-timeout", "TIME",
             "time that running requests have to finish when the server drains (default 120)",
             DurationValue(&options->drain_timeout));
  flags->Group("Process");
  flags->AddSwitch("--no-parent",
                   "run a single rank without its small parent process, for a debugger; if the "
                   "kernel kills the rank, no process is left to report it",
                   [options](bool on) { options->parent = !on; });
  flags->Group("Report");
  flags->Add("--report", "FILE",
             "write the capacity report of every rank to this file as JSON: at READY, when the "
             "start is refused, and at the end",
             TextValue(&options->report));
}

// The options of `plan` without its own comparisons, with `more` applied.
absl::StatusOr<PlanOptions> WithFlagsApplied(const EngineOptions& plan, const std::string& more) {
  const std::vector<std::string> added =
      absl::StrSplit(more, absl::ByAnyChar(" \t"), absl::SkipEmpty());
  absl::StatusOr<Command> parsed =
      ParseCommandLine(ChangedArgs(WithoutFlags(plan.command_line, {"--compare"}), added));
  if (!parsed.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--compare \"", more, "\": ", parsed.status().message()));
  }
  auto* const other = std::get_if<PlanOptions>(&*parsed);
  if (other == nullptr || !other->compare.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--compare \"", more, "\": not flags of a plan"));
  }
  return std::move(*other);
}

}  // namespace

absl::StatusOr<Command> ParseServe(CommandArgs args) {
  Flags flags("serve", "[--model] DIR [FLAGS]",
              "Serves a model over gRPC, and over HTTP with --http-port. Prints READY\n"
              "grpc=HOST:PORT on standard output when it accepts requests.",
              "bulkhead serve --model ~/models/Llama-3.2-1B\n"
              "mpirun -n 4 bulkhead serve --model ~/models/Llama-3.2-1B --max-model-len 32K");
  ServeOptions options;
  RawEngineFlags raw;
  AddServeFlags(&raw, &options, &flags);
  BH_ASSIGN_OR_RETURN(const bool help, flags.Parse(args));
  if (help) return PrintText{flags.Help()};
  BH_ASSIGN_OR_RETURN(options.engine, CompleteEngine(raw, flags, options.served_model_names));
  BH_RETURN_IF_ERROR(CheckPorts(options));
  BH_RETURN_IF_ERROR(CheckKvEvents(options));
  options.security.environment_key = HasEnvironmentKey();
  BH_RETURN_IF_ERROR(CheckSecurity(options, !flags.follows_rank0()));
  return options;
}

absl::StatusOr<Command> ParsePlan(CommandArgs args) {
  Flags flags("plan", "[--model] DIR [FLAGS]",
              "Shows whether 'serve' with the same flags fits into memory, to the byte for each\n"
              "rank. Needs only the model's config.json, no weights and no device.",
              "bulkhead plan --model ~/models/Llama-3.1-8B --tp 8 --gpu h200\n"
              "bulkhead plan --model DIR --tp 2 --device-memory 0=24GiB,1=16GiB --json\n"
              "bulkhead plan --model DIR --gpu h200 --compare=\"--tp 2\" --compare=\"--tp 4\"");
  PlanOptions options;
  RawEngineFlags raw;
  flags.Group("Plan");
  flags.Add("--gpu", "NAME",
            absl::StrCat("GPU model to plan for: ", absl::StrJoin(GpuNames(), ", "),
                         "; arenas are exact, the memory of the driver is an estimate"),
            WithChoices(
                [&options](const std::string& text) -> absl::Status {
                  const std::optional<GpuModel> gpu = FindGpu(text);
                  if (!gpu.has_value()) return NotOneOf(text, GpuNames());
                  if (gpu->compute_capability < kMinComputeCapability) {
                    return absl::InvalidArgumentError(absl::StrFormat(
                        "%s has compute capability %.1f, and kernels need %.1f or later", gpu->name,
                        gpu->compute_capability / 10.0, kMinComputeCapability / 10.0));
                  }
                  options.gpu = gpu->name;
                  return absl::OkStatus();
                },
                GpuNames()));
  flags.Add("--nodes", "N", "number of hosts that the ranks run on (default 1)",
            IntegerValue(&options.nodes, 1, kMaxRanks));
  flags.Add("--compare", "FLAGS",
            "compare this plan with the plan that has FLAGS in addition, such as --compare=\"--tp "
            "4\"; if given twice or more, compare those plans with each other",
            TextListValue(&options.compare_flags));
  flags.Add("--plot,--svg", "FILE",
            "write a chart to this .svg, .png or .pdf file: the arenas of each rank, and the curve "
            "of sequence length against number of sequences",
            TextValue(&options.plot));
  flags.AddSwitch(
      "--json",
      "print the report as JSON; with --compare a list of reports in the order of the table",
      &options.json);
  AddServeFlags(&raw, &options.serve, &flags);
  BH_ASSIGN_OR_RETURN(const bool help, flags.Parse(args));
  if (help) return PrintText{flags.Help()};
  BH_ASSIGN_OR_RETURN(options.serve.engine,
                      CompleteEngine(raw, flags, options.serve.served_model_names));
  BH_RETURN_IF_ERROR(CheckPorts(options.serve));
  BH_RETURN_IF_ERROR(CheckKvEvents(options.serve));
  options.serve.security.environment_key = HasEnvironmentKey();
  const int ranks = options.serve.engine.tensor_parallel_size.value_or(1);
  if (options.nodes > ranks) {
    return absl::InvalidArgumentError(
        absl::StrCat("--nodes ", options.nodes, " is more than the ", ranks,
                     " ranks of --tp: every node needs one; give at most --nodes ", ranks));
  }
  for (const std::string& more : options.compare_flags) {
    BH_ASSIGN_OR_RETURN(options.compare.emplace_back(),
                        WithFlagsApplied(options.serve.engine, more));
  }
  return options;
}

absl::StatusOr<Command> ParseRun(CommandArgs args) {
  Flags flags(
      "run", "[--model] DIR --prompts FILE [FLAGS]",
      "Generates answers to a file of prompts without a server (offline batch inference).\n"
      "Also runs as a group of ranks under mpirun.",
      "bulkhead run --model DIR --prompts prompts.jsonl --out answers.jsonl --temperature 0\n"
      "bulkhead run --model DIR --prompts prompts.jsonl --logits logits.safetensors --max-tokens "
      "1");
  RunOptions options;
  RawEngineFlags raw;
  flags.Group("Files");
  flags.Add("--prompts", "FILE",
            "file of JSON lines, or - for standard input: {\"prompt\": \"text\"} or "
            "{\"prompt_token_ids\": [1, 2]}, and optional request fields such as max_tokens and "
            "temperature",
            TextValue(&options.prompts));
  flags.Add("--out", "FILE",
            "file for the results, one JSON line per prompt in the order of the prompts: token "
            "IDs, text, finish reason (default -: standard output)",
            TextValue(&options.out));
  flags.Add("--logits", "FILE",
            "file for the logits of all prompt tokens, in safetensors: f32 tensors logits.INDEX of "
            "shape [tokens, vocabulary]",
            TextValue(&options.logits));
  AddRequestFlags(&options.request, &flags);
  AddEngineFlags(&raw, &flags);
  BH_ASSIGN_OR_RETURN(const bool help, flags.Parse(args));
  if (help) return PrintText{flags.Help()};
  BH_ASSIGN_OR_RETURN(options.engine, CompleteEngine(raw, flags));
  if (options.prompts.empty()) {
    return absl::InvalidArgumentError(
        "--prompts is missing; give a file of JSON lines, or - for standard input");
  }
  return options;
}

absl::StatusOr<Command> ParseScore(CommandArgs args) {
  Flags flags("score", "[--model] DIR --texts FILE [FLAGS]",
              "Computes the negative log-likelihood of given texts, the sum of -ln p over their\n"
              "tokens, without a server. Also runs as a group of ranks under mpirun.",
              "bulkhead score --model DIR --texts texts.jsonl --out scores.jsonl\n"
              "bulkhead score --model DIR --texts texts.jsonl --kv-cache-dtype bfloat16");
  ScoreOptions options;
  RawEngineFlags raw;
  flags.Group("Files");
  flags.Add("--texts", "FILE",
            "file of JSON lines, or - for standard input: {\"text\": \"...\"} or "
            "{\"prompt_token_ids\": [1, 2]}, and optionally model, the name of a LoRA adapter",
            TextValue(&options.texts));
  flags.Add("--out", "FILE",
            "file for the results, one JSON line per text in the order of the texts: index, "
            "tokens, nll (default -: standard output)",
            TextValue(&options.out));
  AddEngineFlags(&raw, &flags);
  BH_ASSIGN_OR_RETURN(const bool help, flags.Parse(args));
  if (help) return PrintText{flags.Help()};
  BH_ASSIGN_OR_RETURN(options.engine, CompleteEngine(raw, flags));
  if (options.texts.empty()) {
    return absl::InvalidArgumentError(
        "--texts is missing; give a file of JSON lines, or - for standard input");
  }
  return options;
}

}  // namespace bulkhead
