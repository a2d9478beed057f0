#include "runtime/service/grpc/vllm_engine_answers.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/json.h"
#include "base/status.h"
#include "runtime/service/grpc/vllm_engine_messages.h"
#include "runtime/service/grpc/vllm_generate_call.h"
#include "runtime/service/refusal.h"

namespace bulkhead {
namespace {

int32_t Bounded(uint64_t value) {
  return static_cast<int32_t>(std::min<uint64_t>(value, std::numeric_limits<int32_t>::max()));
}

double Share(uint64_t part, uint64_t whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

const char* PhaseText(ServingPhase phase) {
  switch (phase) {
    case ServingPhase::kStarting:
      return "starting: the weights are loading";
    case ServingPhase::kServing:
      return "serving";
    case ServingPhase::kDraining:
      return "draining: no new requests";
    case ServingPhase::kLost:
      return "a rank was lost";
    case ServingPhase::kStopping:
      return "stopping";
  }
  return "";
}

// do_sample false means greedy, whatever temperature the file also has.
std::string DefaultsJson(const GenerationDefaults& defaults) {
  nlohmann::json out = nlohmann::json::object();
  if (defaults.do_sample == std::optional<bool>(false)) {
    out["temperature"] = 0.0;
  } else if (defaults.temperature.has_value()) {
    out["temperature"] = *defaults.temperature;
  }
  if (defaults.top_p.has_value()) out["top_p"] = *defaults.top_p;
  if (defaults.top_k.value_or(0) > 0) out["top_k"] = *defaults.top_k;
  if (defaults.min_p.has_value()) out["min_p"] = *defaults.min_p;
  if (defaults.repetition_penalty.has_value()) {
    out["repetition_penalty"] = *defaults.repetition_penalty;
  }
  return out.dump();
}

// The file's special tokens and model type; the file was already read at start.
void AddConfig(const v1::ModelInfo& info, vllm_api::GetModelInfoResponse* response) {
  const absl::StatusOr<nlohmann::json> config = ParseJsonObject(info.config_json(), "config.json");
  if (!config.ok()) return;
  const auto number = [&](const char* key) {
    const auto found = config->find(key);
    return found != config->end() && found->is_number_unsigned() ? Bounded(found->get<uint64_t>())
                                                                 : 0;
  };
  response->set_bos_token_id(number("bos_token_id"));
  response->set_pad_token_id(number("pad_token_id"));
  const auto type = config->find("model_type");
  if (type != config->end() && type->is_string()) {
    response->set_model_type(type->get<std::string>());
  }
}

}  // namespace

absl::Status VllmEngineAnswers::HealthCheck(const vllm_api::HealthCheckRequest& /*request*/,
                                            vllm_api::HealthCheckResponse* response) {
  const ServingPhase phase = core_->state.phase();
  response->set_healthy(phase == ServingPhase::kServing);
  response->set_message(PhaseText(phase));
  return absl::OkStatus();
}

absl::Status VllmEngineAnswers::Abort(const vllm_api::AbortRequest& request,
                                      vllm_api::AbortResponse* /*response*/) {
  v1::AbortRequest abort;
  *abort.mutable_request_ids() = request.request_ids();
  v1::AbortResponse aborted;
  return control_.Abort(abort, "", &aborted);
}

absl::Status VllmEngineAnswers::GetModelInfo(const vllm_api::GetModelInfoRequest& /*request*/,
                                             vllm_api::GetModelInfoResponse* response) {
  BH_ASSIGN_OR_RETURN(const std::shared_ptr<const ServingParts> parts,
                      core_->state.ForControl(v1::GetModelInfoRequest()));
  const v1::ModelInfo& info = parts->model_info;
  response->set_model_path(info.served_model_name());
  response->set_served_model_name(info.served_model_name());
  response->set_tokenizer_path(info.served_model_name());
  response->set_is_generation(true);
  const int max_model_len = parts->control->Limits().max_model_len;
  response->set_max_context_length(max_model_len);
  response->set_max_req_input_len(max_model_len - 1);
  response->set_vocab_size(info.vocab_size());
  response->add_architectures(info.architecture());
  for (const uint32_t id : info.eos_token_ids()) response->add_eos_token_ids(Bounded(id));
  response->set_default_sampling_params_json(DefaultsJson(parts->rules.defaults));
  AddConfig(info, response);
  return absl::OkStatus();
}

absl::Status VllmEngineAnswers::GetServerInfo(const vllm_api::GetServerInfoRequest& /*request*/,
                                              vllm_api::GetServerInfoResponse* response) {
  BH_ASSIGN_OR_RETURN(const std::shared_ptr<const ServingParts> parts,
                      core_->state.ForControl(v1::GetServerInfoRequest()));
  const v1::LoadInfo load = parts->control->Load();
  response->set_active_requests(load.num_requests_running() + load.num_requests_waiting());
  response->set_is_paused(core_->state.phase() != ServingPhase::kServing);
  response->set_uptime_seconds(static_cast<double>(load.uptime_s()));
  response->set_server_type("bulkhead");
  response->set_data_parallel_size(1);
  response->set_kv_cache_dtype(parts->server_info.kv_cache_dtype());
  response->set_block_size(Bounded(parts->server_info.block_size()));
  response->set_model_dtype(parts->model_info.dtype());
  response->set_max_num_seqs(parts->control->Limits().max_num_seqs);
  return absl::OkStatus();
}

absl::Status VllmEngineAnswers::GetLoads(const vllm_api::GetLoadsRequest& request,
                                         vllm_api::GetLoadsResponse* response) {
  if (request.dp_rank() != 0) {
    return InvalidField("dp_rank", absl::StrCat(request.dp_rank(),
                                                " does not exist: there is one, 0; leave it out"));
  }
  BH_ASSIGN_OR_RETURN(const std::shared_ptr<const ServingParts> parts,
                      core_->state.ForControl(v1::GetLoadRequest()));
  const v1::LoadInfo load = parts->control->Load();
  const int max_num_seqs = parts->control->Limits().max_num_seqs;
  const uint64_t block_tokens = parts->server_info.block_size();
  response->set_timestamp(absl::FormatTime(absl::RFC3339_sec, absl::Now(), absl::UTCTimeZone()));
  response->set_version(parts->server_info.version());
  response->set_dp_rank_count(1);
  vllm_api::SchedulerLoad& rank = *response->add_loads();
  rank.set_num_running_reqs(Bounded(load.num_requests_running()));
  rank.set_num_waiting_reqs(Bounded(load.num_requests_waiting()));
  rank.set_num_total_reqs(
      Bounded(uint64_t{load.num_requests_running()} + load.num_requests_waiting()));
  rank.set_num_used_tokens(Bounded(load.num_kv_blocks_used() * block_tokens));
  rank.set_max_total_num_tokens(Bounded(load.num_kv_blocks() * block_tokens));
  rank.set_token_usage(Share(load.num_kv_blocks_used(), load.num_kv_blocks()));
  rank.set_cache_hit_rate(Share(load.prefix_cache_hits_total(), load.prefix_cache_queries_total()));
  rank.set_utilization(Share(load.num_requests_running(), max_num_seqs));
  rank.set_max_running_requests(max_num_seqs);
  rank.set_num_waiting_uncached_tokens(Bounded(load.num_waiting_tokens()));
  return absl::OkStatus();
}

}  // namespace bulkhead
