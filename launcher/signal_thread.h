// SignalThread: signals as calls on a thread of their own, where anything may be done. Made before
// any other thread, so that all of them inherit the blocked mask.
#pragma once

#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

namespace bulkhead {

struct ReceivedSignal {
  int number = 0;
  int64_t sender_pid = 0;  // 0 where it is not of this pid namespace, or the kernel's
  bool by_kernel = false;  // such as a terminal's, which goes to every process in its foreground
};

class SignalThread {
 public:
  using OnSignal = std::function<void(const ReceivedSignal& signal)>;

  // Blocks `signals` in this thread and those it starts from now on, and calls `on_signal` for each
  // that comes.
  SignalThread(const std::vector<int>& signals, OnSignal on_signal);
  SignalThread(const SignalThread&) = delete;
  SignalThread& operator=(const SignalThread&) = delete;
  ~SignalThread();

 private:
  int wake_fd_;
  int signal_fd_;
  OnSignal on_signal_;
  std::thread thread_;
};

}  // namespace bulkhead
