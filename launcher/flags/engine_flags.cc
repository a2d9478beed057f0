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
      "a Hugging Face checkpoint's folder, or org/name in the local Hugging Face cache; may be "
      "written without the flag",
      ModelValue(&options.model, "; names after --served-model-name are separated by commas"));
  flags->AddPositional("--model", 1);
  flags->Add("--dtype", "TYPE",
             "number format of the weights: auto, float32, bfloat16, float16 (default auto: as in "
             "the checkpoint)",
             NamedValue(&options.dtype, ParseDType, {"float32", "bfloat16", "float16"}));
  flags->Add(
      "--weight-dtype", "TYPE",
      "quantise the weights at load: int8 or int4 (default auto: as in the checkpoint)",
      OptionalChoiceValue<WeightFormat>(
          &options.weight_dtype, {{"int8", WeightFormat::kInt8}, {"int4", WeightFormat::kInt4}}));
  flags->Add("--weight-group-size", "N",
             "inputs that share a scale under --weight-dtype: 32, 64 or 128 (default 128)",
             ChoiceValue<int>(&options.weight_group_size, {{"32", 32}, {"64", 64}, {"128", 128}}));
  flags->Add(
      "--activation-dtype", "TYPE",
      "inputs of matrix products on CPUs: int8 (fast; the default of quantised weights), bf16 "
      "(of weights in bf16; faster in prefill on AMD's CPUs with avx512_bf16), "
      "bf16-amx (the same in the tiles of CPUs with amx_bf16; fastest there, with bits of "
      "its own) or f32 (exact); on GPUs of compute capability 9.0, of weights in fp8: fp8 "
      "(faster in prefill; rounds them to E4M3)",
      OptionalChoiceValue<ActivationDType>(&options.activation_dtype,
                                           {{"int8", ActivationDType::kInt8},
                                            {"bf16", ActivationDType::kBf16},
                                            {"bfloat16", ActivationDType::kBf16},
                                            {"bf16-amx", ActivationDType::kBf16Amx},
                                            {"f32", ActivationDType::kF32},
                                            {"float32", ActivationDType::kF32},
                                            {"fp8", ActivationDType::kFp8}}));
  flags->Add(
      "--attention-dtype", "TYPE",
      "sums of attention on CPUs: f32 or, over a KV cache in bf16, bf16 (faster on AMD's CPUs with "
      "avx512_bf16) or bf16-amx (in the tiles of CPUs with amx_bf16), each faster in prefill of "
      "long prompts there and with bits of its own; default auto: that of --activation-dtype bf16 "
      "or bf16-amx, else f32",
      OptionalChoiceValue<AttentionDType>(&options.attention_dtype,
                                          {{"f32", AttentionDType::kF32},
                                           {"float32", AttentionDType::kF32},
                                           {"bf16", AttentionDType::kBf16},
                                           {"bfloat16", AttentionDType::kBf16},
                                           {"bf16-amx", AttentionDType::kBf16Amx}}));
  flags->Add("--lora-modules", "NAME=DIR,...",
             "LoRA adapters, loaded at start: a request whose model is NAME is computed "
             "with the one in the folder DIR; also as {\"name\": \"NAME\", \"path\": \"DIR\"}, and "
             "several times",
             LoraModulesValue(&options.lora_modules));
  flags->AddSwitch("--strict-config", "refuse a config.json with an unknown field",
                   &options.strict_config);
}

