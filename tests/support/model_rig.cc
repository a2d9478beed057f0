#include "tests/support/model_rig.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/status.h"
#include "comm/group.h"
#include "comm/local/local_group.h"
#include "runtime/engine/coordinator.h"
#include "runtime/engine/decode_rows.h"
#include "runtime/engine/rank_loop.h"
#include "runtime/model/family.h"
#include "runtime/model/kv_groups.h"
#include "runtime/model/model_runner.h"
#include "shard/model_config.h"
#include "shard/weight_loader.h"
#include "tests/runtime/engine/recording_sink.h"
#include "tests/support/find_prefix.h"
#include "tests/support/or_die.h"
#include "tests/support/run_ranks.h"

namespace bulkhead {
namespace {

constexpr int kMaxSeqs = 8;
constexpr int kMaxTokens = 512;

std::unique_ptr<Backend> MakeBackend(Device& device, const RigOptions& options) {
  if (options.backend == "reference") return NewReferenceBackend(device);
  if (options.backend == "ordered")
    return NewOrderedBackend(device, options.activation, options.attention);
  return OrDie(NewCpuBackend(device, {options.threads, options.backend.c_str(), options.activation,
                                      options.attention, false}));
}

RigDevice MakeDevice(const RigOptions& options) {
  if (options.make_device) return options.make_device();
  RigDevice host;
  host.device = NewHostDevice(0);
  host.backend = MakeBackend(*host.device, options);
  return host;
}

// Collects the rows of prompt logits of one prompt.
class KeepLogits final : public LogitsSink {
 public:
  explicit KeepLogits(std::vector<float>& out) : out_(out) {}
  absl::Status OnRows(int64_t first_position, int64_t rows, int64_t vocab_size,
                      const float* logits) override {
    BH_CHECK(static_cast<int64_t>(out_.size()) == first_position * vocab_size);
    out_.insert(out_.end(), logits, logits + rows * vocab_size);
    return absl::OkStatus();
  }

 private:
  std::vector<float>& out_;
};

// Rank 0's part: makes the plans and collects the results.
class Script {
 public:
  Script(const std::vector<std::vector<int32_t>>& prompts, const RigOptions& options,
         int64_t num_blocks, int state_tokens)
      : options_(options),
        state_tokens_(state_tokens),
        chunk_tokens_(options.chunk_tokens),
        pool_(num_blocks, std::make_unique<PrefixCache>(num_blocks, options.block_tokens)),
        seqs_(prompts.size()) {
    BH_CHECK(prompts.size() <= kMaxSeqs);
    result_.logits.resize(prompts.size());
    result_.greedy_ids.resize(prompts.size());
    sinks_.reserve(prompts.size());
    for (size_t i = 0; i < prompts.size(); ++i) {
      seqs_[i].tokens = prompts[i];
      seqs_[i].prompt = static_cast<int>(prompts[i].size());
      sinks_.emplace_back(result_.logits[i]);
    }
  }
  ~Script() {
    for (Seq& seq : seqs_) pool_.Return(seq.blocks);
  }

  // The next step, or none when everything is done.
  std::optional<Step> Next() {
    std::optional<Step> step = NextOfThisTurn();
    if (step.has_value() || options_.second_turn_tokens < 0 || second_turn_) return step;
    BeginSecondTurn();
    return NextOfThisTurn();
  }

  void Commit(const Step& step, const StepResult& result) {
    for (const absl::Status& status : result.prompt_logits) OrDie(status);
    for (size_t i = 0; i < step.samples.size(); ++i) {
      const int seq_index = step.plan.slot(step.samples[i].seq_index);
      const TokenId id = OrDie(result.samples[i]).id;
      Seq& seq = seqs_[seq_index];
      result_.greedy_ids[seq_index].push_back(id);
      if (static_cast<int>(result_.greedy_ids[seq_index].size()) < options_.decode_tokens) {
        seq.tokens.push_back(id);
      }
    }
  }

  RigResult Take() { return std::move(result_); }

 private:
  struct Seq {
    std::vector<int32_t> tokens;
    std::vector<BlockId> blocks;
    int prompt = 0;
    int done = 0;
    int cached_blocks = 0;         // not yet in a plan's table changes
    bool drawn_on_device = false;  // whether the last token was
  };

