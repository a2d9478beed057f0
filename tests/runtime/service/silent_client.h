// A client that sends calls without window for the answers: they stay in the server.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <string>

namespace bulkhead {

class SilentClient {
 public:
  explicit SilentClient(int port) : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
    const std::string no_window("\0\4\0\0\0\0", 6);
    Write("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + Frame(4, 0, 0, no_window));
  }
  ~SilentClient() { close(fd_); }
  SilentClient(const SilentClient&) = delete;
  SilentClient& operator=(const SilentClient&) = delete;

  // All calls together may have at most 64 KiB, the initial window of a connection.
  void Call(const std::string& path, const std::string& message) {
    std::string headers;
    for (const auto& [name, value] : {std::pair<std::string, std::string>{":method", "POST"},
                                      {":scheme", "http"},
                                      {":path", path},
                                      {":authority", "x"},
                                      {"te", "trailers"},
                                      {"content-type", "application/grpc"}}) {
      headers += std::string(1, '\0') + static_cast<char>(name.size()) + name +
                 static_cast<char>(value.size()) + value;
    }
    const std::string body = std::string(1, '\0') + BigEndian(message.size(), 4) + message;
    std::string frames = Frame(1, 4, stream_, headers);
    constexpr size_t kMostFrameBytes = 16384;
    for (size_t at = 0; at < body.size(); at += kMostFrameBytes) {
      const bool last = at + kMostFrameBytes >= body.size();
      frames += Frame(0, last ? 1 : 0, stream_, body.substr(at, kMostFrameBytes));
    }
    Write(frames);
    stream_ += 2;
  }

 private:
  static std::string BigEndian(size_t value, int bytes) {
    std::string out;
    for (int i = bytes - 1; i >= 0; --i) out += static_cast<char>(value >> (8 * i));
    return out;
  }
  static std::string Frame(char kind, char flags, size_t stream, const std::string& payload) {
    return BigEndian(payload.size(), 3) + kind + flags + BigEndian(stream, 4) + payload;
  }
  void Write(const std::string& bytes) {
    for (size_t at = 0; at < bytes.size();) {
      const ssize_t n = send(fd_, bytes.data() + at, bytes.size() - at, MSG_NOSIGNAL);
      ASSERT_GT(n, 0);
      at += static_cast<size_t>(n);
    }
  }

  const int fd_;
  size_t stream_ = 1;
};

}  // namespace bulkhead
