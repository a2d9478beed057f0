#include "launcher/flags/engine_flags.h"

#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status.h"
#include "kernels/backend.h"
#include "launcher/flags/flag_values.h"
#include "launcher/flags/lora_modules.h"
#include "launcher/flags/speculative_config.h"
#include "memory/kv_format_name.h"

namespace bulkhead {
namespace {

constexpr int kMaxInt = std::numeric_limits<int>::max();
constexpr int kMaxSeqs = 65536;
constexpr int kMaxBatchedTokens =
    1 << 19;  // what a launch with 16 tokens in each of 2^16 - 1 blocks holds

}  // namespace

void AddModelFlags(RawEngineFlags* raw, Flags* flags) {
  EngineOptions& options = raw->options;
  flags->Group("Model");
  flags->Add(
      "--model", "DIR",
      "checkpoint folder, or org/name of a model in the local Hugging Face cache; nothing is "
      "downloaded; may be given without the flag",
      ModelValue(&options.model, "; names after --served-model-name are separated by commas"));
  flags->AddPositional("--model", 1);
  flags->Add("--dtype", "TYPE",
             "number format of the weights: auto, float32, bfloat16, float16 (default auto: as in "
             "the checkpoint)",
             NamedValue(&options.dtype, ParseDType, {"float32", "bfloat16", "float16"}));
  flags->Add(
      "--weight-dtype", "TYPE",
      "number format to quantise the weights to at load: int8 or int4 (default auto: the weights "
      "stay as in the checkpoint)",
      OptionalChoiceValue<WeightFormat>(
          &options.weight_dtype, {{"int8", WeightFormat::kInt8}, {"int4", WeightFormat::kInt4}}));
  flags->Add("--weight-group-size", "N",
             "number of inputs that share a scale with --weight-dtype: 32, 64 or 128 (default 128)",
             ChoiceValue<int>(&options.weight_group_size, {{"32", 32}, {"64", 64}, {"128", 128}}));
  flags->Add(
      "--activation-dtype", "TYPE",
      "number format of the inputs of matrix products. On CPUs: f32 (exact), int8 (fast), bf16 "
      "(for bf16 weights; faster prefill on AMD CPUs with avx512_bf16), or bf16-amx (for bf16 "
      "weights on CPUs with amx_bf16, where it is fastest; its results differ from bf16 in the "
      "last bits) (default auto: int8 for quantised weights, otherwise f32). On GPUs of compute "
      "capability 9.0: fp8, for fp8 weights; it rounds the inputs of prefill to E4M3",
      OptionalChoiceValue<ActivationDType>(&options.activation_dtype,
                                           {{"int8", ActivationDType::kInt8},
                                            {"bf16", ActivationDType::kBf16},
                                            {"bfloat16", ActivationDType::kBf16},
                                            {"bf16-amx", ActivationDType::kBf16Amx},
                                            {"f32", ActivationDType::kF32},
                                            {"float32", ActivationDType::kF32},
                                            {"fp8", ActivationDType::kFp8}}));
  flags->Add("--attention-dtype", "TYPE",
             "number format in which CPUs compute attention: f32 or, with a bf16 KV cache, bf16 "
             "(faster prefill of long prompts on AMD CPUs with avx512_bf16) or bf16-amx (faster "
             "prefill of long prompts on CPUs with amx_bf16, which it requires); each gives "
             "different bits (default auto: the value of --activation-dtype if that is bf16 or "
             "bf16-amx and the KV cache is bf16, otherwise f32)",
             OptionalChoiceValue<AttentionDType>(&options.attention_dtype,
                                                 {{"f32", AttentionDType::kF32},
                                                  {"float32", AttentionDType::kF32},
                                                  {"bf16", AttentionDType::kBf16},
                                                  {"bfloat16", AttentionDType::kBf16},
                                                  {"bf16-amx", AttentionDType::kBf16Amx}}));
  flags->Add("--lora-modules", "NAME=DIR,...",
             "LoRA adapters to load at start, at most 64: a request uses the adapter in folder DIR "
             "if its model is NAME; an adapter can also be written as {\"name\": \"NAME\", "
             "\"path\": \"DIR\"}; may be given several times",
             LoraModulesValue(&options.lora_modules));
  flags->AddSwitch("--strict-config",
                   "refuse a config.json with unknown fields (default: log a warning)",
                   &options.strict_config);
}

void AddDeviceFlags(RawEngineFlags* raw, Flags* flags) {
  EngineOptions& options = raw->options;
  flags->OfGroup();
  flags->Group("Device");
  flags->Add("--device", "NAME",
             "device to compute on: cpu, cuda, or auto, which is cuda if every rank has a GPU and "
             "otherwise cpu (default auto)",
             ChoiceValue<DeviceOption>(&options.device, {{"auto", DeviceOption::kAuto},
                                                         {"cpu", DeviceOption::kCpu},
                                                         {"cuda", DeviceOption::kCuda}}));
  flags->Add("--comm", "NAME",
             "how GPUs add up partial sums (all-reduce): nccl, staged (through host memory; ranks "
             "may then share a GPU), or auto, which is nccl if it is installed and otherwise "
             "staged (default auto)",
             ChoiceValue<CommOption>(&options.comm, {{"auto", CommOption::kAuto},
                                                     {"nccl", CommOption::kNccl},
                                                     {"staged", CommOption::kStaged}}));
  flags->Add(
      "--all-reduce-dtype", "TYPE",
      "number format in which partial sums are sent between hosts, and between GPUs by NCCL: f32, "
      "or bf16, which halves the bytes but makes answers depend on the number of ranks and on "
      "their hosts; sums in a host's memory and one-shot sums of GPUs are always f32 (default f32)",
      ChoiceValue<DType>(&options.all_reduce_dtype, {{"f32", DType::kF32},
                                                     {"float32", DType::kF32},
                                                     {"bf16", DType::kBF16},
                                                     {"bfloat16", DType::kBF16}}));
  flags->Add("--threads", "N",
             "threads of each rank, at most 64; 0, the default, takes the physical cores that the "
             "process may use (CPU mask and cgroup quota), divided among the ranks of the host",
             WithRange(
                 [&options](const std::string& text) -> absl::Status {
                   BH_RETURN_IF_ERROR(IntegerValue(&options.threads, 0, kMaxThreads)(text));
                   if (options.threads == 0) options.threads.reset();
                   return absl::OkStatus();
                 },
                 0, kMaxThreads));
  flags->Add("--numa", "NODES",
             "NUMA nodes for the threads and memory of a host's ranks: auto (all nodes, divided "
             "among the ranks), off (no placement), or a list such as 0-1,3 (default auto)",
             NumaValue(&options.numa));
  flags->Add("--tensor-parallel-size,--tp", "N",
             "number of ranks; mpirun or srun determines it, and the flag is optional but must "
             "agree; for 'plan', the number of ranks to plan for (default 1)",
             IntegerValue(&options.tensor_parallel_size, 1, kMaxRanks));
  flags->Add("--tp-shares", "LIST",
             "relative share of the model for each rank, for devices of unequal size: a list such "
             "as 2,1,1, or auto, in proportion to their memory (default: equal shares)",
             SharesValue(&options.tp_shares, &options.tp_shares_auto));
  flags->AddHidden("--cpu-isa",
                   ChoiceValue<CpuIsa>(&options.cpu_isa, {{"auto", CpuIsa::kAuto},
                                                          {"avx512amx", CpuIsa::kAvx512Amx},
                                                          {"avx512bf16", CpuIsa::kAvx512Bf16},
                                                          {"avx512vnni", CpuIsa::kAvx512Vnni},
                                                          {"avx512", CpuIsa::kAvx512},
                                                          {"avx2", CpuIsa::kAvx2},
                                                          {"plain", CpuIsa::kPlain},
                                                          {"plain_amx", CpuIsa::kPlainAmx}}));
}

void AddLogFlags(Flags* flags) {
  flags->Group("Log");
  flags->AddSwitch("--verbose,-v", "log the memory of every rank and each phase of the start",
                   SetLogVerbose);
  flags->Add(
      "--log-format", "FORMAT",
      "format of the log: text, or json with one object per line (default text)",
      [](const std::string& text) -> absl::Status {
        bool json = false;
        BH_RETURN_IF_ERROR(ChoiceValue<bool>(&json, {{"text", false}, {"json", true}})(text));
        SetLogJson(json);
        return absl::OkStatus();
      });
}

void AddLimitFlags(RawEngineFlags* raw, Flags* flags) {
  EngineOptions& options = raw->options;
  flags->Group("Limits (32k is 32000, 32K is 32768)");
  flags->Add("--max-num-seqs,--max-batch-size", "N",
             "maximum number of sequences that run at the same time (default auto: 64 on CPUs, 256 "
             "on GPUs, or fewer if memory is short)",
             IntegerValue(&options.limits.max_num_seqs, 1, kMaxSeqs));
  flags->Add("--max-model-len,--session-len", "N",
             "maximum number of tokens of a sequence, prompt and answer together (default auto: "
             "the model's maximum, or fewer if memory is short)",
             IntegerValue(&options.limits.max_model_len, 2, kMaxInt));
  flags->Add("--max-num-batched-tokens,--max-prefill-token-num", "N",
             "maximum number of tokens in one step; longer prompts are prefilled in chunks "
             "(default auto: 2048 on CPUs, 8192 on GPUs, or fewer if memory is short)",
             IntegerValue(&options.limits.max_num_batched_tokens, 1, kMaxBatchedTokens));
  flags->Add("--default-max-tokens", "N",
             "maximum number of tokens to generate for a request without max_tokens (default 512, "
             "or fewer if the prompt leaves less of --max-model-len)",
             IntegerValue(&options.default_max_tokens, 1, kMaxInt));

  flags->Group("Memory of each rank (at most one of the KV rules, which size the KV cache)");
  flags->Add("--device-memory", "SIZE",
             "memory of each rank to plan with instead of the measured amount: 80GiB, or "
             "0=4GiB,1=2GiB by rank (default auto: measured)",
             RankSizesValue(&options.device_memory, 1));
  flags->Add("--reserve", "SIZE",
             "memory of each rank to leave free: 1GiB, or 0=1GiB,1=0 by rank (default auto: on "
             "CPUs 10 % of the free memory, on GPUs 1 % of the total memory and at least 256 MiB; "
             "nothing with --device-memory)",
             RankSizesValue(&options.reserve, 0));
  flags->Add("--gpu-memory-utilization", "U",
             "KV rule: all arenas together (weights, activations, KV cache) take at most this "
             "share of the device's memory, in (0, 1]; unlike in vLLM, the memory of driver and "
             "libraries and the reserve are not part of this share",
             RealValue(&raw->gpu_memory_utilization, 0, 1, Border::kExcluded));
  flags->Add("--cache-max-entry-count", "X",
             "KV rule: with a decimal point, the share of the memory that is free after the "
             "weights; without one, a number of blocks",
             EntryCountValue(&raw->cache_max_entry_count));
  flags->Add("--kv-cache-bytes,--kv-cache-memory-bytes", "BYTES",
             "KV rule: at most this many bytes, such as 4GiB (default without a KV rule: on GPUs "
             "all memory that is left; on CPUs enough for --max-num-seqs sequences, but at most "
             "half of what is left if the memory was measured)",
             IntegerValue(&raw->kv_cache_bytes, 1, std::numeric_limits<int64_t>::max()));

  flags->Group("KV cache");
  flags->Add("--kv-cache-dtype", "TYPE",
             "number format of the KV cache: auto, float32, bfloat16, float16, int8, int4, or fp8 "
             "(e4m3 with the checkpoint's scales, or 1 if it has no scales) (default auto: fp8 if "
             "the checkpoint was calibrated for it, otherwise the checkpoint's number format)",
             NamedValue(&options.kv_cache_dtype, ParseKvFormat,
                        {"float32", "bfloat16", "float16", "int8", "int4", "fp8"}));
  flags->Add("--quant-policy", "N",
             "LMDeploy's form of --kv-cache-dtype: 0 is auto, 8 is int8, 4 is int4 (default 0)",
             ChoiceValue<std::optional<KvFormat>>(
                 &raw->quant_policy,
                 {{"0", std::nullopt}, {"4", KvFormat::kInt4}, {"8", KvFormat::kInt8}}));
  flags->Add("--block-size,--cache-block-seq-len", "N",
             "number of tokens in a KV block: a power of two from 16 to 256 (default 16)",
             IntegerValue(&options.block_size, 16, 256));
  flags->AddSwitch("--enable-prefix-caching,!--no-enable-prefix-caching",
                   "reuse full KV blocks for prompts with a common prefix (default: on; when off, "
                   "every prompt is computed in full)",
                   &options.enable_prefix_caching);
}

void AddSchedulingFlags(RawEngineFlags* raw, Flags* flags) {
  EngineOptions& options = raw->options;
  flags->Group("Scheduling");
  flags->Add("--admission", "HOW",
             "when a waiting request starts: reserve, when its longest possible answer fits into "
             "the KV cache; optimistic, when its prompt fits, and it may later be preempted and "
             "recomputed (default reserve)",
             ChoiceValue<Admission>(&options.admission, {{"reserve", Admission::kReserve},
                                                         {"optimistic", Admission::kOptimistic}}));
  flags->Add("--scheduling-policy", "HOW",
             "order in which waiting requests start: fcfs (first come, first served) or priority "
             "(by the request's priority; higher is more urgent) (default fcfs)",
             ChoiceValue<SchedulingPolicy>(
                 &options.scheduling_policy,
                 {{"fcfs", SchedulingPolicy::kFcfs}, {"priority", SchedulingPolicy::kPriority}}));
  flags->Add(
      "--speculative-config", "JSON",
      "speculative decoding: by prompt lookup, {\"method\": \"ngram\", \"num_speculative_tokens\": "
      "5, \"prompt_lookup_max\": 4, \"prompt_lookup_min\": 2}; by a draft model, {\"model\": "
      "\"DIR\", \"num_speculative_tokens\": 5}; or by the model's layer for multi-token "
      "prediction, {\"method\": \"mtp\", \"num_speculative_tokens\": 1}; answers do not change, on "
      "GPUs up to rounding (default null: off)",
      ParsedValue(&options.speculative, ParseSpeculativeConfig));
}

void AddTimeFlags(RawEngineFlags* raw, Flags* flags) {
  EngineOptions& options = raw->options;
  flags->Group("Timeouts (in seconds, or with a unit: 90s, 2m)");
  flags->Add("--startup-timeout", "TIME",
             "maximum time until READY, after which the start fails with exit code 5 (default 600)",
             DurationValue(&options.startup_timeout));
  flags->Add("--step-timeout", "TIME",
             "maximum time of one step, after which the group ends with exit code 6 (default: ten "
             "times the time of a full chunk, at least 60 and at most 300, or twenty times the "
             "estimated time of the step if that is more)",
             DurationValue(&options.step_timeout));
}

void AddEngineFlags(RawEngineFlags* raw, Flags* flags) {
  AddModelFlags(raw, flags);
  AddDeviceFlags(raw, flags);
  AddLimitFlags(raw, flags);
  AddSchedulingFlags(raw, flags);
  AddLogFlags(flags);
  AddTimeFlags(raw, flags);
}

absl::StatusOr<EngineOptions> CompleteEngine(const RawEngineFlags& raw, const Flags& flags,
                                             const std::vector<std::string>& served_model_names) {
  EngineOptions options = raw.options;
  options.command_line = flags.Resolved();
  if (options.model.empty() && !flags.follows_rank0()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--model is missing; write 'bulkhead ", flags.command(), " --model DIR'"));
  }
  if (!flags.follows_rank0()) {  // rank 0 may have names that this one lacks
    BH_RETURN_IF_ERROR(CheckLoraModules(options, served_model_names));
  }
  if ((options.block_size & (options.block_size - 1)) != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("--block-size: ", options.block_size, " is not a power of two"));
  }
  const int longest = options.limits.max_model_len.value_or(kMaxInt);
  if (options.default_max_tokens != EngineOptions().default_max_tokens &&
      options.default_max_tokens > longest) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--default-max-tokens: ", options.default_max_tokens, " is more than --max-model-len ",
        longest, ", which holds prompt and answer; give less, or a larger --max-model-len"));
  }
  if (raw.quant_policy.has_value()) {
    if (options.kv_cache_dtype.value_or(*raw.quant_policy) != *raw.quant_policy) {
      return absl::InvalidArgumentError(
          absl::StrCat("--quant-policy: ", KvElementBits(*raw.quant_policy), " is ",
                       KvFormatName(*raw.quant_policy), ", but --kv-cache-dtype says ",
                       KvFormatName(*options.kv_cache_dtype)));
    }
    options.kv_cache_dtype = raw.quant_policy;
  }
  int rules = 0;
  if (raw.gpu_memory_utilization.has_value()) {
    ++rules;
    options.kv_rule = {.kind = KvRule::Kind::kUtilization, .fraction = *raw.gpu_memory_utilization};
  }
  if (raw.cache_max_entry_count.has_value()) {
    ++rules;
    options.kv_rule = *raw.cache_max_entry_count;
  }
  if (raw.kv_cache_bytes.has_value()) {
    ++rules;
    options.kv_rule = {.kind = KvRule::Kind::kBytes, .count = *raw.kv_cache_bytes};
  }
  if (rules > 1) {
    return absl::InvalidArgumentError(
        "--gpu-memory-utilization, --cache-max-entry-count and --kv-cache-bytes are rules for the "
        "same memory; give one of them");
  }
  return options;
}

}  // namespace bulkhead
