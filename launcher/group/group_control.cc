#include "launcher/group/group_control.h"

#include <utility>
#include <vector>

#include "base/log.h"
#include "launcher/group/load_histograms.h"
#include "memory/host_memory.h"

namespace bulkhead {
namespace {

void AddDrafts(const EngineMetrics& metrics, v1::DraftCounts* drafts) {
  const DraftTotals& totals = metrics.drafts;
  drafts->set_num_drafts(totals.drafts);
  drafts->set_num_draft_tokens(totals.draft_tokens);
  drafts->set_num_accepted_tokens(totals.accepted_tokens);
  drafts->mutable_num_accepted_tokens_per_pos()->Assign(
      totals.accepted_by_position.begin(),
      totals.accepted_by_position.begin() + metrics.num_speculative_tokens);
}

}  // namespace

v1::LoadInfo GroupControl::Load() {
  const CoordinatorLoad load = coordinator_.Load();
  const SchedulerLoad& scheduler = load.scheduler;
  const SchedulerPressure& pressure = scheduler.pressure;
  v1::LoadInfo info;
  info.set_num_requests_running(scheduler.num_running);
  info.set_num_requests_waiting(scheduler.num_waiting);
  info.set_num_kv_blocks(load.num_kv_blocks);
  info.set_num_kv_blocks_used(scheduler.num_blocks_used);
  info.set_num_waiting_tokens(scheduler.num_waiting_tokens);
  info.set_prompt_tokens_total(scheduler.prompt_tokens_total);
  info.set_generation_tokens_total(scheduler.generation_tokens_total);
  info.set_num_preemptions_total(scheduler.preemptions_total);
  info.set_device_allocations_after_ready(engine_.ledger->refused_after_seal());
  info.set_num_kv_blocks_cached(scheduler.num_blocks_cached);
  info.set_prefix_cache_queries_total(scheduler.prefix_queries_total);
  info.set_prefix_cache_hits_total(scheduler.prefix_hits_total);
  info.set_uptime_s((MonotonicNanos() - ready_ns_) / 1'000'000'000);
  info.set_num_requests_running_peak(pressure.peak_running);
  info.set_num_requests_waiting_peak(pressure.peak_waiting);
  info.set_num_kv_blocks_used_peak(pressure.peak_blocks_used);
  info.set_num_steps_short_of_blocks(pressure.steps_short_of_blocks);
  info.set_num_steps_short_of_slots(pressure.steps_short_of_slots);
  info.mutable_num_requests_by_log2_tokens()->Assign(load.length_counts.begin(),
                                                     load.length_counts.end());
  info.set_longest_request_tokens(load.longest_tokens);
  const EngineMetrics metrics = coordinator_.Metrics();
  *info.mutable_histograms() = HistogramsOf(metrics);
  if (metrics.num_speculative_tokens > 0) AddDrafts(metrics, info.mutable_drafts());
  AddMemory(&info);
  AddRankSteps(&info);
  return info;
}

void GroupControl::BeginDrain(std::optional<absl::Duration> timeout, DrainWaiter ended) {
  const absl::Duration limit = timeout.value_or(drain_timeout_);
  BH_LOG(kInfo) << "draining: no new requests; accepted ones have " << absl::FormatDuration(limit);
  state_.SetDraining();
  coordinator_.BeginDrain(limit, std::move(ended));
}

void GroupControl::AddMemory(v1::LoadInfo* info) const {
  const HostLimit cgroup = TightestCgroup().value_or(HostLimit());
  info->set_resident_bytes(ResidentBytes());
  info->mutable_host()->set_cgroup_used_bytes(cgroup.total_bytes - cgroup.available_bytes);
  info->mutable_host()->set_cgroup_limit_bytes(cgroup.total_bytes);
  if (engine_.watch == nullptr) return;  // no GPUs
  std::vector<DeviceWatchReading> readings = board_.Devices();
  readings[0] = engine_.watch->reading();
  for (const DeviceWatchReading& reading : readings) {
    v1::DeviceMemory& device = *info->add_device_memory();
    device.set_free_bytes(reading.free_bytes);
    device.set_free_bytes_at_ready(reading.sealed_free_bytes);
    device.set_free_bytes_least(reading.least_free_bytes);
  }
}

void GroupControl::AddRankSteps(v1::LoadInfo* info) const {
  for (const RankFigures& rank : board_.Get()) {
    v1::RankSteps& steps = *info->add_rank_steps();
    steps.set_decode_steps(rank.decode().steps());
    steps.set_decode_compute_s(rank.decode().total_s() - rank.decode().comm_s());
    steps.set_decode_comm_s(rank.decode().comm_s());
    steps.set_prefill_steps(rank.prefill().steps());
    steps.set_prefill_compute_s(rank.prefill().total_s() - rank.prefill().comm_s());
    steps.set_prefill_comm_s(rank.prefill().comm_s());
  }
}

}  // namespace bulkhead
