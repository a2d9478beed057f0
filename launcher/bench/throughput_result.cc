#include "launcher/bench/throughput_result.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "launcher/bench/quantile.h"
#include "launcher/text_table.h"
#include "nlohmann/json.hpp"

namespace bulkhead {
namespace {

using nlohmann::ordered_json;

std::vector<double> Column(const ThroughputCase& one, double ThroughputRun::*value) {
  std::vector<double> values;
  for (const ThroughputRun& run : one.runs) values.push_back(run.*value);
  return values;
}

std::vector<double> Decodes(const ThroughputCase& one) {
  std::vector<double> values;
  for (const ThroughputRun& run : one.runs) {
    if (run.decode_tokens_per_s.has_value()) values.push_back(*run.decode_tokens_per_s);
  }
  return values;
}

// Of all runs.
std::vector<double> Pooled(const ThroughputCase& one, std::vector<double> ThroughputRun::*value) {
  std::vector<double> pooled;
  for (const ThroughputRun& run : one.runs) {
    pooled.insert(pooled.end(), (run.*value).begin(), (run.*value).end());
  }
  return pooled;
}

std::string Milliseconds(const std::vector<double>& seconds, double q) {
  return seconds.empty() ? "-" : absl::StrFormat("%.2f", 1e3 * QuantileOf(seconds, q));
}

ordered_json LatencyJson(const std::vector<double>& seconds) {
  return {{"count", seconds.size()},
          {"p50_ms", 1e3 * QuantileOf(seconds, 0.5)},
          {"p99_ms", 1e3 * QuantileOf(seconds, 0.99)}};
}

std::string WithRange(const std::vector<double>& values) {
  if (values.empty()) return "-";
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  return absl::StrFormat("%.1f (%.1f - %.1f)", QuantileOf(values, 0.5), *least, *most);
}

ordered_json RunJson(const ThroughputRun& run) {
  ordered_json json = {{"prefill_tokens_per_s", run.prefill_tokens_per_s},
                       {"decode_tokens_per_s", nullptr},
                       {"total_tokens_per_s", run.total_tokens_per_s}};
  if (run.decode_tokens_per_s.has_value()) json["decode_tokens_per_s"] = *run.decode_tokens_per_s;
  return json;
}

}  // namespace

ThroughputRun RunOf(const std::vector<SequenceTimes>& sequences, int64_t prompt_tokens) {
  double last_first = 0;
  double first_last = 0;
  double end = 0;
  int64_t generated = 0;
  for (const SequenceTimes& sequence : sequences) {
    if (sequence.token_s.empty()) continue;
    const double last = sequence.token_s.back();
    last_first = std::max(last_first, sequence.token_s.front());
    first_last = end == 0 ? last : std::min(first_last, last);
    end = std::max(end, last);
    generated += static_cast<int64_t>(sequence.token_s.size());
  }
  ThroughputRun run;
  if (end <= 0) return run;
  for (const SequenceTimes& sequence : sequences) {
    if (!sequence.token_s.empty()) run.first_token_s.push_back(sequence.token_s.front());
  }
  run.prefill_tokens_per_s = static_cast<double>(prompt_tokens) / last_first;
  run.total_tokens_per_s = static_cast<double>(prompt_tokens + generated) / end;
  if (first_last <= last_first) {
    const double first = *std::min_element(run.first_token_s.begin(), run.first_token_s.end());
    const int64_t later = generated - static_cast<int64_t>(run.first_token_s.size());
    if (later > 0) run.decode_tokens_per_s = static_cast<double>(later) / (end - first);
    return run;
  }
  int64_t inside = 0;
  for (const SequenceTimes& sequence : sequences) {
    const std::vector<double>& times = sequence.token_s;
    inside += std::count_if(times.begin(), times.end(),
                            [&](double time) { return time > last_first && time <= first_last; });
    for (size_t i = 1; i < times.size(); ++i) {
      if (times[i - 1] >= last_first && times[i] <= first_last) {
        run.step_s.push_back(times[i] - times[i - 1]);
      }
    }
  }
  run.decode_tokens_per_s = static_cast<double>(inside) / (first_last - last_first);
  return run;
}

std::string LastRunText(const ThroughputCase& one) {
  const ThroughputRun& last = one.runs.back();
  return absl::StrFormat("batch %d, %d -> %d: prefill %.1f tokens/s, decode %s (last of %d runs)",
                         one.batch_size, one.input_len, one.output_len, last.prefill_tokens_per_s,
                         last.decode_tokens_per_s.has_value()
                             ? absl::StrFormat("%.1f tokens/s", *last.decode_tokens_per_s)
                             : "- (no token behind the first ones)",
                         one.runs.size());
}

std::string ThroughputTable(const ThroughputFacts& facts,
                            const std::vector<ThroughputCase>& cases) {
  std::vector<std::vector<std::string>> rows = {
      {"batch", "input", "output", "prefill tokens/s", "decode tokens/s", "total tokens/s",
       "first token ms p50", "p99", "step ms p50", "p99"}};
  for (const ThroughputCase& one : cases) {
    const std::vector<double> first = Pooled(one, &ThroughputRun::first_token_s);
    const std::vector<double> step = Pooled(one, &ThroughputRun::step_s);
    rows.push_back(
        {absl::StrCat(one.batch_size), absl::StrCat(one.input_len), absl::StrCat(one.output_len),
         WithRange(Column(one, &ThroughputRun::prefill_tokens_per_s)), WithRange(Decodes(one)),
         WithRange(Column(one, &ThroughputRun::total_tokens_per_s)), Milliseconds(first, 0.5),
         Milliseconds(first, 0.99), Milliseconds(step, 0.5), Milliseconds(step, 0.99)});
  }
  return absl::StrCat(TextTable(rows), "\n", RankTable(facts.rank_figures));
}

std::string ThroughputJson(const ThroughputFacts& facts, const std::vector<ThroughputCase>& cases) {
  ordered_json json = {
      {"bench", "throughput"},
      {"version", facts.version},
      {"date", facts.date},
      {"cpu", facts.cpu},
      {"model", facts.model},
      {"architecture", facts.architecture},
      {"weight_dtype", facts.weight_dtype},
      {"activation_dtype", facts.activation_dtype},
      {"kv_cache_dtype", facts.kv_cache_dtype},
      {"tensor_parallel_size", facts.ranks},
      {"threads", facts.threads},
      {"shared_prefix_len", facts.shared_prefix_len},
      {"memory",
       {{"num_kv_blocks", facts.num_kv_blocks},
        {"num_kv_blocks_used_peak", facts.num_kv_blocks_used_peak},
        {"num_preemptions", facts.num_preemptions},
        {"device_allocations_after_ready", facts.device_allocations_after_ready}}},
  };
  json["group"] = RanksJson(facts.rank_figures);
  json["memory"]["report"] =
      ordered_json::parse(facts.capacity_json, nullptr, /*allow_exceptions=*/false);
  ordered_json list = ordered_json::array();
  for (const ThroughputCase& one : cases) {
    ordered_json runs = ordered_json::array();
    for (const ThroughputRun& run : one.runs) runs.push_back(RunJson(run));
    list.push_back(
        {{"batch_size", one.batch_size},
         {"input_len", one.input_len},
         {"output_len", one.output_len},
         {"prefill_tokens_per_s",
          QuantileOf(Column(one, &ThroughputRun::prefill_tokens_per_s), 0.5)},
         {"decode_tokens_per_s", QuantileOf(Decodes(one), 0.5)},
         {"total_tokens_per_s", QuantileOf(Column(one, &ThroughputRun::total_tokens_per_s), 0.5)},
         {"first_token", LatencyJson(Pooled(one, &ThroughputRun::first_token_s))},
         {"step", LatencyJson(Pooled(one, &ThroughputRun::step_s))},
         {"runs", runs}});
  }
  json["cases"] = std::move(list);
  return json.dump(2) + "\n";
}

}  // namespace bulkhead
