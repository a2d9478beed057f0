#include "absl/strings/str_cat.h"
#include "runtime/service/error_counts.h"
#include "runtime/service/metrics/families.h"
#include "runtime/service/refusal.h"

namespace bulkhead {
namespace {

double KvUsage(const v1::LoadInfo& load) {
  if (load.num_kv_blocks() == 0) return 0;
  return static_cast<double>(load.num_kv_blocks_used()) / static_cast<double>(load.num_kv_blocks());
}

void AddGauges(const MetricsReading& reading, FamilyList& list) {
  const v1::LoadInfo& load = reading.load;
  const v1::ServerInfo& server = reading.parts->server_info;
  list.Gauge("vllm:num_requests_running", "Requests that have a slot in the batch")
      .Add(load.num_requests_running());
  list.Gauge("vllm:num_requests_waiting", "Requests that wait for a slot or KV blocks")
      .Add(load.num_requests_waiting());
  list.Gauge("vllm:num_requests_waiting_by_reason",
             "Waiting requests by cause; none is ever deferred here")
      .Add(load.num_requests_waiting(), {{"reason", "capacity"}})
      .Add(0, {{"reason", "deferred"}});
  list.Gauge("vllm:kv_cache_usage_perc", "KV blocks in use, from 0 to 1").Add(KvUsage(load));
  list.Gauge("vllm:cache_config_info", "The KV cache; always 1")
      .Add(1, {{"block_size", absl::StrCat(server.block_size())},
               {"num_gpu_blocks", absl::StrCat(server.num_kv_blocks())},
               {"cache_dtype", server.kv_cache_dtype()},
               {"enable_prefix_caching", reading.engine.prefix_caching ? "True" : "False"}});
  list.Gauge("vllm:lora_requests_info",
             "The time of reading; max_lora is the number of LoRA adapters, all of them loaded")
      .Add(static_cast<double>(reading.now_unix_s),
           {{"max_lora", absl::StrCat(reading.parts->rules.adapters.size())},
            {"running_lora_adapters", ""},
            {"waiting_lora_adapters", ""}});
}

void AddCounters(const MetricsReading& reading, FamilyList& list) {
  const v1::LoadInfo& load = reading.load;
  const EngineMetrics& engine = reading.engine;
  const auto prompt = static_cast<double>(engine.prompt_tokens);
  const auto cached = static_cast<double>(engine.cached_prompt_tokens);
  list.Counter("vllm:num_preemptions_total", "Times that a running request had to wait again")
      .Add(load.num_preemptions_total());
  list.Counter("vllm:prompt_tokens_total", "Tokens of prompts, counted at the first token")
      .Add(prompt);
  list.Counter("vllm:prompt_tokens_by_source_total", "Prompt tokens by where their KV came from")
      .Add(prompt - cached, {{"source", "local_compute"}})
      .Add(cached, {{"source", "local_cache_hit"}});
  list.Counter("vllm:prompt_tokens_cached_total", "Prompt tokens found in the prefix cache")
      .Add(cached);
  list.Counter("vllm:prompt_tokens_cached_by_source_total", "Tokens found in a cache, by its place")
      .Add(cached, {{"source", "device"}});
  list.Counter("vllm:generation_tokens_total", "Generated tokens")
      .Add(load.generation_tokens_total());
  list.Counter("vllm:prefix_cache_queries_total", "Tokens looked up in the prefix cache")
      .Add(load.prefix_cache_queries_total());
  list.Counter("vllm:prefix_cache_hits_total", "Tokens found in the prefix cache")
      .Add(load.prefix_cache_hits_total());
  list.Counter("vllm:request_success_total",
               "Requests by how they ended; abort and error are no successes");
  for (int i = 0; i < kNumEndKinds; ++i) {
    list.Add(engine.ends[i],
             {{"finished_reason", std::string(EndKindName(static_cast<EndKind>(i)))}});
  }
  list.Counter("vllm:admission_rejections_total", "Requests refused for want of room, by cause");
  for (const char* const word : kRoomReasons) {
    const auto found = load.num_refusals_by_reason().find(word);
    list.Add(found == load.num_refusals_by_reason().end() ? 0 : found->second, {{"reason", word}});
  }
}

void AddDrafts(const EngineMetrics& engine, FamilyList& list) {
  if (engine.num_speculative_tokens == 0) return;
  const auto count = [](uint64_t value) { return static_cast<double>(value); };
  list.Counter("vllm:spec_decode_num_drafts_total", "Drafts that were verified")
      .Add(count(engine.drafts.drafts));
  list.Counter("vllm:spec_decode_num_draft_tokens_total", "Tokens of these")
      .Add(count(engine.drafts.draft_tokens));
  list.Counter("vllm:spec_decode_num_accepted_tokens_total", "Of these, what was sampled, too")
      .Add(count(engine.drafts.accepted_tokens));
  list.Counter("vllm:spec_decode_num_accepted_tokens_per_pos_total",
               "Accepted tokens by their place in the draft, 0 for the first");
  for (int i = 0; i < engine.num_speculative_tokens; ++i) {
    list.Add(count(engine.drafts.accepted_by_position[i]), {{"position", absl::StrCat(i)}});
  }
}

void AddHistograms(const EngineMetrics& engine, FamilyList& list) {
  list.Histogram("vllm:iteration_tokens_total", "Tokens computed in a step")
      .Add(engine.iteration_tokens);
  list.Histogram("vllm:time_to_first_token_seconds",
                 "From the request's arrival to the first token")
      .Add(engine.first_token_seconds);
  list.Histogram("vllm:inter_token_latency_seconds", "Between two tokens of a request")
      .Add(engine.inter_token_seconds);
  list.Histogram("vllm:request_time_per_output_token_seconds",
                 "Mean time between a request's tokens")
      .Add(engine.time_per_output_token_seconds);
  list.Histogram("vllm:e2e_request_latency_seconds", "From the request's arrival to the end")
      .Add(engine.e2e_seconds);
  list.Histogram("vllm:request_queue_time_seconds",
                 "From the submission to the engine to the first step")
      .Add(engine.queue_seconds);
  list.Histogram("vllm:request_inference_time_seconds", "From the first step to the last token")
      .Add(engine.inference_seconds);
  list.Histogram("vllm:request_prefill_time_seconds", "From the first step to the first token")
      .Add(engine.prefill_seconds);
  list.Histogram("vllm:request_decode_time_seconds", "From the first token to the last")
      .Add(engine.decode_seconds);
  list.Histogram("vllm:request_prompt_tokens", "Tokens of a finished request's prompt")
      .Add(engine.request_prompt_tokens);
  list.Histogram("vllm:request_generation_tokens", "Generated tokens of a finished request")
      .Add(engine.request_generation_tokens);
  list.Histogram("vllm:request_max_num_generation_tokens",
                 "The same: each of n answers is a request of its own")
      .Add(engine.request_generation_tokens);
  list.Histogram("vllm:request_params_max_tokens", "max_tokens of a finished request")
      .Add(engine.request_max_tokens);
  list.Histogram("vllm:request_prefill_kv_computed_tokens",
                 "Prompt tokens of a finished request that were not cached")
      .Add(engine.request_computed_prompt_tokens);
  list.Histogram("vllm:request_num_preemptions", "Preemptions of a finished request")
      .Add(engine.request_preemptions);
}

// Names of older releases; production-stack and dashboards still ask for them.
void AddFormerNames(const MetricsReading& reading, FamilyList& list) {
  const v1::LoadInfo& load = reading.load;
  list.Histogram("vllm:time_per_output_token_seconds",
                 "Former name of vllm:inter_token_latency_seconds")
      .Add(reading.engine.inter_token_seconds);
  list.Gauge("vllm:gpu_cache_usage_perc", "Former name of vllm:kv_cache_usage_perc")
      .Add(KvUsage(load));
  list.Counter("vllm:gpu_prefix_cache_queries_total",
               "Former name of vllm:prefix_cache_queries_total")
      .Add(load.prefix_cache_queries_total());
  list.Counter("vllm:gpu_prefix_cache_hits_total", "Former name of vllm:prefix_cache_hits_total")
      .Add(load.prefix_cache_hits_total());
  list.Gauge("vllm:num_requests_swapped", "No request is ever swapped out").Add(0);
}

}  // namespace

void AddVllmFamilies(const MetricsReading& reading, FamilyList& list) {
  list.SetCommonLabels({{"model_name", reading.model_name}, {"engine", "0"}});
  AddGauges(reading, list);
  AddCounters(reading, list);
  AddDrafts(reading.engine, list);
  AddHistograms(reading.engine, list);
  AddFormerNames(reading, list);
}

}  // namespace bulkhead
