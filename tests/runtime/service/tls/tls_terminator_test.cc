#include "runtime/service/tls/tls_terminator.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>

#include "runtime/service/tls/client_listener.h"
#include "tests/runtime/service/tls/tls_files.h"

namespace bulkhead {
namespace {

// The client's end of a connection, and the server's, which does not block.
std::pair<int, int> Connected() {
  int pair[2];
  EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
  fcntl(pair[1], F_SETFL, O_NONBLOCK);
  return {pair[0], pair[1]};
}

class TlsTerminatorTest : public testing::Test {
 protected:
  ~TlsTerminatorTest() override {
    terminator_.Stop(absl::ZeroDuration());
    if (inner_ >= 0) close(inner_);
    if (client_ >= 0) close(client_);
  }
  // With the handshake done; the front end has its end in inner_.
  void Connect() {
    const auto [client, server] = Connected();
    client_ = client;
    terminator_.Take(server);
    context_.reset(SSL_CTX_new(TLS_client_method()));
    ssl_.reset(SSL_new(context_.get()));
    SSL_set_fd(ssl_.get(), client);
    ASSERT_EQ(SSL_connect(ssl_.get()), 1);
    const absl::MutexLock lock(&mutex_);
    ASSERT_TRUE(mutex_.AwaitWithTimeout(absl::Condition(
                                            +[](int* fd) { return *fd >= 0; }, &inner_),
                                        absl::Seconds(10)));
    fcntl(inner_, F_SETFL, 0);
  }
  std::string ReadAsClient(size_t bytes) {
    std::string all;
    char part[20000];
    while (all.size() < bytes) {
      const int got = SSL_read(ssl_.get(), part, sizeof(part));
      if (got <= 0) break;
      all.append(part, got);
    }
    return all;
  }

  AccessControl access_;
  ErrorCounts closed_;
  absl::Mutex mutex_;
  int inner_ = -1;
  int client_ = -1;
  std::unique_ptr<SSL_CTX, TlsContext::Free> context_;
  std::unique_ptr<SSL, TlsContext::Free> ssl_;
  TlsTerminator terminator_{*TlsContext::Load(TestTlsFiles(), kAlpnHttp1), 32, &access_, &closed_,
                            [this](const AcceptedClient& client) {
                              const absl::MutexLock lock(&mutex_);
                              inner_ = client.fd;
                              return true;
                            }};
};

TEST_F(TlsTerminatorTest, BytesPassWholeInBothDirections) {
  Connect();
  const std::string sent(300'000, 'q');
  std::thread client([&] {
    for (size_t at = 0; at < sent.size();) {
      at += SSL_write(ssl_.get(), sent.data() + at, static_cast<int>(sent.size() - at));
    }
  });
  std::string got;
  char part[4096];
  while (got.size() < sent.size()) {
    const ssize_t bytes = recv(inner_, part, sizeof(part), 0);
    ASSERT_GT(bytes, 0);
    got.append(part, bytes);
  }
  client.join();
  EXPECT_EQ(got, sent);
  std::thread server([&] {
    const std::string answer(300'000, 'a');
    EXPECT_EQ(send(inner_, answer.data(), answer.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(answer.size()));
  });
  EXPECT_EQ(ReadAsClient(300'000), std::string(300'000, 'a'));
  server.join();
}

TEST_F(TlsTerminatorTest, WhatWasSentBeforeTheEndArrives) {
  Connect();
  const std::string answer(20'000, 'a');
  ASSERT_EQ(send(inner_, answer.data(), answer.size(), 0), static_cast<ssize_t>(answer.size()));
  close(std::exchange(inner_, -1));
  EXPECT_EQ(ReadAsClient(answer.size() + 1), answer);
  EXPECT_EQ(SSL_get_shutdown(ssl_.get()) & SSL_RECEIVED_SHUTDOWN, SSL_RECEIVED_SHUTDOWN);
}

TEST_F(TlsTerminatorTest, AClientThatLeavesIsToldToTheFrontEnd) {
  Connect();
  close(std::exchange(client_, -1));
  char byte;
  EXPECT_EQ(recv(inner_, &byte, 1, 0), 0);
}

TEST_F(TlsTerminatorTest, FlushWaitsForClientsThatRead) {
  Connect();
  const std::string answer(20'000, 'a');
  ASSERT_EQ(send(inner_, answer.data(), answer.size(), 0), static_cast<ssize_t>(answer.size()));
  EXPECT_TRUE(terminator_.Flush(absl::Seconds(10)));
  EXPECT_EQ(ReadAsClient(answer.size()), answer);
}

TEST_F(TlsTerminatorTest, ANewHandshakeTakesThePlaceOfTheOldest) {
  std::vector<int> silent;
  for (int i = 0; i < 3 * MaxTlsHandshakes(32); ++i) {
    const auto [client, server] = Connected();
    silent.push_back(client);
    terminator_.Take(server);
  }
  Connect();  // a client that shakes hands gets in
  char byte;
  EXPECT_EQ(recv(silent.front(), &byte, 1, 0), 0);
  EXPECT_GE(closed_.Get()["TLS_TIMEOUT"], 2U * MaxTlsHandshakes(32));
  for (const int fd : silent) close(fd);
}

TEST_F(TlsTerminatorTest, WhatIsNotTlsIsCountedAndClosed) {
  const auto [client, server] = Connected();
  terminator_.Take(server);
  ASSERT_EQ(send(client, "GET / HTTP/1.1\r\n\r\n", 18, 0), 18);
  char bytes[64];
  while (recv(client, bytes, sizeof(bytes), 0) > 0) {
  }
  terminator_.Stop(absl::ZeroDuration());
  EXPECT_EQ(closed_.Get()["TLS_HANDSHAKE"], 1U);
  close(client);
}

}  // namespace
}  // namespace bulkhead
