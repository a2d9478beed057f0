// The commands that load a model: serve and run.
#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "kernels/backend.h"
#include "launcher/command_flags.h"
#include "launcher/flag_values.h"
#include "launcher/gpu_models.h"
#include "launcher/request_flags.h"
#include "memory/status.h"

namespace bulkhead {
namespace {

constexpr int kMaxInt = std::numeric_limits<int>::max();
constexpr int kMaxSeqs = 65536;
constexpr int kMaxBatchedTokens = 1 << 20;
constexpr int kMaxQueuedReqs = 1 << 20;
constexpr int kMaxRanks = 1024;

// What the parse leaves to be completed once all flags are known.
struct EngineDraft {
  EngineOptions options;
  // At most one of them.
  std::optional<double> gpu_memory_utilization;
  std::optional<KvRule> cache_max_entry_count;
  std::optional<int64_t> kv_cache_bytes;
};

Flags::Apply ModelValue(std::string* model) {
  return [=](const std::string& text) -> absl::Status {
    if (!model->empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("the model is given twice: '", *model, "' and '", text, "'"));
    }
    return TextValue(model)(text);
  };
}

void AddModelFlags(EngineDraft* draft, Flags* flags) {
  EngineOptions& options = draft->options;
  flags->Group("Model");
  flags->Add(
      "--model", "DIR",
      "a Hugging Face checkpoint's folder, or org/name in the local Hugging Face cache; may be "
      "written without the flag",
      ModelValue(&options.model));
  flags->AddPositional("DIR", 1, ModelValue(&options.model));
  flags->Add(
      "--dtype", "TYPE",
      "how weights are held: auto, float32, bfloat16, float16 (default auto: as in the checkpoint)",
      DTypeValue(&options.dtype));
  flags->AddSwitch("--strict-config", "refuse a config.json with a field that is not known",
                   [&options](bool on) { options.strict_config = on; });
}

void AddDeviceFlags(EngineDraft* draft, Flags* flags) {
  EngineOptions& options = draft->options;
  flags->Group("Device");
  flags->Add("--device", "NAME", "cpu or auto (default auto)",
             ChoiceValue<DeviceChoice>(
                 &options.device, {{"auto", DeviceChoice::kAuto}, {"cpu", DeviceChoice::kCpu}}));
  flags->Add("--threads", "N",
             "threads of each rank (default, or 0: the cores it may use, shared among the ranks of "
             "its host)",
             [&options](const std::string& text) -> absl::Status {
               BH_RETURN_IF_ERROR(IntegerValue(&options.threads, 0, kMaxThreads)(text));
               if (options.threads == 0) options.threads.reset();
               return absl::OkStatus();
             });
  flags->Add("--tensor-parallel-size,--tp", "N",
             "not needed: mpirun or srun says how many ranks there are; when given, it must agree",
             IntegerValue(&options.tensor_parallel_size, 1, kMaxRanks));
  flags->AddHidden("--cpu-isa", ChoiceValue<CpuIsa>(&options.cpu_isa, {{"auto", CpuIsa::kAuto},
                                                                       {"avx512", CpuIsa::kAvx512},
                                                                       {"avx2", CpuIsa::kAvx2},
                                                                       {"plain", CpuIsa::kPlain}}));
}

void AddLimitFlags(EngineDraft* draft, Flags* flags) {
  EngineOptions& options = draft->options;
  flags->Group("Limits (32k is 32000, 32K is 32768)");
  flags->Add("--max-num-seqs,--max-batch-size", "N",
             "sequences that run at once (default auto: 64, or what fits)",
             IntegerValue(&options.max_num_seqs, 1, kMaxSeqs));
  flags->Add("--max-model-len,--session-len", "N",
             "tokens of a sequence, prompt and answer together (default auto: the model's, or what "
             "fits)",
             IntegerValue(&options.max_model_len, 1, kMaxInt));
  flags->Add("--max-num-batched-tokens,--max-prefill-token-num", "N",
             "tokens of one step; longer prompts are taken in pieces (default auto: 2048, or what "
             "fits)",
             IntegerValue(&options.max_num_batched_tokens, 1, kMaxBatchedTokens));
  flags->Add("--default-max-tokens", "N",
             "tokens to generate for a request that does not say (default 512, or what is left)",
             IntegerValue(&options.default_max_tokens, 1, kMaxInt));

  flags->Group("Memory of each rank; at most one of the rules that size the KV cache");
  flags->Add("--device-memory", "SIZE",
             "plan with so much, whatever the machine has: 80GiB, or 0=4GiB,1=2GiB rank by rank "
             "(default auto: what is measured)",
             RankSizesValue(&options.device_memory, 1));
  flags->Add("--reserve", "SIZE",
             "leave so much alone, 0=1GiB,1=0 rank by rank (default auto: 10 % of what is free, "
             "nothing under --device-memory)",
             RankSizesValue(&options.reserve, 0));
  flags->Add("--gpu-memory-utilization", "U",
             "KV rule: all of ours together take up to this share of the device, in (0, 1]",
             RealValue(&draft->gpu_memory_utilization, 0, 1, Border::kExcluded));
  flags->Add("--cache-max-entry-count", "X",
             "KV rule: with a point, the share of what is free after the weights; without, a "
             "number of blocks",
             EntryCountValue(&draft->cache_max_entry_count));
  flags->Add("--kv-cache-bytes,--kv-cache-memory-bytes", "BYTES",
             "KV rule: so many, such as 4GiB (no rule: enough for --max-num-seqs sequences; where "
             "memory is measured, up to half of what is left)",
             IntegerValue(&draft->kv_cache_bytes, 1, std::numeric_limits<int64_t>::max()));

  flags->Group("KV cache");
  flags->Add("--kv-cache-dtype", "TYPE",
             "auto, float32, bfloat16, float16 (default auto: the checkpoint's)",
             DTypeValue(&options.kv_cache_dtype));
  flags->Add("--block-size,--cache-block-seq-len", "N",
             "tokens of a block: a power of two from 16 to 256 (default 16)",
             IntegerValue(&options.block_size, 16, 256));
}

void AddSchedulingFlags(EngineDraft* draft, Flags* flags) {
  EngineOptions& options = draft->options;
  flags->Group("Scheduling");
  flags->Add("--admission", "HOW",
             "reserve: a request is admitted when its whole length fits; optimistic: when its "
             "prompt fits, and "
             "preempted by recomputation if need be (default reserve)",
             ChoiceValue<Admission>(&options.admission, {{"reserve", Admission::kReserve},
                                                         {"optimistic", Admission::kOptimistic}}));
  flags->Add("--scheduling-policy", "HOW",
             "fcfs: first come, first served; priority: the request's priority first, higher is "
             "more urgent "
             "(default fcfs)",
             ChoiceValue<SchedulingPolicy>(
                 &options.scheduling_policy,
                 {{"fcfs", SchedulingPolicy::kFcfs}, {"priority", SchedulingPolicy::kPriority}}));
}

void AddTimeFlags(EngineDraft* draft, Flags* flags) {
  EngineOptions& options = draft->options;
  flags->Group("Time (seconds, or 90s, 2m)");
  flags->Add("--startup-timeout", "TIME", "until READY, then exit code 5 (default 600)",
             DurationValue(&options.startup_timeout));
  flags->Add(
      "--step-timeout", "TIME",
      "of one step, then the group ends with exit code 6 (default: 60, or ten times what the "
      "rehearsed step took)",
      DurationValue(&options.step_timeout));
}

void AddEngineFlags(EngineDraft* draft, Flags* flags) {
  AddModelFlags(draft, flags);
  AddDeviceFlags(draft, flags);
  AddLimitFlags(draft, flags);
  AddSchedulingFlags(draft, flags);
  AddTimeFlags(draft, flags);
}

// The draft with everything that follows from several flags together.
absl::StatusOr<EngineOptions> Complete(const EngineDraft& draft, const char* command) {
  EngineOptions options = draft.options;
  if (options.model.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--model is missing; write 'bulkhead ", command, " --model DIR'"));
  }
  if ((options.block_size & (options.block_size - 1)) != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("--block-size: ", options.block_size, " is not a power of two"));
  }
  int rules = 0;
  if (draft.gpu_memory_utilization.has_value()) {
    ++rules;
    options.kv_rule = {.kind = KvRule::Kind::kUtilization,
                       .fraction = *draft.gpu_memory_utilization};
  }
  if (draft.cache_max_entry_count.has_value()) {
    ++rules;
    options.kv_rule = *draft.cache_max_entry_count;
  }
  if (draft.kv_cache_bytes.has_value()) {
    ++rules;
    options.kv_rule = {.kind = KvRule::Kind::kBytes, .count = *draft.kv_cache_bytes};
  }
  if (rules > 1) {
    return absl::InvalidArgumentError(
        "--gpu-memory-utilization, --cache-max-entry-count and --kv-cache-bytes are rules for the "
        "same memory; give one of them");
  }
  return options;
}

