#include "launcher/planning/host_budget.h"

#include <algorithm>
#include <numeric>

#include "memory/prefix_cache.h"
#include "runtime/service/metrics/metrics_page.h"
#include "runtime/service/tls/tls_terminator.h"
#include "runtime/tokenizer/regex.h"

namespace bulkhead {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;
// Maximum and minimum quotas.
constexpr int64_t kMaxMessageBytes = int64_t{1} << 30;
constexpr int64_t kMessageBytes = 4 * kMiB;
constexpr int64_t kMinMessageBytes = kMiB;
constexpr int64_t kPromptBytesPerToken = 16;  // as text, which needs more than ids
constexpr int64_t kBesidesPromptBytes = kMiB;
constexpr int64_t kGrpcBytes = 256 * kMiB;
constexpr int64_t kMessagesInGrpc = 16;
constexpr int64_t kMinGrpcBytes = 8 * kMiB;
constexpr int kConnections = 1024;
constexpr int kMinConnections = 64;
constexpr int kHttpConnections = 4096;
constexpr int kMinHttpConnections = 128;
constexpr int kTlsHttpConnections = 1024;  // with kTlsConnectionBytes each
// HTTP thread: its read buffers, and a short request as JSON, rendered and tokenised.
constexpr int64_t kHttpThreadBytes = 8 * kMiB;
constexpr int kOpenCalls = 3584;
constexpr int kMaxOpenCalls = 8192;  // for a longer queue that was given
constexpr int kMinOpenCalls = 112;
constexpr int kSpareCalls = 64;  // besides those of waiting and running requests
constexpr int64_t kRequestQuotaBytes = 64 * kMiB;
constexpr int64_t kAnswerQuotaBytes = 320 * kMiB;
constexpr int64_t kMinAnswerBytes = 8 * kMiB;
constexpr int64_t kTextQuotaBytes = 32 * kMiB;
// Besides the trie, which is smaller than the file: some 100 grammars at once with 128,000 tokens.
constexpr int64_t kStructuredQuotaBytes = 128 * kMiB;
constexpr int64_t kMinStructuredBytes = 8 * kMiB;
constexpr int kQueuedReqs = 1024;
constexpr int kMinQueuedReqs = 32;
// Vocabulary and merges as tables, per byte of tokenizer.json: measured 11.7 with 128,000 tokens.
constexpr int64_t kTokenizerFactor = 12;
constexpr int64_t kArchiveFactor = 1;  // the file as it is sent to gateways, if nothing compresses
// Touched stacks, and memory that malloc retains.
constexpr int64_t kHeapGrowthBytes = 16 * kMiB;

// A part's bytes when everything is at its quota.
int64_t& Part(HostBudget& budget, HostPart part) {
  return budget.part_bytes[static_cast<int>(part)];
}

// Message size that holds a prompt of max_model_len in any form.
int64_t PromptMessageBytes(int max_model_len) {
  return std::min(kPromptBytesPerToken * max_model_len + kBesidesPromptBytes, kMaxMessageBytes);
}

void SetQuotas(const HostRequest& request, const Limits& limits, int64_t ranks,
               HostBudget& budget) {
  const auto shrunk = [step = budget.step](int64_t full, int64_t least) {
    return std::max(full >> step, least);
  };
  HostQuotas& quotas = budget.quotas;
  const int64_t prompt_bytes = PromptMessageBytes(limits.max_model_len);
  quotas.message_bytes = std::max(shrunk(kMessageBytes, kMinMessageBytes), prompt_bytes);
  quotas.grpc_bytes = shrunk(kGrpcBytes + kMessagesInGrpc * quotas.message_bytes,
                             std::max(kMinGrpcBytes, 4 * quotas.message_bytes));
  quotas.max_connections = static_cast<int>(shrunk(kConnections, kMinConnections));
  if (request.http) {
    const int connections = request.tls ? kTlsHttpConnections : kHttpConnections;
    quotas.max_http_connections = static_cast<int>(shrunk(connections, kMinHttpConnections));
  }
  if (request.http || request.metrics_port) quotas.metrics_bytes = MaxMetricsBytes(ranks);
  budget.max_num_queued_reqs =
      request.max_num_queued_reqs.value_or(static_cast<int>(shrunk(kQueuedReqs, kMinQueuedReqs)));
  // Every waiting or running request has a call, so they are bounded by the calls.
  const int64_t requests = int64_t{budget.max_num_queued_reqs} + limits.max_num_seqs + kSpareCalls;
  quotas.max_open_calls = static_cast<int>(
      std::max(shrunk(kOpenCalls, kMinOpenCalls), std::min<int64_t>(requests, kMaxOpenCalls)));
  quotas.request_bytes = shrunk(kRequestQuotaBytes, 2 * quotas.message_bytes);
  // The longest answer of a single request is always accepted.
  quotas.answer_bytes = shrunk(
      kAnswerQuotaBytes, std::max(kMinAnswerBytes, kMaxAnswerBytesPerToken * limits.max_model_len));
  quotas.text_bytes = shrunk(kTextQuotaBytes, quotas.message_bytes);
  if (request.tokenizer_file_bytes > 0) {
    quotas.structured_bytes =
        shrunk(kStructuredQuotaBytes, kMinStructuredBytes) + request.tokenizer_file_bytes;
  }
}

int64_t TlsBytes(const HostRequest& request, const HostQuotas& quotas) {
  if (!request.tls) return 0;
  const int connections = MaxTlsConnections(quotas.max_connections) +
                          (request.http ? MaxTlsConnections(quotas.max_http_connections) : 0) +
                          (request.metrics_port ? MaxTlsConnections(kMetricsConnections) : 0);
  return connections * kTlsConnectionBytes;
}

}  // namespace

