// A client that speaks HTTP/2 by hand.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <utility>

#include "tests/runtime/service/guard/frames.h"

namespace bulkhead {

// HEADERS of a call without any table or code.
inline std::string CallHeaders(uint32_t stream, const std::string& path) {
  std::string block;
  for (const auto& [name, value] : {std::pair<std::string, std::string>{":method", "POST"},
                                    {":scheme", "http"},
                                    {":path", path},
                                    {":authority", "test"},
                                    {"te", "trailers"},
                                    {"content-type", "application/grpc"}}) {
    block += std::string(1, '\0') + static_cast<char>(name.size()) + name +
             static_cast<char>(value.size()) + value;
  }
  return Frame(FrameType::kHeaders, frame_flag::kEndHeaders, stream, block);
}

class RawClient {
 public:
  explicit RawClient(int port) : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
    const timeval patience = {60, 0};
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  }
  ~RawClient() { close(fd_); }
  RawClient(const RawClient&) = delete;
  RawClient& operator=(const RawClient&) = delete;

  void Send(const std::string& bytes) {
    for (size_t at = 0; at < bytes.size();) {
      const ssize_t n = send(fd_, bytes.data() + at, bytes.size() - at, MSG_NOSIGNAL);
      ASSERT_GT(n, 0);
      at += static_cast<size_t>(n);
    }
  }
  void Greet(const std::string& settings = "") {
    Send(std::string(kHttp2Preface) + Frame(FrameType::kSettings, 0, 0, settings));
  }
  // Whether the server hangs up before the client's patience is over.
  bool IsHungUpOn() {
    char bytes[4096];
    while (true) {
      const ssize_t got = recv(fd_, bytes, sizeof(bytes), 0);
      if (got <= 0) return got == 0 || errno == ECONNRESET;
    }
  }

 private:
  const int fd_;
};

// Sends calls and gives the server no window to answer in: what it asks for stays there.
class SilentClient : private RawClient {
 public:
  explicit SilentClient(int port) : RawClient(port) { Greet(std::string("\0\4\0\0\0\0", 6)); }

  // All calls together have at most 64 KiB, what a connection may send unasked.
  void Call(const std::string& path, const std::string& message) {
    std::string frames =
        CallHeaders(stream_, path) + Message(stream_, static_cast<uint32_t>(message.size()), 0);
    for (size_t at = 0; at <= message.size(); at += kMaxPayloadBytes) {
      const bool last = at + kMaxPayloadBytes > message.size();
      frames += Frame(FrameType::kData, last ? frame_flag::kEndStream : uint8_t{0}, stream_,
                      message.substr(at, kMaxPayloadBytes));
    }
    Send(frames);
    stream_ += 2;
  }

 private:
  uint32_t stream_ = 1;
};

}  // namespace bulkhead
