#include "launcher/clients/drain.h"

#include <algorithm>
#include <cstdio>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/exit_code.h"
#include "base/status.h"
#include "bulkhead/v1/generation.grpc.pb.h"
#include "launcher/clients/client_channel.h"
#include "launcher/exit_status.h"

namespace bulkhead {
namespace {

constexpr absl::Duration kConnectLimit = absl::Seconds(5);
constexpr absl::Duration kPollInterval = absl::Milliseconds(100);
constexpr absl::Duration kCallLimit = absl::Seconds(10);

void PrintCounts(const char* what, uint32_t running, uint32_t waiting) {
  std::printf("%s: %u running, %u waiting\n", what, running, waiting);
  std::fflush(stdout);
}

// Where requests were left when it last answered: those that ended since, or that its timeout cut.
void PrintLeft(uint32_t running, uint32_t waiting) {
  if (running + waiting == 0) return;
  std::printf(
      "%u running and %u waiting were left when it last answered: what its drain timeout "
      "cut got UNAVAILABLE, and its log says how many (\"requests were cut\")\n",
      running, waiting);
}

// Waits until the server stops answering: its listener is closed last. DEADLINE_EXCEEDED if it
// exceeds its timeout, has been idle for `patience`, or has not answered for that long.
absl::Status WaitUntilGone(v1::Control::Stub* control, const DrainOptions& options,
                           uint32_t running, uint32_t waiting) {
  const absl::Time begin = absl::Now();
  absl::Time heard = begin;
  absl::Time busy = begin;
  while (true) {
    const absl::Time now = absl::Now();
    std::string late;
    if (options.timeout.has_value() && now - begin > *options.timeout + options.patience) {
      late = "still answers after its drain timeout";
    } else if (now - heard > options.patience) {
      late = "no longer answers, but its connection stays open";
    } else if (now - busy > options.patience) {
      late = "has nothing left to do, but has not ended";
    }
    if (!late.empty()) {
      return WithExitCode(
          absl::DeadlineExceededError(
              absl::StrCat("the server at ", options.target, " ", late, " (waited ",
                           absl::FormatDuration(absl::Trunc(now - begin, absl::Milliseconds(100))),
                           ", ", running, " running, ", waiting, " waiting); its log may say why")),
          ExitCode::kClientError);
    }
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(now + std::min(kCallLimit, options.patience)));
    v1::LoadInfo load;
    const grpc::Status status = control->GetLoad(&context, v1::GetLoadRequest(), &load);
    if (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED) continue;  // busy, not gone
    if (!status.ok()) {
      PrintLeft(running, waiting);
      return absl::OkStatus();
    }
    heard = absl::Now();
    if (load.num_requests_running() + load.num_requests_waiting() > 0) busy = heard;
    if (load.num_requests_running() != running || load.num_requests_waiting() != waiting) {
      running = load.num_requests_running();
      waiting = load.num_requests_waiting();
      PrintCounts("draining", running, waiting);
    }
    absl::SleepFor(kPollInterval);
  }
}

}  // namespace

absl::Status RunDrain(const DrainOptions& options) {
  BH_ASSIGN_OR_RETURN(const auto channel,
                      Connect(options.target, options.credentials, kConnectLimit));
  const auto control = v1::Control::NewStub(channel);
  v1::DrainRequest request;
  if (options.timeout.has_value()) {
    request.set_timeout_s(static_cast<uint32_t>(
        absl::ToInt64Seconds(absl::Ceil(*options.timeout, absl::Seconds(1)))));
  }
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + kCallLimit));
  v1::DrainResponse response;
  const grpc::Status status = control->Drain(&context, request, &response);
  if (!status.ok()) {
    return WithExitCode(
        absl::Status(static_cast<absl::StatusCode>(status.error_code()),
                     absl::StrCat("the server at ", options.target, " did not begin to drain: ",
                                  StatusOf(status, options.target).message())),
        ExitCode::kClientError);
  }
  PrintCounts("draining", response.num_requests_running(), response.num_requests_waiting());
  if (options.wait) {
    BH_RETURN_IF_ERROR(WaitUntilGone(control.get(), options, response.num_requests_running(),
                                     response.num_requests_waiting()));
    std::printf("the server at %s has ended\n", options.target.c_str());
  }
  return FlushStandardOutput();
}

}  // namespace bulkhead
