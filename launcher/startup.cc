#include "launcher/startup.h"

#include <algorithm>
#include <condition_variable>
#include <ctime>
#include <mutex>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "launcher/model_path.h"
#include "launcher/version.h"
#include "memory/bytes.h"
#include "memory/exit_code.h"
#include "memory/host_memory.h"
#include "memory/log.h"
#include "memory/status.h"

namespace bulkhead {
namespace {

absl::Status Refuse(absl::StatusCode code, absl::string_view message, ExitCode exit_code) {
  return WithExitCode(absl::Status(code, message), exit_code);
}

// Logs how far the load of this rank is, now and then, until it dies.
class LoadReporter {
 public:
  explicit LoadReporter(const LoadProgress& progress)
      : progress_(progress), begin_(absl::Now()), thread_([this] { Loop(); }) {}
  LoadReporter(const LoadReporter&) = delete;
  LoadReporter& operator=(const LoadReporter&) = delete;
  ~LoadReporter() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      done_ = true;
    }
    wake_.notify_all();
    thread_.join();
  }
  void Report(const char* what) const {
    const double seconds = absl::ToDoubleSeconds(absl::Now() - begin_);
    const int64_t done = progress_.done_bytes;
    const int64_t total = progress_.total_bytes;
    const double rate = static_cast<double>(done) / std::max(seconds, 1e-3);
    BH_LOG(kInfo) << absl::StrFormat("%s: %3.0f %%, %s of %s, %s/s", what,
                                     total > 0 ? 100.0 * done / total : 100.0, FormatBytes(done),
                                     FormatBytes(total), FormatBytes(static_cast<int64_t>(rate)));
  }

 private:
  void Loop() {
    std::unique_lock<std::mutex> lock(mutex_);
    while (!wake_.wait_for(lock, std::chrono::seconds(2), [this] { return done_; })) {
      Report("loading weights");
    }
  }
  const LoadProgress& progress_;
  absl::Time begin_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool done_ = false;
  std::thread thread_;
};

absl::Status ReadModel(const EngineOptions& options, RankEngine& engine) {
  BH_ASSIGN_OR_RETURN(engine.model_dir, ResolveModelPath(options.model));
  const UnknownFields unknown =
      options.strict_config ? UnknownFields::kRefuse : UnknownFields::kWarn;
  BH_ASSIGN_OR_RETURN(engine.config, ReadModelConfig(engine.model_dir, unknown));
  if (engine.topology.coordinator()) {
    for (const std::string& warning : engine.config.warnings) BH_LOG(kWarning) << warning;
    absl::StatusOr<std::unique_ptr<Tokenizer>> tokenizer = Tokenizer::Load(engine.model_dir);
    if (tokenizer.ok()) {
      engine.tokenizer = *std::move(tokenizer);
    } else if (absl::IsNotFound(tokenizer.status())) {
      BH_LOG(kWarning) << "no tokenizer.json in " << engine.model_dir
                       << ": token ids alone are served";
    } else {
      return tokenizer.status();
    }
  }
  BH_ASSIGN_OR_RETURN(engine.checkpoint, Checkpoint::Open(engine.model_dir));
  return engine.checkpoint->CheckAgainst(engine.config.model);
}

// What the checkpoint's shapes do not tell.
std::string ConfigDigest(const ModelConfig& config) {
  const RopeConfig& rope = config.rope;
  std::string digest =
      absl::StrCat(config.architecture, " eps ", config.rms_norm_eps, " rope ", rope.theta, " ",
                   static_cast<int>(rope.scaling), " ", rope.factor, " ", rope.low_freq_factor, " ",
                   rope.high_freq_factor, " ", rope.original_max_position_embeddings, " window ",
                   config.sliding_window, " tied ", config.tie_word_embeddings, " heads ",
                   config.num_attention_heads, " ", config.num_key_value_heads, " eos ",
                   absl::StrJoin(config.eos_token_ids, ","), " windows ");
  for (int i = 0; i < config.num_hidden_layers; ++i) digest += config.UsesWindow(i) ? '1' : '0';
  return digest;
}

