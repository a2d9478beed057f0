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
    const char* const what = !bytes.ok()               ? "is no such number of bytes"
                             : *bytes > kMaxHostMemory ? "is more than that"
                                                       : "is not enough";
    return absl::InvalidArgumentError(
        absl::StrCat("'", text, "' ", what, ": memory for clients is at least ", kMinHostMiB,
                     "MiB, the least with any model, and at most ", kMaxHostMemory >> 40,
                     "TiB; leave it out for what is left, or give ", kMinHostMiB,
                     "MiB: if this model needs more, the refusal says how much"));
  };
}

Flags::Apply HostValue(std::string* out) {
  return [=](const std::string& text) {
    const bool has_port =
        std::count(text.begin(), text.end(), ':') == 1 || absl::StrContains(text, "]:");
    if (!has_port) return TextValue(out)(text);
    return absl::InvalidArgumentError(
        absl::StrCat("'", text, "' has a port; give the address alone, and the port with --port"));
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
      return absl::InvalidArgumentError(absl::StrCat(
          flag, ": ", port, " is ", other, " already; give another, or 0 for any free one"));
    }
  }
  const bool meet = options.host == "127.0.0.1" || options.host == "localhost" ||
                    options.host == "0.0.0.0" || options.host == "::" || options.host == "[::]";
  if (!meet || options.port == 0 || options.control_port != options.port) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--control-port: ", options.control_port,
                   " is --port already; give another from 1 to 65535, or 0 for any free one"));
}

absl::Status CheckKvEvents(const ServeOptions& options) {
  if (!options.enable_kv_cache_events || options.engine.enable_prefix_caching) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      "--enable-kv-cache-events: they are events of the prefix cache; leave out "
      "--no-enable-prefix-caching");
}

void AddQueueFlags(ServeOptions* options, Flags* flags) {
  flags->Add(
      "--max-num-queued-reqs", "N",
      "waiting requests in addition to max-num-seqs running ones, 0 for no queue; more are refused "
      "with a retry delay (default auto: 1024, or fewer)",
      IntegerValue(&options->max_num_queued_reqs, 0, kMaxQueuedReqs));
  flags->Add("--target-itl", "TIME",
             "while answers are generated, prompts are prefilled in smaller chunks where a step "
             "would take longer than this and than four times what it takes without them; with a "
             "large one, in chunks of --max-num-batched-tokens (default 250ms, on GPUs none)",
             DurationValue(&options->target_itl));
}

