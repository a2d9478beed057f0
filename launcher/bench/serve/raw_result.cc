#include "launcher/bench/serve/raw_result.h"

#include <cmath>
#include <utility>

#include "base/check.h"
#include "google/protobuf/util/json_util.h"
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

std::string DatasetText(DatasetName name) {
  switch (name) {
    case DatasetName::kRandom:
      return "random";
    case DatasetName::kPrefixRepetition:
      return "prefix_repetition";
    case DatasetName::kText:
      return "text";
    case DatasetName::kCustom:
      return "custom";
    case DatasetName::kTrace:
      return "trace";
  }
  return "";
}

// With the names of the .proto; 64-bit numbers become strings.
ordered_json MessageJson(const google::protobuf::Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.always_print_primitive_fields = true;
  options.preserve_proto_field_names = true;
  std::string text;
  BH_CHECK(google::protobuf::util::MessageToJsonString(message, &text, options).ok());
  return ordered_json::parse(text);
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

// The load before the first request and after the last, and the values that changed in between.
ordered_json LoadJson(const std::vector<LoadSample>& samples) {
  if (samples.size() < 2) return nullptr;
  ordered_json list = ordered_json::array();
  for (const LoadSample& sample : samples) {
    list.push_back({{"time_s", sample.time_s},
                    {"kv_blocks_used", sample.load.num_kv_blocks_used()},
                    {"requests_running", sample.load.num_requests_running()},
                    {"requests_waiting", sample.load.num_requests_waiting()},
                    {"resident_bytes", sample.load.resident_bytes()}});
  }
  return {{"before", MessageJson(samples.front().load)},
          {"after", MessageJson(samples.back().load)},
          {"samples", std::move(list)}};
}

}  // namespace

std::string RunJson(const RawResult& result) {
  const ServeBenchOptions& options = result.options;
  ordered_json json = {{"format", 1},
                       {"date", result.date},
                       {"interrupted", result.interrupted},
                       {"signal", result.signal},
                       {"allow_failures", options.allow_failures},
                       {"save_detailed", options.save_detailed},
                       {"null_server", options.null_server},
                       {"label", OrNull(options.label)},
                       {"metadata", options.metadata},
                       {"percentiles", options.percents},
                       {"goodput",
                        {{"ttft_ms", OrNull(options.goodput.ttft_ms)},
                         {"tpot_ms", OrNull(options.goodput.tpot_ms)},
                         {"e2el_ms", OrNull(options.goodput.e2el_ms)}}},
                       {"workload", WorkloadJson(options)},
                       {"client",
                        {{"version", result.version},
                         {"host", result.client_host},
                         {"threads", options.client_threads},
                         {"args", options.args},
                         {"busiest_thread_share", result.busiest_thread_share},
                         {"ceiling", nullptr}}},
                       {"durations_s", ordered_json::array()},
                       {"server", nullptr},
                       {"load", LoadJson(result.samples)}};
  if (result.ceiling.has_value()) {
    json["client"]["ceiling"] = {{"requests_per_s", result.ceiling->requests_per_s},
                                 {"tokens_per_s", result.ceiling->tokens_per_s}};
  }
  for (const RunRecord& run : result.runs) json["durations_s"].push_back(run.duration_s);
  if (result.server.has_value()) {
    json["server"] = {{"info", MessageJson(result.server->server)},
                      {"model", MessageJson(result.server->model)},
                      {"ranks", MessageJson(result.server->ranks)}};
  }
  return json.dump(1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
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
        json["server_ms"] = {{"prepare", kMsPerS * request.server->prepare_s},
                             {"queue", kMsPerS * request.server->queue_s},
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
