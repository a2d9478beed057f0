#include "runtime/service/control_service.h"

#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/log_pace.h"
#include "base/status.h"
#include "runtime/service/grpc_status.h"
#include "runtime/service/guard/connection_guard.h"
#include "runtime/service/message_conversion.h"
#include "runtime/service/raw_message.h"
#include "runtime/service/refusal.h"
#include "runtime/service/unary_call.h"

namespace bulkhead {
namespace {

// Handles a control call: `answer` with messages in place of bytes.
template <typename Request, typename Response>
UnaryCall::Respond Responding(std::function<absl::Status(const Request&, Response*)> answer) {
  return
      [answer = std::move(answer)](ServiceCore& core, grpc::ByteBuffer& request,
                                   AnswerBudget::Hold& hold) -> absl::StatusOr<grpc::ByteBuffer> {
        Request message;
        BH_RETURN_IF_ERROR(ParseRequest(request, message));
        Response response;
        BH_RETURN_IF_ERROR(answer(message, &response));
        std::string bytes = response.SerializeAsString();
        // Operators may use the last part of the budget, too.
        BH_ASSIGN_OR_RETURN(hold, core.answers.Admit(0));
        BH_RETURN_IF_ERROR(core.answers.Grow(hold, static_cast<int64_t>(bytes.size()),
                                             AnswerBudget::Use::kAcceptedWork));
        return BufferOf(std::move(bytes));
      };
}

}  // namespace

absl::Status ControlAnswers::GetServerInfo(const v1::GetServerInfoRequest& request,
                                           v1::ServerInfo* response) {
  const auto parts = core_->state.ForControl(request);
  if (parts.ok()) {
    *response = (*parts)->server_info;
    const SchedulerLimits now = (*parts)->control->Limits();
    response->set_max_num_seqs(now.max_num_seqs);
    response->set_max_model_len(now.max_model_len);
    response->set_max_num_queued_reqs(now.max_num_queued_reqs);
  }
  return parts.status();
}

absl::Status ControlAnswers::GetModelInfo(const v1::GetModelInfoRequest& request,
                                          v1::ModelInfo* response) {
  const auto parts = core_->state.ForControl(request);
  if (parts.ok()) *response = (*parts)->model_info;
  return parts.status();
}

absl::Status ControlAnswers::GetLoad(const v1::GetLoadRequest& request, v1::LoadInfo* response) {
  const auto parts = core_->state.ForControl(request);
  if (parts.ok()) {
    *response = (*parts)->control->Load();
    response->set_draining(core_->state.phase() == ServingPhase::kDraining);
    const std::map<std::string, uint64_t> errors = core_->errors.Get();
    response->mutable_num_errors_by_reason()->insert(errors.begin(), errors.end());
    response->mutable_host()->MergeFrom(ToProto(core_->host, core_->quotas.total_bytes));
  }
  return parts.status();
}

absl::Status ControlAnswers::GetRankTable(const v1::GetRankTableRequest& request,
                                          v1::RankTable* response) {
  const auto parts = core_->state.ForControl(request);
  if (parts.ok()) {
    *response = (*parts)->rank_table;
    response->set_device_allocations_after_ready(
        (*parts)->control->Load().device_allocations_after_ready());
  }
  return parts.status();
}

absl::Status ControlAnswers::SetLimits(const v1::SetLimitsRequest& request, const std::string& peer,
                                       v1::SetLimitsResponse* response) {
  const auto parts = core_->state.ForControl(request);
  if (!parts.ok()) return parts.status();
  LiveLimitsChange change;
  change.reset = request.reset();
  if (request.has_max_num_seqs()) change.max_num_seqs = request.max_num_seqs();
  if (request.has_max_model_len()) change.max_model_len = request.max_model_len();
  if (request.has_max_num_queued_reqs()) {
    change.max_num_queued_reqs = request.max_num_queued_reqs();
  }
  SchedulerLimits before;
  const absl::StatusOr<SchedulerLimits> now = (*parts)->control->SetLimits(change, &before);
  if (!now.ok()) return WithReason(now.status(), reason::kInvalidValue);
  static LogPace pace(absl::Seconds(1));  // one per process, as is its log
  int64_t unsaid = 0;
  if (*now != before && pace.ShouldLog(&unsaid)) {
    if (unsaid > 0) BH_LOG(kInfo) << "limits changed " << unsaid << " more times";
    BH_LOG(kInfo) << "limits changed by " << ClientAddress(peer) << ": max_num_seqs "
                  << before.max_num_seqs << " -> " << now->max_num_seqs << ", max_model_len "
                  << before.max_model_len << " -> " << now->max_model_len
                  << ", max_num_queued_reqs " << before.max_num_queued_reqs << " -> "
                  << now->max_num_queued_reqs;
  }
  *response->mutable_before() = ToProto(before);
  *response->mutable_now() = ToProto(*now);
  const v1::ServerInfo& sealed = (*parts)->server_info;
  response->mutable_sealed()->set_max_num_seqs(sealed.max_num_seqs());
  response->mutable_sealed()->set_max_model_len(sealed.max_model_len());
  response->mutable_sealed()->set_max_num_queued_reqs(sealed.max_num_queued_reqs());
  return absl::OkStatus();
}

absl::Status ControlAnswers::Abort(const v1::AbortRequest& request, v1::AbortResponse* response) {
  const auto parts = core_->state.ForControl(request);
  if (!parts.ok()) return parts.status();
  std::set<std::string> ids(request.request_ids().begin(), request.request_ids().end());
  if (request.all()) {
    const std::vector<std::string> running = core_->calls.RunningIds();
    ids.insert(running.begin(), running.end());
  }
  uint32_t aborted = 0;
  for (const std::string& id : ids) {
    if (!core_->calls.IsRunning(id)) continue;
    (*parts)->inbox->Cancel(id, WithReason(absl::CancelledError("aborted by an operator"),
                                           reason::kAborted, {{"request_id", id}}));
    ++aborted;
  }
  response->set_aborted(aborted);
  return absl::OkStatus();
}

absl::Status ControlAnswers::Drain(const v1::DrainRequest& request, const std::string& peer,
                                   v1::DrainResponse* response) {
  const auto parts = core_->state.ForControl(request);
  if (!parts.ok()) return parts.status();
  std::optional<absl::Duration> timeout;
  if (request.has_timeout_s()) {
    if (request.timeout_s() > kMaxDrainSeconds) {
      return InvalidField("timeout_s",
                          absl::StrCat(request.timeout_s(), " is more than the limit of ",
                                       kMaxDrainSeconds, " (a week)"));
    }
    timeout = absl::Seconds(request.timeout_s());
  }
  BH_LOG(kInfo) << "drain asked for by " << ClientAddress(peer);
  core_->state.SetDraining();
  const v1::LoadInfo load = (*parts)->control->Load();
  response->set_num_requests_running(load.num_requests_running());
  response->set_num_requests_waiting(load.num_requests_waiting());
  (*parts)->control->BeginDrain(timeout);
  return absl::OkStatus();
}

grpc::ServerUnaryReactor* ControlService::GetServerInfo(grpc::CallbackServerContext* context,
                                                        const grpc::ByteBuffer* request,
                                                        grpc::ByteBuffer* response) {
  return UnaryCall::Run(core_, context, request, response, UnaryCall::Kind::kControl,
                        Responding<v1::GetServerInfoRequest, v1::ServerInfo>(
                            [this](const auto& request, auto* response) {
                              return answers_.GetServerInfo(request, response);
                            }));
}

grpc::ServerUnaryReactor* ControlService::GetModelInfo(grpc::CallbackServerContext* context,
                                                       const grpc::ByteBuffer* request,
                                                       grpc::ByteBuffer* response) {
  return UnaryCall::Run(core_, context, request, response, UnaryCall::Kind::kControl,
                        Responding<v1::GetModelInfoRequest, v1::ModelInfo>(
                            [this](const auto& request, auto* response) {
                              return answers_.GetModelInfo(request, response);
                            }));
}

grpc::ServerUnaryReactor* ControlService::GetLoad(grpc::CallbackServerContext* context,
                                                  const grpc::ByteBuffer* request,
                                                  grpc::ByteBuffer* response) {
  return UnaryCall::Run(
      core_, context, request, response, UnaryCall::Kind::kControl,
      Responding<v1::GetLoadRequest, v1::LoadInfo>([this](const auto& request, auto* response) {
        return answers_.GetLoad(request, response);
      }));
}

grpc::ServerUnaryReactor* ControlService::GetRankTable(grpc::CallbackServerContext* context,
                                                       const grpc::ByteBuffer* request,
                                                       grpc::ByteBuffer* response) {
  return UnaryCall::Run(core_, context, request, response, UnaryCall::Kind::kControl,
                        Responding<v1::GetRankTableRequest, v1::RankTable>(
                            [this](const auto& request, auto* response) {
                              return answers_.GetRankTable(request, response);
                            }));
}

grpc::ServerUnaryReactor* ControlService::SetLimits(grpc::CallbackServerContext* context,
                                                    const grpc::ByteBuffer* request,
                                                    grpc::ByteBuffer* response) {
  return UnaryCall::Run(core_, context, request, response, UnaryCall::Kind::kControl,
                        Responding<v1::SetLimitsRequest, v1::SetLimitsResponse>(
                            [this, peer = context->peer()](const auto& request, auto* response) {
                              return answers_.SetLimits(request, peer, response);
                            }));
}

grpc::ServerUnaryReactor* ControlService::Abort(grpc::CallbackServerContext* context,
                                                const grpc::ByteBuffer* request,
                                                grpc::ByteBuffer* response) {
  return UnaryCall::Run(
      core_, context, request, response, UnaryCall::Kind::kControl,
      Responding<v1::AbortRequest, v1::AbortResponse>([this](const auto& request, auto* response) {
        return answers_.Abort(request, response);
      }));
}

grpc::ServerUnaryReactor* ControlService::Drain(grpc::CallbackServerContext* context,
                                                const grpc::ByteBuffer* request,
                                                grpc::ByteBuffer* response) {
  return UnaryCall::Run(core_, context, request, response, UnaryCall::Kind::kControl,
                        Responding<v1::DrainRequest, v1::DrainResponse>(
                            [this, peer = context->peer()](const auto& request, auto* response) {
                              return answers_.Drain(request, peer, response);
                            }));
}

}  // namespace bulkhead
