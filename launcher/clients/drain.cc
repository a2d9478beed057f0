#include "launcher/clients/drain.h"

#include <algorithm>
#include <cstdio>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/exit_code.h"
#include "base/status.h"
#include "bulkhead/v1/generation.grpc.pb.h"
#include "launcher/clients/client_channel.h"
#include "launcher/exit_status.h"

namespace bulkhead {
namespace {

constexpr absl::Duration kPollInterval = absl::Milliseconds(100);

// Answers of ended requests: the server waits for these when no request is left.
uint32_t NumUnread(const v1::LoadInfo& load) {
  const uint32_t others = load.num_requests_running() + load.num_requests_waiting();
  return load.num_unsent_answers() - std::min(load.num_unsent_answers(), others);
}

std::string Counts(uint32_t running, uint32_t waiting, uint32_t unread) {
  std::string counts = absl::StrCat(running, " running, ", waiting, " waiting");
  if (unread > 0) absl::StrAppend(&counts, ", ", unread, " not read to the end");
  return counts;
}

std::string Counts(const v1::LoadInfo& load) {
  return Counts(load.num_requests_running(), load.num_requests_waiting(), NumUnread(load));
}

void PrintCounts(absl::string_view counts) {
  std::printf("draining: %s\n", std::string(counts).c_str());
  std::fflush(stdout);
}

v1::DrainRequest RequestOf(const DrainOptions& options, bool wait) {
  v1::DrainRequest request;
  request.set_wait(wait);
  if (options.timeout.has_value()) {
    request.set_timeout_s(static_cast<uint32_t>(
        absl::ToInt64Seconds(absl::Ceil(*options.timeout, absl::Seconds(1)))));
  }
  return request;
}

absl::Status NotBegun(const DrainOptions& options, const absl::Status& why) {
  return WithExitCode(
      absl::Status(why.code(), absl::StrCat("the server at ", options.target,
                                            " did not begin to drain: ", why.message())),
      ExitCode::kClientError);
}

// A call of Drain that is answered when all requests have ended.
class DrainInBackground {
 public:
  DrainInBackground(v1::Control::Stub* control, const DrainOptions& options)
      : request_(RequestOf(options, true)) {
    control->async()->Drain(&context_, &request_, &response_,
                            [this, &options](const grpc::Status& status) {
                              status_ = StatusOf(status, options.target);
                              answered_.Notify();
                            });
  }
  ~DrainInBackground() {
    context_.TryCancel();
    answered_.WaitForNotification();
  }
  bool IsAnswered(absl::Duration timeout = absl::ZeroDuration()) const {
    return answered_.WaitForNotificationWithTimeout(timeout);
  }
  // Once it is answered.
  const absl::Status& status() const { return status_; }
  const v1::DrainResponse& response() const { return response_; }

 private:
  grpc::ClientContext context_;
  const v1::DrainRequest request_;
  v1::DrainResponse response_;
  absl::Status status_;
  absl::Notification answered_;
};

// What became of the requests, of a server that no longer answers.
absl::Status PrintEnd(const DrainInBackground& drain, const DrainOptions& options,
                      const std::optional<v1::LoadInfo>& last) {
  const absl::Status said = drain.IsAnswered(kCallLimit)
                                ? drain.status()
                                : absl::UnavailableError("it did not say how its requests ended");
  if (!said.ok() && !last.has_value()) return NotBegun(options, said);
  if (!said.ok()) {
    return WithExitCode(
        absl::UnavailableError(absl::StrCat(
            "the server at ", options.target, " did not stop cleanly: ", said.message(), " (",
            last->num_requests_running(), " running and ", last->num_requests_waiting(),
            " waiting were left when it last answered)")),
        ExitCode::kClientError);
  }
  const v1::DrainResponse& end = drain.response();
  if (!last.has_value()) {
    PrintCounts(Counts(end.num_requests_running(), end.num_requests_waiting(), 0));
  }
  std::printf("drained: %u finished, %u cut by the drain timeout\n", end.num_requests_finished(),
              end.num_requests_cut());
  return absl::OkStatus();
}

// Why to wait no longer, judged by what the server answered or did not when it was asked: this
// process may itself have been stopped in between.
class DrainPatience {
 public:
  explicit DrainPatience(const DrainOptions& options) : options_(options) {}

