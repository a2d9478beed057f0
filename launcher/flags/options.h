// The command line as plain structs, parsed and validated in one place. All values are within their
// limits; an absent std::optional means a default that depends on the model or machine.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "kernels/backend.h"
#include "launcher/flags/security_options.h"
#include "launcher/flags/serve_bench_options.h"
#include "launcher/flags/speculative_config.h"
#include "memory/capacity.h"
#include "memory/kv_format.h"
#include "memory/limits.h"
#include "memory/matrix.h"
#include "memory/numa.h"
#include "memory/weight_format.h"
#include "runtime/engine/scheduler_limits.h"

namespace bulkhead {

enum class DeviceOption { kAuto, kCpu, kCuda };
enum class CommOption { kAuto, kStaged, kNccl };  // between GPUs
enum class CpuIsa {
  kAuto,
  kAvx512Amx,
  kAvx512Bf16,
  kAvx512Vnni,
  kAvx512,
  kAvx2,
  kPlain,
  kPlainAmx
};

// One size for all ranks, or one per rank.
struct RankSizes {
  std::optional<int64_t> of_all;
  std::map<int, int64_t> of_rank;  // empty, or all ranks of the group (else exit code 2)

  bool operator==(const RankSizes&) const = default;
};

// An entry of --lora-modules: a LoRA adapter's name in requests, and its folder.
struct LoraModule {
  std::string name;
  std::string dir;                   // like --model: a folder, or org/name in the cache
  std::string base_model_name = {};  // a name of the model, or empty

  bool operator==(const LoraModule&) const = default;
};

// Options of every command that loads or plans a model.
struct EngineOptions {
  // The parsed arguments (Flags::Resolved). May be empty.
  std::vector<std::string> command_line = {};
  std::string model;  // a folder, or org/name in the local Hugging Face cache (ResolveModelPath)
  DeviceOption device = DeviceOption::kAuto;
  CommOption comm = CommOption::kAuto;
  DType all_reduce_dtype = DType::kF32;  // kF32 or kBF16: between hosts and by NCCL
  CpuIsa cpu_isa = CpuIsa::kAuto;
  std::optional<DType> dtype;                // of the weights; absent: the checkpoint's
  std::optional<WeightFormat> weight_dtype;  // kInt8 or kInt4: quantised at load
  int weight_group_size = 0;                 // for --weight-dtype: 32, 64 or 128 inputs; 0: default
  std::optional<ActivationDType> activation_dtype;  // absent: int8 if weights are quantised
  std::optional<AttentionDType> attention_dtype;    // absent: follows activation_dtype
  std::optional<KvFormat> kv_cache_dtype;           // absent: the checkpoint's
  NumaOption numa;
  std::optional<int> threads;               // per rank; absent: physical cores / ranks on the host
  std::optional<int> tensor_parallel_size;  // must equal the group's size (exit code 5)
  GivenLimits limits;              // a max_model_len of more than the model's is exit code 2
  bool tp_shares_auto = false;     // proportional to the ranks' device memory
  std::vector<int64_t> tp_shares;  // one per rank (else exit code 2); empty: equal
  int block_size = 16;             // tokens; a power of two in [16, 256]
  std::optional<RankSizes> device_memory;  // absent: measured
  std::optional<RankSizes> reserve;        // absent: 10 % of free memory if measured, else 0
  KvRule kv_rule;
  bool enable_prefix_caching = true;
  bool strict_config = false;
  Admission admission = Admission::kReserve;
  SchedulingPolicy scheduling_policy = SchedulingPolicy::kFcfs;
  SpeculativeConfig speculative;
  std::vector<LoraModule> lora_modules;  // numbered from 1 in this order
  int default_max_tokens = 512;
  std::optional<absl::Duration>
      step_timeout;  // absent: ten times the step measured at warm-up, 60 s to 5 min
  absl::Duration startup_timeout = absl::Seconds(600);
  std::string length_flags = "--max-model-len";  // source of limits.max_model_len, for errors

