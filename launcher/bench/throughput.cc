#include "launcher/bench/throughput.h"

#include <algorithm>
#include <chrono>
#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/exit_code.h"
#include "base/log.h"
#include "base/message_json.h"
#include "base/status.h"
#include "base/whole_file.h"
#include "launcher/bench/throughput_run.h"
#include "launcher/group/batch.h"
#include "launcher/group/provenance.h"
#include "launcher/python_tool.h"
#include "launcher/version.h"
#include "nlohmann/json.hpp"

namespace bulkhead {
namespace {

using nlohmann::ordered_json;

ordered_json RanksJson(const std::vector<RankFigures>& ranks) {
  ordered_json list = ordered_json::array();
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    RankFigures figures = ranks[rank];
    figures.mutable_decode();  // zeros where there was none
    figures.mutable_prefill();
    list.push_back(MessageToJson(figures));
    list.back()["rank"] = rank;
  }
  return list;
}

ordered_json CaseJson(const ThroughputCase& one) {
  ordered_json runs = ordered_json::array();
  for (const ThroughputRun& run : one.runs) {
    runs.push_back({{"prefill_tokens_per_s", run.prefill_tokens_per_s},
                    {"decode_tokens_per_s", nullptr},
                    {"total_tokens_per_s", run.total_tokens_per_s},
                    {"first_token_s", run.first_token_s},
                    {"step_s", run.step_s}});
    if (run.decode_tokens_per_s.has_value()) {
      runs.back()["decode_tokens_per_s"] = *run.decode_tokens_per_s;
    }
  }
  return {{"batch_size", one.batch_size},
          {"input_len", one.input_len},
          {"output_len", one.output_len},
          {"runs", std::move(runs)}};
}

class ThroughputJob final : public BatchJob {
 public:
  // `measured`: receives the Python tool's input.
  ThroughputJob(const ThroughputOptions& options, std::string* measured)
      : options_(options), measured_(measured) {
    for (const int batch_size : options.batch_sizes) {
      for (const int input_len : options.input_lens) {
        cases_.push_back({batch_size, input_len, options.output_len, {}});
      }
    }
  }

  absl::Status Open(const EndRank& /*end*/) override {
    BH_RETURN_IF_ERROR(CheckPythonTool());
    if (!options_.out.has_value()) return absl::OkStatus();
    if (std::ofstream(*options_.out, std::ios::trunc).is_open()) return absl::OkStatus();
    return CannotWrite("--out", *options_.out);
  }

  absl::Status Prepare(const RankEngine& engine) override {
    engine_ = &engine;
    for (const ThroughputCase& one : cases_) {
      if (one.batch_size > engine.limits.max_num_seqs) {
        BH_LOG(kWarning) << "batch " << one.batch_size << " is more than max_num_seqs "
                         << engine.limits.max_num_seqs
                         << ": the other sequences wait for free places";
      }
      const int len = one.input_len + one.output_len;
      if (len > engine.limits.max_model_len) {
        return WithExitCode(
            absl::InvalidArgumentError(
                absl::StrCat("--input-len ", one.input_len, " and --output-len ", one.output_len,
                             " need max_model_len ", len, "; it is ", engine.limits.max_model_len)),
            ExitCode::kUsage);
      }
    }
    return absl::OkStatus();
  }

  void Feed(Coordinator& coordinator) override {
    for (ThroughputCase& one : cases_) {
      // The first run of a case is not counted: it warms caches and clocks.
      for (int run = -1; run < options_.repeats && status_.ok(); ++run) {
        const absl::StatusOr<ThroughputRun> result = RunOnce(coordinator, one);
        status_.Update(result.status());
        if (result.ok() && run >= 0) one.runs.push_back(*result);
      }
      if (!status_.ok()) break;
      BH_LOG(kInfo) << LastRunText(one);
    }
    load_ = coordinator.Load();
  }

  void TakeFigures(std::vector<RankFigures> figures) override { figures_ = std::move(figures); }

  absl::Status Outcome() override {
    if (!status_.ok()) return WithExitCode(status_, ExitCode::kClientError);
    *measured_ = Measured().dump();
    return absl::OkStatus();
  }

  size_t size() const override {
    return *std::max_element(options_.batch_sizes.begin(), options_.batch_sizes.end());
  }

