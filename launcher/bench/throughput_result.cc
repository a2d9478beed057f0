#include "launcher/bench/throughput_result.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
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

std::string WithRange(const std::vector<double>& values) {
  if (values.empty()) return "-";
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  return absl::StrFormat("%.1f (%.1f - %.1f)", MedianOf(values), *least, *most);
}

ordered_json RunJson(const ThroughputRun& run) {
  ordered_json json = {{"prefill_tokens_per_s", run.prefill_tokens_per_s},
                       {"decode_tokens_per_s", nullptr},
                       {"total_tokens_per_s", run.total_tokens_per_s}};
  if (run.decode_tokens_per_s.has_value()) json["decode_tokens_per_s"] = *run.decode_tokens_per_s;
  return json;
}

}  // namespace

double MedianOf(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

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
  run.prefill_tokens_per_s = static_cast<double>(prompt_tokens) / last_first;
  run.total_tokens_per_s = static_cast<double>(prompt_tokens + generated) / end;
  if (first_last <= last_first) return run;
  int64_t inside = 0;
  for (const SequenceTimes& sequence : sequences) {
    inside += std::count_if(sequence.token_s.begin(), sequence.token_s.end(),
                            [&](double time) { return time > last_first && time <= first_last; });
  }
  run.decode_tokens_per_s = static_cast<double>(inside) / (first_last - last_first);
  return run;
}

std::string ThroughputTable(const std::vector<ThroughputCase>& cases) {
  std::vector<std::vector<std::string>> rows = {{"batch", "input", "output", "prefill tokens/s",
                                                 "decode tokens/s", "ms/token", "total tokens/s"}};
  for (const ThroughputCase& one : cases) {
    const double decode = MedianOf(Decodes(one));
    rows.push_back(
        {absl::StrCat(one.batch_size), absl::StrCat(one.input_len), absl::StrCat(one.output_len),
         WithRange(Column(one, &ThroughputRun::prefill_tokens_per_s)), WithRange(Decodes(one)),
         decode == 0 ? "-" : absl::StrFormat("%.2f", 1e3 * one.batch_size / decode),
         WithRange(Column(one, &ThroughputRun::total_tokens_per_s))});
  }
  return TextTable(rows);
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
        {"resident_bytes_peak", facts.resident_bytes_peak},
        {"device_allocations_after_ready", facts.device_allocations_after_ready}}},
  };
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
         {"prefill_tokens_per_s", MedianOf(Column(one, &ThroughputRun::prefill_tokens_per_s))},
         {"decode_tokens_per_s", MedianOf(Decodes(one))},
         {"total_tokens_per_s", MedianOf(Column(one, &ThroughputRun::total_tokens_per_s))},
         {"runs", runs}});
  }
  json["cases"] = std::move(list);
  return json.dump(2) + "\n";
}

}  // namespace bulkhead
