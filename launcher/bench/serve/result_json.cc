#include <cmath>

#include "launcher/bench/serve/bench_result.h"
#include "launcher/bench/serve/definitions.h"
#include "nlohmann/json.hpp"

namespace bulkhead {
namespace {

using nlohmann::ordered_json;

constexpr double kMsPerS = 1e3;

ordered_json RateJson(double rate) {
  return std::isinf(rate) ? ordered_json("inf") : ordered_json(rate);
}

template <typename T>
ordered_json OrNull(const std::optional<T>& value) {
  return value.has_value() ? ordered_json(*value) : ordered_json(nullptr);
}

// mean_ttft_ms, median_ttft_ms, std_ttft_ms, p99_ttft_ms ...
void AddVllmKeys(const std::string& name, const Distribution& values, ordered_json* json) {
  (*json)["mean_" + name + "_ms"] = values.mean.value;
  (*json)["median_" + name + "_ms"] = values.median.value;
  (*json)["std_" + name + "_ms"] = values.std_dev;
  for (const Percentile& one : values.percentiles) {
    (*json)["p" + PercentText(one.percent) + "_" + name + "_ms"] =
        one.estimate.has_value() ? ordered_json(one.estimate->value) : ordered_json(nullptr);
  }
}

void AddDetails(const std::vector<RunRecord>& runs, ordered_json* json) {
  ordered_json inputs, outputs, ttfts, itls, latencies, starts, queues, errors;
  for (ordered_json* list :
       {&inputs, &outputs, &ttfts, &itls, &latencies, &starts, &queues, &errors}) {
    *list = ordered_json::array();
  }
  for (const RunRecord& run : runs) {
    for (const RequestRecord& request : run.requests) {
      const double sent = request.sent_s.value_or(request.scheduled_s);
      const bool completed = request.outcome == RequestOutcome::kCompleted;
      ordered_json gaps = ordered_json::array();
      for (size_t i = 1; i < request.arrivals.size(); ++i) {
        gaps.push_back(request.arrivals[i].time_s - request.arrivals[i - 1].time_s);
      }
      inputs.push_back(request.prompt_tokens);
      outputs.push_back(completed ? request.completion_tokens : 0);
      ttfts.push_back(FirstToken(request).value_or(sent) - sent);
      itls.push_back(gaps);
      latencies.push_back(completed ? LastToken(request) - sent : 0);
      starts.push_back(sent);
      queues.push_back(sent - request.scheduled_s);
      errors.push_back(request.message);
    }
  }
  (*json)["input_lens"] = inputs;
  (*json)["output_lens"] = outputs;
  (*json)["ttfts"] = ttfts;
  (*json)["itls"] = itls;
  (*json)["latencies"] = latencies;
  (*json)["start_times"] = starts;
  (*json)["queue_times"] = queues;
  (*json)["errors"] = errors;
}

ordered_json EstimateJson(const Estimate& estimate) {
  return {{"value", estimate.value}, {"low", estimate.low}, {"high", estimate.high}};
}

ordered_json DistributionJson(const Distribution& values) {
  ordered_json json = {{"count", values.count}};
  if (values.count == 0) return json;
  json["mean"] = EstimateJson(values.mean);
  json["median"] = EstimateJson(values.median);
  json["std"] = values.std_dev;
  json["min"] = values.min;
  json["max"] = values.max;
  for (const Percentile& one : values.percentiles) {
    if (one.estimate.has_value()) {
      json["p" + PercentText(one.percent)] = EstimateJson(*one.estimate);
    }
  }
  return json;
}

ordered_json LatenciesJson(const Latencies& latencies) {
  return {{"ttft_ms", DistributionJson(latencies.ttft)},
          {"tpot_ms", DistributionJson(latencies.tpot)},
          {"itl_ms", DistributionJson(latencies.itl)},
          {"e2el_ms", DistributionJson(latencies.e2el)},
          {"ttft_from_send_ms", DistributionJson(latencies.ttft_from_send)},
          {"e2el_from_send_ms", DistributionJson(latencies.e2el_from_send)},
          {"chunk_gap_ms", DistributionJson(latencies.chunk_gap)},
          {"send_delay_ms", DistributionJson(latencies.send_delay)}};
}

ordered_json ThroughputJson(const Throughput& throughput) {
  return {{"duration_s", throughput.duration_s},
          {"requests_per_s", EstimateJson(throughput.requests_per_s)},
          {"output_tokens_per_s", EstimateJson(throughput.output_tokens_per_s)},
          {"total_tokens_per_s", EstimateJson(throughput.total_tokens_per_s)},
          {"good_requests_per_s", OrNull(throughput.good_requests_per_s)}};
}

ordered_json ServerJson(const ServerFacts& facts) {
  const v1::ServerInfo& server = facts.server;
  const v1::ModelInfo& model = facts.model;
  ordered_json provenance = ordered_json::object();
  const std::map<std::string, std::string> sorted(server.provenance().begin(),
                                                  server.provenance().end());
  for (const auto& [key, value] : sorted) provenance[key] = value;
  ordered_json clocks = ordered_json::array();
  for (const v1::ClockOffset& clock : server.clock_offsets()) {
    clocks.push_back({{"offset", clock.offset_us()}, {"error", clock.error_us()}});
  }
  return {{"version", server.version()},
          {"epoch", server.epoch()},
          {"device", server.device()},
          {"tensor_parallel_size", server.tensor_parallel_size()},
          {"model", model.served_model_name()},
          {"architecture", model.architecture()},
          {"weight_dtype", model.dtype()},
          {"kv_cache_dtype", server.kv_cache_dtype()},
          {"config_sha256", model.config_sha256()},
          {"max_num_seqs", server.max_num_seqs()},
          {"max_model_len", server.max_model_len()},
          {"max_num_batched_tokens", server.max_num_batched_tokens()},
          {"max_num_queued_reqs", server.max_num_queued_reqs()},
          {"block_size", server.block_size()},
          {"num_kv_blocks", server.num_kv_blocks()},
          {"provenance", provenance},
          {"clock_offsets_us", clocks}};
}

ordered_json MemoryJson(const ServerFacts& facts, const std::optional<MemoryUse>& memory) {
  ordered_json ranks = ordered_json::array();
  for (const v1::RankRow& rank : facts.ranks.ranks()) {
    ordered_json arenas = ordered_json::object();
    for (const v1::Arena& arena : rank.arenas()) arenas[arena.term()] = arena.bytes();
    ranks.push_back({{"rank", rank.rank()},
                     {"host", rank.host()},
                     {"device", rank.device()},
                     {"cores", rank.cores()},
                     {"numa_nodes", rank.numa_nodes()},
                     {"total_bytes", rank.total_bytes()},
                     {"others_bytes", rank.others_bytes()},
                     {"reserve_bytes", rank.reserve_bytes()},
                     {"arenas", arenas},
                     {"free_bytes", rank.free_bytes()},
                     {"stranded_bytes", rank.stranded_bytes()},
                     {"kv_bytes_per_token", rank.kv_bytes_per_token()}});
  }
  ordered_json json = {{"binding_rank", facts.ranks.binding_rank()},
                       {"binding_term", facts.ranks.binding_term()},
                       {"host_bytes", facts.ranks.host_bytes()},
                       {"ranks", ranks}};
  if (!memory.has_value()) return json;
  json["kv_blocks"] = memory->kv_blocks;
  json["kv_blocks_used_peak"] = memory->kv_blocks_used_peak;
  json["kv_blocks_used_peak_is_exact"] = memory->peak_is_exact;
  json["requests_running_peak"] = memory->requests_running_peak;
  json["requests_waiting_peak"] = memory->requests_waiting_peak;
  json["preemptions"] = memory->preemptions;
  json["refusals"] = memory->refusals;
  json["rank0_resident_bytes_peak"] = memory->resident_bytes_peak;
  json["device_allocations_after_ready"] = memory->device_allocations_after_ready;
  ordered_json devices = ordered_json::array();
  for (const v1::DeviceMemory& device : memory->devices) {
    devices.push_back({{"free_bytes", device.free_bytes()},
                       {"free_bytes_at_ready", device.free_bytes_at_ready()},
                       {"free_bytes_least", device.free_bytes_least()}});
  }
  json["devices"] = devices;
  json["prefix_cache_queried_tokens"] = memory->prefix_cache_queries;
  json["prefix_cache_found_tokens"] = memory->prefix_cache_hits;
  return json;
}

ordered_json ClientJson(const BenchResult& result) {
  const ClientFacts& client = result.client;
  ordered_json json = {{"version", result.version},
                       {"host", result.client_host},
                       {"threads", client.threads},
                       {"args", result.options.args},
                       {"send_lag_median_ms", client.lag.median_ms},
                       {"send_lag_p99_ms", client.lag.p99_ms},
                       {"send_lag_max_ms", client.lag.max_ms},
                       {"busiest_thread_share", client.busiest_thread_share},
                       {"ceiling", nullptr}};
  if (client.ceiling.has_value()) {
    json["ceiling"] = {{"requests_per_s", client.ceiling->requests_per_s},
                       {"tokens_per_s", client.ceiling->tokens_per_s}};
  }
  return json;
}

ordered_json WorkloadJson(const ServeBenchOptions& options) {
  const DatasetOptions& dataset = options.dataset;
  const char* ramp = options.arrivals.ramp_up == RampUp::kLinear        ? "linear"
                     : options.arrivals.ramp_up == RampUp::kExponential ? "exponential"
                                                                        : nullptr;
  ordered_json json = {{"dataset_name", DatasetText(dataset.name)},
                       {"dataset_path", OrNull(dataset.path)},
                       {"seed", dataset.seed},
                       {"input_len", dataset.input_len},
                       {"output_len", dataset.output_len},
                       {"range_ratio", dataset.range_ratio},
                       {"prefix_len", dataset.prefix_len},
                       {"num_prefixes", dataset.num_prefixes},
                       {"ignore_eos", OrNull(dataset.ignore_eos)},
                       {"temperature", dataset.temperature},
                       {"request_rate", RateJson(options.arrivals.request_rate)},
                       {"burstiness", RateJson(options.arrivals.burstiness)},
                       {"ramp_up_strategy", nullptr},
                       {"max_concurrency", OrNull(options.max_concurrency)},
                       {"num_warmups", options.num_warmups},
                       {"repeats", options.repeats}};
  if (ramp != nullptr) {
    json["ramp_up_strategy"] = ramp;
    json["ramp_up_start_rps"] = options.arrivals.ramp_up_start_rps;
    json["ramp_up_end_rps"] = options.arrivals.ramp_up_end_rps;
  }
  return json;
}

ordered_json PartsJson(const TimeSplit& split) {
  ordered_json json = {{"computing", EstimateJson(split.computing)}};
  for (const auto& [name, part] :
       {std::pair("collective", split.collective), std::pair("sampling", split.sampling),
        std::pair("detokenise", split.detokenise)}) {
    json[name] = part.has_value() ? EstimateJson(*part) : ordered_json(nullptr);
  }
  return json;
}

ordered_json OursJson(const BenchResult& result) {
  const BenchSummary& summary = result.summary;
  ordered_json json = {{"format", 1},
                       {"valid", result.why_invalid.empty()},
                       {"why_invalid", result.why_invalid},
                       {"interrupted", result.interrupted},
                       {"unfinished", summary.unfinished},
                       {"workload", WorkloadJson(result.options)},
                       {"latencies", LatenciesJson(summary.latencies)},
                       {"throughput", ThroughputJson(summary.throughput)}};
  const Goodput& goodput = result.options.summary.goodput;
  if (goodput.any()) {
    json["goodput"] = {{"ttft_ms", OrNull(goodput.ttft_ms)},
                       {"tpot_ms", OrNull(goodput.tpot_ms)},
                       {"e2el_ms", OrNull(goodput.e2el_ms)},
                       {"good_requests", summary.good}};
  }
  json["steady"] = nullptr;
  if (summary.steady.has_value()) {
    json["steady"] = {{"requests", summary.steady->requests},
                      {"latencies", LatenciesJson(summary.steady->latencies)},
                      {"throughput", ThroughputJson(summary.steady->throughput)}};
  }
  json["runs"] = ordered_json::array();
  for (const RunFigures& run : summary.runs) {
    json["runs"].push_back({{"duration_s", run.duration_s},
                            {"completed", run.completed},
                            {"failed", run.failed},
                            {"request_throughput", run.request_throughput},
                            {"output_throughput", run.output_throughput},
                            {"mean_ttft_ms", run.mean_ttft_ms},
                            {"mean_tpot_ms", run.mean_tpot_ms},
                            {"mean_e2el_ms", run.mean_e2el_ms}});
  }
  json["failures_by_code"] = summary.failures_by_code;
  json["failures_by_reason"] = summary.failures_by_reason;
  const TimeSplit& split = summary.split;
  json["time_split_ms"] = {{"count", split.count},
                           {"client_wait", EstimateJson(split.send_delay)},
                           {"queue", EstimateJson(split.queue)},
                           {"prefill", EstimateJson(split.prefill)},
                           {"decode", EstimateJson(split.decode)},
                           {"network", EstimateJson(split.rest)},
                           {"of_prefill_and_decode", PartsJson(split)}};
  json["cached_prompt_tokens"] = summary.cached_prompt_tokens;
  json["client"] = ClientJson(result);
  if (result.server.has_value()) {
    json["server"] = ServerJson(*result.server);
    json["memory"] = MemoryJson(*result.server, result.memory);
  }
  json["definitions"] = ordered_json::object();
  for (const Definition& one : Definitions()) json["definitions"][one.name] = one.formula;
  return json;
}

}  // namespace

std::string ResultJson(const BenchResult& result) {
  const BenchSummary& summary = result.summary;
  const ServeBenchOptions& options = result.options;
  ordered_json json = {{"date", result.date},
                       {"endpoint_type", "bulkhead-grpc"},
                       {"backend", "bulkhead-grpc"},
                       {"label", OrNull(options.label)},
                       {"model_id", result.model_id()},
                       {"tokenizer_id", result.model_id()},
                       {"num_prompts", summary.completed + summary.failed + summary.unfinished}};
  for (const auto& [key, value] : options.metadata) json[key] = value;
  json["request_rate"] = RateJson(options.arrivals.request_rate);
  json["burstiness"] = RateJson(options.arrivals.burstiness);
  json["max_concurrency"] = OrNull(options.max_concurrency);
  json["duration"] = summary.throughput.duration_s;
  json["completed"] = summary.completed;
  json["failed"] = summary.failed;
  json["total_input_tokens"] = summary.input_tokens;
  json["total_output_tokens"] = summary.output_tokens;
  json["request_throughput"] = summary.throughput.requests_per_s.value;
  json["request_goodput"] = OrNull(summary.throughput.good_requests_per_s);
  json["output_throughput"] = summary.throughput.output_tokens_per_s.value;
  json["total_token_throughput"] = summary.throughput.total_tokens_per_s.value;
  json["max_output_tokens_per_s"] = summary.peak_tokens_per_s;
  json["max_concurrent_requests"] = summary.peak_concurrency;
  AddVllmKeys("ttft", summary.latencies.ttft_from_send, &json);
  AddVllmKeys("tpot", summary.latencies.tpot, &json);
  AddVllmKeys("itl", summary.latencies.chunk_gap, &json);
  AddVllmKeys("e2el", summary.latencies.e2el_from_send, &json);
  if (options.max_concurrency.has_value()) {
    AddVllmKeys("client_queue_time", summary.latencies.send_delay, &json);
  }
  if (options.save_detailed) AddDetails(result.runs, &json);
  json["x_bulkhead"] = OursJson(result);
  return json.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

std::string RequestsJsonLines(const std::vector<RunRecord>& runs) {
  std::string text;
  for (const RunRecord& run : runs) {
    for (const RequestRecord& request : run.requests) {
      const char* outcome = request.outcome == RequestOutcome::kCompleted ? "completed"
                            : request.outcome == RequestOutcome::kFailed  ? "failed"
                                                                          : "unfinished";
      ordered_json json = {{"run", request.run},
                           {"index", request.index},
                           {"request_id", request.request_id},
                           {"outcome", outcome},
                           {"scheduled_s", request.scheduled_s},
                           {"sent_s", OrNull(request.sent_s)},
                           {"lag_s", request.lag_s},
                           {"end_s", request.end_s},
                           {"prompt_tokens", request.prompt_tokens},
                           {"cached_prompt_tokens", request.cached_prompt_tokens},
                           {"requested_tokens", request.requested_tokens},
                           {"completion_tokens", request.completion_tokens},
                           {"finish_reason", request.finish_reason}};
      json["arrivals"] = ordered_json::array();  // [when, how many tokens]
      for (const TokenArrival& arrival : request.arrivals) {
        json["arrivals"].push_back({arrival.time_s, arrival.tokens});
      }
      if (request.outcome == RequestOutcome::kFailed) {
        json["error"] = {
            {"code", request.code}, {"reason", request.reason}, {"message", request.message}};
      }
      if (request.server.has_value()) {
        json["server_ms"] = {{"queue", kMsPerS * request.server->queue_s},
                             {"prefill", kMsPerS * request.server->prefill_s},
                             {"decode", kMsPerS * request.server->decode_s},
                             {"preemptions", request.server->preemptions}};
        for (const auto& [name, part] : {std::pair("collective", request.server->collective_s),
                                         std::pair("sampling", request.server->sampling_s),
                                         std::pair("detokenise", request.server->detokenise_s)}) {
          if (part.has_value()) json["server_ms"][name] = kMsPerS * *part;
        }
      }
      text += json.dump(-1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
    }
  }
  return text;
}

}  // namespace bulkhead
