// One prompt over the wire: streams it, and tells what became of it.
#pragma once

#include <functional>
#include <memory>
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

// Thread-safe: every method may run on several threads at once.
class GenerationClient {
 public:
  // Both outlive the client. `timeout` bounds each request, waiting for a full queue included.
  // `target`: what the channel was connected to, for errors.
  GenerationClient(const std::shared_ptr<grpc::Channel>& channel, std::string target,
                   CallsInFlight* calls, std::optional<absl::Duration> timeout);

  // Calls `on_text` with each piece as it arrives. A refusal with a hint when to retry (a full
  // queue) is tried again, for two minutes at most when there is no timeout. Whatever goes wrong is
  // in the result's status, and what had arrived is kept.
  GenerationResult Run(int64_t index, const v1::GenerateRequest& request,
                       const std::function<void(absl::string_view)>& on_text, ClientTimes* times);

 private:
  grpc::Status Stream(const v1::GenerateRequest& request, absl::Time deadline,
                      const std::function<void(const v1::GenerateEvent&)>& on_event);

  std::unique_ptr<v1::Generation::Stub> stub_;
  const std::string target_;
  CallsInFlight* calls_;
  std::optional<absl::Duration> timeout_;
};

}  // namespace bulkhead
