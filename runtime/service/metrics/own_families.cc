#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "runtime/service/error_counts.h"
#include "runtime/service/metrics/families.h"
#include "runtime/service/refusal.h"

namespace bulkhead {
namespace {

void AddEngine(const MetricsReading& reading, FamilyList& list) {
  const v1::LoadInfo& load = reading.load;
  const EngineMetrics& engine = reading.engine;
  list.Counter("bulkhead_steps_total", "Steps that have ended").Add(engine.steps);
  list.Gauge("bulkhead_last_step_age_seconds",
             "Since a step ended while requests are there; 0 without requests")
      .Add(engine.last_step_age_s);
  list.Gauge("bulkhead_queue_oldest_age_seconds",
             "The longest wait in the engine of a request that never ran")
      .Add(engine.oldest_waiting_s);
  list.Gauge("bulkhead_waiting_tokens", "Tokens of waiting requests")
      .Add(load.num_waiting_tokens());
  list.Gauge("bulkhead_kv_blocks", "KV blocks by state; cached ones are free for any request")
      .Add(load.num_kv_blocks_used(), {{"state", "used"}})
      .Add(load.num_kv_blocks_cached(), {{"state", "cached"}})
      .Add(load.num_kv_blocks() - load.num_kv_blocks_used() - load.num_kv_blocks_cached(),
           {{"state", "free"}});
  list.Counter("bulkhead_short_steps_total",
               "Steps in which a request waited, by what was short: KV blocks or slots")
      .Add(load.num_steps_short_of_blocks(), {{"of", "blocks"}})
      .Add(load.num_steps_short_of_slots(), {{"of", "slots"}});
  list.Counter("bulkhead_prompt_tokens_computed_total",
               "Prompt tokens in steps; those recomputed after a preemption count again")
      .Add(load.prompt_tokens_total());
  list.Histogram("bulkhead_time_to_first_token_seconds",
                 "From the request's arrival to the first token, by the queue of the prompt")
      .Add(engine.first_token_by_lane[static_cast<int>(PromptLane::kShort)], {{"lane", "short"}})
      .Add(engine.first_token_by_lane[static_cast<int>(PromptLane::kLong)], {{"lane", "long"}});
}

void AddHost(const MetricsReading& reading, FamilyList& list) {
  const v1::HostLoad& host = reading.load.host();
  const v1::RankTable& table = reading.parts->rank_table;
  list.Gauge("bulkhead_host_budget_bytes", "Planned host memory for clients, by part");
  for (const v1::Arena& part : table.host().terms())
    list.Add(part.bytes(), {{"part", part.term()}});
  list.Gauge("bulkhead_host_bound_bytes",
             "Bound of rank 0's resident memory: at READY, and what clients may make it hold")
      .Add(host.bound_bytes());
  list.Gauge("bulkhead_host_resident_bytes", "Resident memory of rank 0")
      .Add(reading.load.resident_bytes());
  list.Gauge("bulkhead_host_resident_peak_bytes", "The same, at its peak")
      .Add(host.resident_bytes_peak());
  list.Gauge("bulkhead_host_counted_bytes", "Bytes held for clients, of requests and answers")
      .Add(host.request_bytes().now(), {{"of", "requests"}})
      .Add(host.answer_bytes().now(), {{"of", "answers"}});
  list.Gauge("bulkhead_cgroup_used_bytes", "Of the tightest memory cgroup of rank 0")
      .Add(host.cgroup_used_bytes());
  list.Gauge("bulkhead_cgroup_limit_bytes", "Of the same; 0: there is none")
      .Add(host.cgroup_limit_bytes());
  list.Gauge("bulkhead_open_connections", "Connections of clients by port")
      .Add(host.connections().now(), {{"port", "grpc"}})
      .Add(static_cast<double>(reading.open_http_connections), {{"port", "http"}})
      .Add(static_cast<double>(reading.open_metrics_connections), {{"port", "metrics"}});
  list.Gauge("bulkhead_open_calls", "Calls that are not answered yet").Add(host.open_calls().now());
}

// All reasons are listed from the start, so that rates begin at 0.
void AddRefusals(const MetricsReading& reading, FamilyList& list) {
  std::map<std::string, uint64_t> rejects;
  for (const char* const word : kRoomReasons) rejects[word] = 0;
  for (const char* const word : {reason::kMessageTooLarge, reason::kPromptTooLong,
                                 reason::kInvalidValue, reason::kInternal}) {
    rejects[word] = 0;
  }
  for (const auto& [word, count] : reading.load.num_errors_by_reason()) rejects[word] = count;
  list.Counter("bulkhead_rejects_total", "Calls that ended with an error, by its reason");
  for (const auto& [word, count] : rejects) list.Add(count, {{"reason", word}});
  std::map<std::string, uint64_t> closed = {{"OVERLOADED", 0}, {"TOO_MANY_CONNECTIONS", 0}};
  for (const auto& [word, count] : reading.load.host().num_connections_closed_by_reason()) {
    closed[word] = count;
  }
  list.Counter("bulkhead_connections_closed_total", "Connections closed by the server, by reason");
  for (const auto& [word, count] : closed) list.Add(count, {{"reason", word}});
  list.Counter("bulkhead_allocations_after_ready_total",
               "Allocations on a device refused after READY; must stay 0")
      .Add(reading.load.device_allocations_after_ready());
}

void AddInfo(const MetricsReading& reading, FamilyList& list) {
  const v1::ServerInfo& server = reading.parts->server_info;
  list.Gauge("bulkhead_epoch_info", "This run of the group; always 1")
      .Add(1, {{"epoch", reading.epoch},
               {"version", server.version()},
               {"device", server.device()},
               {"tensor_parallel_size", absl::StrCat(server.tensor_parallel_size())}});
  list.Gauge("bulkhead_limits_info", "The limits now; always 1")
      .Add(1, {{"max_num_seqs", absl::StrCat(reading.limits.max_num_seqs)},
               {"max_model_len", absl::StrCat(reading.limits.max_model_len)},
               {"max_num_queued_reqs", absl::StrCat(reading.limits.max_num_queued_reqs)},
               {"max_num_batched_tokens", absl::StrCat(server.max_num_batched_tokens())}});
  list.Gauge("bulkhead_state", "1 for the state that the group is in");
  for (const char* const phase : {"serving", "draining", "stopping"}) {
    list.Add(reading.phase == phase ? 1 : 0, {{"state", phase}});
  }
  list.Gauge("bulkhead_start_time_seconds", "When the server began to listen, in Unix time")
      .Add(static_cast<double>(reading.started_unix_s));
  list.Gauge("bulkhead_uptime_seconds", "Since READY").Add(reading.load.uptime_s());
}

}  // namespace

void AddOwnFamilies(const MetricsReading& reading, FamilyList& list) {
  list.SetCommonLabels({{"model_name", reading.model_name}});
  AddEngine(reading, list);
  AddHost(reading, list);
  AddRefusals(reading, list);
  AddInfo(reading, list);
}

}  // namespace bulkhead
