// Streams one prompt to a server and returns the result.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "bulkhead/v1/generation.grpc.pb.h"
#include "launcher/clients/client_channel.h"
#include "launcher/prompts.h"

namespace bulkhead {

struct ClientTimes {
  std::optional<absl::Duration> first_token;  // from sending to the first delta
};

// Thread-safe: every method may run on several threads concurrently.
class GenerationClient {
 public:
  // More than the number of events of an answer.
  static constexpr size_t kMaxAnswerBytes = size_t{512} << 20;

  // Both outlive the client. `timeout` bounds each request, including its retries. `target`: the
  // channel's server, for errors.
  GenerationClient(const std::shared_ptr<grpc::Channel>& channel, std::string target,
                   CallsInFlight* calls, std::optional<absl::Duration> timeout,
                   size_t max_answer_bytes = kMaxAnswerBytes);

  // Calls `on_text` with each piece as it arrives. A refusal because a bound was reached (full
  // queue: RetryDelayOf) is retried, for at most two minutes if there is no timeout; the first wait
  // of more than two seconds is reported on standard error. Errors are in the result's status, with
  // the output so far. A stream that is not one answer to the request is cancelled: DATA_LOSS.
  GenerationResult Run(int64_t index, const v1::GenerateRequest& request,
                       const std::function<void(absl::string_view)>& on_text, ClientTimes* times);

 private:
  // Cancels the call where `on_event` returns false.
  grpc::Status Stream(const v1::GenerateRequest& request, absl::Time deadline,
                      const std::function<bool(const v1::GenerateEvent&)>& on_event);

  void TellOfWait(const absl::Status& refusal);

  std::once_flag told_of_wait_;
  std::unique_ptr<v1::Generation::Stub> stub_;
  const std::string target_;
  CallsInFlight* calls_;
  std::optional<absl::Duration> timeout_;
  const size_t max_answer_bytes_;
};

}  // namespace bulkhead
