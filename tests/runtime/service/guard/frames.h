// HTTP/2 frames as a client or server would send them, for tests of the guard.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "absl/strings/escaping.h"
#include "google/rpc/error_details.pb.h"
#include "runtime/service/guard/call_table.h"
#include "runtime/service/guard/http2_frame.h"

namespace bulkhead {

inline std::string Frame(FrameType type, uint8_t flags, uint32_t stream,
                         const std::string& payload = "") {
  std::string frame;
  const auto append = [&frame](uint32_t value, int bytes) {
    for (int shift = 8 * (bytes - 1); shift >= 0; shift -= 8) {
      frame.push_back(static_cast<char>(value >> shift));
    }
  };
  append(static_cast<uint32_t>(payload.size()), 3);
  append(static_cast<uint32_t>(type), 1);
  append(flags, 1);
  append(stream, 4);
  return frame + payload;
}

// Of a call that goes on: a short one is held.
inline std::string ShortHeaders(uint32_t stream) {
  return Frame(FrameType::kHeaders, frame_flag::kEndHeaders, stream, "hpack");
}

// Of a call that ends, or is long enough to be forwarded.
inline std::string Headers(uint32_t stream, bool ends = false) {
  return Frame(FrameType::kHeaders,
               frame_flag::kEndHeaders | (ends ? frame_flag::kEndStream : uint8_t{0}), stream,
               "hpack" + std::string(ends ? 0 : kMinForwardedBytes, ' '));
}

// The first frame of a gRPC message of `length` bytes, of which `sent` are in it.
inline std::string Message(uint32_t stream, uint32_t length, size_t sent, bool ends = false) {
  std::string payload(1, '\0');
  for (int shift = 24; shift >= 0; shift -= 8)
    payload.push_back(static_cast<char>(length >> shift));
  payload += std::string(sent, 'x');
  return Frame(FrameType::kData, ends ? frame_flag::kEndStream : uint8_t{0}, stream, payload);
}

// Of a header block that names its fields in full, without a table or code; `at` moves behind it.
inline std::string HeaderString(const std::string& block, size_t* at) {
  size_t length = static_cast<unsigned char>(block.at((*at)++));
  for (int shift = 0; length >= 127; shift += 7) {
    const auto more = static_cast<unsigned char>(block.at((*at)++));
    length += size_t{more & 127U} << shift;
    if (more < 128) break;
  }
  *at += length;
  return block.substr(*at - length, length);
}

// The fields of the response that `frames` begin with, "stream" and "flags" beside them, and as
// "rest" what follows it.
inline std::map<std::string, std::string> ResponseOf(const std::string& frames) {
  std::map<std::string, std::string> fields;
  const FrameHead head = ParseFrameHead(frames.data());
  if (head.type != FrameType::kHeaders) return {};
  fields["stream"] = std::to_string(head.stream);
  fields["flags"] = std::to_string(head.flags);
  fields["rest"] = frames.substr(kFrameHeadBytes + head.payload_bytes);
  const std::string block = frames.substr(kFrameHeadBytes, head.payload_bytes);
  for (size_t at = 0; at < block.size();) {
    if (block[at++] != 0) return {};  // not a literal without indexing, with its name
    const std::string name = HeaderString(block, &at);
    fields[name] = HeaderString(block, &at);
  }
  return fields;
}

// The reason that a refusal gives.
inline std::string ReasonIn(const std::string& frames) {
  google::rpc::Status status;
  google::rpc::ErrorInfo info;
  std::string bytes;
  if (!absl::Base64Unescape(ResponseOf(frames)["grpc-status-details-bin"], &bytes)) return "";
  if (!status.ParseFromString(bytes)) return "";
  for (const auto& detail : status.details()) {
    if (detail.UnpackTo(&info)) return info.reason();
  }
  return "";
}

}  // namespace bulkhead
