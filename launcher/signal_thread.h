// SignalThread: calls a function for signals on its own thread, without the restrictions of signal
// handlers. Created before any other thread, so that all inherit the blocked mask.
#pragma once

#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

namespace bulkhead {

struct ReceivedSignal {
  int number = 0;
  int64_t sender_pid = 0;  // 0 if outside this pid namespace, or the kernel
  bool by_kernel = false;  // e.g. by a terminal, to its whole foreground group
};

class SignalThread {
 public:
  using OnSignal = std::function<void(const ReceivedSignal& signal)>;

  // Blocks `signals` in this thread and its later children, and calls `on_signal` for each one
  // received.
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
