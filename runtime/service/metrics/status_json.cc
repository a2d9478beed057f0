#include "runtime/service/metrics/status_json.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/message_json.h"
#include "base/status.h"
#include "nlohmann/json.hpp"
#include "runtime/engine/fixed_histogram.h"
#include "runtime/service/metrics/metrics_reading.h"
#include "runtime/service/refusal.h"

namespace bulkhead {
namespace {

using Json = nlohmann::ordered_json;

// Bounds and counts are for rates: quantiles over a period follow from differences.
Json HistogramJson(const FixedHistogram& histogram) {
  Json json = {{"count", histogram.count()}, {"sum", histogram.sum()}};
  for (const auto& [name, quantile] : {std::pair("p50", 0.5), {"p95", 0.95}, {"p99", 0.99}}) {
    Json& value = json[name];  // null: nothing was counted
    if (histogram.count() > 0) value = QuantileOf(histogram.bounds(), histogram.counts(), quantile);
  }
  Json& counts = json["counts"] = Json::array();
  for (const uint64_t count : histogram.counts()) counts.push_back(count);
  json["bounds"] = histogram.bounds();
  return json;
}

// How many sequences of a length the pool holds at once, up to max_model_len.
Json CurveJson(const Limits& planned) {
  constexpr int kShortest = 128;
  Json curve = Json::array();
  Limits limits = planned;
  if (limits.block_tokens == 0) return curve;
  for (int len = std::min(kShortest, planned.max_model_len);;
       len = std::min(2 * len, planned.max_model_len)) {
    limits.max_model_len = len;
    curve.push_back({{"tokens", len}, {"sequences", limits.full_sequences()}});
    if (len == planned.max_model_len) return curve;
  }
}

Json GroupJson(const MetricsReading& reading, bool has_chats) {
  const v1::ServerInfo& server = reading.parts->server_info;
  const v1::ModelInfo& model = reading.parts->model_info;
  return {{"model", reading.model_name},
          {"architecture", model.architecture()},
          {"dtype", model.dtype()},
          {"chats", has_chats},
          {"version", server.version()},
          {"epoch", reading.epoch},
          {"phase", reading.phase},
          {"device", server.device()},
          {"tensor_parallel_size", server.tensor_parallel_size()},
          {"uptime_s", reading.load.uptime_s()},
          {"limits",
           {{"max_num_seqs", reading.limits.max_num_seqs},
            {"max_model_len", reading.limits.max_model_len},
            {"max_num_batched_tokens", server.max_num_batched_tokens()},
            {"max_num_queued_reqs", reading.limits.max_num_queued_reqs}}}};
}

void AddLoad(const MetricsReading& reading, Json* json) {
  const v1::LoadInfo& load = reading.load;
  (*json)["requests"] = {{"running", load.num_requests_running()},
                         {"waiting", load.num_requests_waiting()},
                         {"waiting_tokens", load.num_waiting_tokens()},
                         {"oldest_waiting_s", reading.engine.oldest_waiting_s}};
  (*json)["kv_blocks"] = {{"all", load.num_kv_blocks()},
                          {"used", load.num_kv_blocks_used()},
                          {"cached", load.num_kv_blocks_cached()},
                          {"tokens_each", reading.parts->rank_table.block_size()}};
  (*json)["steps"] = {{"all", reading.engine.steps},
                      {"short_of_blocks", load.num_steps_short_of_blocks()},
                      {"short_of_slots", load.num_steps_short_of_slots()},
                      {"last_age_s", reading.engine.last_step_age_s}};
  (*json)["totals"] = {{"prompt_tokens", reading.engine.prompt_tokens},
                       {"cached_prompt_tokens", reading.engine.cached_prompt_tokens},
                       {"generation_tokens", load.generation_tokens_total()},
                       {"preemptions", load.num_preemptions_total()}};
  if (load.has_drafts()) (*json)["drafts"] = MessageToJson(load.drafts());
  (*json)["first_token_seconds"] = HistogramJson(reading.engine.first_token_seconds);
  (*json)["inter_token_seconds"] = HistogramJson(reading.engine.inter_token_seconds);
  (*json)["host"] = {{"resident_bytes", load.resident_bytes()},
                     {"bound_bytes", load.host().bound_bytes()},
                     {"open_calls", load.host().open_calls().now()}};
}

void AddRanks(const MetricsReading& reading, Json* json) {
  const v1::RankTable& table = reading.parts->rank_table;
  (*json)["binding"] = {{"rank", table.binding_rank()}, {"term", table.binding_term()}};
  Json& ranks = (*json)["ranks"] = Json::array();
  const auto& devices = reading.load.device_memory();
  for (int i = 0; i < table.ranks_size(); ++i) {
    Json& rank = ranks.emplace_back(MessageToJson(table.ranks(i)));
    if (i < devices.size()) rank["device_free_bytes"] = devices[i].free_bytes();
  }
}

}  // namespace

absl::StatusOr<std::string> StatusJson(ServiceCore& core, int64_t started_unix_s, bool has_chats) {
  BH_ASSIGN_OR_RETURN(const MetricsReading reading, ReadMetrics(core, started_unix_s));
  Json json = GroupJson(reading, has_chats);
  AddLoad(reading, &json);
  AddRanks(reading, &json);
  json["curve"] = CurveJson(reading.parts->limits);
  std::string text = json.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (static_cast<int64_t>(text.size()) > core.quotas.metrics_bytes) {
    return WithReason(
        absl::ResourceExhaustedError(absl::StrCat(
            "the status has ", text.size(), " bytes; planned are ", core.quotas.metrics_bytes)),
        reason::kHostMemory);
  }
  return text;
}

}  // namespace bulkhead
