// The answer of /v1/chat/completions as server-sent events, and its refusals.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace bulkhead {

// The payloads of the "data:" lines of a text/event-stream, however it is split
// (https://html.spec.whatwg.org/multipage/server-sent-events.html).
class EventStreamReader {
 public:
  // Appends the payloads that `bytes` complete. OUT_OF_RANGE for an event of more than 1 MiB, and
  // for all later calls.
  absl::Status Append(absl::string_view bytes, std::vector<std::string>* payloads);

 private:
  std::string line_;
  bool broken_ = false;
};

// More bytes than an answer of any model's length has.
inline constexpr size_t kMaxAnswerBytes = size_t{64} << 20;

struct ChatPiece {
  bool is_reasoning = false;
  std::string text;
};

// Reads the first choice's text out of the events.
class ChatStreamReader {
 public:
  // DATA_LOSS for what is not an event of this API; the error of an error event; OUT_OF_RANGE for
  // an answer of more than kMaxAnswerBytes. Nothing is read after any of them.
  absl::Status Append(absl::string_view bytes, std::vector<ChatPiece>* pieces);
  // The end of the stream: DATA_LOSS unless the answer is whole.
  absl::Status End() const;

  // Whether the server has said that the answer is complete.
  bool is_done() const { return done_; }
  const std::string& content() const { return content_; }
  const std::string& finish_reason() const { return finish_reason_; }

 private:
  absl::Status Read(const std::string& payload, std::vector<ChatPiece>* pieces);

  EventStreamReader events_;
  std::string content_;
  size_t bytes_ = 0;  // of the answer and the reasoning
  std::string finish_reason_;
  bool done_ = false;
  absl::Status failed_;
};

}  // namespace bulkhead
