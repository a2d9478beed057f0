// What `bench throughput` measured, as numbers, a table and JSON. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "launcher/bench/rank_figures.h"

namespace bulkhead {

// One sequence of one run, in seconds since the batch was submitted.
struct SequenceTimes {
  std::vector<double> token_s;  // when each of its tokens came
};

// One run of one batch.
struct ThroughputRun {
  double prefill_tokens_per_s = 0;  // prompt tokens over the time until all have their first token
  // Tokens over time while all sequences generate: from the last first token to the first last one.
  // Where they never all did, of all tokens behind the first ones, over the time since the first of
  // all. Absent where there are no such tokens.
  std::optional<double> decode_tokens_per_s;
  double total_tokens_per_s = 0;           // prompt and generated tokens over the whole time
  std::vector<double> first_token_s = {};  // of each sequence, since the batch was submitted
  std::vector<double> step_s =
      {};  // between two tokens of a sequence, while all sequences generate
};
// `prompt_tokens`: those of all prompts that were computed.
ThroughputRun RunOf(const std::vector<SequenceTimes>& sequences, int64_t prompt_tokens);

struct ThroughputCase {
  int batch_size = 0;
  int input_len = 0;
  int output_len = 0;
  std::vector<ThroughputRun> runs;
};

struct ThroughputFacts {
  std::string version, model, architecture, weight_dtype, activation_dtype, kv_cache_dtype, cpu,
      date;
  int ranks = 1;
  int threads = 1;  // of each rank
  int shared_prefix_len = 0;
  int64_t num_kv_blocks = 0;
  int64_t num_kv_blocks_used_peak = 0;
  uint64_t num_preemptions = 0;
  uint64_t device_allocations_after_ready = 0;
  std::vector<RankFigures> rank_figures;  // of each rank, over all steps, uncounted runs too
  std::string capacity_json;              // the memory report
};

// What the log says of a case's last run; of one run at least.
std::string LastRunText(const ThroughputCase& one);
// Medians over the runs, with the least and the most.
std::string ThroughputTable(const ThroughputFacts& facts, const std::vector<ThroughputCase>& cases);
std::string ThroughputJson(const ThroughputFacts& facts, const std::vector<ThroughputCase>& cases);

}  // namespace bulkhead
