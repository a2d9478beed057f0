#include "launcher/bench/simulate.h"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/exit_code.h"
#include "base/status.h"
#include "base/whole_file.h"
#include "launcher/bench/token_cost.h"
#include "launcher/group/provenance.h"
#include "launcher/model_path.h"
#include "launcher/python_tool.h"
#include "launcher/version.h"
#include "memory/kv_block_pool.h"
#include "memory/prefix_cache.h"
#include "nlohmann/json.hpp"
#include "runtime/engine/scheduler.h"

namespace bulkhead {
namespace {

using nlohmann::ordered_json;

constexpr int kBlockTokens = 16;
constexpr int kVocabSize = 32000;
constexpr StepCost kDefaultCost = {8000, 5, 10, 2};

// Other load on the machine is not rank 0's cost.
double Now() { return 1e-9 * static_cast<double>(ThreadCpuNanos()); }

int64_t LongestLen(const SimulateOptions& options) {
  return int64_t{3} * (options.input_len + options.output_len) / 2 + 2;
}

SchedulerLimits LimitsOf(const SimulateOptions& options, int max_num_seqs) {
  const int64_t longest = LongestLen(options);
  SchedulerLimits limits;
  limits.max_num_seqs = max_num_seqs;
  limits.max_model_len = static_cast<int>(longest);
  limits.max_num_batched_tokens = options.max_num_batched_tokens;
  limits.block_tokens = kBlockTokens;
  limits.num_kv_blocks = max_num_seqs * ((longest + kBlockTokens - 1) / kBlockTokens);
  limits.max_num_queued_reqs = options.requests;
  limits.prefix_caching = true;
  return limits;
}

// Rank 0's node and the nodes it sends to directly in a binomial tree over the nodes' leaders.
int CopiesOf(const SimulateOptions& options, int ranks) {
  if (ranks == 1) return 0;
  const int nodes = (ranks + options.ranks_per_node - 1) / options.ranks_per_node;
  int copies = 1;
  for (int reached = 1; reached < nodes; reached *= 2) ++copies;
  return copies;
}

class Simulation {
 public:
  Simulation(const SimulateOptions& options, const StepCost& cost, int ranks, int max_num_seqs)
      : options_(options),
        cost_(cost),
        limits_(LimitsOf(options, max_num_seqs)),
        pool_(limits_.num_kv_blocks,
              std::make_unique<PrefixCache>(limits_.num_kv_blocks, kBlockTokens)),
        scheduler_(limits_, {}, pool_) {
    run_.ranks = ranks;
    run_.max_num_seqs = max_num_seqs;
    run_.copies = CopiesOf(options, ranks);
    places_.resize(run_.copies);
  }

  SimulatedRun Run() {
    while (ended_ < options_.requests) {
      Submit();
      if (scheduler_.idle()) {
        now_s_ = arrival_s_;
      } else {
        RunStep();
      }
    }
    run_.group_s = now_s_;
    run_.submit_s /= options_.requests;
    run_.tokens_per_s = static_cast<double>(scheduler_.load().generation_tokens_total) / now_s_;
    return std::move(run_);
  }

 private:
  int Around(int mean) {
    return std::uniform_int_distribution<int>(std::max(1, mean / 2),
                                              std::max(1, 3 * mean / 2))(random_);
  }

  // Everything that has arrived by now.
  void Submit() {
    for (; submitted_ < options_.requests && arrival_s_ <= now_s_; ++submitted_) {
      Request request;
      request.prompt.resize(Around(options_.input_len));
      for (TokenId& token : request.prompt) token = static_cast<TokenId>(random_() % kVocabSize);
      request.stopping.max_tokens = Around(options_.output_len);
      request.stopping.ignore_eos = true;
      const double begin = Now();
      const absl::Status status = scheduler_.Submit(std::move(request)).status();
      run_.submit_s += Now() - begin;
      BH_CHECK(status.ok());  // the limits are made for all of them
      if (options_.request_rate.has_value()) {
        arrival_s_ += std::exponential_distribution<double>(*options_.request_rate)(random_);
      }
    }
  }