void AddServeFlags(RawEngineFlags* raw, ServeOptions* options, Flags* flags) {
  AddModelFlags(raw, flags);
  flags->Add("--served-model-name", "NAME,...",
             "the model's names in requests, first that of metrics (default: the value of --model)",
             ListValue(&options->served_model_names, &ParseText));
  flags->Group("Network");
  flags->Add("--host", "ADDRESS", "where to listen (default 127.0.0.1)", HostValue(&options->host));
  flags->Add("--port", "PORT", "gRPC; 0: any free one (default 50051)", PortValue(&options->port));
  flags->Add(
      "--control-port", "PORT",
      "where health, drain and all of Control are also served, on 127.0.0.1, or ::1 where "
      "there is none, by a thread that clients of --port cannot block; 0, the default, takes "
      "any free one",
      PortValue(&options->control_port));
  flags->Add("--http-port", "PORT",
             "also serve the HTTP API of OpenAI on --host, at this port; 0 takes any free one "
             "(default: no HTTP)",
             IntegerValue(&options->http_port, 0, 65535));
  flags->Add("--metrics-port", "PORT",
             "serve Prometheus metrics on --host, at this port, by a thread that clients cannot "
             "block; 0 takes any free one (default: only at /metrics of --http-port)",
             IntegerValue(&options->metrics_port, 0, 65535));
  flags->AddSwitch("--log-requests", "log a line for each request that ends: lengths and times",
                   &options->log_requests);
  flags->AddSwitch("--enable-kv-cache-events", "serve SubscribeKvEvents (docs/clients.md)",
                   &options->enable_kv_cache_events);
  flags->Add("--chat-template", "FILE",
             "the Jinja template of chats, or the name of one of the model's own (default: the "
             "model's)",
             TextValue(&options->chat_template));
  flags->Add("--tool-call-parser", "NAME",
             "how the model writes calls of tools: auto, by its chat template, none, or a name "
             "as in docs/http.md (default auto)",
             TextValue(&options->tool_call_parser));
  flags->Add("--reasoning-parser", "NAME",
             "how the model writes its reasoning: auto, none, or a name as in docs/http.md "
             "(default auto)",
             TextValue(&options->reasoning_parser));
  AddSecurityFlags(&options->security, flags);
  flags->AddSwitch("--insecure",
                   "allow a non-loopback host without TLS, or without API keys and client "
                   "certificates",
                   &options->insecure);
  AddDeviceFlags(raw, flags);
  AddLimitFlags(raw, flags);
  AddSchedulingFlags(raw, flags);
  AddQueueFlags(options, flags);
  flags->Add("--host-memory", "SIZE",
             "what rank 0's host may hold for clients beside the arenas: their connections, "
             "requests and answers (default auto: serve measures what is left; plan shows the "
             "largest quotas)",
             HostMemoryValue(&options->host_memory));
  AddLogFlags(flags);
  AddTimeFlags(raw, flags);
  flags->Add("--drain-timeout", "TIME",
             "time for running requests to finish when draining (default 120)",
             DurationValue(&options->drain_timeout));
  flags->Group("Process");
  flags->AddSwitch("--no-parent",
                   "run a group of one as one process, for a debugger: nothing reports it if the "
                   "kernel kills it",
                   [options](bool on) { options->parent = !on; });
  flags->Group("Report");
  flags->Add(
      "--report", "FILE",
      "write the capacity report as JSON, rank by rank: at READY, when refused, and at the end",
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
  Flags flags(
      "serve", "[--model] DIR [FLAGS]",
      "Serves a model over gRPC. Prints READY grpc=HOST:PORT on standard output when ready.",
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
              "Shows whether `serve` with the same flags would fit, rank by rank to the byte. "
              "Needs only the model's config.json, no weights and no device.",
              "bulkhead plan --model ~/models/Llama-3.1-8B --tp 8 --gpu h200\n"
              "bulkhead plan --model DIR --tp 2 --device-memory 0=24GiB,1=16GiB --json\n"
              "bulkhead plan --model DIR --gpu h200 --compare=\"--tp 2\" --compare=\"--tp 4\"");
  PlanOptions options;
  RawEngineFlags raw;
  flags.Group("Plan");
  flags.Add("--gpu", "NAME",
            absl::StrCat("plan for this GPU: ", absl::StrJoin(GpuNames(), ", "),
                         "; every arena is exact, what the driver takes is estimated"),
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
  flags.Add("--nodes", "N", "number of hosts for the ranks (default 1)",
            IntegerValue(&options.nodes, 1, kMaxRanks));
  flags.Add("--compare", "FLAGS",
            "compare this plan with one with FLAGS applied, --compare=\"--tp 4\"; given twice or "
            "more, those with each other",
            TextListValue(&options.compare_flags));
  flags.Add(
      "--plot,--svg", "FILE",
      "draw each rank's arenas, and the curve of length against sequences: .svg, .png or .pdf",
      TextValue(&options.plot));
  flags.AddSwitch("--json",
                  "print the report as JSON, with --compare a list of them in the order of the "
                  "table",
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
      "Offline batch inference: runs a file of prompts through a model, without a server; also "
      "under mpirun.",
      "bulkhead run --model DIR --prompts prompts.jsonl --out answers.jsonl --temperature 0\n"
      "bulkhead run --model DIR --prompts prompts.jsonl --logits logits.safetensors --max-tokens "
      "1");
  RunOptions options;
  RawEngineFlags raw;
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
              "Computes the log probability of given texts: the sum of -ln p over their tokens. No "
              "server; also under mpirun.",
              "bulkhead score --model DIR --texts texts.jsonl --out scores.jsonl\n"
              "bulkhead score --model DIR --texts texts.jsonl --kv-cache-dtype bfloat16");
  ScoreOptions options;
  RawEngineFlags raw;
  flags.Group("Files");
  flags.Add(
      "--texts", "FILE",
      "JSON lines: {\"text\": \"...\"} or {\"prompt_token_ids\": [1, 2]}, and perhaps model, of an "
      "adapter; - is standard input",
      TextValue(&options.texts));
  flags.Add("--out", "FILE",
            "JSON lines in the order of the texts: index, tokens, nll (default -, standard output)",
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