// By its spelling: no name is looked up.
bool IsLoopback(const std::string& host) {
  return host == "localhost" || host == "::1" || host == "[::1]" ||
         (absl::StartsWith(host, "127.") &&
          host.find_first_not_of("0123456789.") == std::string::npos);
}

void AddServeFlags(EngineDraft* draft, ServeOptions* options, Flags* flags) {
  AddModelFlags(draft, flags);
  flags->Add("--served-model-name", "NAME",
             "the name that requests may give (default: what --model says)",
             TextValue(&options->served_model_name));
  flags->Group("Network");
  flags->Add("--host", "ADDRESS", "where to listen (default 127.0.0.1)", TextValue(&options->host));
  flags->Add("--port", "PORT", "0 takes any that is free (default 50051)",
             IntegerValue(&options->port, 0, 65535));
  flags->AddSwitch("--insecure",
                   "allow a host that is not loopback: there is no TLS and no password",
                   [options](bool on) { options->insecure = on; });
  AddDeviceFlags(draft, flags);
  AddLimitFlags(draft, flags);
  AddSchedulingFlags(draft, flags);
  flags->Add("--max-num-queued-reqs", "N",
             "requests that may wait, and N x max-model-len tokens of theirs; more are refused "
             "with a hint when to retry (default 1024)",
             IntegerValue(&options->max_num_queued_reqs, 1, kMaxQueuedReqs));
  AddTimeFlags(draft, flags);
  flags->Add("--drain-timeout", "TIME", "what runs may take to finish once draining (default 120)",
             DurationValue(&options->drain_timeout));
  flags->Group("Report");
  flags->Add("--report", "FILE",
             "write what fits as JSON, rank by rank: once READY, when refused, and at the end",
             TextValue(&options->report));
}