void AddDeviceFlags(RawEngineFlags* raw, Flags* flags) {
  EngineOptions& options = raw->options;
  flags->OfGroup();
  flags->Group("Device");
  flags->Add("--device", "NAME",
             "cpu, cuda, or auto: cuda where every rank has a GPU, else cpu (default auto)",
             ChoiceValue<DeviceOption>(&options.device, {{"auto", DeviceOption::kAuto},
                                                         {"cpu", DeviceOption::kCpu},
                                                         {"cuda", DeviceOption::kCuda}}));
  flags->Add("--comm", "NAME",
             "all-reduce between GPUs: nccl, staged (through host memory, also if ranks share a "
             "GPU), or auto: nccl if installed (default auto)",
             ChoiceValue<CommOption>(&options.comm, {{"auto", CommOption::kAuto},
                                                     {"nccl", CommOption::kNccl},
                                                     {"staged", CommOption::kStaged}}));
  flags->Add("--all-reduce-dtype", "TYPE",
             "how sums travel between hosts, and between GPUs by NCCL but for one-shot ones: f32, "
             "or bf16, half the bytes, with which answers depend on the number of ranks and on "
             "their hosts; within a host's memory always f32 (default f32)",
             ChoiceValue<DType>(&options.all_reduce_dtype, {{"f32", DType::kF32},
                                                            {"float32", DType::kF32},
                                                            {"bf16", DType::kBF16},
                                                            {"bfloat16", DType::kBF16}}));
  flags->Add("--threads", "N",
             "threads of each rank (default, or 0: the physical cores that it may use, by its mask "
             "and the cgroup's quota, shared among the ranks of its host; at most 64)",
             WithRange(
                 [&options](const std::string& text) -> absl::Status {
                   BH_RETURN_IF_ERROR(IntegerValue(&options.threads, 0, kMaxThreads)(text));
                   if (options.threads == 0) options.threads.reset();
                   return absl::OkStatus();
                 },
                 0, kMaxThreads));
  flags->Add("--numa", "NODES",
             "which NUMA nodes the ranks of a host run and keep their memory on: auto, all of "
             "them, a node or several for each rank, off, or a list such as 0-1,3 (default auto)",
             NumaValue(&options.numa));
  flags->Add("--tensor-parallel-size,--tp", "N",
             "optional: mpirun or srun sets the number of ranks; if given, it must agree",
             IntegerValue(&options.tensor_parallel_size, 1, kMaxRanks));
  flags->Add("--tp-shares", "LIST",
             "unequal parts for unequal devices: 2,1,1, or auto, in proportion to their memory "
             "(default: equal)",
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
      "--log-format", "FORMAT", "text or json, one object a line (default text)",
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
             "sequences that run at once (default auto: 64, on GPUs 256, or what fits)",
             IntegerValue(&options.limits.max_num_seqs, 1, kMaxSeqs));
  flags->Add("--max-model-len,--session-len", "N",
             "tokens of a sequence, prompt and answer together (default auto: the model's, or what "
             "fits)",
             IntegerValue(&options.limits.max_model_len, 2, kMaxInt));
  flags->Add("--max-num-batched-tokens,--max-prefill-token-num", "N",
             "tokens of one step; longer prompts are prefilled in chunks (default auto: 2048, on "
             "GPUs 8192, or what fits)",
             IntegerValue(&options.limits.max_num_batched_tokens, 1, kMaxBatchedTokens));
  flags->Add("--default-max-tokens", "N",
             "tokens to generate for a request without max_tokens (default 512, or what "
             "max_model_len leaves)",
             IntegerValue(&options.default_max_tokens, 1, kMaxInt));

  flags->Group("Memory of each rank; at most one of the rules that size the KV cache");
  flags->Add("--device-memory", "SIZE",
             "plan with this much, whatever the machine has: 80GiB, or 0=4GiB,1=2GiB rank by rank "
             "(default auto: measured)",
             RankSizesValue(&options.device_memory, 1));
  flags->Add("--reserve", "SIZE",
             "memory to leave free, 0=1GiB,1=0 rank by rank (default auto: on CPUs 10 % of what is "
             "free, of a GPU 1 %, at least 256 MiB; nothing under --device-memory)",
             RankSizesValue(&options.reserve, 0));
  flags->Add("--gpu-memory-utilization", "U",
             "KV rule: all of our arenas together take up to this share of the device, in (0, 1]; "
             "unlike vLLM's, without the memory of driver and libraries, and without the reserve",
             RealValue(&raw->gpu_memory_utilization, 0, 1, Border::kExcluded));
  flags->Add("--cache-max-entry-count", "X",
             "KV rule: with a point, the share of what is free after the weights; without, a "
             "number of blocks",
             EntryCountValue(&raw->cache_max_entry_count));
  flags->Add("--kv-cache-bytes,--kv-cache-memory-bytes", "BYTES",
             "KV rule: this many bytes, such as 4GiB (no rule: on GPUs all that is left; on CPUs "
             "enough for --max-num-seqs sequences, up to half of what is left if it is measured)",
             IntegerValue(&raw->kv_cache_bytes, 1, std::numeric_limits<int64_t>::max()));

  flags->Group("KV cache");
  flags->Add(
      "--kv-cache-dtype", "TYPE",
      "auto, float32, bfloat16, float16, int8, int4, fp8 (e4m3, by the scales that the checkpoint "
      "has, else 1) (default auto: what the checkpoint says of its cache, else its numbers)",
      NamedValue(&options.kv_cache_dtype, ParseKvFormat,
                 {"float32", "bfloat16", "float16", "int8", "int4", "fp8"}));
  flags->Add("--quant-policy", "N",
             "LMDeploy's name for --kv-cache-dtype: 0 is auto, 8 int8, 4 int4 (default 0)",
             ChoiceValue<std::optional<KvFormat>>(
                 &raw->quant_policy,
                 {{"0", std::nullopt}, {"4", KvFormat::kInt4}, {"8", KvFormat::kInt8}}));
  flags->Add("--block-size,--cache-block-seq-len", "N",
             "tokens per block: a power of two from 16 to 256 (default 16)",
             IntegerValue(&options.block_size, 16, 256));
  flags->AddSwitch("--enable-prefix-caching,!--no-enable-prefix-caching",
                   "share full blocks between prompts with a common prefix (the default), or "
                   "recompute every prompt",
                   &options.enable_prefix_caching);
}