 private:
  // Random ids, the same in every run of the program; no two prompts have a common prefix beyond
  // the shared part.
  std::vector<TokenId> Prompt(int input_len) {
    std::mt19937_64 shared(1);
    std::vector<TokenId> prompt;
    const auto vocab = static_cast<uint64_t>(engine_->source.config.model.vocab_size);
    for (int i = 0; i < input_len; ++i) {
      prompt.push_back(
          static_cast<TokenId>((i < options_.shared_prefix_len ? shared() : random_()) % vocab));
    }
    return prompt;
  }

  absl::StatusOr<ThroughputRun> RunOnce(Coordinator& coordinator, const ThroughputCase& one) {
    const std::vector<AdapterConfig>& adapters = engine_->source.config.model.adapters;
    std::vector<Request> requests(one.batch_size);
    for (size_t i = 0; i < requests.size(); ++i) {
      Request& request = requests[i];
      if (!adapters.empty()) UseAdapter(adapters, 1 + i % adapters.size(), request);
      request.prompt = Prompt(one.input_len);
      request.sampling.temperature = 0;
      request.stopping.max_tokens = one.output_len;
      request.stopping.ignore_eos = true;
    }
    std::vector<SequenceTimes> sequences(one.batch_size);
    const auto begin = std::chrono::steady_clock::now();
    BH_RETURN_IF_ERROR(GenerateAll(
        coordinator, std::move(requests), last_request_, [&](size_t i, const OutputDelta& delta) {
          const std::chrono::duration<double> now = std::chrono::steady_clock::now() - begin;
          std::vector<double>& token_s = sequences[i].token_s;
          token_s.insert(token_s.end(), delta.tokens.size(), now.count());
        }));
    const int computed = std::max(one.input_len - options_.shared_prefix_len, 1);
    return RunOf(sequences, int64_t{one.batch_size} * computed);
  }

  ordered_json Measured() const {
    const ModelLimits& limits = engine_->limits;
    const ReportFacts report = engine_->facts();
    ordered_json json = {
        {"bench", "throughput"},
        {"version", Version()},
        {"date", DateText()},
        {"cpu", CpuName()},
        {"model", options_.engine.model},
        {"architecture", engine_->source.config.model.architecture},
        {"weight_dtype", WeightFormatsText(limits.weights)},
        {"activation_dtype", ActivationDTypeName(limits.activation)},
        {"attention_dtype", AttentionDTypeName(limits.attention)},
        {"kv_cache_dtype", report.kv_cache_dtype},
        {"tensor_parallel_size", engine_->topology.size},
        {"threads", engine_->threads.num_threads},
        {"shared_prefix_len", options_.shared_prefix_len},
        {"memory",
         {{"num_kv_blocks", limits.num_kv_blocks},
          {"num_kv_blocks_used_peak", load_.scheduler.pressure.peak_blocks_used},
          {"num_preemptions", load_.scheduler.preemptions_total},
          {"device_allocations_after_ready", report.device_allocations_after_ready},
          {"report", MessageToJson(ReportOf(engine_->capacity, {}, report))}}},
        {"ranks", RanksJson(figures_)},
        {"cases", ordered_json::array()}};
    for (const ThroughputCase& one : cases_) json["cases"].push_back(CaseJson(one));
    return json;
  }

  const ThroughputOptions& options_;
  std::string* const measured_;
  const RankEngine* engine_ = nullptr;
  std::vector<ThroughputCase> cases_;
  std::mt19937_64 random_{2};
  int64_t last_request_ = 0;
  CoordinatorLoad load_;
  std::vector<RankFigures> figures_;  // of each rank
  absl::Status status_;
};

}  // namespace

absl::Status RunThroughput(const ThroughputOptions& options) {
  std::string measured;  // on rank 0
  BH_RETURN_IF_ERROR(RunBatch(options.engine, [&]() -> absl::StatusOr<std::unique_ptr<BatchJob>> {
    return std::make_unique<ThroughputJob>(options, &measured);
  }));
  if (measured.empty()) return absl::OkStatus();
  std::vector<std::string> args = {"throughput"};
  if (options.json) args.emplace_back("--json");
  if (options.out.has_value()) args.insert(args.end(), {"--out", *options.out});
  return BecomePythonTool(args, measured);
}

}  // namespace bulkhead
