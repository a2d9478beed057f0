// The command line as plain structs, parsed and validated in one place. Whatever reaches a command
// is within its limits; an absent std::optional means "the default that depends on model or
// machine".
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
#include "launcher/bench/child.h"
#include "launcher/bench/comm_result.h"
#include "launcher/bench/simulate_result.h"
#include "launcher/flags/serve_bench_options.h"
#include "memory/capacity.h"
#include "memory/kv_format.h"
#include "memory/matrix.h"
#include "memory/weight_format.h"
#include "runtime/engine/scheduler_limits.h"

namespace bulkhead {

enum class DeviceOption { kAuto, kCpu, kCuda };
enum class CommOption { kAuto, kStaged, kNccl };  // between GPUs
enum class CpuIsa { kAuto, kAvx512Vnni, kAvx512, kAvx2, kPlain };

// One size for every rank, or one for each of them.
struct RankSizes {
  std::optional<int64_t> of_all;
  std::map<int, int64_t> of_rank;  // empty, or every rank of the group (else exit code 2)

  bool operator==(const RankSizes&) const = default;
};

// What every command that loads or plans a model takes.
struct EngineOptions {
  // What was parsed: the command's name and its arguments. Empty where nothing was.
  std::vector<std::string> command_line = {};
  std::string model;  // a folder, or org/name in the local Hugging Face cache (ResolveModelPath)
  DeviceOption device = DeviceOption::kAuto;
  CommOption comm = CommOption::kAuto;
  CpuIsa cpu_isa = CpuIsa::kAuto;
  std::optional<DType> dtype;                // how weights are held; absent: the checkpoint's
  std::optional<WeightFormat> weight_dtype;  // kInt8 or kInt4: quantised at load
  int weight_group_size = 0;  // of --weight-dtype: 32, 64 or 128 inputs; 0: its default
  std::optional<ActivationDType> activation_dtype;  // absent: int8 where weights are quantised
  std::optional<KvFormat> kv_cache_dtype;           // absent: the checkpoint's
  std::optional<int> threads;               // per rank; absent: allowed cores / ranks on the host
  std::optional<int> tensor_parallel_size;  // must equal the group's size (exit code 5)
  // Absent: fitted to the memory (memory/capacity.h).
  std::optional<int> max_num_seqs;
  std::optional<int> max_model_len;           // more than the model's is exit code 3
  std::optional<int> max_num_batched_tokens;  // of one step; may be below max_num_seqs
  bool tp_shares_auto = false;                // in proportion to what the ranks' devices have
  std::vector<int64_t> tp_shares;             // one per rank (else exit code 2); empty: equal
  int block_size = 16;                        // tokens; a power of two in [16, 256]
  std::optional<RankSizes> device_memory;     // absent: what is measured
  std::optional<RankSizes> reserve;           // absent: 10 % of free where measured, else nothing
  KvRule kv_rule;
  bool enable_prefix_caching = true;
  bool strict_config = false;
  Admission admission = Admission::kReserve;
  SchedulingPolicy scheduling_policy = SchedulingPolicy::kFcfs;
  int default_max_tokens = 512;
  std::optional<absl::Duration>
      step_timeout;  // absent: ten times the step measured at warm-up, 60 s to 5 min
  absl::Duration startup_timeout = absl::Seconds(600);
};

// Of --host-memory: the most, and what the shortest queue of a model without a tokenizer needs.
inline constexpr int64_t kMostHostMemory = int64_t{1} << 50;
inline constexpr int64_t kLeastHostMiB = 180;

struct ServeOptions {
  EngineOptions engine;
  std::string host = "127.0.0.1";
  int port = 50051;                              // 0: any free one
  int control_port = 0;                          // on 127.0.0.1; 0: any free one
  bool insecure = false;                         // required for a host that is not loopback
  std::optional<std::string> served_model_name;  // absent: the value of --model
  std::optional<int> max_num_queued_reqs;        // absent: 1024, or what fits
  std::optional<int64_t> host_memory;            // for clients, on rank 0's host; absent: measured
  absl::Duration drain_timeout = absl::Seconds(120);
  std::optional<std::string> report;  // JSON: what fits, rank by rank
  bool parent = true;                 // a group of one runs below a process that tells its end
};

// What `serve` would do with the same flags; tensor_parallel_size is the group's size.
struct PlanOptions {
  ServeOptions serve;
  bool json = false;
  int nodes = 1;
  std::optional<std::string> gpu;      // one of GpuNames
  std::optional<std::string> svg;      // where the curve is drawn
  std::vector<EngineOptions> compare;  // with the flags of each --compare laid over
  std::vector<std::string> compare_flags;
};

// What a request may say of itself; absent: the line of a prompts file, else
// generation_config.json, else the server's default.
struct RequestOptions {
  std::optional<uint32_t> max_tokens, min_tokens, top_k, logprobs;
  std::optional<float> temperature, top_p, min_p;
  std::optional<uint64_t> seed;
  std::vector<std::string> stop;
  std::vector<uint32_t> stop_token_ids;
  std::optional<bool> ignore_eos, add_special_tokens;
  std::optional<int32_t> priority;
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
  EngineOptions engine;  // threads, cpu_isa and startup_timeout count
  std::string filter;    // the begin of names; empty: all
  bool quick = false;
  bool json = false;
};

// Sizes in bytes of the whole message.
struct CommOptions {
  EngineOptions engine;                  // model (empty: none) and startup_timeout count
  std::optional<Collective> collective;  // absent: all of them
  int64_t min_bytes = 1 << 10;
  int64_t max_bytes = 16 << 20;
  bool pairs = false;
  bool quick = false;
  bool json = false;
};

// Groups that this command starts itself, one after the other.
struct ScaleOptions {
  LaunchPlan launch;
  std::vector<int> sizes = {1, 2, 4, 8};
  std::string model;
  // What `bench throughput` and `plan` are called with, but for the size.
  std::vector<std::string> throughput_args;
  std::vector<std::string> plan_args;
  bool json = false;
  std::optional<std::string> out;
};

// A rank of a group whose answers are written down or compared. One of `save` and `against` is
// there.
struct VerifyOptions {
  EngineOptions engine;
  std::optional<std::string> save;
  std::optional<std::string> against;
  int num_prompts = 16;
  std::vector<int> input_lens = {1, 17, 64, 200};  // of the prompts, in turn
  int output_len = 32;
  bool json = false;
};

// One rank, and then groups of `sizes` against it.
struct VerifyGroupsOptions {
  LaunchPlan launch;
  std::vector<int> sizes;
  std::vector<std::string> rank_args;  // of every rank
  bool json = false;
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
  std::optional<std::string> model;  // whose tokenizer and vocabulary; absent: made up
  bool json = false;
  std::optional<std::string> svg;
};

struct GenerateOptions {
  std::string target = "127.0.0.1:50051";
  std::vector<std::string> prompts;
  std::optional<std::string> prompts_file;  // "-": standard input
  RequestOptions request;
  bool json = false;
  bool stats = false;  // also when standard error is no terminal
  int concurrency = 1;
  std::optional<absl::Duration> timeout;  // of each request
};

struct TokenizeOptions {
  std::string model;
};

struct DrainOptions {
  std::string target = "127.0.0.1:50051";
  std::optional<absl::Duration> timeout;  // absent: the server's --drain-timeout
  bool wait = true;
  // Beyond its timeout, or once it has nothing to do, or while it says nothing.
  absl::Duration patience = absl::Seconds(30);
};

struct LimitsOptions {
  std::string target = "127.0.0.1:50051";
  bool reset = false;
  std::optional<uint32_t> max_num_seqs, max_model_len, max_num_queued_reqs;
};

// A live server (--target), or a report that `serve` or `plan` wrote.
struct DoctorOptions {
  std::string target = "127.0.0.1:50051";
  std::optional<std::string> report;
  std::optional<std::string> capture;       // a folder that does not exist yet, or is empty
  std::optional<absl::Duration> watch;      // how often
  std::optional<absl::Duration> watch_for;  // absent: until Ctrl-C
};

// Text for standard output, and what the program ends with: ok for --help and --version.
struct PrintText {
  std::string text;
  absl::Status status = absl::OkStatus();
};

using Command = std::variant<ServeOptions, RunOptions, ScoreOptions, PlanOptions, GenerateOptions,
                             TokenizeOptions, DrainOptions, LimitsOptions, DoctorOptions,
                             ThroughputOptions, KernelsOptions, CommOptions, ScaleOptions,
                             VerifyOptions, VerifyGroupsOptions, SimulateOptions, ServeBenchOptions,
                             SweepBenchOptions, CompareBenchOptions, PrintText>;

// `args` without the program's name. INVALID_ARGUMENT with exit code 2 names the flag, the value
// and the limit; an unknown flag or command names the nearest that there is.
absl::StatusOr<Command> ParseCommandLine(const std::vector<std::string>& args);

// Of a command that loads or plans a model; else null.
const EngineOptions* EngineOf(const Command& command);
// Of one that serves, or plans that; else null.
const ServeOptions* ServerOf(const Command& command);

}  // namespace bulkhead