  absl::Duration waited() const { return MonotonicNow() - begin_; }
  // Empty: wait on.
  absl::string_view Unanswered() {
    unanswered_ += kCallLimit;
    return unanswered_ >= options_.patience ? "no longer answers, but its connection stays open"
                                            : "";
  }
  absl::string_view Answered(bool is_busy) {
    unanswered_ = absl::ZeroDuration();
    const absl::Duration now = waited();
    if (is_busy) idle_since_.reset();
    if (!is_busy && !idle_since_.has_value()) idle_since_ = now;
    if (options_.timeout.has_value() && now > *options_.timeout + options_.patience) {
      return "still answers after its drain timeout";
    }
    return now - idle_since_.value_or(now) > options_.patience
               ? "has nothing left to do, but has not ended"
               : "";
  }

 private:
  const DrainOptions& options_;
  const absl::Time begin_ = MonotonicNow();
  absl::Duration unanswered_;
  std::optional<absl::Duration> idle_since_;
};

absl::Status TooLate(const DrainOptions& options, absl::string_view why, absl::Duration waited,
                     const v1::LoadInfo& last) {
  return WithExitCode(absl::DeadlineExceededError(absl::StrCat(
                          "the server at ", options.target, " ", why, " (waited ",
                          absl::FormatDuration(absl::Trunc(waited, absl::Milliseconds(100))), ", ",
                          Counts(last), "); its log may say why")),
                      ExitCode::kClientError);
}

// Drains and waits until the server stops answering: its listener is closed last. DEADLINE_EXCEEDED
// if it exceeds its timeout, has been idle for `patience`, or has not answered for that long.
absl::Status DrainUntilGone(v1::Control::Stub* control, const DrainOptions& options) {
  std::optional<DrainInBackground> drain(std::in_place, control, options);
  std::optional<v1::LoadInfo> last;  // while it drained
  DrainPatience patience(options);
  while (true) {
    const bool failed = drain->IsAnswered() && !drain->status().ok();
    if (failed && !last.has_value()) return NotBegun(options, drain->status());
    v1::LoadInfo load;
    const absl::Status status =
        Ask(options.target, control, &v1::Control::Stub::GetLoad, {}, &load);
    const bool is_silent = absl::IsDeadlineExceeded(status);
    if (!status.ok() && !is_silent) return PrintEnd(*drain, options, last);
    const bool has_requests = load.num_requests_running() + load.num_requests_waiting() > 0;
    const bool is_busy = has_requests || load.num_unsent_answers() > 0;
    const absl::string_view late = is_silent ? patience.Unanswered() : patience.Answered(is_busy);
    // A call that something between has ended says nothing of the group.
    if (status.ok() && load.draining() && failed) drain.emplace(control, options);
    if (load.draining()) {
      if (!last.has_value() || Counts(load) != Counts(*last)) PrintCounts(Counts(load));
      last = std::move(load);
    }
    if (!late.empty()) {
      return TooLate(options, late, patience.waited(), last.value_or(v1::LoadInfo()));
    }
    absl::SleepFor(kPollInterval);
  }
}

}  // namespace

absl::Status RunDrain(const DrainOptions& options) {
  BH_ASSIGN_OR_RETURN(const auto channel,
                      Connect(options.target, options.credentials, kConnectLimit));
  const auto control = v1::Control::NewStub(channel);
  if (options.wait) {
    BH_RETURN_IF_ERROR(DrainUntilGone(control.get(), options));
    std::printf("the server at %s has ended\n", options.target.c_str());
    return FlushStandardOutput();
  }
  v1::DrainResponse response;
  const absl::Status status = Ask(options.target, control.get(), &v1::Control::Stub::Drain,
                                  RequestOf(options, false), &response);
  if (!status.ok()) return NotBegun(options, status);
  PrintCounts(Counts(response.num_requests_running(), response.num_requests_waiting(), 0));
  return FlushStandardOutput();
}

}  // namespace bulkhead
