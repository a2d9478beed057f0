#include "comm/handshake_watch.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <fstream>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "comm/tcp_ports.h"

namespace bulkhead {
namespace {

// A rank sends its whole handshake at once, right after connecting.
constexpr std::chrono::milliseconds kPollInterval(100);
constexpr int kLooks = 5;

}  // namespace

HandshakeWatch::HandshakeWatch() : watched_(gettid()), thread_([this] { Run(); }) {}

HandshakeWatch::~HandshakeWatch() {
  {
    const std::lock_guard lock(mutex_);
    done_ = true;
  }
  wake_.notify_one();
  thread_.join();
  if (closed_ > 1) {
    BH_LOG(kWarning) << "dropped " << closed_ << " connections that sent half a handshake to MPI";
  }
}

// The descriptor that the watched thread blocks on in recv(), if it was accepted from a listening
// port.
std::optional<HandshakeWatch::Wait> HandshakeWatch::CurrentWait() const {
  std::ifstream file(absl::StrCat("/proc/self/task/", watched_, "/syscall"));
  int64_t call = -1;
  Wait wait;
  if (!(file >> call) || call != SYS_recvfrom || !(file >> std::hex >> wait.fd)) {
    return std::nullopt;
  }
  const std::optional<TcpSocket> socket = TcpSocketOf(wait.fd);
  if (!socket.has_value() || socket->listens) return std::nullopt;
  const std::vector<TcpSocket> all = OwnTcpSockets();
  const bool accepted = std::any_of(all.begin(), all.end(), [&](const TcpSocket& other) {
    return other.listens && other.port == socket->port;
  });
  if (!accepted) return std::nullopt;
  wait.remote = socket->remote;
  return wait;
}

void HandshakeWatch::Run() {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, nullptr);  // leave signals to other threads
  Wait last;
  int looks = 0;
  std::unique_lock lock(mutex_);
  while (!wake_.wait_for(lock, kPollInterval, [this] { return done_; })) {
    const Wait wait = CurrentWait().value_or(Wait());
    looks = wait.fd >= 0 && wait.fd == last.fd && wait.remote == last.remote ? looks + 1 : 0;
    last = wait;
    if (looks < kLooks) continue;
    looks = 0;
    // The descriptor number may be reused by another connection; a copy of it cannot.
    const int copy = fcntl(wait.fd, F_DUPFD_CLOEXEC, 0);
    const std::optional<TcpSocket> socket = TcpSocketOf(copy);
    if (socket.has_value() && socket->remote == wait.remote) {
      shutdown(copy, SHUT_RDWR);
      if (++closed_ == 1) {
        BH_LOG(kWarning) << wait.remote << " connected to MPI's port " << socket->port
                         << " and sent half a handshake: dropped";
      }
    }
    if (copy >= 0) close(copy);
  }
}

}  // namespace bulkhead
