#include "launcher/bench/simulate_result.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/bytes.h"
#include "launcher/bench/json_fields.h"
#include "launcher/bench/quantile.h"
#include "launcher/text_table.h"
#include "nlohmann/json.hpp"

namespace bulkhead {
namespace {

using nlohmann::ordered_json;

// Queues are told apart by their order of magnitude.
struct QueueRange {
  const char* name;
  int64_t most;
};
constexpr QueueRange kQueueRanges[] = {{"0", 0},
                                       {"1 - 99", 99},
                                       {"100 - 999", 999},
                                       {"1000 - 9999", 9999},
                                       {"10000 -", std::numeric_limits<int64_t>::max()}};

struct RangeSummary {
  const char* queue = "";
  size_t steps = 0;
  double plan_us = 0;
  double encode_us = 0;
  double hand_out_us = 0;
  double commit_us = 0;
  double total_p50_us = 0;
  double total_p99_us = 0;
  int64_t plan_bytes = 0;
  double drawn = 0;  // tokens of a step
};

double MedianUs(const std::vector<StepSample>& steps, double StepSample::*part) {
  std::vector<double> values;
  for (const StepSample& step : steps) values.push_back(step.*part);
  return 1e6 * QuantileOf(values, 0.5);
}

double TotalUs(const std::vector<StepSample>& steps, double q) {
  std::vector<double> values;
  for (const StepSample& step : steps) values.push_back(step.total_s());
  return 1e6 * QuantileOf(values, q);
}

RangeSummary SummaryOf(const char* queue, const std::vector<StepSample>& steps) {
  RangeSummary summary;
  summary.queue = queue;
  summary.steps = steps.size();
  summary.plan_us = MedianUs(steps, &StepSample::plan_s);
  summary.encode_us = MedianUs(steps, &StepSample::encode_s);
  summary.hand_out_us = MedianUs(steps, &StepSample::hand_out_s);
  summary.commit_us = MedianUs(steps, &StepSample::commit_s);
  std::vector<double> drawn;
  for (const StepSample& step : steps) drawn.push_back(static_cast<double>(step.drawn));
  summary.drawn = QuantileOf(std::move(drawn), 0.5);
  summary.total_p50_us = TotalUs(steps, 0.5);
  summary.total_p99_us = TotalUs(steps, 0.99);
  for (const StepSample& step : steps) {
    summary.plan_bytes = std::max(summary.plan_bytes, step.plan_bytes);
  }
  return summary;
}

std::vector<RangeSummary> SummariesOf(const SimulatedRun& run) {
  std::vector<RangeSummary> summaries;
  int64_t least = 0;
  for (const QueueRange& range : kQueueRanges) {
    std::vector<StepSample> inside;
    for (const StepSample& step : run.steps) {
      if (step.queued >= least && step.queued <= range.most) inside.push_back(step);
    }
    if (!inside.empty()) summaries.push_back(SummaryOf(range.name, inside));
    least = range.most + 1;
  }
  return summaries;
}

std::string Us(double us) { return absl::StrFormat("%.1f", us); }

std::string TokenText(const TokenCost& token) {
  return absl::StrFormat(
      "on top, where rank 0 draws on its CPU, for each sequence: %.1f us greedily or %.1f us at "
      "temperature 1 from %d logits, and %.2f us for the text\n",
      1e6 * token.greedy_s, 1e6 * token.sampled_s, token.vocab_size, 1e6 * token.text_s);
}

std::string CostText(const StepCost& cost) {
  return absl::StrFormat(
      "assumed of a step: %g us, %g for each decoding sequence, %g for each prompt token, %g for "
      "each message of rank 0 to a node\n",
      *cost.step_us, *cost.decode_row_us, *cost.prompt_token_us, *cost.message_us);
}

}  // namespace

absl::StatusOr<StepCost> CostFrom(absl::string_view throughput_json) {
  const ordered_json json = ordered_json::parse(throughput_json, nullptr,
                                                /*allow_exceptions=*/false);
  const absl::Status unusable = absl::InvalidArgumentError(
      "it has no case with decode steps; write it with 'bulkhead bench throughput --json'");
  if (!json.is_object() || !json.contains("cases")) return unusable;
  std::map<int, double> step_ms;  // by batch
  double best_prefill = 0;
  for (const ordered_json& one : json["cases"]) {
    if (!one.is_object() || !one.contains("step")) return unusable;
    const double median = NumberOf(one["step"], "p50_ms", 0);
    if (median > 0) step_ms[static_cast<int>(WholeOf(one, "batch_size", 0))] = median;
    best_prefill = std::max(best_prefill, NumberOf(one, "prefill_tokens_per_s", 0));
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

std::string SimulateTable(const SimulateFacts& facts, const std::vector<SimulatedRun>& runs) {
  std::vector<std::vector<std::string>> rows = {
      {"ranks", "sequences", "queue", "steps", "plan us", "encode", "hand out", "commit",
       "rank 0 p50 us", "p99 us", "plan bytes", "greedy us", "or sampled", "detokenise"}};
  std::vector<std::vector<std::string>> totals = {{"ranks", "sequences", "copies of a plan",
                                                   "submit us", "simulated s", "tokens/s",
                                                   "rank 0's share"}};
  const TokenCost& token = facts.token_cost;
  for (const SimulatedRun& run : runs) {
    for (const RangeSummary& range : SummariesOf(run)) {
      rows.push_back(
          {absl::StrCat(run.ranks), absl::StrCat(run.max_num_seqs), range.queue,
           absl::StrCat(range.steps), Us(range.plan_us), Us(range.encode_us), Us(range.hand_out_us),
           Us(range.commit_us), Us(range.total_p50_us), Us(range.total_p99_us),
           FormatCount(range.plan_bytes), Us(1e6 * range.drawn * token.greedy_s),
           Us(1e6 * range.drawn * token.sampled_s), Us(1e6 * range.drawn * token.text_s)});
    }
    totals.push_back({absl::StrCat(run.ranks), absl::StrCat(run.max_num_seqs),
                      absl::StrCat(run.copies), Us(1e6 * run.submit_s),
                      absl::StrFormat("%.1f", run.group_s),
                      absl::StrFormat("%.0f", run.tokens_per_s),
                      absl::StrFormat("%.2f %%", 100 * run.rank0_s / run.group_s)});
  }
  return absl::StrCat("measured, rank 0's processor time of a step, medians:\n", TextTable(rows),
                      TokenText(token), "\n", CostText(facts.cost), TextTable(totals));
}

std::string SimulateJson(const SimulateFacts& facts, const std::vector<SimulatedRun>& runs) {
  ordered_json json = {{"bench", "simulate"},
                       {"version", facts.version},
                       {"date", facts.date},
                       {"cpu", facts.cpu},
                       {"requests", facts.requests},
                       {"assumed",
                        {{"step_us", *facts.cost.step_us},
                         {"decode_row_us", *facts.cost.decode_row_us},
                         {"prompt_token_us", *facts.cost.prompt_token_us},
                         {"message_us", *facts.cost.message_us}}},
                       {"token",
                        {{"vocab_size", facts.token_cost.vocab_size},
                         {"greedy_us", 1e6 * facts.token_cost.greedy_s},
                         {"sampled_us", 1e6 * facts.token_cost.sampled_s},
                         {"detokenise_us", 1e6 * facts.token_cost.text_s}}}};
  ordered_json list = ordered_json::array();
  for (const SimulatedRun& run : runs) {
    ordered_json ranges = ordered_json::array();
    for (const RangeSummary& range : SummariesOf(run)) {
      ranges.push_back({{"queue", range.queue},
                        {"steps", range.steps},
                        {"plan_us", range.plan_us},
                        {"encode_us", range.encode_us},
                        {"hand_out_us", range.hand_out_us},
                        {"commit_us", range.commit_us},
                        {"rank0_p50_us", range.total_p50_us},
                        {"rank0_p99_us", range.total_p99_us},
                        {"drawn", range.drawn},
                        {"plan_bytes", range.plan_bytes}});
    }
    list.push_back({{"ranks", run.ranks},
                    {"max_num_seqs", run.max_num_seqs},
                    {"copies", run.copies},
                    {"submit_us", 1e6 * run.submit_s},
                    {"simulated_s", run.group_s},
                    {"tokens_per_s", run.tokens_per_s},
                    {"rank0_share", run.rank0_s / run.group_s},
                    {"rank0_p50_us", TotalUs(run.steps, 0.5)},
                    {"rank0_p99_us", TotalUs(run.steps, 0.99)},
                    {"by_queue", ranges}});
  }
  json["runs"] = std::move(list);
  return json.dump(2) + "\n";
}

std::string SimulateSvg(const std::vector<SimulatedRun>& runs) {
  constexpr int kWidth = 640;
  constexpr int kHeight = 400;
  constexpr int kMargin = 60;
  constexpr double kLeastUs = 1;
  constexpr double kMostUs = 10000;
  constexpr const char* kColours[] = {"#1f6feb", "#d9730d", "#2da44e", "#8250df", "#cf222e"};
  std::map<int, std::map<int, double>> lines;  // ranks -> sequences -> us
  int least_seqs = std::numeric_limits<int>::max();
  int most_seqs = 1;
  for (const SimulatedRun& run : runs) {
    lines[run.ranks][run.max_num_seqs] = std::clamp(TotalUs(run.steps, 0.5), kLeastUs, kMostUs);
    least_seqs = std::min(least_seqs, run.max_num_seqs);
    most_seqs = std::max(most_seqs, run.max_num_seqs);
  }
  const double decades = std::max(1e-9, std::log10(most_seqs) - std::log10(least_seqs));
  const auto x_of = [&](int seqs) {
    return kMargin + (std::log10(seqs) - std::log10(least_seqs)) / decades * (kWidth - 2 * kMargin);
  };
  const auto y_of = [&](double us) {
    return kHeight - kMargin - std::log10(us) / std::log10(kMostUs) * (kHeight - 2 * kMargin);
  };
  std::string svg = absl::StrFormat(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" font-family=\"sans-serif\" "
      "font-size=\"12\">\n<rect width=\"%d\" height=\"%d\" fill=\"white\"/>\n"
      "<text x=\"%d\" y=\"24\" font-size=\"14\">Rank 0's cost of a step (median, microseconds) by "
      "sequences</text>\n",
      kWidth, kHeight, kWidth, kHeight, kMargin);
  for (double us = kLeastUs; us <= kMostUs; us *= 10) {
    absl::StrAppendFormat(&svg,
                          "<line x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"#ddd\"/>\n"
                          "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%.0f</text>\n",
                          kMargin, kWidth - kMargin, y_of(us), y_of(us), kMargin - 6, y_of(us) + 4,
                          us);
  }
  size_t colour = 0;
  for (const auto& [ranks, points] : lines) {
    const char* stroke = kColours[colour % std::size(kColours)];
    std::string path;
    for (const auto& [seqs, us] : points) {
      absl::StrAppendFormat(&path, "%s%.1f %.1f", path.empty() ? "M" : " L", x_of(seqs), y_of(us));
      absl::StrAppendFormat(&svg,
                            "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3\" fill=\"%s\"/>\n"
                            "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%d</text>\n",
                            x_of(seqs), y_of(us), stroke, x_of(seqs), kHeight - kMargin + 18, seqs);
    }
    absl::StrAppendFormat(&svg,
                          "<path d=\"%s\" fill=\"none\" stroke=\"%s\"/>\n"
                          "<text x=\"%d\" y=\"%d\" fill=\"%s\">%d ranks</text>\n",
                          path, stroke, kMargin + 10, kMargin + 20 + 16 * static_cast<int>(colour),
                          stroke, ranks);
    ++colour;
  }
  return svg + "</svg>\n";
}

}  // namespace bulkhead
