// SignalThread: signals as calls on a thread of their own, where anything may be done. Made before
// any other thread, so that all of them inherit the blocked mask.
#pragma once

#include <functional>
#include <thread>
#include <vector>

namespace bulkhead {

class SignalThread {
 public:
  // Blocks `signals` in this thread and those it starts from now on, and calls `on_signal` for each
  // that comes.
  SignalThread(const std::vector<int>& signals, std::function<void(int signal)> on_signal);
  SignalThread(const SignalThread&) = delete;
  SignalThread& operator=(const SignalThread&) = delete;
  ~SignalThread();

 private:
  int wake_fd_;
  int signal_fd_;
  std::function<void(int)> on_signal_;
  std::thread thread_;
};

}  // namespace bulkhead
