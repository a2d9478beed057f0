// The two sides of one call: CallTransport is the front end's (a class for each protocol, as in
// runtime/service/grpc/call_reactors.h), Call is the service's, from the request to the status.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "google/protobuf/message.h"

namespace bulkhead {

// One message of the public API in wire format, when concatenated.
using MessagePieces = std::vector<std::string>;
inline int64_t SizeOf(const MessagePieces& pieces) {
  return std::accumulate(pieces.begin(), pieces.end(), int64_t{0}, [](int64_t sum, const auto& p) {
    return sum + static_cast<int64_t>(p.size());
  });
}

struct RequestOrigin {
  // When the whole request had arrived at the front end, in MonotonicNanos.
  uint64_t arrived_ns = 0;
  // The call is started on the text worker, which then does all of its work.
  bool on_text_worker = false;
};

// A request that is not parsed yet. Used by one thread at a time.
class CallRequest {
 public:
  explicit CallRequest(const RequestOrigin& origin) : origin_(origin) {}
  virtual ~CallRequest() = default;
  const RequestOrigin& origin() const { return origin_; }
  // Size as received.
  virtual size_t bytes() const = 0;
  // Fills `message` and frees the bytes. INVALID_ARGUMENT (MALFORMED_REQUEST). Uses at most
  // kHeldPerTextByte (host_quotas.h) per byte.
  virtual absl::Status Parse(google::protobuf::Message& message) = 0;

 private:
  const RequestOrigin origin_;
};

// Thread-safe; each call returns at once. Not used after End.
class CallTransport {
 public:
  virtual ~CallTransport() = default;
  // The engine has accepted the call; its output may be long in coming.
  virtual void OnAccepted() {}
  // For streams: one message at a time, in flight until Call::OnWritten.
  virtual void Write(MessagePieces message) = 0;
  // Sent to the client with the status.
  virtual void SetTrailer(const std::string& key, const std::string& value) = 0;
  // Once, with no Write in flight: the last message, if any, and the status. A generation that
  // ended ok has a last message.
  virtual void End(const absl::Status& status, std::optional<MessagePieces> last) = 0;
  // Drops the part of the answer that the client has not read; false if nothing waits for the
  // client, so that there is nothing to drop yet. The function outlives the transport.
  virtual std::function<bool()> Dropper() = 0;
};

// Notified by its transport on any thread; the transport holds it until OnClosed.
class Call {
 public:
  virtual ~Call() = default;
  // Once, first. Long messages are parsed, and long texts tokenised, later by another thread, when
  // the call may already have ended.
  virtual void Start(std::unique_ptr<CallRequest> request) = 0;
  // The message of Write is on its way. Not `ok`: the client is gone.
  virtual void OnWritten(bool /*ok*/) {}
  // Cancelled by the client, or because its deadline has passed.
  virtual void OnCancelled(bool deadline_passed) = 0;
  // Last: the status has left this process, and the transport goes.
  virtual void OnClosed() = 0;
};

}  // namespace bulkhead
