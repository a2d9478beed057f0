// The coordinator's metrics of steps and requests.
#include <algorithm>
#include <utility>

#include "base/log.h"
#include "runtime/engine/coordinator_state.h"

namespace bulkhead {
namespace {

double SecondsSince(uint64_t from_ns, uint64_t now_ns) {
  return static_cast<double>(now_ns - std::min(from_ns, now_ns)) * 1e-9;
}

}  // namespace

EngineMetrics Coordinator::Metrics() const {
  const absl::MutexLock lock(&mutex_);
  EngineMetrics metrics = metrics_;
  const uint64_t now = options_.now_ns();
  if (live_.empty()) return metrics;
  metrics.last_step_age_s = SecondsSince(std::max(last_step_ns_, busy_since_ns_), now);
  for (const auto& [id, live] : live_) {
    if (live->costs_before.has_value()) continue;  // has run
    metrics.oldest_waiting_s =
        std::max(metrics.oldest_waiting_s, SecondsSince(live->submitted_ns, now));
  }
  return metrics;
}

RequestEnd Coordinator::MakeEnd(Live& live, EndCause cause, uint64_t now_ns) {
  RequestFigures& figures = live.figures;
  figures.timings.total_ns = now_ns - live.arrived_ns;
  if (!figures.admitted) figures.timings.queue_ns = now_ns - live.submitted_ns;
  metrics_.CountEnd(figures, EndKindOf(cause.status, cause.reason));
  RequestEnd end;
  end.status = std::move(cause.status);
  end.reason = cause.reason;
  end.stop_string = std::move(cause.stop_string);
  end.stop_token_id = cause.stop_token_id;
  end.completion_tokens = static_cast<int>(figures.completion_tokens);
  end.cached_prompt_tokens = static_cast<int>(figures.cached_tokens);
  end.timings = figures.timings;
  return end;
}

void Coordinator::LogEnd(const Live& live, const RequestEnd& end) const {
  if (!options_.log_requests) return;
  const auto ms = [](uint64_t ns) { return static_cast<double>(ns / 1000) * 1e-3; };
  BH_LOG(kInfo) << "request_end id=" << live.request_id
                << " input_tokens=" << live.figures.prompt_tokens
                << " output_tokens=" << end.completion_tokens
                << " cached_tokens=" << end.cached_prompt_tokens
                << " queue_ms=" << ms(end.timings.queue_ns)
                << " ttft_ms=" << ms(end.timings.first_token_ns)
                << " e2e_ms=" << ms(end.timings.total_ns)
                << " status=" << EndKindName(EndKindOf(end.status, end.reason));
}

void Coordinator::RecordStep() {
  const SchedulerLoad load = scheduler_.load();
  const uint64_t tokens = load.prompt_tokens_total + load.generation_tokens_total;
  const uint64_t now = options_.now_ns();
  const absl::MutexLock lock(&mutex_);
  metrics_.drafts = load.drafts;
  metrics_.CountStep(tokens - std::exchange(step_tokens_, tokens));
  last_step_ns_ = now;
}

}  // namespace bulkhead
