// HTTP/2 frames as a client or server would send them, for tests of the guard.
#pragma once

#include <cstdint>
#include <string>

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

inline std::string Headers(uint32_t stream, bool ends = false) {
  return Frame(FrameType::kHeaders,
               frame_flag::kEndHeaders | (ends ? frame_flag::kEndStream : uint8_t{0}), stream,
               "hpack");
}

// The first frame of a gRPC message of `length` bytes, of which `sent` are in it.
inline std::string Message(uint32_t stream, uint32_t length, size_t sent, bool ends = false) {
  std::string payload(1, '\0');
  for (int shift = 24; shift >= 0; shift -= 8)
    payload.push_back(static_cast<char>(length >> shift));
  payload += std::string(sent, 'x');
  return Frame(FrameType::kData, ends ? frame_flag::kEndStream : uint8_t{0}, stream, payload);
}

}  // namespace bulkhead
