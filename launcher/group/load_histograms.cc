#include "launcher/group/load_histograms.h"

namespace bulkhead {
namespace {

void Fill(const FixedHistogram& from, v1::Histogram* to) {
  to->mutable_bounds()->Assign(from.bounds().begin(), from.bounds().end());
  for (size_t i = 0; i <= from.bounds().size(); ++i) to->add_counts(from.count(i));
  to->set_sum(from.sum());
}

}  // namespace

v1::RequestHistograms HistogramsOf(const EngineMetrics& metrics) {
  v1::RequestHistograms all;
  Fill(metrics.first_token_seconds, all.mutable_time_to_first_token_seconds());
  Fill(metrics.inter_token_seconds, all.mutable_inter_token_latency_seconds());
  Fill(metrics.queue_seconds, all.mutable_request_queue_time_seconds());
  Fill(metrics.e2e_seconds, all.mutable_e2e_request_latency_seconds());
  Fill(metrics.request_prompt_tokens, all.mutable_request_prompt_tokens());
  Fill(metrics.request_generation_tokens, all.mutable_request_generation_tokens());
  return all;
}

}  // namespace bulkhead