  std::optional<Step> NextOfThisTurn() {
    Step step;
    step.plan.set_seq(step_seq_ + 1);
    int budget = kMaxTokens;
    for (size_t i = 0; i < seqs_.size() && budget > 0; ++i) {
      Seq& seq = seqs_[i];
      const int left = static_cast<int>(seq.tokens.size()) - seq.done;
      if (left == 0) continue;
      int n = std::min({left, chunk_tokens_, budget});
      if (seq.done < seq.prompt) n = std::min(n, seq.prompt - seq.done);
      if (seq.done < Kept(seq)) n = std::min(n, Kept(seq) - seq.done);
      Add(static_cast<int>(i), seq, n, step);
      budget -= n;
      if (!options_.together) break;
    }
    if (step.plan.slot_size() == 0) return std::nullopt;
    ++step_seq_;
    const int tokens = step.plan.token_ids_size();
    const bool decodes = tokens == step.plan.slot_size();
    if (decodes) ++result_.decode_steps;
    step.plan.set_padded_tokens(
        decodes && options_.pads_decodes ? PaddedDecodeRows(tokens, kMaxSeqs) : tokens);
    return step;
  }

  void BeginSecondTurn() {
    second_turn_ = true;
    chunk_tokens_ = options_.second_chunk_tokens;
    for (Seq& seq : seqs_) {
      CacheBlocks(seq);
      pool_.Return(seq.blocks);
    }
    for (size_t i = 0; i < seqs_.size(); ++i) {
      Seq& seq = seqs_[i];
      std::vector<int32_t>& greedy = result_.greedy_ids[i];
      greedy.resize(options_.second_turn_tokens);
      seq.tokens.resize(seq.prompt);
      seq.tokens.insert(seq.tokens.end(), greedy.begin(), greedy.end());
      const auto all_but_last = absl::MakeConstSpan(seq.tokens)
                                    .first(state_tokens_ > 0 ? Kept(seq) : seq.tokens.size() - 1);
      pool_.TakePrefix(FindPrefix(pool_, {.tokens = all_but_last}), seq.blocks);
      seq.cached_blocks = static_cast<int>(seq.blocks.size());
      const size_t vocab_size = result_.logits[i].size() / seq.prompt;
      seq.done = seq.cached_blocks * options_.block_tokens;
      result_.logits[i].resize(std::min(seq.done, seq.prompt) * vocab_size);
      result_.cached_tokens += seq.done;
    }
  }

  // The last position from which the second turn can start in a model with states.
  int Kept(const Seq& seq) const {
    if (state_tokens_ == 0 || options_.second_turn_tokens < 0) return 0;
    return (seq.prompt + options_.second_turn_tokens - 1) / state_tokens_ * state_tokens_;
  }

  void CacheBlocks(Seq& seq) {
    const SequenceKey key = {.tokens = seq.tokens};
    for (int i = 0; i < seq.done / options_.block_tokens; ++i) {
      const BlockId parent = i == 0 ? 0 : seq.blocks[i - 1];
      seq.blocks[i] = pool_.CacheBlock(key.Block(i, options_.block_tokens, parent), seq.blocks[i]);
    }
  }

  void Add(int slot, Seq& seq, int n, Step& step) {
    const int index = step.plan.slot_size();
    const bool in_prompt = seq.done < seq.prompt;
    const bool draws =
        options_.decode_tokens > 0 && seq.done + n == static_cast<int>(seq.tokens.size());
    step.plan.add_slot(slot);
    step.plan.add_num_tokens(n);
    step.plan.add_start_position(seq.done);
    step.plan.add_num_logits(in_prompt ? n : 1);
    if (!options_.adapter_of_prompt.empty())
      step.plan.add_adapter(options_.adapter_of_prompt[slot]);
    const bool on_device = options_.on_device && draws && !in_prompt;
    const bool whole = options_.sampling.temperature > 0 && options_.sampling.top_k == 0;
    step.plan.add_from_candidates(on_device && !whole);
    step.plan.add_from_row(on_device && whole);
    for (int t = seq.done; t < seq.done + n; ++t) {
      step.plan.add_token_ids(!in_prompt && seq.drawn_on_device ? kLastSampled : seq.tokens[t]);
    }
    seq.drawn_on_device = on_device;
    const int blocks = (seq.done + n + options_.block_tokens - 1) / options_.block_tokens;
    int had = static_cast<int>(seq.blocks.size());
    BH_CHECK(pool_.Grow(seq.blocks, std::max(0, blocks - had)));
    if (state_tokens_ > 0 && seq.cached_blocks > 0) {
      step.plan.add_restore_slot(slot);
      step.plan.add_restore_snapshot(slot);
    }
    had -= std::exchange(seq.cached_blocks, 0);  // the first step also lists them
    for (int b = had; b < blocks; ++b) {
      step.plan.add_table_slot(slot);
      step.plan.add_table_index(b);
      step.plan.add_table_block(seq.blocks[b]);
    }
    if (in_prompt || options_.decode_logits) step.prompt_logits.push_back({index, &sinks_[slot]});
    if (draws) {
      SampleRow row;
      row.seq_index = index;
      row.sampling = options_.sampling;
      row.position = seq.done + n;
      step.samples.push_back(row);
    }
    seq.done += n;
    if (seq.done != Kept(seq) || second_turn_) return;
    step.plan.add_save_slot(slot);
    step.plan.add_save_snapshot(slot);
  }

