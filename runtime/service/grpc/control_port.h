// ControlPort: Health, Control and reflection on a loopback port with its own server and threads,
// so that load on the main port cannot block them. On ::1 where there is no 127.0.0.1.
//
// It does not have the main port's services, as gRPC 1.51 runs callbacks of all servers of a
// process on the same 2 to 16 threads: if calls of one hold them for 20 ms each, Check on the other
// takes 160 ms. Services of the synchronous API have threads of their own, one for each call that
// waits.
#pragma once

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "runtime/service/control_answers.h"
#include "runtime/service/grpc/guarded_port.h"
#include "runtime/service/grpc/health_service.h"

namespace bulkhead {

class ControlPort {
 public:
  // Port 0 picks a free one. UNAVAILABLE with exit code 7 if it cannot bind. Both outlive it;
  // Health is stopping before it ends.
  static absl::StatusOr<std::unique_ptr<ControlPort>> Start(int port, ServiceCore* core,
                                                            HealthService* health);
  ~ControlPort();
  ControlPort(const ControlPort&) = delete;
  ControlPort& operator=(const ControlPort&) = delete;

  const std::string& target() const { return port_->target(); }

 private:
  class Control;
  class Health;
  ControlPort(std::unique_ptr<GuardedPort> port, ServiceCore* core, HealthService* health);

  std::atomic<int> waits_{0};  // calls that hold a thread
  HostCounters counters_;      // for this port only
  ErrorCounts errors_;
  std::unique_ptr<GuardedPort> port_;  // counts in them
  std::unique_ptr<Control> control_;
  std::unique_ptr<Health> health_;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace bulkhead