// What must be equal on all ranks, as "key=value" lines.
std::string Digest(const EngineOptions& options, const RankEngine& engine) {
  return absl::StrCat("build=", Version(), "\nmodel=", engine.checkpoint->Fingerprint(),
                      "\nconfig=", ConfigDigest(engine.config.model),
                      "\ndtype=", DTypeName(engine.limits.weight_dtype),
                      "\nkv-cache-dtype=", DTypeName(engine.limits.kv_dtype),
                      "\nmax-num-seqs=", engine.limits.max_num_seqs,
                      "\nmax-model-len=", engine.limits.max_model_len,
                      "\nmax-num-batched-tokens=", engine.limits.max_num_batched_tokens,
                      "\nblock-size=", engine.limits.block_tokens,
                      "\nkv-cache-bytes=", options.kv_cache_bytes.value_or(-1));
}

// INVALID_ARGUMENT (exit code 5) naming the first rank and key that differ from rank 0.
absl::Status CompareDigests(const std::vector<std::string>& digests) {
  const std::vector<std::string> first = absl::StrSplit(digests[0], '\n');
  for (size_t rank = 1; rank < digests.size(); ++rank) {
    const std::vector<std::string> lines = absl::StrSplit(digests[rank], '\n');
    for (size_t i = 0; i < first.size(); ++i) {
      if (i < lines.size() && lines[i] == first[i]) continue;
      return Refuse(absl::StatusCode::kInvalidArgument,
                    absl::StrCat("rank ", rank, " has ", i < lines.size() ? lines[i] : "nothing",
                                 " and rank 0 has ", first[i],
                                 "; start every rank with the same program, model and flags"),
                    ExitCode::kGroupNotUp);
    }
  }
  return absl::OkStatus();
}

// What "auto" means: as config.json says, and where it is silent as the tensors are stored.
DType AutomaticDType(const EngineOptions& options, const RankEngine& engine) {
  const DType stored = engine.checkpoint->MainDType();
  const DType stated = engine.config.model.dtype.value_or(stored);
  if (stated != stored && !options.dtype.has_value() && engine.topology.coordinator()) {
    BH_LOG(kWarning) << "config.json says " << DTypeName(stated) << " but most tensors are "
                     << DTypeName(stored) << ": weights are held as " << DTypeName(stated)
                     << "; --dtype chooses";
  }
  return stated;
}

absl::Status ResolveLimits(const EngineOptions& options, RankEngine& engine) {
  const ModelConfig& model = engine.config.model;
  ModelLimits& limits = engine.limits;
  limits.max_num_seqs = options.max_num_seqs;
  limits.max_model_len = options.max_model_len.value_or(model.max_position_embeddings);
  limits.max_num_batched_tokens = options.max_num_batched_tokens;
  limits.block_tokens = options.block_size;
  const DType automatic = AutomaticDType(options, engine);
  limits.weight_dtype = options.dtype.value_or(automatic);
  limits.kv_dtype = options.kv_cache_dtype.value_or(automatic);
  if (limits.max_model_len > model.max_position_embeddings) {
    return Refuse(
        absl::StatusCode::kInvalidArgument,
        absl::StrCat("--max-model-len ", limits.max_model_len, " is more than the model's ",
                     model.max_position_embeddings, " (max_position_embeddings)"),
        ExitCode::kModelRefused);
  }
  if (limits.max_model_len < 2) {
    return Refuse(absl::StatusCode::kInvalidArgument,
                  "--max-model-len must be at least 2: one token of prompt and one generated",
                  ExitCode::kUsage);
  }
  BH_ASSIGN_OR_RETURN(ShardPlan plan, ShardPlan::Create(model, engine.topology.size));
  engine.plan = std::make_unique<ShardPlan>(std::move(plan));
  return absl::OkStatus();
}

