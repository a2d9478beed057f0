// Limits on what an HTTP client sends, and how slowly.
#include "runtime/service/http/http_connection.h"
#include "runtime/service/http/openai_error.h"
#include "runtime/service/refusal.h"

namespace bulkhead {

absl::Status HttpConnection::MayRead(const HttpRequest& request, size_t bytes) {
  if (request.method != "POST") {
    return WithReason(absl::InvalidArgumentError("only POST has a body"),
                      reason::kMalformedRequest);
  }
  // Callers without a key get here only on paths that need none.
  leaves_body_ = !(*caller_.takes_body)(request);
  if (leaves_body_) return absl::InvalidArgumentError("no route takes a body there");
  return core_->WhyRefused(bytes);
}

void HttpConnection::NewParser() {
  parser_ = std::make_unique<HttpRequestParser>(
      core_->quotas.message_bytes, BodyClaim(&core_->host, core_->quotas.request_bytes),
      [this](const HttpRequest& request, size_t bytes) { return MayRead(request, bytes); });
  if (caller_.gate == nullptr) return;
  parser_->AskGate([this](const HttpRequest& request, absl::string_view authorization) {
    return (*caller_.gate)(request, authorization, caller_.roles);
  });
}

void HttpConnection::RefusePartial(const absl::Status& why) {
  if (parser_ != nullptr) Refuse(why, HttpStatusOf(why));
}

void HttpConnection::CloseWhenIdle(const absl::Status& why) {
  closing_ = true;
  if (is_idle()) return Close();
  RefusePartial(why);
}

void HttpConnection::ReadOn() {
  if (phase_ == Phase::kClosed) return;
  reads_paused_ = phase_ == Phase::kReading && waits_for_room_;
  if (!reads_paused_) WaitForBytes();
}

bool HttpConnection::IsTooSlowForOthers(Clock::time_point now) const {
  // A request without a byte of its body has claimed none.
  if (phase_ != Phase::kReading || waits_for_room_ || parser_ == nullptr) return false;
  if (parser_->body_bytes() == 0) return false;
  const absl::Duration sending = absl::FromChrono(now - body_since_);
  return sending > kPressedBodyTime &&
         static_cast<double>(parser_->body_bytes()) < kMinBodyRate * absl::ToDoubleSeconds(sending);
}

void HttpConnection::Tick(Clock::time_point now, bool bytes_are_wanted) {
  if (phase_ == Phase::kReading && waits_for_room_) Parse();
  if (reads_paused_) ReadOn();
  const bool is_slow = bytes_are_wanted && IsTooSlowForOthers(now);
  if (phase_ == Phase::kClosed || (now < deadline_ && !is_slow)) return;
  if (phase_ != Phase::kReading || parser_ == nullptr) {
    return Close(phase_ == Phase::kAnswering ? reason::kSlowReader : "");
  }
  if (waits_for_room_) {
    return Refuse(WithRetryAfter(WithReason(absl::UnavailableError(
                                                "bodies of other requests take all of their "
                                                "memory; try again later"),
                                            reason::kRequestBytes),
                                 absl::Seconds(1)),
                  503);
  }
  // For a head the only known cause is slowness.
  Refuse(WithReason(absl::DeadlineExceededError("the request came too slowly; send it faster"),
                    reason::kSlowSender),
         408);
}

}  // namespace bulkhead
