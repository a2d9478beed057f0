#include "launcher/bench/serve/client_ceiling.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "base/status.h"
#include "launcher/bench/quantile.h"
#include "launcher/bench/serve/load_generator.h"
#include "launcher/bench/serve/null_server.h"

namespace bulkhead {
namespace {

constexpr int kConcurrency = 32;
constexpr int kWarmups = 64;
constexpr int kRequests = 1000;
constexpr int kStreams = 64;
constexpr int kTokensPerStream = 256;

constexpr double kMostLagShare = 0.05;  // of the median TTFT
constexpr double kUnmeasuredLagMs = 1;  // what any machine's timers may be late
constexpr double kMostThreadShare = 0.8;
constexpr double kLeastSecondsForShare = 1;
constexpr double kMostCeilingShare = 0.5;

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

SendLag LagOf(const std::vector<RunRecord>& runs) {
  std::vector<double> lags;
  for (const RunRecord& run : runs) {
    for (const RequestRecord& request : run.requests) {
      if (request.sent_s.has_value()) lags.push_back(1e3 * request.lag_s);
    }
  }
  if (lags.empty()) return {};
  std::sort(lags.begin(), lags.end());
  return {QuantileOfSorted(lags, 0.5), QuantileOfSorted(lags, 0.99), lags.back()};
}

std::vector<std::string> WhyInvalid(const BenchSummary& summary, const ClientFacts& client) {
  std::vector<std::string> reasons;
  const double most_lag_ms =
      std::max(kUnmeasuredLagMs, kMostLagShare * summary.latencies.ttft.median.value);
  if (client.lag.p99_ms > most_lag_ms) {
    reasons.push_back(absl::StrFormat(
        "one request in a hundred was sent %.2f ms later than it was due (at most %.2f ms: 5 %% "
        "of the median TTFT); use more --client-threads or another machine for the client",
        client.lag.p99_ms, most_lag_ms));
  }
  if (client.busiest_thread_share > kMostThreadShare &&
      summary.throughput.duration_s > kLeastSecondsForShare) {
    reasons.push_back(absl::StrFormat(
        "a thread of the client was busy %.0f %% of the time (at most %.0f %%); use more "
        "--client-threads",
        100 * client.busiest_thread_share, 100 * kMostThreadShare));
  }
  if (!client.ceiling.has_value()) return reasons;
  const double tokens = summary.peak_tokens_per_s / client.ceiling->tokens_per_s;
  const double requests = summary.throughput.requests_per_s.value / client.ceiling->requests_per_s;
  if (std::max(tokens, requests) > kMostCeilingShare) {
    reasons.push_back(absl::StrFormat(
        "the run reached %.0f %% of what this client can do at all (at most %.0f %%: %.0f "
        "requests/s, %.0f tokens/s); use another machine for the client",
        100 * std::max(tokens, requests), 100 * kMostCeilingShare, client.ceiling->requests_per_s,
        client.ceiling->tokens_per_s));
  }
  return reasons;
}

}  // namespace bulkhead