// The group's pool: every rank exchanges its budget and computes the same size.
absl::Status SizePool(const EngineOptions& options, Group& group, const Footprint& footprint,
                      int64_t comm_bytes, RankEngine& engine) {
  const RankTopology& topology = engine.topology;
  RankBudget mine{.rank = topology.rank, .host = topology.hosts[topology.rank]};
  absl::StatusOr<int64_t> available = AvailableHostBytes();
  BH_RETURN_IF_ERROR(
      Agree(group.exchange(), "memory probe", available.status(), options.startup_timeout));
  mine.available_bytes = *available / topology.local_size;
  mine.arenas_bytes = footprint.weights_bytes + comm_bytes + footprint.activations_bytes +
                      footprint.block_tables_bytes + footprint.logits_bytes +
                      footprint.workspace_bytes;
  mine.kv_block_bytes = footprint.kv_block_bytes;
  BH_ASSIGN_OR_RETURN(const std::vector<std::string> texts,
                      group.exchange().AllGather(mine.Serialize(), options.startup_timeout));
  std::vector<RankBudget> budgets;
  for (const std::string& text : texts) {
    BH_ASSIGN_OR_RETURN(budgets.emplace_back(), RankBudget::Parse(text));
  }
  const PoolRequest request{.max_num_seqs = engine.limits.max_num_seqs,
                            .max_model_len = engine.limits.max_model_len,
                            .block_tokens = engine.limits.block_tokens,
                            .kv_cache_bytes = options.kv_cache_bytes};
  absl::StatusOr<PoolSize> pool = SizeKvPool(budgets, request);
  if (!pool.ok()) return MarkAgreed(pool.status());  // equal inputs: the same on every rank
  engine.pool = *pool;
  engine.limits.num_kv_blocks = engine.pool.num_blocks;
  return absl::OkStatus();
}

absl::Status TakeEverything(Group& group, const Footprint& footprint, const CommLimits& comm_limits,
                            int64_t comm_bytes, absl::Duration timeout, RankEngine& engine) {
  MemoryLedger& ledger = *engine.ledger;
  ledger.Claim(Term::kCommunication, comm_bytes);
  ClaimArenas(footprint, engine.limits.num_kv_blocks, ledger);
  std::optional<ModelArenas> arenas;
  BH_RETURN_IF_ERROR(RunPhase(group.exchange(), "arenas", timeout, [&]() -> absl::Status {
    absl::StatusOr<ModelArenas> taken = TakeArenas(footprint, engine.limits.num_kv_blocks, ledger);
    if (!taken.ok()) return WithExitCode(taken.status(), ExitCode::kDoesNotFit);
    arenas = *std::move(taken);
    return absl::OkStatus();
  }));
  BH_ASSIGN_OR_RETURN(engine.comm, group.Connect(comm_limits, ledger));
  engine.runner = std::make_unique<ModelRunner>(*engine.plan, engine.topology.rank, engine.limits,
                                                *std::move(arenas), *engine.backend, *engine.comm);
  return absl::OkStatus();
}

absl::Status LoadAll(Group& group, absl::Duration timeout, RankEngine& engine) {
  return RunPhase(group.exchange(), "weights", timeout, [&]() -> absl::Status {
    LoadProgress progress;
    const LoadReporter reporter(progress);
    const auto group_is_lost = [&] {
      return !group.liveness().Check(absl::InfiniteDuration()).ok();
    };
    BH_RETURN_IF_ERROR(LoadWeights(*engine.checkpoint, engine.config.model,
                                   engine.plan->rank(engine.topology.rank),
                                   engine.runner->weights(), *engine.backend,
                                   engine.threads.num_threads, &progress, group_is_lost));
    reporter.Report("weights loaded");
    return absl::OkStatus();
  });
}

}  // namespace

absl::Status RunPhase(GroupExchange& exchange, absl::string_view name, absl::Duration timeout,
                      const Phase& work) {
  return Agree(exchange, name, work(), timeout);
}

