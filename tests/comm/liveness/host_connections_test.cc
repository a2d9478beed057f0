#include "base/clock.h"
#include "base/socket.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "comm/liveness/sealed_frames.h"
#include "comm/wait.h"

namespace bulkhead {
namespace {

using testing::Contains;
using testing::HasSubstr;

constexpr int64_t kSecond = 1'000'000'000;
int64_t In(int64_t seconds) { return MonotonicNanos() + seconds * kSecond; }

TEST(OwnAddresses, AreThoseOfTheInterfacesAskedFor) {
  EXPECT_THAT(OwnAddresses("lo").value(), Contains("127.0.0.1"));
  EXPECT_THAT(OwnAddresses("nosuch0,127.0.0.0/8").value(), testing::ElementsAre("127.0.0.1"));
  const auto none = OwnAddresses("nosuch0,203.0.113.0/24");
  EXPECT_THAT(std::string(none.status().message()), HasSubstr("nosuch0,203.0.113.0/24"));
  EXPECT_FALSE(OwnAddresses("").value().empty());
}

TEST(AcceptCallers, WhoSaysNothingOrLiesKeepsNobodyWaiting) {
  std::vector<ListeningSocket> listeners;
  listeners.push_back(ListenOn("127.0.0.1").value());
  const int port = listeners[0].port;
  // Waiting 2 s for each in turn would exceed the deadline.
  std::vector<absl::StatusOr<Socket>> silent;
  for (int i = 0; i < 40; ++i) silent.push_back(ConnectTo("127.0.0.1", port, In(30)));
  std::vector<std::thread> threads;
  for (const auto& [key, rank] : {std::pair("theirs", 1), {"ours", 9}, {"ours", 1}, {"ours", 2}}) {
    threads.emplace_back([port, key = std::string(key), rank = rank] {
      const int64_t limit_ns = In(30);
      bool answered = false;
      // The acceptor gives a caller 2 s, in which this thread may not run.
      do {
        const auto socket = ConnectTo("127.0.0.1", port, limit_ns);
        ASSERT_TRUE(socket.ok());
        answered = AuthenticateTo(*socket, key, rank, limit_ns).ok();
      } while (!answered && key == "ours" && rank != 9 && MonotonicNanos() < limit_ns);
      // Rank 9, which nobody waits for, may be cut off before its answer.
      if (rank != 9) {
        EXPECT_EQ(answered, key == "ours") << rank;
      }
    });
  }
  std::vector<int> ranks;
  for (const Caller& caller : AcceptCallers(listeners, "ours", {1, 2}, In(30))) {
    EXPECT_TRUE(caller.socket.is_open());
    ranks.push_back(caller.who.rank);
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(ranks, testing::UnorderedElementsAre(1, 2));
}

TEST(AcceptCallers, EndsAtTheDeadlineWithThoseThatCame) {
  std::vector<ListeningSocket> listeners;
  listeners.push_back(ListenOn("127.0.0.1").value());
  EXPECT_TRUE(AcceptCallers(listeners, "ours", {1}, MonotonicNanos()).empty());
}

// A caller and its acceptor, each with a key.
struct Meeting {
  absl::StatusOr<CallerIdentity> greeted;
  absl::StatusOr<std::string> introduced;
};
Meeting Meet(const std::string& key, const std::string& callers_key) {
  std::vector<ListeningSocket> listeners;
  listeners.push_back(ListenOn("127.0.0.1").value());
  Meeting meeting;
  std::thread caller([&] {
    const auto socket = ConnectTo("127.0.0.1", listeners[0].port, In(30));
    ASSERT_TRUE(socket.ok()) << socket.status();
    meeting.introduced = AuthenticateTo(*socket, callers_key, 7, In(30));
  });
  {
    const Socket socket = AcceptFrom(listeners, In(30));
    EXPECT_TRUE(socket.is_open());
    meeting.greeted = AuthenticateCaller(socket, key, In(30));
  }
  caller.join();
  return meeting;
}

TEST(Handshake, BothSidesKnowTheCallerAndTheSessionKey) {
  const Meeting meeting = Meet("key", "key");
  ASSERT_TRUE(meeting.greeted.ok()) << meeting.greeted.status();
  ASSERT_TRUE(meeting.introduced.ok()) << meeting.introduced.status();
  EXPECT_EQ(meeting.greeted->rank, 7);
  EXPECT_EQ(meeting.greeted->session_key, *meeting.introduced);
}

TEST(Handshake, WithoutTheKeyThereIsNoConnection) {
  const Meeting meeting = Meet("key", "guess");
  EXPECT_TRUE(absl::IsUnauthenticated(meeting.greeted.status()));
  EXPECT_FALSE(meeting.introduced.ok());
}

TEST(Sockets, ACallerThatSaysNothingIsGivenUpInTime) {
  std::vector<ListeningSocket> listeners;
  listeners.push_back(ListenOn("127.0.0.1").value());
  const auto silent = ConnectTo("127.0.0.1", listeners[0].port, In(30));
  ASSERT_TRUE(silent.ok());
  const Socket socket = AcceptFrom(listeners, In(30));
  const auto greeted = AuthenticateCaller(socket, "key", MonotonicNanos() + kSecond / 10);
  EXPECT_TRUE(absl::IsDeadlineExceeded(greeted.status())) << greeted.status();
}

TEST(Sockets, NobodyAnswersOnAPortThatWasClosed) {
  int port = 0;
  {
    const auto listener = ListenOn("127.0.0.1");
    port = listener->port;
  }
  const auto socket = ConnectTo("127.0.0.1", port, In(30));
  EXPECT_THAT(std::string(socket.status().message()), HasSubstr("Connection refused"));
}

}  // namespace
}  // namespace bulkhead
