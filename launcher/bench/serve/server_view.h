// What a running server says of itself, before, during and after a benchmark.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
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

// What a benchmark did to the server's memory.
struct MemoryUse {
  uint64_t kv_blocks = 0;
  uint64_t kv_blocks_used_peak = 0;
  // Whether the peak is exact (the server's own high-water mark rose), or the most that was seen
  // when we looked.
  bool peak_is_exact = false;
  uint64_t requests_running_peak = 0;  // as seen when we looked
  uint64_t requests_waiting_peak = 0;  // likewise
  uint64_t preemptions = 0;
  std::map<std::string, uint64_t> refusals;  // by reason
  uint64_t resident_bytes_peak = 0;          // of rank 0's process, likewise
  uint64_t device_allocations_after_ready = 0;
  std::vector<v1::DeviceMemory> devices;                     // by rank, at the end; of GPUs alone
  uint64_t prefix_cache_queries = 0, prefix_cache_hits = 0;  // tokens
};

// From samples in order; the first one was taken before the first request, the last one behind the
// last. Absent of fewer than two.
std::optional<MemoryUse> MemoryUseOf(const std::vector<LoadSample>& samples);

}  // namespace bulkhead