  const RigOptions& options_;
  const int state_tokens_;
  int chunk_tokens_;
  bool second_turn_ = false;
  KvBlockPool pool_;
  std::vector<Seq> seqs_;
  std::vector<KeepLogits> sinks_;
  RigResult result_;
  uint64_t step_seq_ = 0;
};

// Runs a rank's steps when everything is loaded.
using Drive = std::function<void(ModelRunner& runner, Group& group)>;

// One rank, from the checkpoint to the last plan.
void RunOneRank(const std::string& dir, const ShardPlan& plan, const RigOptions& options,
                ModelLimits limits, Group& group, const Drive& drive) {
  const int rank = group.exchange().topology().rank;
  const auto [driver, device, backend] = MakeDevice(options);
  MemoryLedger ledger(*device);
  const bool needs_none = device->host_memory() || (options.size == 1 && options.decode_graphs);
  if (!needs_none) limits.transport = options.transport;
  const RankNeeds needs = FootprintOf(plan, rank, limits, *backend);
  const CommLimits comm_limits = CommLimitsOf(plan, limits);
  ModelLimits first = limits;
  if (options.blocks_at_first > 0) first.num_kv_blocks = options.blocks_at_first;
  ClaimArenas(needs, first.num_kv_blocks, ledger);
  const auto comm = OrDie(limits.transport == Transport::kShared
                              ? group.Connect(comm_limits, ledger)
                              : options.connect(group, comm_limits, *device, ledger));
  ModelRunner runner(plan, rank, first, OrDie(TakeArenas(needs, first.num_kv_blocks, ledger)),
                     *backend, *comm);
  const auto checkpoint = OrDie(Checkpoint::Open(dir));
  OrDie(checkpoint->CheckAgainst(plan.config()));
  std::vector<std::shared_ptr<Checkpoint>> adapters;
  for (const std::string& adapter : options.adapters)
    adapters.push_back(OrDie(Checkpoint::OpenAdapter(adapter)));
  LoadProgress progress;
  OrDie(LoadWeights(
      *checkpoint, plan.rank(rank), runner.weights(), *backend, 1, &progress, [] { return false; },
      adapters));
  BH_CHECK(progress.done_bytes == progress.total_bytes);
  OrDie(runner.WarmUpProducts());
  if (options.decode_graphs) {
    BH_CHECK(runner.has_decode_graphs());
    OrDie(runner.WarmUpDecodes());
  }
  OrDie(runner.GrowKv(limits.num_kv_blocks, ledger));
  ledger.Seal();
  BH_CHECK(ledger.taken(MemoryCategory::kKv) == limits.num_kv_blocks * needs.kv_block_bytes);
  drive(runner, group);
}

// Runs the script's plans on a rank; `script` is null on every rank except 0.
void RunScript(ModelRunner& runner, Group& group, Script* script) {
  while (true) {
    Step step;
    if (script != nullptr) {
      std::optional<Step> next = script->Next();
      step.plan.set_stop(!next.has_value());
      if (next.has_value()) step = *std::move(next);
      if (group.exchange().topology().size > 1)
        OrDie(group.bus().Publish(step.plan.SerializeAsString()));
    } else {
      std::string message;
      OrDie(group.bus().Receive(&message));
      BH_CHECK(step.plan.ParseFromString(message));
    }
    if (step.plan.stop()) return;
    const StepResult result = OrDie(RunStep(runner, step));
    if (script != nullptr) script->Commit(step, result);
  }
}

struct Rig {
  ModelConfig config;
  ModelLimits limits;
  ShardPlan plan;
  int state_tokens;  // 0: the model has no states
};

Rig MakeRig(const std::string& model_dir, const RigOptions& options) {
  ParsedConfig config = OrDie(ReadModelConfig(model_dir, UnknownFields::kWarn, AllFamilySpecs()));
  for (const std::string& adapter : options.adapters)
    config.model.adapters.push_back(
        OrDie(ReadAdapter(adapter, adapter, config.model, AdaptableRows(config.model))));
  const std::optional<WeightFormat> format = options.weight_dtype;
  const WeightFormats weights =
      format.has_value() && IsQuantized(*format)
          ? WeightFormats::AtLoad(*format)
          : WeightFormats::StoredBy(
                config.model, format.has_value() ? DTypeOf(*format) : config.model.dtype.value());
  const ShardPlan plan =
      OrDie(ShardPlan::Create(config.model, options.size, std::max(weights.group_size, 1)));
  const int model_len = config.model.max_position_embeddings;
  ModelLimits limits{{.max_num_seqs = kMaxSeqs,
                      .max_model_len = options.max_model_len.value_or(model_len),
                      .max_num_batched_tokens = options.max_num_batched_tokens,
                      .block_tokens = options.block_tokens},
                     weights,
                     options.activation,
                     options.kv_format};
  limits.attention = options.attention;
  limits.sum_dtype = options.sum_dtype;
  limits.num_kv_blocks = int64_t{limits.blocks_per_seq()} * kMaxSeqs;
  if (options.kv_groups) {
    SetKvGroups(config.model, limits);
    limits.num_kv_blocks = limits.LeastBlocks(limits.max_model_len);
  }
  limits.caches_states = config.model.keeps_states();
  return {config.model, limits, plan,
          limits.caches_states ? std::max(kStateBlock, options.block_tokens) : 0};
}

void RunEveryRank(const std::string& model_dir, const Rig& rig, const RigOptions& options,
                  const Drive& drive) {
  BH_CHECK(!options.decode_graphs || options.size == 1 || options.transport == Transport::kNccl);
  RunRanksOf(
      options.node_of_rank.empty() ? NewLocalGroups(options.size)
                                   : NewLocalNodes(options.node_of_rank),
      [&](Group& group) { RunOneRank(model_dir, rig.plan, options, rig.limits, group, drive); });
}

}  // namespace

RigResult RunRig(const std::string& model_dir, const std::vector<std::vector<int32_t>>& prompts,
                 const RigOptions& options) {
  const Rig rig = MakeRig(model_dir, options);
  Script script(prompts, options, rig.limits.num_kv_blocks, rig.state_tokens);
  RunEveryRank(model_dir, rig, options, [&](ModelRunner& runner, Group& group) {
    RunScript(runner, group, group.exchange().topology().coordinator() ? &script : nullptr);
  });
  return script.Take();
}

std::vector<std::vector<TokenId>> RunRequests(const std::string& model_dir,
                                              const std::vector<Request>& requests, int depth,
                                              const RigOptions& options) {
  const Rig rig = MakeRig(model_dir, options);
  std::vector<std::vector<TokenId>> result;
  RunEveryRank(model_dir, rig, options, [&](ModelRunner& runner, Group& group) {
    BH_CHECK(depth <= runner.depth());
    ControlBus* const bus = options.size > 1 ? &group.bus() : nullptr;
    if (group.exchange().topology().rank > 0) return OrDie(RunRank(runner, bus, nullptr, nullptr));
    Coordinator::Options coordinator_options;
    SchedulerLimits& limits = coordinator_options.limits;
    limits.Limits::operator=(rig.limits);
    limits.max_num_queued_reqs = static_cast<int>(requests.size());
    limits.depth = depth;
    limits.prefix_caching = options.prefix_caching;
    limits.state_tokens = rig.state_tokens;
    limits.pads_decodes = options.pads_decodes;
    limits.shares_samples = runner.shares_samples();
    if (options.preemptions != nullptr) limits.admission = Admission::kOptimistic;
    Coordinator coordinator(std::move(coordinator_options));
    coordinator.SetServing();
    std::vector<std::shared_ptr<RecordingSink>> sinks;
    for (const Request& request : requests)
      OrDie(coordinator.Submit(request, sinks.emplace_back(std::make_shared<RecordingSink>())));
    coordinator.BeginDrain(absl::InfiniteDuration());
    OrDie(RunRank(runner, bus, &coordinator, nullptr));
    for (const auto& sink : sinks) {
      const RequestEnd end = sink->WaitForEnd();
      OrDie(end.status);
      if (options.preemptions != nullptr) *options.preemptions += end.timings.preemptions;
      result.push_back(sink->tokens());
    }
  });
  return result;
}

}  // namespace bulkhead
