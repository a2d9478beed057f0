// MessageRequest: a message of the public API, parsed already, as the request of a call.
#pragma once

#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "runtime/service/call_transport.h"

namespace bulkhead {

class MessageRequest final : public CallRequest {
 public:
  template <typename Message>
  MessageRequest(Message message, const RequestOrigin& origin)
      : CallRequest(origin),
        bytes_(message.ByteSizeLong()),
        message_(std::make_unique<Message>(std::move(message))) {}

  size_t bytes() const override { return bytes_; }
  absl::Status Parse(google::protobuf::Message& message) override {
    message.GetReflection()->Swap(&message, message_.get());
    message_ = nullptr;
    return absl::OkStatus();
  }

 private:
  const size_t bytes_;
  std::unique_ptr<google::protobuf::Message> message_;
};

}  // namespace bulkhead
