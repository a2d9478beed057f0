#include "comm/mpi/tcp_ports.h"
#include "base/clock.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <string>

#include "absl/strings/match.h"
#include "base/socket.h"
#include "comm/launch_environment.h"
#include "comm/mpi/mpi_ports.h"
#include "comm/mpi/tcp_ports.h"
#include "comm/wait.h"

namespace bulkhead {
namespace {

constexpr int64_t kSecond = 1'000'000'000;

ListeningSocket Listen() {
  absl::StatusOr<ListeningSocket> listener = ListenOn("127.0.0.1");
  EXPECT_TRUE(listener.ok()) << listener.status();
  return *std::move(listener);
}

absl::StatusOr<Socket> Connect(const ListeningSocket& listener, int64_t limit_ns) {
  return ConnectTo("127.0.0.1", listener.port, MonotonicNanos() + limit_ns);
}

const TcpSocket* Find(const std::vector<TcpSocket>& sockets, int fd) {
  const auto at = std::find_if(sockets.begin(), sockets.end(),
                               [fd](const TcpSocket& socket) { return socket.fd == fd; });
  return at == sockets.end() ? nullptr : &*at;
}

TEST(TcpPorts, AProcessFindsWhatItListensOnAndWhoIsConnected) {
  const ListeningSocket listener = Listen();
  const absl::StatusOr<Socket> caller = Connect(listener, 30 * kSecond);
  ASSERT_TRUE(caller.ok()) << caller.status();
  const std::vector<TcpSocket> all = OwnTcpSockets();
  const TcpSocket* const listening = Find(all, listener.socket.fd());
  const TcpSocket* const connected = Find(all, caller->fd());
  ASSERT_NE(listening, nullptr);
  ASSERT_NE(connected, nullptr);
  EXPECT_TRUE(listening->listens);
  EXPECT_EQ(listening->port, listener.port);
  EXPECT_EQ(listening->remote, "");
  EXPECT_FALSE(connected->listens);
  EXPECT_EQ(connected->remote, listening->local);
  EXPECT_EQ(Find(all, STDERR_FILENO), nullptr);
}

TEST(TcpPorts, AClosedPortTakesNobodyAndKeepsThoseItTook) {
  const ListeningSocket listener = Listen();
  const absl::StatusOr<Socket> before = Connect(listener, 30 * kSecond);
  ASSERT_TRUE(before.ok()) << before.status();
  const int accepted = accept(listener.socket.fd(), nullptr, nullptr);
  ASSERT_GE(accepted, 0);
  const absl::StatusOr<Socket> waiting = Connect(listener, 30 * kSecond);
  ASSERT_TRUE(waiting.ok()) << waiting.status();

  ASSERT_TRUE(RefuseConnections(listener.socket.fd()).ok());
  CloseWaitingConnections(listener.socket.fd());
  EXPECT_FALSE(Connect(listener, kSecond / 2).ok());
  EXPECT_FALSE(ReceiveExactly(*waiting, 1, MonotonicNanos() + 30 * kSecond).ok());
  EXPECT_EQ(send(accepted, "x", 1, MSG_NOSIGNAL), 1);
  EXPECT_EQ(*ReceiveExactly(*before, 1, MonotonicNanos() + 30 * kSecond), "x");
  close(accepted);
}

// An external connection brings half a handshake to a thread that reads without a timeout.
TEST(HandshakeWatch, AThreadThatReadsHalfAHandshakeGoesOn) {
  const ListeningSocket listener = Listen();
  const absl::StatusOr<Socket> external = Connect(listener, 30 * kSecond);
  ASSERT_TRUE(external.ok()) << external.status();
  const int accepted = accept(listener.socket.fd(), nullptr, nullptr);
  ASSERT_TRUE(SendAll(*external, "OPAL-TCP", MonotonicNanos() + kSecond).ok());
  const HandshakeWatch watch;
  char handshake[21];
  EXPECT_EQ(recv(accepted, handshake, sizeof(handshake), MSG_WAITALL), 8);
  close(accepted);
}

// Without a launcher: uses this process's own ports instead.
TEST(LauncherPorts, ALaunchersPortsAreClosedThroughCopiesOfItsDescriptors) {
  EXPECT_EQ(FindLauncher(getpid()).pid, 0);
  const ListeningSocket listener = Listen();
  const LauncherPorts ports = CloseLauncherPorts({getpid(), "mpirun"});
  if (!ports.why.ok()) GTEST_SKIP() << ports.why.message();
  EXPECT_GE(ports.closed, 1);
  EXPECT_TRUE(ports.open.empty());
  EXPECT_FALSE(Connect(listener, kSecond / 2).ok());
}

// Of Open MPI 5, which is the nearest ancestor of its name.
TEST(LauncherArguments, AreThoseOfTheAncestorThatOpenMpi5sMpirunIs) {
  EXPECT_TRUE(LauncherArguments().empty());
  EXPECT_EXIT(
      {
        prctl(PR_SET_NAME, "prterun");
        if (fork() == 0) {  // a wrapper
          prctl(PR_SET_NAME, "sh");
          if (fork() == 0) _exit(absl::StrContains(LauncherArguments().at(0), "comm_") ? 7 : 1);
          int of_wrapped = 0;
          wait(&of_wrapped);
          _exit(WEXITSTATUS(of_wrapped));
        }
        int status = 0;
        wait(&status);
        _exit(WEXITSTATUS(status));
      },
      testing::ExitedWithCode(7), "");
  EXPECT_TRUE(IsDaemon({0, "prted"}));
}

TEST(LauncherPorts, OpenOnesAreNamedInTheFirewallLineAlone) {
  const absl::Status why = absl::UnavailableError("pidfd_getfd: no");
  EXPECT_EQ(OpenPortsText("mpirun", {"4711", "4712"}, why),
            "mpirun accepts connections from anyone, and this rank cannot close it (pidfd_getfd: "
            "no); keep external connections out as root: "
            "iptables -I INPUT -p tcp -m multiport --dports 4711,4712 --syn -j DROP && "
            "ip6tables -I INPUT -p tcp -m multiport --dports 4711,4712 --syn -j DROP");
  EXPECT_THAT(OpenPortsText("mpirun", {}, why), ::testing::EndsWith("out with a firewall"));
}

}  // namespace
}  // namespace bulkhead