const char* HostPartName(HostPart part) {
  constexpr const char* kNames[] = {"grpc",      "connections", "calls",     "requests",
                                    "queue",     "text",        "answers",   "prefix_cache",
                                    "tokenizer", "structured",  "heap_slack"};
  static_assert(std::size(kNames) == kNumHostParts);
  return kNames[static_cast<int>(part)];
}

int64_t HostBudget::total_bytes() const {
  return std::accumulate(part_bytes.begin(), part_bytes.end(), int64_t{0});
}

int64_t HostBudget::standing_bytes() const {
  const auto bytes = [&](HostPart part) { return part_bytes[static_cast<int>(part)]; };
  return bytes(HostPart::kPrefixCache) + bytes(HostPart::kTokenizer) + bytes(HostPart::kHeapSlack) -
         kHeapGrowthBytes;
}

HostBudget HostBudgetAt(int step, const HostRequest& request, const Capacity& capacity) {
  const Limits& limits = capacity.limits;
  HostBudget budget;
  budget.step = step;
  budget.given_bytes = request.host_memory;
  SetQuotas(request, limits, static_cast<int64_t>(capacity.ranks.size()), budget);
  const HostQuotas& quotas = budget.quotas;
  const int64_t requests = std::min<int64_t>(
      int64_t{budget.max_num_queued_reqs} + limits.max_num_seqs, quotas.max_open_calls);
  Part(budget, HostPart::kGrpc) = quotas.grpc_bytes;
  Part(budget, HostPart::kConnections) =
      quotas.max_connections * kConnectionBytes + kControlPortBytes +
      (request.http ? kHttpThreadBytes + quotas.max_http_connections * kHttpConnectionBytes : 0) +
      (request.metrics_port ? kMetricsConnections * kHttpConnectionBytes : 0) +
      TlsBytes(request, quotas) +
      (request.access_control ? quotas.max_connections * kHeaderReaderBytes : 0) +
      (int{request.http} + int{request.metrics_port}) * quotas.metrics_bytes *
          (kMaxScrapes + kHeldPerMetricsByte);
  Part(budget, HostPart::kCalls) = quotas.max_open_calls * kOpenCallBytes;
  Part(budget, HostPart::kRequests) = quotas.request_bytes * kHeldPerRequestByte;
  // Lists of blocks grow by doubling.
  const int64_t block_list_bytes = int64_t{2} * limits.blocks_per_seq() * limits.num_kv_groups() *
                                   static_cast<int64_t>(sizeof(BlockId));
  Part(budget, HostPart::kQueue) =
      requests * (kRequestBytes + kTextStreamBytes +
                  limits.max_model_len * static_cast<int64_t>(sizeof(int32_t))) +
      limits.max_num_seqs * block_list_bytes;
  Part(budget, HostPart::kText) = quotas.text_bytes + quotas.message_bytes * kHeldPerTextByte +
                                  kShortRequestsBytes + kDeepMatchBytes;
  Part(budget, HostPart::kAnswers) = quotas.answer_bytes * kHeldPerAnswerByte;
  if (request.prefix_caching && limits.num_kv_blocks > 0) {
    Part(budget, HostPart::kPrefixCache) =
        PrefixCache::HostBytes(limits.num_kv_blocks, limits.block_tokens) +
        (request.kv_events ? KvEventLog::HostBytes(limits.block_tokens) : 0);
  }
  if (request.tokenizer_file_bytes > 0) {
    Part(budget, HostPart::kTokenizer) =
        request.tokenizer_file_bytes * (kTokenizerFactor + kArchiveFactor) +
        kMaxArchivedBesidesBytes;
  }
  Part(budget, HostPart::kStructured) = quotas.structured_bytes;
  Part(budget, HostPart::kHeapSlack) =
      kRank0HeapBytes + (request.ranks_on_host - 1) * kRankHeapBytes + kHeapGrowthBytes;
  budget.quotas.total_bytes = budget.total_bytes() - budget.standing_bytes();
  return budget;
}

HostBudget FitHostBudget(const HostRequest& request, const Capacity& capacity,
                         std::optional<int64_t> available_bytes) {
  HostBudget budget;
  for (int step = 0; step < kNumHostSteps; ++step) {
    budget = HostBudgetAt(step, request, capacity);
    budget.available_bytes = available_bytes;
    if (budget.fits()) break;
  }
  return budget;
}

}  // namespace bulkhead
