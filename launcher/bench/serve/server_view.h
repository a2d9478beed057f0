// Information from a running server before, during and after a benchmark.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "bulkhead/v1/generation.pb.h"
#include "grpcpp/grpcpp.h"

namespace bulkhead {

struct ServerFacts {
  v1::ServerInfo server;
  v1::ModelInfo model;
  v1::RankTable ranks;
};

// Each fails with the server's own error and exit code 1.
absl::StatusOr<ServerFacts> AskFacts(const std::shared_ptr<grpc::Channel>& channel,
                                     const std::string& target);
absl::StatusOr<v1::LoadInfo> AskLoad(const std::shared_ptr<grpc::Channel>& channel,
                                     const std::string& target);
absl::StatusOr<std::vector<uint32_t>> AskTokens(const std::shared_ptr<grpc::Channel>& channel,
                                                const std::string& target, absl::string_view text);

// The server's load at one moment.
struct LoadSample {
  double time_s = 0;  // since the watch began
  v1::LoadInfo load;
};

}  // namespace bulkhead
