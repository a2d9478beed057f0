// HandshakeWatch: Open MPI reads the handshake of whoever connects to its port without a limit of
// time, so that a stranger who sends half of one stops the thread that calls MPI. While this lives,
// such a connection is hung up on.
#pragma once

#include <sys/types.h>

#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

namespace bulkhead {

class HandshakeWatch {
 public:
  // Watches the calling thread: the one that calls MPI.
  HandshakeWatch();
  HandshakeWatch(const HandshakeWatch&) = delete;
  HandshakeWatch& operator=(const HandshakeWatch&) = delete;
  ~HandshakeWatch();

 private:
  struct Wait {
    int fd = -1;
    std::string remote;
  };
  std::optional<Wait> CurrentWait() const;
  void Run();

  const pid_t watched_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool done_ = false;
  int closed_ = 0;  // of the thread, until it has ended
  std::thread thread_;
};

}  // namespace bulkhead
