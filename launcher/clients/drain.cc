#include "launcher/clients/drain.h"

#include <cstdio>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "bulkhead/v1/generation.grpc.pb.h"
#include "launcher/clients/client_channel.h"
#include "launcher/exit_status.h"
#include "memory/exit_code.h"
#include "memory/status.h"

namespace bulkhead {
namespace {

constexpr absl::Duration kConnectLimit = absl::Seconds(5);
constexpr absl::Duration kPollInterval = absl::Milliseconds(100);
constexpr absl::Duration kCallLimit = absl::Seconds(10);

void PrintCounts(const char* what, uint32_t running, uint32_t waiting) {
  std::printf("%s: %u running, %u waiting\n", what, running, waiting);
  std::fflush(stdout);
}

// Returns once the server no longer answers: its listener ends last.
void WaitUntilGone(v1::Control::Stub* control, uint32_t running, uint32_t waiting) {
  while (true) {
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(absl::Now() + kCallLimit));
    v1::LoadInfo load;
    const grpc::Status status = control->GetLoad(&context, v1::GetLoadRequest(), &load);
    if (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED) continue;  // busy, not gone
    if (!status.ok()) return;
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
  BH_ASSIGN_OR_RETURN(const auto channel, Connect(options.target, kConnectLimit));
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
    WaitUntilGone(control.get(), response.num_requests_running(), response.num_requests_waiting());
    std::printf("the server at %s has ended\n", options.target.c_str());
  }
  return FlushStandardOutput();
}

}  // namespace bulkhead
