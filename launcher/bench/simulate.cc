#include "launcher/bench/simulate.h"

#include <algorithm>
#include <cstring>
#include <ctime>
#include <fstream>
#include <iostream>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/exit_code.h"
#include "base/status.h"
#include "base/whole_file.h"
#include "launcher/bench/provenance.h"
#include "launcher/bench/token_cost.h"
#include "launcher/exit_status.h"
#include "launcher/model_path.h"
#include "launcher/version.h"
#include "memory/kv_block_pool.h"
#include "memory/prefix_cache.h"
#include "runtime/engine/scheduler.h"

namespace bulkhead {
namespace {

constexpr int kBlockTokens = 16;
constexpr int kVocabSize = 32000;
constexpr StepCost kDefaultCost = {8000, 5, 10, 2};

// Of this thread's processor time: what else the machine does is not rank 0's cost.
double Now() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

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
  limits.max_num_queued_tokens = options.requests * longest;
  limits.prefix_caching = true;
  return limits;
}

// Rank 0's node, and the nodes that it sends to itself in a binomial tree over the nodes' leaders.
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

}  // namespace

SimulatedRun Simulate(const SimulateOptions& options, const StepCost& cost, int ranks,
                      int max_num_seqs) {
  return Simulation(options, cost, ranks, max_num_seqs).Run();
}

absl::Status RunSimulate(const SimulateOptions& options) {
  SimulateFacts facts;
  BH_ASSIGN_OR_RETURN(facts.cost, CompleteCost(options));
  facts.version = std::string(Version());
  facts.date = DateText();
  facts.cpu = CpuName();
  facts.requests = options.requests;
  std::ofstream svg;
  if (options.svg.has_value()) {
    svg.open(*options.svg, std::ios::trunc);
    if (!svg.is_open()) {
      return CannotWrite("--svg", *options.svg);
    }
  }
  std::unique_ptr<Tokenizer> tokenizer = MadeUpTokenizer(kVocabSize);
  if (options.model.has_value()) {
    BH_ASSIGN_OR_RETURN(tokenizer, TokenizerOf(*options.model));
  }
  facts.token_cost = MeasureTokenCost(*tokenizer);
  std::vector<SimulatedRun> runs;
  for (const int ranks : options.ranks) {
    for (const int seqs : options.max_num_seqs) {
      runs.push_back(Simulate(options, facts.cost, ranks, seqs));
    }
  }
  std::cout << (options.json ? SimulateJson(facts, runs) : SimulateTable(facts, runs));
  BH_RETURN_IF_ERROR(FlushStandardOutput());
  if (!options.svg.has_value()) return absl::OkStatus();
  svg << SimulateSvg(runs) << std::flush;
  if (svg.good()) return absl::OkStatus();
  return WithExitCode(absl::DataLossError(absl::StrCat("writing --svg ", *options.svg, " failed")),
                      ExitCode::kClientError);
}

}  // namespace bulkhead
