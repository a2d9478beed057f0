#include "runtime/engine/load_meter.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace bulkhead {

void LoadMeter::Busy(uint64_t now_ns, const SchedulerLoad& load) {
  if (begin_ns_.has_value()) return;
  begin_ns_ = now_ns;
  prompt_tokens_ = load.prompt_tokens_total;
  generation_tokens_ = load.generation_tokens_total;
  prefix_queries_ = load.prefix_queries_total;
  prefix_hits_ = load.prefix_hits_total;
}

std::optional<std::string> LoadMeter::Line(uint64_t now_ns, const SchedulerLoad& load) {
  if (!begin_ns_.has_value() || now_ns - *begin_ns_ < period_ns_ || now_ns == *begin_ns_) {
    return std::nullopt;
  }
  const double seconds = static_cast<double>(now_ns - *begin_ns_) * 1e-9;
  const double prompt = static_cast<double>(load.prompt_tokens_total - prompt_tokens_) / seconds;
  const double generated =
      static_cast<double>(load.generation_tokens_total - generation_tokens_) / seconds;
  const uint64_t queries = load.prefix_queries_total - prefix_queries_;
  const uint64_t hits = load.prefix_hits_total - prefix_hits_;
  begin_ns_.reset();
  Busy(now_ns, load);
  std::string line = absl::StrFormat(
      "prompt %.1f tokens/s, generation %.1f tokens/s, running %d, waiting %d, KV in use %.1f %%",
      prompt, generated, load.num_running, load.num_waiting,
      100.0 * static_cast<double>(load.num_blocks_used) / static_cast<double>(num_kv_blocks_));
  if (queries > 0) {
    absl::StrAppendFormat(&line, ", prefix cache hits %.1f %%",
                          100.0 * static_cast<double>(hits) / static_cast<double>(queries));
  }
  return line;
}

}  // namespace bulkhead
