#include "launcher/signal_thread.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>
#include <csignal>

#include <utility>

#include "base/check.h"

namespace bulkhead {

SignalThread::SignalThread(const std::vector<int>& signals, OnSignal on_signal)
    : on_signal_(std::move(on_signal)) {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : signals) sigaddset(&set, signal);
  BH_CHECK(pthread_sigmask(SIG_BLOCK, &set, nullptr) == 0);
  signal_fd_ = signalfd(-1, &set, SFD_CLOEXEC);
  wake_fd_ = eventfd(0, EFD_CLOEXEC);
  BH_CHECK(signal_fd_ >= 0 && wake_fd_ >= 0);
  thread_ = std::thread([this] {
    pollfd fds[2] = {{signal_fd_, POLLIN, 0}, {wake_fd_, POLLIN, 0}};
    while (true) {
      if (poll(fds, 2, -1) < 0) continue;  // EINTR
      if (fds[1].revents != 0) return;
      signalfd_siginfo info;
      if (read(signal_fd_, &info, sizeof(info)) == sizeof(info)) {
        on_signal_({static_cast<int>(info.ssi_signo), info.ssi_pid, info.ssi_code == SI_KERNEL});
      }
    }
  });
}

SignalThread::~SignalThread() {
  const uint64_t one = 1;
  BH_CHECK(write(wake_fd_, &one, sizeof(one)) == sizeof(one));
  thread_.join();
  close(signal_fd_);
  close(wake_fd_);
}

}  // namespace bulkhead
