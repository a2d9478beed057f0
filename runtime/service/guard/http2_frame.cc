#include "runtime/service/guard/http2_frame.h"

#include <algorithm>
#include <cstring>

namespace bulkhead {
namespace {

uint32_t BigEndian32(const char* bytes) {
  uint32_t value = 0;
  for (int i = 0; i < 4; ++i) value = value << 8 | static_cast<unsigned char>(bytes[i]);
  return value;
}

void Append32(uint32_t value, std::string* out) {
  for (int shift = 24; shift >= 0; shift -= 8) out->push_back(static_cast<char>(value >> shift));
}

std::string FrameOf(FrameType type, uint32_t stream, size_t payload_bytes, uint8_t flags = 0) {
  std::string frame;
  Append32(static_cast<uint32_t>(payload_bytes) << 8 | static_cast<uint32_t>(type), &frame);
  frame.push_back(static_cast<char>(flags));
  Append32(stream, &frame);
  return frame;
}

}  // namespace

FrameHead ParseFrameHead(const char* bytes) {
  FrameHead head;
  const uint32_t first = BigEndian32(bytes);
  head.payload_bytes = first >> 8;
  head.type = static_cast<FrameType>(first & 0xFF);
  head.flags = static_cast<uint8_t>(bytes[4]);
  head.stream = BigEndian32(bytes + 5) & 0x7FFFFFFF;
  return head;
}

std::string ResponseFrame(uint32_t stream, absl::string_view block) {
  std::string frame = FrameOf(FrameType::kHeaders, stream, block.size(),
                              frame_flag::kEndHeaders | frame_flag::kEndStream);
  frame.append(block.data(), block.size());
  return frame;
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

bool FrameReader::Next(absl::string_view* bytes, FrameHead* head) {
  const size_t passed = std::min(payload_left_, bytes->size());
  payload_left_ -= passed;
  bytes->remove_prefix(passed);
  if (bytes->empty()) return false;
  const size_t wanted = std::min(kFrameHeadBytes - head_bytes_, bytes->size());
  std::memcpy(head_ + head_bytes_, bytes->data(), wanted);
  head_bytes_ += wanted;
  bytes->remove_prefix(wanted);
  if (head_bytes_ < kFrameHeadBytes) return false;
  head_bytes_ = 0;
  *head = ParseFrameHead(head_);
  payload_left_ = head->payload_bytes;
  return true;
}

}  // namespace bulkhead
