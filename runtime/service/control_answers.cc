#include "runtime/service/control_answers.h"

#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/log_pace.h"
#include "runtime/service/message_conversion.h"
#include "runtime/service/refusal.h"

namespace bulkhead {

absl::Status ControlAnswers::GetServerInfo(const v1::GetServerInfoRequest& request,
                                           const std::string& /*client*/,
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
                                          const std::string& /*client*/, v1::ModelInfo* response) {
  const auto parts = core_->state.ForControl(request);
  if (parts.ok()) *response = (*parts)->model_info;
  return parts.status();
}

absl::Status ControlAnswers::GetLoad(const v1::GetLoadRequest& request,
                                     const std::string& /*client*/, v1::LoadInfo* response) {
  const auto parts = core_->state.ForControl(request);
  if (parts.ok()) {
    *response = (*parts)->control->Load();
    response->set_draining(core_->state.phase() == ServingPhase::kDraining);
    response->set_num_unsent_answers(
        static_cast<uint32_t>(core_->calls.WaitForAdmitted(absl::ZeroDuration())));
    const std::map<std::string, uint64_t> errors = core_->errors.Get();
    response->mutable_num_errors_by_reason()->insert(errors.begin(), errors.end());
    const std::map<std::string, uint64_t> refusals = core_->errors.Refusals();
    response->mutable_num_refusals_by_reason()->insert(refusals.begin(), refusals.end());
    response->mutable_host()->MergeFrom(ToProto(core_->host, core_->quotas.total_bytes));
  }
  return parts.status();
}

absl::Status ControlAnswers::GetRankTable(const v1::GetRankTableRequest& request,
                                          const std::string& /*client*/, v1::RankTable* response) {
  const auto parts = core_->state.ForControl(request);
  if (parts.ok()) {
    *response = (*parts)->rank_table;
    response->set_device_allocations_after_ready(
        (*parts)->control->Load().device_allocations_after_ready());
  }
  return parts.status();
}

absl::Status ControlAnswers::SetLimits(const v1::SetLimitsRequest& request,
                                       const std::string& client, v1::SetLimitsResponse* response) {
  const auto parts = core_->state.ForControl(request);
  if (!parts.ok()) return parts.status();
  SchedulerLimits before;
  const absl::StatusOr<SchedulerLimits> now = (*parts)->control->SetLimits(request, &before);
  if (!now.ok()) return WithReason(now.status(), reason::kInvalidValue);
  static LogPace pace(absl::Seconds(1), 20);  // one per process, like its log
  int64_t unsaid = 0;
  if (*now != before && pace.ShouldLog(&unsaid)) {
    if (unsaid > 0) BH_LOG(kInfo) << "limits changed " << unsaid << " more times";
    BH_LOG(kInfo) << "limits changed by " << client << ": max_num_seqs " << before.max_num_seqs
                  << " -> " << now->max_num_seqs << ", max_model_len " << before.max_model_len
                  << " -> " << now->max_model_len << ", max_num_queued_reqs "
                  << before.max_num_queued_reqs << " -> " << now->max_num_queued_reqs;
  }
  *response->mutable_before() = ToProto(before);
  *response->mutable_now() = ToProto(*now);
  const v1::ServerInfo& sealed = (*parts)->server_info;
  response->mutable_sealed()->set_max_num_seqs(sealed.max_num_seqs());
  response->mutable_sealed()->set_max_model_len(sealed.max_model_len());
  response->mutable_sealed()->set_max_num_queued_reqs(sealed.max_num_queued_reqs());
  return absl::OkStatus();
}

absl::Status ControlAnswers::Abort(const v1::AbortRequest& request, const std::string& /*client*/,
                                   v1::AbortResponse* response) {
  const auto parts = core_->state.ForControl(request);
  if (!parts.ok()) return parts.status();
  std::set<std::string> ids =
      core_->calls.RunningIdsOf({request.request_ids().begin(), request.request_ids().end()});
  if (request.all()) {
    const std::vector<std::string> running = core_->calls.RunningIds();
    ids.insert(running.begin(), running.end());
  }
  uint32_t aborted = 0;
  for (const std::string& id : ids) {
    const std::shared_ptr<OpenCall> call = core_->calls.Find(id);
    if (call == nullptr) continue;
    call->Cancel(WithReason(absl::CancelledError("aborted by an operator"), reason::kAborted,
                            {{"request_id", id}}));
    ++aborted;
  }
  response->set_aborted(aborted);
  return absl::OkStatus();
}

absl::Status ControlAnswers::Drain(const v1::DrainRequest& request, const std::string& client,
                                   v1::DrainResponse* response, DrainWaiter ended) {
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
  BH_LOG(kInfo) << "drain requested by " << client;
  core_->state.SetDraining();
  const v1::LoadInfo load = (*parts)->control->Load();
  response->set_num_requests_running(load.num_requests_running());
  response->set_num_requests_waiting(load.num_requests_waiting());
  (*parts)->control->BeginDrain(timeout, std::move(ended));
  return absl::OkStatus();
}

}  // namespace bulkhead
