// A server in this process that answers at once with as many tokens as were asked for: a benchmark
// against it measures the client's own cost.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace bulkhead {

class NullServer {
 public:
  // Listens on a free port of the loopback interface. Each message of its streams carries
  // `tokens_per_message` tokens (the last one the remainder).
  static absl::StatusOr<std::unique_ptr<NullServer>> Start(int tokens_per_message = 1);
  ~NullServer();
  NullServer(const NullServer&) = delete;
  NullServer& operator=(const NullServer&) = delete;

  const std::string& target() const { return target_; }

 private:
  struct Parts;
  explicit NullServer(std::unique_ptr<Parts> parts);

  std::unique_ptr<Parts> parts_;
  std::string target_;
};

}  // namespace bulkhead
