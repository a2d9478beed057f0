#include "runtime/service/grpc/kv_events_call.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/status.h"
#include "runtime/service/local_call.h"
#include "runtime/service/refusal.h"
#include "vllm/grpc/engine/vllm_engine.pb.h"

namespace bulkhead {
namespace {

namespace api = ::vllm::grpc::engine;

constexpr char kNotRecorded[] =
    "this server does not record events of its KV cache: start it with --enable-kv-cache-events "
    "and prefix caching, or poll GetLoads";
constexpr int64_t kEventBytes = 64;      // maximum besides its tokens
constexpr int64_t kMaxTokenIdBytes = 5;  // a varint of 32 bits
constexpr int64_t kBatchBytes = 64;      // besides its events

int64_t MaxBatchBytes(int64_t block_tokens) {
  return kBatchBytes +
         KvEventLog::kMaxBatchEvents * (kEventBytes + block_tokens * kMaxTokenIdBytes);
}

// Consecutive blocks are one event, as in vLLM.
api::KvEventBatch MessageOf(const KvEventBatch& batch) {
  api::KvEventBatch message;
  message.set_sequence_number(batch.number);
  message.set_timestamp(absl::ToDoubleSeconds(absl::Now() - absl::UnixEpoch()));
  message.set_dp_rank(0);
  if (batch.cleared) message.add_events()->mutable_cleared();
  uint64_t last_stored = 0;
  for (size_t i = 0; i < batch.events.size(); ++i) {
    const KvEvent& event = batch.events[i];
    const auto hash = static_cast<int64_t>(event.hash);
    const bool follows = message.events_size() > 0 && last_stored != 0 && event.stored &&
                         event.parent_hash == last_stored;
    last_stored = event.stored ? event.hash : 0;
    api::KvCacheEvent& to = follows ? *message.mutable_events()->rbegin() : *message.add_events();
    if (!follows) to.set_event_id(batch.first_event + i);
    if (!event.stored) {
      to.mutable_removed()->add_block_hashes(hash);
      continue;
    }
    api::KvBlocksStored& stored = *to.mutable_stored();
    if (!follows && event.parent_hash != 0) {
      stored.set_parent_block_hash(static_cast<int64_t>(event.parent_hash));
    }
    api::KvBlock& block = *stored.add_blocks();
    block.set_block_hash(hash);
    block.set_block_size(static_cast<int32_t>(event.tokens.size()));
    block.mutable_token_ids()->Assign(event.tokens.begin(), event.tokens.end());
  }
  return message;
}

}  // namespace

void KvEventsCall::Start(std::unique_ptr<CallRequest> request) {
  absl::Status ready = Prepare(*request);
  request = nullptr;
  // The first event may be long in coming.
  if (ready.ok()) transport_->OnAccepted();
  {
    const absl::MutexLock lock(&mutex_);
    writing_ = false;
    if (!ready.ok()) end_ = std::move(ready);
  }
  Proceed();
}

absl::Status KvEventsCall::Prepare(CallRequest& request) {
  BH_RETURN_IF_ERROR(WhyTooLarge(request.bytes(), LocalCall::kMaxControlBytes));
  api::SubscribeKvEventsRequest message;
  BH_RETURN_IF_ERROR(request.Parse(message));
  BH_ASSIGN_OR_RETURN(const std::shared_ptr<const ServingParts> parts,
                      core_->state.ForControl(v1::GetModelInfoRequest()));
  if (parts->kv_events == nullptr) {
    return WithReason(absl::UnimplementedError(kNotRecorded), reason::kUnsupportedParameter);
  }
  BH_ASSIGN_OR_RETURN(hold_, core_->answers.Admit(MaxBatchBytes(parts->server_info.block_size())));
  log_ = parts->kv_events;
  const absl::MutexLock lock(&mutex_);
  const uint64_t start = message.start_sequence_number();
  next_batch_ = start == 0 ? log_->next_batch() : start;
  reader_ = log_->Subscribe([weak = weak_from_this()] {
    if (const std::shared_ptr<KvEventsCall> self = weak.lock()) self->Proceed();
  });
  if (reader_.has_value()) return absl::OkStatus();
  return WithReason(
      absl::ResourceExhaustedError(absl::StrCat(
          KvEventLog::kMaxReaders, " subscriptions to KV events are open, the limit; close one")),
      reason::kTooManyCalls);
}

void KvEventsCall::Proceed() {
  std::optional<KvEventBatch> batch;
  std::optional<absl::Status> end;
  {
    const absl::MutexLock lock(&mutex_);
    if (writing_ || ended_) return;
    if (!end_.has_value()) batch = log_->Read(next_batch_);
    if (!end_.has_value() && !batch.has_value()) {
      if (!log_->closed()) return;
      end_ = core_->state.Explain(absl::UnavailableError("the server is stopping"), "");
    }
    end = end_;
    ended_ = end.has_value();
    writing_ = !ended_;
    if (writing_) next_batch_ = batch->number + 1;
  }
  if (end.has_value()) {
    core_->errors.Add(*end);
    core_->answers.unread().Add(this, hold_.bytes(), transport_->Dropper());
    return transport_->End(*end, std::nullopt);
  }
  core_->answers.unread().Add(this, hold_.bytes(), transport_->Dropper());
  transport_->Write({MessageOf(*batch).SerializeAsString()});
}

void KvEventsCall::OnWritten(bool ok) {
  core_->answers.unread().Remove(this);
  {
    const absl::MutexLock lock(&mutex_);
    writing_ = false;
    if (!ok && !end_.has_value()) end_ = ClientGone();
  }
  Proceed();
}

void KvEventsCall::EndSoon(absl::Status status) {
  {
    const absl::MutexLock lock(&mutex_);
    if (!end_.has_value()) end_ = std::move(status);
  }
  Proceed();
}

void KvEventsCall::OnCancelled(bool deadline_passed) { EndSoon(ClientGone(deadline_passed)); }

void KvEventsCall::OnClosed() {
  core_->answers.unread().Remove(this);
  {
    const absl::MutexLock lock(&mutex_);
    if (reader_.has_value()) log_->Unsubscribe(*reader_);
    reader_.reset();
  }
  hold_.ShrinkTo(0);
  core_->pressure.CallEnded();
}

}  // namespace bulkhead
