// A group of ranks, as threads, that runs a checkpoint through ModelRunner with the test's own step
// plans: any batch, chunking, block size, number format, instruction set and group size.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/staged/staged_communicator.h"
#include "kernels/backend.h"
#include "memory/kv_format.h"
#include "memory/weight_format.h"
#include "runtime/engine/request.h"

namespace bulkhead {

// A rank's device and backend; destroyed in reverse order.
struct RigDevice {
  std::shared_ptr<void> driver;  // resources of the device, if any
  std::unique_ptr<Device> device;
  std::unique_ptr<Backend> backend;
};

struct RigOptions {
  int size = 1;
  std::string backend = "auto";  // "reference", "ordered", or an isa of NewCpuBackend
  std::function<RigDevice()> make_device = nullptr;  // instead of the host and `backend`
  int threads = 1;
  int chunk_tokens = 512;            // per sequence and step
  int max_num_batched_tokens = 512;  // RunRequests: per step
  int block_tokens = 16;
  bool together = true;  // all prompts in one batch; else sequentially
  KvFormat kv_format = KvFormat::kF32;
  // Quantises at load; a float format is for weights that the checkpoint does not quantise.
  std::optional<WeightFormat> weight_dtype = std::nullopt;
  ActivationDType activation = ActivationDType::kF32;
  AttentionDType attention = AttentionDType::kF32;
  // > 0: the pool has this many blocks when the runner is made, and grows to its size afterwards.
  int64_t blocks_at_first = 0;
  int decode_tokens = 0;  // tokens after each prompt
  SamplingParams sampling = {.temperature = 0};
  // Whether tokens after the first are sampled on the device; plans then do not contain them.
  bool on_device = false;
  bool decode_logits = false;  // the logits of decode steps follow the prompt's
  // Decode-only steps are padded to PaddedDecodeRows.
  bool pads_decodes = false;
  // On a CUDA device, in a group of one or with NCCL: sums are not staged, and decode graphs are
  // warmed up and captured before the pool grows to its size.
  bool decode_graphs = false;
  // >= 0: afterwards everything is run again starting after the full blocks left in the cache, as
  // if this many of the greedy tokens were part of the prompt. The second turn's results replace
  // the first turn's.
  int second_turn_tokens = -1;
  int second_chunk_tokens = 512;
  // Transport between CUDA devices, and how they are connected.
  Transport transport = Transport::kStaged;
  std::function<absl::StatusOr<std::unique_ptr<Communicator>>(Group&, const CommLimits&, Device&,
                                                              MemoryLedger&)>
      connect = &ConnectStaged;
  std::vector<int> node_of_rank = {};  // on the CPU: ranks on several nodes; empty: on one
  DType sum_dtype = DType::kF32;
  bool prefix_caching = false;  // RunRequests
  // RunRequests: the model's KV groups, and blocks for one sequence of the full length. Otherwise
  // all layers are one group.
  bool kv_groups = false;
  std::optional<int> max_model_len = std::nullopt;  // the model's
  std::vector<std::string> adapters = {};           // folders
  std::vector<int> adapter_of_prompt = {};          // RunRig: 1-based; empty: none
  // RunRequests: blocks are taken as sequences grow, and preemptions are added here. Null: blocks
  // for the worst case.
  int* preemptions = nullptr;
};

struct RigResult {
  std::vector<std::vector<float>> logits;        // [prompts][tokens x vocab_size]
  int64_t decode_steps = 0;                      // steps with one token per sequence
  std::vector<std::vector<int32_t>> greedy_ids;  // [prompts][decode_tokens], by `sampling`
  int64_t cached_tokens = 0;                     // not computed by the second turn
};

// Aborts on failure: reporting errors is the test's task.
RigResult RunRig(const std::string& model_dir, const std::vector<std::vector<int32_t>>& prompts,
                 const RigOptions& options);

// The tokens of each request, all submitted at once to a coordinator with at most `depth` steps in
// flight. Uses the options for device, formats, sizes, padding and graphs.
std::vector<std::vector<TokenId>> RunRequests(const std::string& model_dir,
                                              const std::vector<Request>& requests, int depth,
                                              const RigOptions& options);

}  // namespace bulkhead
