#include "runtime/service/guard/http2_frame.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

namespace bulkhead {
namespace {

uint32_t BigEndian32(const char* bytes) {
  uint32_t value = 0;
  for (int i = 0; i < 4; ++i) value = value << 8 | static_cast<unsigned char>(bytes[i]);
  return value;
}

std::string FrameOf(FrameType type, uint32_t stream, size_t payload_bytes, uint8_t flags = 0) {
  std::string frame;
  Append32(static_cast<uint32_t>(payload_bytes) << 8 | static_cast<uint32_t>(type), &frame);
  frame.push_back(static_cast<char>(flags));
  Append32(stream, &frame);
  return frame;
}

}  // namespace

void Append32(uint32_t value, std::string* out) {
  for (int shift = 24; shift >= 0; shift -= 8) out->push_back(static_cast<char>(value >> shift));
}

FrameHead ParseFrameHead(const char* bytes) {
  FrameHead head;
  const uint32_t first = BigEndian32(bytes);
  head.payload_bytes = first >> 8;
  head.type = static_cast<FrameType>(first & 0xFF);
  head.flags = static_cast<uint8_t>(bytes[4]);
  head.stream = BigEndian32(bytes + 5) & kHighestStream;
  return head;
}

std::string HeadersFrame(uint32_t stream, uint8_t flags, absl::string_view payload) {
  std::string frame =
      FrameOf(FrameType::kHeaders, stream, payload.size(), flags | frame_flag::kEndHeaders);
  frame.append(payload.data(), payload.size());
  return frame;
}

std::string ResponseFrame(uint32_t stream, absl::string_view block) {
  return HeadersFrame(stream, frame_flag::kEndStream, block);
}

std::string RstStreamFrame(uint32_t stream, Http2Error error) {
  std::string frame = FrameOf(FrameType::kRstStream, stream, 4);
  Append32(static_cast<uint32_t>(error), &frame);
  return frame;
}

std::string GoAwayFrame(uint32_t last_stream, Http2Error error) {
  std::string frame = FrameOf(FrameType::kGoAway, 0, 8);
  Append32(last_stream, &frame);
  Append32(static_cast<uint32_t>(error), &frame);
  return frame;
}

std::string WindowUpdateFrame(uint32_t bytes) {
  std::string frame = FrameOf(FrameType::kWindowUpdate, 0, 4);
  Append32(bytes, &frame);
  return frame;
}

void AppendFrame(absl::string_view frame, uint32_t stream, std::string* out) {
  constexpr size_t kStreamAt = 5;
  absl::StrAppend(out, frame.substr(0, kStreamAt));
  Append32(stream, out);
  absl::StrAppend(out, frame.substr(kFrameHeadBytes));
}

uint32_t FrameReader::last_stream() const {
  return BigEndian32(head_ + kFrameHeadBytes) & kHighestStream;
}

bool FrameReader::Next(absl::string_view* bytes, FrameHead* head) {
  const size_t passed = std::min(payload_left_, bytes->size());
  payload_left_ -= passed;
  bytes->remove_prefix(passed);
  size_t wanted = 0;
  while ((wanted = MissingHeadBytes()) > 0) {
    if (bytes->empty()) return false;
    const size_t taken = std::min(wanted, bytes->size());
    std::memcpy(head_ + head_bytes_, bytes->data(), taken);
    head_bytes_ += taken;
    bytes->remove_prefix(taken);
  }
  *head = ParseFrameHead(head_);
  last_head_bytes_ = std::exchange(head_bytes_, 0);
  payload_left_ = head->payload_bytes - (last_head_bytes_ - kFrameHeadBytes);
  return true;
}

size_t FrameReader::MissingHeadBytes() const {
  if (head_bytes_ < kFrameHeadBytes) return kFrameHeadBytes - head_bytes_;
  const bool goes_away = ParseFrameHead(head_).type == FrameType::kGoAway;
  return kFrameHeadBytes + (goes_away ? kLastStreamBytes : 0) - head_bytes_;
}

}  // namespace bulkhead
