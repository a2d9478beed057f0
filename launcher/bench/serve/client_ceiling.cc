#include "launcher/bench/serve/client_ceiling.h"

#include <optional>
#include <vector>

#include "base/status.h"
#include "launcher/bench/serve/load_generator.h"
#include "launcher/bench/serve/null_server.h"

namespace bulkhead {
namespace {

constexpr int kConcurrency = 32;
constexpr int kWarmups = 64;
constexpr int kRequests = 1000;
constexpr int kStreams = 64;
constexpr int kTokensPerStream = 256;

RunRecord SendMany(LoadGenerator* generator, int count, int tokens) {
  v1::GenerateRequest request;
  request.mutable_token_ids()->add_ids(1);
  request.mutable_stopping()->set_max_tokens(tokens);
  const std::vector<v1::GenerateRequest> requests(count, request);
  LoadPlan plan;
  plan.requests = &requests;
  plan.max_concurrency = kConcurrency;
  return generator->Run(plan);
}

}  // namespace

absl::StatusOr<ClientCeiling> MeasureCeiling(int threads) {
  BH_ASSIGN_OR_RETURN(const auto server, NullServer::Start());
  BH_ASSIGN_OR_RETURN(const auto generator,
                      LoadGenerator::Connect(server->target(), threads, std::nullopt));
  SendMany(generator.get(), kWarmups, 1);
  ClientCeiling ceiling;
  ceiling.requests_per_s = kRequests / SendMany(generator.get(), kRequests, 1).duration_s;
  ceiling.tokens_per_s = kStreams * kTokensPerStream /
                         SendMany(generator.get(), kStreams, kTokensPerStream).duration_s;
  return ceiling;
}

}  // namespace bulkhead