  void RunStep() {
    StepSample sample;
    sample.queued = scheduler_.load().num_waiting;
    double begin = Now();
    const std::optional<Step> step = scheduler_.PlanStep();
    sample.plan_s = Now() - begin;
    BH_CHECK(step.has_value());  // with nothing in flight something can run
    begin = Now();
    const std::string plan = step->plan.SerializeAsString();
    sample.encode_s = Now() - begin;
    sample.plan_bytes = static_cast<int64_t>(plan.size());
    for (std::vector<char>& place : places_) place.resize(std::max(place.size(), plan.size()));
    begin = Now();
    for (std::vector<char>& place : places_) std::memcpy(place.data(), plan.data(), plan.size());
    sample.hand_out_s = Now() - begin;
    sample.drawn = static_cast<int64_t>(step->samples.size());
    StepResult result;
    for (size_t i = 0; i < step->samples.size(); ++i) {
      GeneratedToken token;
      token.id = static_cast<TokenId>(random_() % kVocabSize);
      result.samples.emplace_back(std::move(token));
    }
    begin = Now();
    const std::vector<Emission> emissions = scheduler_.Commit(std::move(result));
    sample.commit_s = Now() - begin;
    for (const Emission& emission : emissions) ended_ += emission.finish.has_value() ? 1 : 0;
    now_s_ += GroupSeconds(step->plan) + sample.total_s();
    run_.rank0_s += sample.total_s();
    run_.steps.push_back(sample);
  }

  double GroupSeconds(const internal::StepPlan& plan) const {
    const auto& counts = plan.num_tokens();
    const auto decodes = std::count(counts.begin(), counts.end(), 1);
    const double us =
        *cost_.step_us + *cost_.decode_row_us * static_cast<double>(decodes) +
        *cost_.prompt_token_us * static_cast<double>(plan.token_ids_size() - decodes) +
        *cost_.message_us * std::max(0, run_.copies - 1);
    return us * 1e-6;
  }

  const SimulateOptions& options_;
  const StepCost cost_;
  const SchedulerLimits limits_;
  KvBlockPool pool_;
  Scheduler scheduler_;
  std::mt19937_64 random_{1};
  std::vector<std::vector<char>> places_;  // where copies of plans go
  SimulatedRun run_;
  double now_s_ = 0;
  double arrival_s_ = 0;  // of the next request
  int submitted_ = 0;
  int ended_ = 0;
};

absl::StatusOr<StepCost> CompleteCost(const SimulateOptions& options) {
  if (!options.measured.has_value()) return Merged(options.cost, kDefaultCost);
  BH_ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(*options.measured));
  const absl::StatusOr<StepCost> measured = CostFrom(text);
  if (!measured.ok()) {
    return WithExitCode(absl::InvalidArgumentError(absl::StrCat("--measured ", *options.measured,
                                                                ": ", measured.status().message())),
                        ExitCode::kUsage);
  }
  return Merged(Merged(options.cost, *measured), kDefaultCost);
}

absl::StatusOr<std::unique_ptr<Tokenizer>> TokenizerOf(const std::string& model) {
  BH_ASSIGN_OR_RETURN(const std::string dir, ResolveModelPath(model));
  absl::StatusOr<std::unique_ptr<Tokenizer>> tokenizer = Tokenizer::Load(dir);
  if (!tokenizer.ok()) return WithExitCode(tokenizer.status(), ExitCode::kModelRefused);
  return tokenizer;
}

template <typename T>
ordered_json Column(const std::vector<StepSample>& steps, T StepSample::*part) {
  ordered_json column = ordered_json::array();
  for (const StepSample& step : steps) column.push_back(step.*part);
  return column;
}

ordered_json RunJson(const SimulatedRun& run) {
  return {{"ranks", run.ranks},
          {"max_num_seqs", run.max_num_seqs},
          {"copies", run.copies},
          {"submit_us", 1e6 * run.submit_s},
          {"simulated_s", run.group_s},
          {"tokens_per_s", run.tokens_per_s},
          {"rank0_share", run.rank0_s / run.group_s},
          {"steps",
           {{"plan_s", Column(run.steps, &StepSample::plan_s)},
            {"encode_s", Column(run.steps, &StepSample::encode_s)},
            {"hand_out_s", Column(run.steps, &StepSample::hand_out_s)},
            {"commit_s", Column(run.steps, &StepSample::commit_s)},
            {"queued", Column(run.steps, &StepSample::queued)},
            {"drawn", Column(run.steps, &StepSample::drawn)},
            {"plan_bytes", Column(run.steps, &StepSample::plan_bytes)}}}};
}

// 0 if absent or not a number: another program may have written the file.
double NumberOf(const ordered_json& json, const char* key) {
  const bool has = json.is_object() && json.contains(key) && json[key].is_number();
  return has ? json[key].get<double>() : 0;
}

}  // namespace

