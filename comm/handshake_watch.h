// HandshakeWatch: Open MPI reads the handshake of any incoming connection without a timeout, so
// that a stranger who sends half of one blocks the thread that calls MPI. While this exists, such
// connections are shut down.
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
  int closed_ = 0;  // connections closed by the thread; valid after it has ended
  std::thread thread_;
};

}  // namespace bulkhead
