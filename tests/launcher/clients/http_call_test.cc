#include "launcher/clients/http_call.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace bulkhead {
namespace {

// A listener that has more connections than it lets wait: it answers no further one.
TEST(HttpCallTest, ACallIsCancelledWhileItConnects) {
  std::vector<int> sockets = {socket(AF_INET, SOCK_STREAM, 0)};
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  auto* const any = reinterpret_cast<sockaddr*>(&address);
  ASSERT_EQ(bind(sockets[0], any, size), 0);
  ASSERT_EQ(listen(sockets[0], 0), 0);
  getsockname(sockets[0], any, &size);
  for (int i = 0; i < 4; ++i) {
    sockets.push_back(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0));
    connect(sockets.back(), any, size);
  }
  HttpTarget target;
  target.address = absl::StrCat("127.0.0.1:", ntohs(address.sin_port));
  HttpCall call(target);
  std::thread cancels([&] {
    absl::SleepFor(absl::Milliseconds(100));
    call.Cancel();
  });
  const absl::Time begin = absl::Now();
  EXPECT_TRUE(absl::IsCancelled(call.Send("/", "", [](absl::string_view) {})));
  EXPECT_LT(absl::Now() - begin, absl::Seconds(4)) << "it gives up after 5 s by itself";
  cancels.join();
  for (const int fd : sockets) close(fd);
}

TEST(HttpCallTest, ACallThatWasCancelledBeforeItBeginsIsNotSent) {
  HttpTarget target;
  target.address = "localhost:1";
  HttpCall call(target);
  call.Cancel();
  EXPECT_TRUE(absl::IsCancelled(call.Send("/", "", [](absl::string_view) {})));
}

}  // namespace
}  // namespace bulkhead
