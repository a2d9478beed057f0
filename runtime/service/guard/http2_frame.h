// HTTP/2 frames (RFC 9113, section 4): their heads, and the few frames that a guard sends itself.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace bulkhead {

inline constexpr absl::string_view kHttp2Preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
inline constexpr size_t kFrameHeadBytes = 9;
inline constexpr size_t kLastStreamBytes = 4;  // what a GOAWAY's payload begins with
inline constexpr uint32_t kHighestStream = 0x7FFFFFFF;
// The largest payload that a peer may send unless told otherwise, which gRPC never does here.
inline constexpr size_t kMaxPayloadBytes = 16384;

enum class FrameType : uint8_t {
  kData = 0,
  kHeaders = 1,
  kPriority = 2,
  kRstStream = 3,
  kSettings = 4,
  kPushPromise = 5,
  kPing = 6,
  kGoAway = 7,
  kWindowUpdate = 8,
  kContinuation = 9,  // higher numbers are unknown types, to be ignored
};

namespace frame_flag {
inline constexpr uint8_t kAck = 0x1;
inline constexpr uint8_t kEndStream = 0x1;
inline constexpr uint8_t kEndHeaders = 0x4;
inline constexpr uint8_t kPadded = 0x8;
inline constexpr uint8_t kPriority = 0x20;
}  // namespace frame_flag

enum class Http2Error : uint32_t {
  kNoError = 0,
  kProtocolError = 1,
  kFrameSizeError = 6,
  kRefusedStream = 7,
  kCancel = 8,
  kCompressionError = 9,
  kEnhanceYourCalm = 11,
  kInadequateSecurity = 12,  // gRPC clients: PERMISSION_DENIED
};

struct FrameHead {
  uint32_t payload_bytes = 0;
  FrameType type = FrameType::kData;
  uint8_t flags = 0;
  uint32_t stream = 0;

  bool Has(uint8_t flag) const { return (flags & flag) != 0; }
};

// `bytes`: kFrameHeadBytes of them.
FrameHead ParseFrameHead(const char* bytes);

// HEADERS whose block is whole; its payload may begin with a priority, as the flags say.
std::string HeadersFrame(uint32_t stream, uint8_t flags, absl::string_view payload);
// HEADERS whose block is whole and whose stream ends with it.
std::string ResponseFrame(uint32_t stream, absl::string_view block);
std::string RstStreamFrame(uint32_t stream, Http2Error error);
std::string GoAwayFrame(uint32_t last_stream, Http2Error error);
// For stream 0: the connection's window.
std::string WindowUpdateFrame(uint32_t bytes);

void Append32(uint32_t value, std::string* out);
// Appends a frame, or its beginning with the whole head, as one of another stream.
void AppendFrame(absl::string_view frame, uint32_t stream, std::string* out);

// Calls `take(head, frame)` for each of `frames`, which are whole.
template <typename Take>
void ForEachFrame(absl::string_view frames, Take take) {
  while (!frames.empty()) {
    const FrameHead head = ParseFrameHead(frames.data());
    const size_t bytes = kFrameHeadBytes + head.payload_bytes;
    take(head, frames.substr(0, bytes));
    frames.remove_prefix(bytes);
  }
}

// Finds the frames in bytes that come in pieces, and skips payloads. A GOAWAY's head includes the
// last stream, the first 4 bytes of its payload, which gRPC always sends.
class FrameReader {
 public:
  // The next head that `bytes` completes; `bytes` is cut to what follows it. False when there is
  // none and `bytes` is used up.
  bool Next(absl::string_view* bytes, FrameHead* head);
  // For tests: whether what was read so far ends with a whole frame.
  bool at_border() const { return head_bytes_ == 0 && payload_left_ == 0; }
  // The frame whose head was read last.
  size_t payload_left() const { return payload_left_; }
  absl::string_view head() const { return {head_, last_head_bytes_}; }
  // The last stream of a GOAWAY whose head was read last.
  uint32_t last_stream() const;

 private:
  size_t MissingHeadBytes() const;

  char head_[kFrameHeadBytes + kLastStreamBytes];
  size_t head_bytes_ = 0;
  size_t last_head_bytes_ = 0;
  size_t payload_left_ = 0;
};

}  // namespace bulkhead