absl::StatusOr<StepCost> CostFrom(absl::string_view throughput_json) {
  const ordered_json json = ordered_json::parse(throughput_json, nullptr,
                                                /*allow_exceptions=*/false);
  const absl::Status unusable = absl::InvalidArgumentError(
      "it has no case with decode steps; write it with 'bulkhead bench throughput --json'");
  if (!json.is_object() || !json.contains("cases")) return unusable;
  std::map<double, double> step_ms;  // by batch
  double best_prefill = 0;
  for (const ordered_json& one : json["cases"]) {
    if (!one.is_object() || !one.contains("step")) return unusable;
    const double median = NumberOf(one["step"], "p50_ms");
    if (median > 0) step_ms[NumberOf(one, "batch_size")] = median;
    best_prefill = std::max(best_prefill, NumberOf(one, "prefill_tokens_per_s"));
  }
  if (step_ms.empty() || best_prefill <= 0) return unusable;
  const auto [small, small_ms] = *step_ms.begin();
  const auto [large, large_ms] = *step_ms.rbegin();
  const double row_ms = large > small ? std::max(0.0, (large_ms - small_ms) / (large - small)) : 0;
  StepCost cost;
  cost.decode_row_us = 1e3 * row_ms;
  cost.step_us = 1e3 * std::max(0.0, small_ms - small * row_ms);
  cost.prompt_token_us = 1e6 / best_prefill;
  return cost;
}

StepCost Merged(const StepCost& first, const StepCost& second) {
  const auto pick = [](const std::optional<double>& a, const std::optional<double>& b) {
    return a.has_value() ? a : b;
  };
  return {pick(first.step_us, second.step_us), pick(first.decode_row_us, second.decode_row_us),
          pick(first.prompt_token_us, second.prompt_token_us),
          pick(first.message_us, second.message_us)};
}

SimulatedRun Simulate(const SimulateOptions& options, const StepCost& cost, int ranks,
                      int max_num_seqs) {
  return Simulation(options, cost, ranks, max_num_seqs).Run();
}

absl::Status RunSimulate(const SimulateOptions& options) {
  BH_ASSIGN_OR_RETURN(const StepCost cost, CompleteCost(options));
  if (options.plot.has_value() && !std::ofstream(*options.plot, std::ios::trunc).is_open()) {
    return CannotWrite("--plot", *options.plot);
  }
  BH_RETURN_IF_ERROR(CheckPythonTool());
  std::unique_ptr<Tokenizer> tokenizer = MadeUpTokenizer(kVocabSize);
  if (options.model.has_value()) {
    BH_ASSIGN_OR_RETURN(tokenizer, TokenizerOf(*options.model));
  }
  const TokenCost token = MeasureTokenCost(*tokenizer);
  ordered_json json = {{"bench", "simulate"},
                       {"version", Version()},
                       {"date", DateText()},
                       {"cpu", CpuName()},
                       {"requests", options.requests},
                       {"assumed",
                        {{"step_us", *cost.step_us},
                         {"decode_row_us", *cost.decode_row_us},
                         {"prompt_token_us", *cost.prompt_token_us},
                         {"message_us", *cost.message_us}}},
                       {"token",
                        {{"vocab_size", token.vocab_size},
                         {"greedy_us", 1e6 * token.greedy_s},
                         {"sampled_us", 1e6 * token.sampled_s},
                         {"detokenise_us", 1e6 * token.text_s}}},
                       {"runs", ordered_json::array()}};
  for (const int ranks : options.ranks) {
    for (const int seqs : options.max_num_seqs) {
      json["runs"].push_back(RunJson(Simulate(options, cost, ranks, seqs)));
    }
  }
  std::vector<std::string> args = {"simulate"};
  if (options.json) args.emplace_back("--json");
  if (options.plot.has_value()) args.insert(args.end(), {"--plot", *options.plot});
  return BecomePythonTool(args, json.dump());
}

}  // namespace bulkhead