  bool operator==(const EngineOptions&) const = default;
};

// Limits of --host-memory: the maximum, and the minimum for the shortest queue of a model without a
// tokenizer.
inline constexpr int64_t kMaxHostMemory = int64_t{1} << 50;
inline constexpr int64_t kMinHostMiB = 190;

inline constexpr absl::Duration kCpuTargetItl = absl::Milliseconds(250);

struct ServeOptions {
  EngineOptions engine;
  std::string host = "127.0.0.1";
  int port = 50051;                 // 0: any free port
  int control_port = 0;             // on 127.0.0.1; 0: any free port
  std::optional<int> http_port;     // 0: any free port; absent: no HTTP
  std::optional<int> metrics_port;  // 0: any free port; absent: none
  bool log_requests = false;
  bool enable_kv_cache_events = false;
  std::string chat_template;  // a file, or the name of one; "": the model's
  std::string tool_call_parser = "auto";
  std::string reasoning_parser = "auto";
  SecurityOptions security;
  // Allows a non-loopback host without TLS, or without a way to authenticate callers.
  bool insecure = false;
  std::vector<std::string> served_model_names;  // empty: the value of --model
  std::optional<int> max_num_queued_reqs;       // absent: 1024, or what fits
  std::optional<int64_t> host_memory;           // for clients, on rank 0's host; absent: measured
  std::optional<absl::Duration> target_itl;     // absent: kCpuTargetItl, on GPUs none
  absl::Duration drain_timeout = absl::Seconds(120);
  std::optional<std::string> report;  // JSON file for the capacity report
  bool parent = true;                 // run a group of one under a parent process
};

// What `serve` would do with the same flags; tensor_parallel_size is the group's size.
struct PlanOptions {
  ServeOptions serve;
  bool json = false;
  int nodes = 1;
  std::optional<std::string> gpu;    // one of GpuNames
  std::optional<std::string> plot;   // file for the chart of arenas and the curve
  std::vector<PlanOptions> compare;  // one per --compare, with its flags applied
  std::vector<std::string> compare_flags;
};

// Request parameters; absent: from the line of a prompts file, else generation_config.json, else
// the server's default.
struct RequestOptions {
  std::optional<uint32_t> max_tokens, min_tokens, top_k, logprobs, prompt_logprobs;
  std::optional<uint32_t> truncate_prompt_tokens, time_limit_ms;
  std::optional<float> temperature, top_p, min_p;
  std::optional<float> repetition_penalty, presence_penalty, frequency_penalty;
  std::vector<std::pair<uint32_t, float>> logit_bias;
  std::vector<uint32_t> allowed_token_ids;
  std::vector<std::string> bad_words;
  std::optional<uint64_t> seed;
  std::vector<std::string> stop;
  std::vector<uint32_t> stop_token_ids;
  std::optional<bool> ignore_eos, add_special_tokens;
  std::optional<int32_t> priority;
  // The form of the answer: at most one of these.
  std::optional<std::string> json_schema, regex;  // the schema's text
  std::vector<std::string> choice;
};

struct RunOptions {
  EngineOptions engine;
  std::string prompts;                // JSON lines; "-": standard input
  std::string out = "-";              // JSON lines; "-": standard output
  std::optional<std::string> logits;  // safetensors
  RequestOptions request;
};

struct ScoreOptions {
  EngineOptions engine;
  std::string texts;      // JSON lines; "-": standard input
  std::string out = "-";  // JSON lines; "-": standard output
};

struct ThroughputOptions {
  EngineOptions engine;
  std::vector<int> batch_sizes = {1, 8, 16};
  std::vector<int> input_lens = {128};
  int output_len = 64;
  int shared_prefix_len = 0;  // less than every input_len
  int repeats = 3;
  bool json = false;
  std::optional<std::string> out;
};

struct KernelsOptions {
  EngineOptions engine;  // only threads, cpu_isa and startup_timeout are used
  std::string filter;    // name prefix; empty: all
  bool quick = false;
  bool json = false;
};

enum class Collective { kAllReduce, kGather, kAllGather, kBroadcast };
inline constexpr const char* kCollectiveNames[] = {"all_reduce", "gather", "all_gather",
                                                   "broadcast"};

// Sizes in bytes of the whole message.
struct CommOptions {
  EngineOptions engine;                  // only model (empty: none) and startup_timeout are used
  std::optional<Collective> collective;  // absent: all of them
  int64_t min_bytes = 1 << 10;
  int64_t max_bytes = 16 << 20;
  bool pairs = false;
  bool quick = false;
  bool json = false;
};

// A rank of a group whose answers are saved or compared. Exactly one of `save` and `against` is
// set.
struct VerifyOptions {
  EngineOptions engine;
  std::optional<std::string> save;
  std::optional<std::string> against;
  int num_prompts = 16;
  std::vector<int> input_lens = {1, 17, 64, 200};  // prompt lengths, cyclically
  int output_len = 32;
  bool json = false;
};

// A group's step costs, in microseconds; absent: from a measurement, otherwise the default.
struct StepCost {
  std::optional<double> step_us, decode_row_us, prompt_token_us, message_us;
};

struct SimulateOptions {
  std::vector<int> ranks = {8, 64, 512};
  int ranks_per_node = 8;
  std::vector<int> max_num_seqs = {64, 256, 1000};
  int requests = 10000;
  std::optional<double> request_rate;  // absent: all at once
  int input_len = 512;
  int output_len = 128;
  int max_num_batched_tokens = 8192;
  StepCost cost;
  std::optional<std::string> measured;
  std::optional<std::string> model;  // for its tokenizer and vocabulary; absent: synthetic
  bool json = false;
  std::optional<std::string> plot;
};

struct GenerateOptions {
  std::string target = "127.0.0.1:50051";
  ClientCredentials credentials;
  std::vector<std::string> prompts;
  std::optional<std::string> prompts_file;  // "-": standard input
  RequestOptions request;
  std::optional<std::string> model;  // for lines that name none
  bool json = false;
  bool stats = false;  // even if standard error is not a terminal
  int concurrency = 1;
  std::optional<absl::Duration> timeout;  // per request
};

struct ChatOptions {
  std::string http = "127.0.0.1:8000";
  std::optional<std::string> model;   // absent: the server's
  std::optional<std::string> system;  // the first message
  ClientCredentials credentials;
  RequestOptions request;  // only sampling parameters of a chat
};

struct TokenizeOptions {
  std::string model;
};

struct DrainOptions {
  std::string target = "127.0.0.1:50051";
  ClientCredentials credentials;
  std::optional<absl::Duration> timeout;  // absent: the server's --drain-timeout
  bool wait = true;
  // After its timeout, or while it is idle or does not answer.
  absl::Duration patience = absl::Seconds(30);
};

struct LimitsOptions {
  std::string target = "127.0.0.1:50051";
  ClientCredentials credentials;
  bool reset = false;
  bool json = false;
  std::optional<uint32_t> max_num_seqs, max_model_len, max_num_queued_reqs;
};

// A live server (--target), or a report written by `serve` or `plan`.
struct DoctorOptions {
  std::string target = "127.0.0.1:50051";
  ClientCredentials credentials;
  bool json = false;  // JSON output only
  std::optional<std::string> report;
  std::optional<std::string> capture;       // a new or empty folder
  std::optional<absl::Duration> watch;      // interval
  std::optional<absl::Duration> watch_for;  // absent: until Ctrl-C
};

// A command of the Python tool (launcher/python_tool.h), which reads the arguments itself.
struct ToolCommand {
  std::vector<std::string> args;  // the command's name first
  bool starts_groups = false;
};

// Text for standard output, and the status that the program ends with: ok for --help and --version.
struct PrintText {
  std::string text;
  absl::Status status = absl::OkStatus();
};

using Command =
    std::variant<ServeOptions, RunOptions, ScoreOptions, PlanOptions, GenerateOptions, ChatOptions,
                 TokenizeOptions, DrainOptions, LimitsOptions, DoctorOptions, ThroughputOptions,
                 KernelsOptions, CommOptions, VerifyOptions, SimulateOptions, ServeBenchOptions,
                 ToolCommand, PrintText>;

// `args` without the program's name. INVALID_ARGUMENT with exit code 2 names the flag, the value
// and the limit; for an unknown flag or command the nearest existing name.
absl::StatusOr<Command> ParseCommandLine(const std::vector<std::string>& args);

// The options of a command that loads or plans a model; else null.
const EngineOptions* EngineOf(const Command& command);
// The options of a command that serves, or plans to; else null.
const ServeOptions* ServerOf(const Command& command);

}  // namespace bulkhead
