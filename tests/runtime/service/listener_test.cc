#include "runtime/service/listener.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <future>
#include <memory>

namespace bulkhead {
namespace {

int OptionOf(int fd, int level, int name) {
  int value = -1;
  socklen_t size = sizeof(value);
  EXPECT_EQ(getsockopt(fd, level, name, &value, &size), 0);
  return value;
}

// Writing nothing to it, the server would never learn.
TEST(ListenerTest, AConnectionWhoseClientVanishedIsFoundInAMinute) {
  auto listener = Listener::Bind({.ip = "127.0.0.1"});
  ASSERT_TRUE(listener.ok()) << listener.status();
  std::promise<int> accepted;
  (*listener)->Start([&accepted](int fd) {
    accepted.set_value(fd);
    return true;
  });
  const int client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>((*listener)->port()));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(connect(client, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  const int fd = accepted.get_future().get();
  EXPECT_EQ(OptionOf(fd, SOL_SOCKET, SO_KEEPALIVE), 1);
  const int probes = OptionOf(fd, IPPROTO_TCP, TCP_KEEPCNT);
  EXPECT_EQ(
      OptionOf(fd, IPPROTO_TCP, TCP_KEEPIDLE) + probes * OptionOf(fd, IPPROTO_TCP, TCP_KEEPINTVL),
      60);
  close(fd);
  close(client);
}

}  // namespace
}  // namespace bulkhead