void AddSchedulingFlags(RawEngineFlags* raw, Flags* flags) {
  EngineOptions& options = raw->options;
  flags->Group("Scheduling");
  flags->Add("--admission", "HOW",
             "reserve: a request is admitted when its whole length fits; optimistic: when its "
             "prompt fits, and preempted by recomputation if necessary (default reserve)",
             ChoiceValue<Admission>(&options.admission, {{"reserve", Admission::kReserve},
                                                         {"optimistic", Admission::kOptimistic}}));
  flags->Add("--scheduling-policy", "HOW",
             "fcfs: first come, first served; priority: the request's priority first, higher is "
             "more urgent "
             "(default fcfs)",
             ChoiceValue<SchedulingPolicy>(
                 &options.scheduling_policy,
                 {{"fcfs", SchedulingPolicy::kFcfs}, {"priority", SchedulingPolicy::kPriority}}));
  flags->Add(
      "--speculative-config", "JSON",
      "speculative decoding, by prompt lookup: {\"method\": \"ngram\", "
      "\"num_speculative_tokens\": 5, \"prompt_lookup_max\": 4, \"prompt_lookup_min\": 2}, "
      "by a draft model: {\"model\": \"DIR\", \"num_speculative_tokens\": 5}, or by the model's "
      "layer for multi-token prediction: {\"method\": \"mtp\", \"num_speculative_tokens\": 1}; "
      "answers are those without it, on GPUs up to rounding (default: null)",
      ParsedValue(&options.speculative, ParseSpeculativeConfig));
}

void AddTimeFlags(RawEngineFlags* raw, Flags* flags) {
  EngineOptions& options = raw->options;
  flags->Group("Time (seconds, or 90s, 2m)");
  flags->Add("--startup-timeout", "TIME", "until READY, then exit code 5 (default 600)",
             DurationValue(&options.startup_timeout));
  flags->Add(
      "--step-timeout", "TIME",
      "of one step, then the group ends with exit code 6 (default: ten times what a full chunk "
      "takes, 60 to 300, but at least twenty times what the step is estimated to take)",
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
  if (!flags.follows_rank0()) {  // which may have names that this one lacks
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
