#include "launcher/bench/throughput_run.h"

#include <algorithm>

#include "absl/strings/str_format.h"

namespace bulkhead {
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

}  // namespace bulkhead