// `args` without its own comparisons, and with `more` behind it: the last of a flag wins, and a KV
// rule takes the place of the other rules.
absl::StatusOr<EngineOptions> LaidOver(CommandArgs args, const std::string& more) {
  constexpr absl::string_view kRules[] = {"--gpu-memory-utilization", "--cache-max-entry-count",
                                          "--kv-cache-bytes"};
  const std::vector<std::string> added =
      absl::StrSplit(more, absl::ByAnyChar(" \t"), absl::SkipEmpty());
  const auto is_one_of = [](const std::string& arg, absl::Span<const absl::string_view> names) {
    return std::any_of(names.begin(), names.end(),
                       [&](absl::string_view name) { return absl::StartsWith(arg, name); });
  };
  const bool new_rule = std::any_of(added.begin(), added.end(),
                                    [&](const std::string& arg) { return is_one_of(arg, kRules); });
  std::vector<std::string> all;
  for (size_t i = 0; i < args.size(); ++i) {
    const bool dropped =
        is_one_of(args[i], {"--compare"}) || (new_rule && is_one_of(args[i], kRules));
    if (!dropped) {
      all.push_back(args[i]);
    } else if (!absl::StrContains(args[i], '=')) {
      ++i;  // its value
    }
  }
  all.insert(all.end(), added.begin(), added.end());
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
  EngineDraft draft;
  AddServeFlags(&draft, &options, &flags);
  BH_ASSIGN_OR_RETURN(const bool help, flags.Parse(args));
  if (help) return PrintText{flags.Help()};
  BH_ASSIGN_OR_RETURN(options.engine, Complete(draft, "serve"));
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
  EngineDraft draft;
  flags.Group("Plan");
  flags.Add("--gpu", "NAME",
            absl::StrCat("plan for this GPU: ", absl::StrJoin(GpuNames(), ", "),
                         "; weights and KV are exact, the other arenas estimates"),
            [&options](const std::string& text) -> absl::Status {
              if (!FindGpu(text).has_value()) return NotOneOf(text, GpuNames());
              options.gpu = text;
              return absl::OkStatus();
            });
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
  BH_ASSIGN_OR_RETURN(options.serve.engine, Complete(draft, "plan"));
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
  EngineDraft draft;
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
  BH_ASSIGN_OR_RETURN(options.engine, Complete(draft, "run"));
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
  EngineDraft draft;
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
  BH_ASSIGN_OR_RETURN(options.engine, Complete(draft, "score"));
  if (options.texts.empty()) {
    return absl::InvalidArgumentError(
        "--texts is missing; give a file of JSON lines, or - for standard input");
  }
  return options;
}

}  // namespace bulkhead
