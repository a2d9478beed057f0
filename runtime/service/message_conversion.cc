#include "runtime/service/message_conversion.h"

namespace bulkhead {
namespace {

v1::FinishReason ToProto(FinishReason reason) {
  switch (reason) {
    case FinishReason::kEos:
      return v1::FINISH_REASON_EOS;
    case FinishReason::kStopToken:
      return v1::FINISH_REASON_STOP_TOKEN;
    case FinishReason::kStopString:
      return v1::FINISH_REASON_STOP_STRING;
    case FinishReason::kMaxTokens:
      return v1::FINISH_REASON_MAX_TOKENS;
    case FinishReason::kModelLength:
      return v1::FINISH_REASON_MODEL_LENGTH;
    case FinishReason::kTimeLimit:
      return v1::FINISH_REASON_TIME_LIMIT;
  }
  return v1::FINISH_REASON_UNSPECIFIED;
}

}  // namespace

v1::Token ToProto(const GeneratedToken& token) {
  v1::Token out;
  out.set_id(static_cast<uint32_t>(token.id));
  if (token.logprob.has_value()) out.set_logprob(*token.logprob);
  if (token.rank.has_value()) out.set_rank(static_cast<uint32_t>(*token.rank));
  for (const TokenLogprob& candidate : token.top) {
    auto* top = out.add_top();
    top->set_id(static_cast<uint32_t>(candidate.id));
    top->set_logprob(candidate.logprob);
  }
  return out;
}

v1::Finished ToProto(const RequestEnd& end, int prompt_tokens) {
  v1::Finished out;
  out.set_reason(ToProto(end.reason));
  if (end.stop_string.has_value()) out.set_stop_string(*end.stop_string);
  if (end.stop_token_id.has_value()) {
    out.set_stop_token_id(static_cast<uint32_t>(*end.stop_token_id));
  }
  out.mutable_usage()->set_prompt_tokens(prompt_tokens);
  out.mutable_usage()->set_completion_tokens(end.completion_tokens);
  out.mutable_usage()->set_cached_prompt_tokens(end.cached_prompt_tokens);
  out.mutable_timings()->set_prepare_ns(end.timings.prepare_ns);
  out.mutable_timings()->set_queue_ns(end.timings.queue_ns);
  out.mutable_timings()->set_first_token_ns(end.timings.first_token_ns);
  out.mutable_timings()->set_total_ns(end.timings.total_ns);
  out.mutable_timings()->set_preemptions(end.timings.preemptions);
  const StepCosts& costs = end.timings.costs;
  if (costs.collective_ns.has_value()) {
    out.mutable_timings()->set_collective_ns(*costs.collective_ns);
  }
  out.mutable_timings()->set_sampling_ns(costs.sampling_ns);
  out.mutable_timings()->set_detokenise_ns(costs.text_ns);
  return out;
}

v1::HostLoad ToProto(const HostCounters& host, int64_t total_bytes) {
  v1::HostLoad out;
  const int64_t at_ready = host.resident_bytes_at_ready.load();
  if (at_ready > 0) out.set_bound_bytes(at_ready + total_bytes);
  out.set_resident_bytes_at_ready(at_ready);
  out.set_resident_bytes_peak(host.resident_bytes.peak());
  const auto set = [](const PeakCounter& counter, v1::PeakCount* count) {
    count->set_now(counter.now());
    count->set_peak(counter.peak());
  };
  set(host.connections, out.mutable_connections());
  set(host.open_calls, out.mutable_open_calls());
  set(host.request_bytes, out.mutable_request_bytes());
  set(host.answer_bytes, out.mutable_answer_bytes());
  const auto closed = host.closed.Get();
  out.mutable_num_connections_closed_by_reason()->insert(closed.begin(), closed.end());
  return out;
}

v1::Limits ToProto(const SchedulerLimits& limits) {
  v1::Limits out;
  out.set_max_num_seqs(limits.max_num_seqs);
  out.set_max_model_len(limits.max_model_len);
  out.set_max_num_queued_reqs(limits.max_num_queued_reqs);
  return out;
}

}  // namespace bulkhead
