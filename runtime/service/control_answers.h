// The answers of bulkhead.v1.Control, on any port: server information, load, limits, abort, drain.
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "bulkhead/v1/generation.pb.h"
#include "runtime/service/service_core.h"

namespace bulkhead {

inline constexpr uint32_t kMaxDrainSeconds = 7 * 24 * 3600;

// Thread-safe. `client`: the client's address, for the log.
class ControlAnswers {
 public:
  explicit ControlAnswers(ServiceCore* core) : core_(core) {}

  absl::Status GetServerInfo(const v1::GetServerInfoRequest& request, const std::string& client,
                             v1::ServerInfo* response);
  absl::Status GetModelInfo(const v1::GetModelInfoRequest& request, const std::string& client,
                            v1::ModelInfo* response);
  absl::Status GetLoad(const v1::GetLoadRequest& request, const std::string& client,
                       v1::LoadInfo* response);
  absl::Status GetRankTable(const v1::GetRankTableRequest& request, const std::string& client,
                            v1::RankTable* response);
  absl::Status SetLimits(const v1::SetLimitsRequest& request, const std::string& client,
                         v1::SetLimitsResponse* response);
  absl::Status Abort(const v1::AbortRequest& request, const std::string& client,
                     v1::AbortResponse* response);
  // `ended`: see EngineControl::BeginDrain; it receives the outcome, which `response` lacks.
  absl::Status Drain(const v1::DrainRequest& request, const std::string& client,
                     v1::DrainResponse* response, DrainWaiter ended = {});

 private:
  ServiceCore* const core_;
};

}  // namespace bulkhead
