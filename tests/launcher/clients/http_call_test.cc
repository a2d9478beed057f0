#include "launcher/clients/http_call.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace bulkhead {
namespace {

class HttpCallTest : public ::testing::Test {
 protected:
  void SetUp() override {
    sockets_ = {socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0)};
    address_.sin_family = AF_INET;
    address_.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ASSERT_EQ(bind(sockets_[0], any_, size_), 0);
    ASSERT_EQ(listen(sockets_[0], 0), 0);
    getsockname(sockets_[0], any_, &size_);
    target_.address = absl::StrCat("127.0.0.1:", ntohs(address_.sin_port));
  }
  void TearDown() override {
    for (const int fd : sockets_) close(fd);
  }

  sockaddr_in address_ = {};
  sockaddr* const any_ = reinterpret_cast<sockaddr*>(&address_);
  socklen_t size_ = sizeof(address_);
  std::vector<int> sockets_;  // the first one listens
  HttpTarget target_;
};

// A server that goes on, and whether the client has left it.
class HttpCallToEndlessServer : public HttpCallTest {
 protected:
  absl::Status Post(const std::string& answer, const HttpCall::OnBody& on_body, bool* left) {
    std::thread server([&] {
      int fd = -1;
      while ((fd = accept(sockets_[0], nullptr, nullptr)) < 0)
        absl::SleepFor(absl::Milliseconds(5));
      sockets_.push_back(fd);
      send(fd, answer.data(), answer.size(), MSG_NOSIGNAL);
      pollfd end = {fd, POLLHUP | POLLRDHUP, 0};
      *left = poll(&end, 1, 10'000) > 0;
      shutdown(fd, SHUT_RDWR);
    });
    const absl::Status status = HttpCall(target_).Send("/v1/chat/completions", "{}", on_body);
    server.join();
    return status;
  }
};

TEST_F(HttpCallToEndlessServer, ARefusalIsReadUpToItsLimit) {
  bool left = false;
  const absl::Status status = Post(
      "HTTP/1.1 500 No\r\n\r\n" + std::string(size_t{80} << 10, 'x'),
      [](absl::string_view) { return true; }, &left);
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr("answers with HTTP status 500"));
  EXPECT_TRUE(left);
}

TEST_F(HttpCallToEndlessServer, WhatIsNotWantedIsNotWaitedFor) {
  bool left = false;
  std::string body;
  EXPECT_EQ(Post(
                "HTTP/1.1 200 OK\r\n\r\nthe end",
                [&](absl::string_view bytes) {
                  body.append(bytes.data(), bytes.size());
                  return body != "the end";
                },
                &left),
            absl::OkStatus());
  EXPECT_TRUE(left);
}

// The listen backlog is full: further connections are not answered.
TEST_F(HttpCallTest, ACallIsCancelledWhileItConnects) {
  for (int i = 0; i < 4; ++i) {
    sockets_.push_back(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0));
    connect(sockets_.back(), any_, size_);
  }
  HttpCall call(target_);
  std::thread cancels([&] {
    absl::SleepFor(absl::Milliseconds(100));
    call.Cancel();
  });
  const absl::Time begin = absl::Now();
  EXPECT_TRUE(absl::IsCancelled(call.Send("/", "", [](absl::string_view) { return true; })));
  EXPECT_LT(absl::Now() - begin, absl::Seconds(4)) << "it gives up after 5 s by itself";
  cancels.join();
}

// Silent, or after the begin of an answer.
TEST_F(HttpCallTest, AGetGivesUpOnAServerThatDoesNotEndItsAnswer) {
  for (const std::string begin : {"", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{"}) {
    std::thread server([&] {
      int fd = -1;
      while ((fd = accept(sockets_[0], nullptr, nullptr)) < 0)
        absl::SleepFor(absl::Milliseconds(5));
      sockets_.push_back(fd);
      ASSERT_EQ(send(fd, begin.data(), begin.size(), 0), static_cast<ssize_t>(begin.size()));
    });
    const absl::Status status =
        HttpCall(target_).Send("/v1/models", "", [](absl::string_view) { return true; });
    server.join();
    EXPECT_TRUE(absl::IsUnavailable(status)) << status;
    EXPECT_THAT(std::string(status.message()), testing::HasSubstr("has not answered /v1/models"));
  }
}

TEST_F(HttpCallTest, ACallThatWasCancelledBeforeItBeginsDoesNotConnect) {
  HttpCall call(target_);
  call.Cancel();
  EXPECT_TRUE(absl::IsCancelled(call.Send("/", "", [](absl::string_view) { return true; })));
  EXPECT_EQ(accept(sockets_[0], nullptr, nullptr), -1);
}

}  // namespace
}  // namespace bulkhead