absl::StatusOr<std::unique_ptr<RankEngine>> StartEngine(
    const EngineOptions& options, Group& group,
    const std::function<absl::Status(const RankEngine&)>& before_memory) {
  auto engine = std::make_unique<RankEngine>();
  const absl::Duration timeout = options.startup_timeout;
  GroupExchange& exchange = group.exchange();
  engine->topology = exchange.topology();
  BH_ASSIGN_OR_RETURN(engine->threads, ChooseThreads(options.threads, exchange, timeout));
  group.AllowSpinning(engine->threads.may_spin);
  engine->device = MakeDevice(options);
  engine->ledger = std::make_unique<MemoryLedger>(*engine->device);
  BH_RETURN_IF_ERROR(RunPhase(exchange, "model", timeout, [&]() -> absl::Status {
    BH_RETURN_IF_ERROR(ReadModel(options, *engine));
    BH_RETURN_IF_ERROR(ResolveLimits(options, *engine));
    BH_ASSIGN_OR_RETURN(engine->backend, MakeBackend(options, engine->threads, *engine->device));
    return absl::OkStatus();
  }));
  BH_ASSIGN_OR_RETURN(const std::vector<std::string> digests,
                      exchange.AllGather(Digest(options, *engine), timeout));
  BH_RETURN_IF_ERROR(MarkAgreed(CompareDigests(digests)));
  if (before_memory != nullptr) {
    BH_RETURN_IF_ERROR(
        RunPhase(exchange, "listener", timeout, [&] { return before_memory(*engine); }));
  }
  const Footprint footprint =
      FootprintOf(*engine->plan, engine->topology.rank, engine->limits, *engine->backend);
  const CommLimits comm_limits = CommLimitsOf(*engine->plan, engine->limits);
  const int64_t comm_bytes = group.CommunicationBytes(comm_limits);
  BH_RETURN_IF_ERROR(SizePool(options, group, footprint, comm_bytes, *engine));
  BH_RETURN_IF_ERROR(TakeEverything(group, footprint, comm_limits, comm_bytes, timeout, *engine));
  BH_RETURN_IF_ERROR(LoadAll(group, timeout, *engine));
  engine->ledger->Seal();
  return engine;
}

SchedulerLimits SchedulerLimitsOf(const RankEngine& engine, const EngineOptions& options,
                                  int max_num_queued_reqs) {
  SchedulerLimits limits;
  limits.max_num_seqs = engine.limits.max_num_seqs;
  limits.max_model_len = engine.limits.max_model_len;
  limits.max_num_batched_tokens = engine.limits.max_num_batched_tokens;
  limits.block_tokens = engine.limits.block_tokens;
  limits.num_kv_blocks = engine.limits.num_kv_blocks;
  limits.max_num_queued_reqs = max_num_queued_reqs;
  limits.max_num_queued_tokens = int64_t{max_num_queued_reqs} * engine.limits.max_model_len;
  limits.admission = options.admission;
  limits.policy = options.scheduling_policy;
  return limits;
}

void LogReport(const RankEngine& engine) {
  const ModelLimits& limits = engine.limits;
  const RankTopology& topology = engine.topology;
  BH_LOG(kInfo) << "bulkhead " << Version() << " | " << engine.config.model.architecture << " "
                << DTypeName(limits.weight_dtype) << " | " << topology.size << " rank"
                << (topology.size > 1 ? "s" : "") << " x " << engine.threads.num_threads
                << " threads | " << engine.device->name();
  for (const absl::string_view line :
       absl::StrSplit(engine.ledger->Report(), '\n', absl::SkipEmpty())) {
    BH_LOG(kInfo) << line;
  }
  const int64_t tokens = limits.num_kv_blocks * limits.block_tokens;
  BH_LOG(kInfo) << "KV cache: " << FormatCount(tokens) << " tokens in "
                << DTypeName(limits.kv_dtype) << " (" << FormatCount(limits.num_kv_blocks)
                << " blocks of " << limits.block_tokens << ", limited by rank "
                << engine.pool.binding_rank << "), " << engine.pool.full_sequences
                << " sequences of max_model_len " << FormatCount(limits.max_model_len)
                << "; max_num_seqs " << limits.max_num_seqs;
  if (engine.pool.full_sequences < limits.max_num_seqs) {
    BH_LOG(kWarning) << "the KV cache holds " << engine.pool.full_sequences
                     << " sequences of max_model_len " << limits.max_model_len
                     << ", fewer than max_num_seqs " << limits.max_num_seqs << ": the rest wait";
  }
  if (engine.plan->replicates_kv_heads()) {
    BH_LOG(kInfo) << "KV heads are replicated: " << topology.size << " ranks share "
                  << engine.config.model.num_key_value_heads
                  << "; more ranks no longer shrink the KV cache of a rank";
  }
}

Coordinator::Options CoordinatorOptions(const RankEngine& engine, const SchedulerLimits& limits) {
  Coordinator::Options options;
  options.limits = limits;
  options.eos_ids.assign(engine.config.model.eos_token_ids.begin(),
                         engine.config.model.eos_token_ids.end());
  options.tokenizer = engine.tokenizer.get();
  options.now_ns = [] {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<uint64_t>(now.tv_sec) * 1000000000 + static_cast<uint64_t>(now.tv_nsec);
  };
  return options;
}

}  // namespace bulkhead
