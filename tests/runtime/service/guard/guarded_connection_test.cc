#include "runtime/service/guard/guarded_connection.h"

#include <gtest/gtest.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>

#include "tests/runtime/service/guard/rules_fixture.h"

namespace bulkhead {
namespace {

class GuardedConnectionTest : public ConnectionRulesTest {
 protected:
  void SetUp() override {
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, client_), 0);
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, server_), 0);
  }
  void TearDown() override {
    close(client_[0]);
    close(server_[0]);
  }
  int client_[2], server_[2];  // the first of each is the test's end
};

TEST_F(GuardedConnectionTest, AClientThatDoesNotTakeRefusalsIsNotReadFrom) {
  GuardedConnection connection(client_[1], server_[1], &totals_, now_);
  const std::string server = Frame(FrameType::kSettings, 0, 0) + Headers(1, true);
  ASSERT_EQ(send(server_[0], server.data(), server.size(), 0), std::ssize(server));
  connection.MoveToClient(now_);
  std::string bytes = std::string(kHttp2Preface) + Frame(FrameType::kSettings, 0, 0) +
                      Frame(FrameType::kSettings, frame_flag::kAck, 0);
  uint32_t stream = 1;
  int rounds = 0;
  for (bool takes = true; takes && rounds < 3000; ++rounds, now_ += absl::Milliseconds(10)) {
    for (int i = 0; i < 10; ++i, stream += 2) bytes += Headers(stream, true);
    takes = send(client_[0], bytes.data(), bytes.size(), 0) > 0;
    bytes.clear();
    connection.MoveToServer(now_);
  }
  EXPECT_LT(rounds, 3000);
  char taken[65536];
  rounds = 0;
  while (++rounds < 30000 && (connection.client_events() & EPOLLIN) == 0) {
    now_ += absl::Milliseconds(10);
    (void)!recv(client_[0], taken, sizeof(taken), 0);
    connection.MoveToClient(now_);
    connection.MoveToServer(now_);
  }
  EXPECT_LT(rounds, 30000);
}

}  // namespace
}  // namespace bulkhead
