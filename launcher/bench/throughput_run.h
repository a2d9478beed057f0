// Results of one run of `bench throughput`. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace bulkhead {

// One sequence of one run, in seconds since the batch was submitted.
struct SequenceTimes {
  std::vector<double> token_s;  // when each of its tokens arrived
};

// One run of one batch.
struct ThroughputRun {
  double prefill_tokens_per_s = 0;  // prompt tokens over the time until all have their first token
  // Tokens over time while all sequences generate: from the last first token to the first last one.
  // If they never all did: all tokens after each sequence's first, over the time since the very
  // first one. Absent if there are no such tokens.
  std::optional<double> decode_tokens_per_s;
  double total_tokens_per_s = 0;      // prompt and generated tokens over the whole time
  std::vector<double> first_token_s;  // of each sequence, since the batch was submitted
  std::vector<double> step_s;  // between two tokens of a sequence, while all sequences generate
};
// `prompt_tokens`: computed tokens of all prompts.
ThroughputRun RunOf(const std::vector<SequenceTimes>& sequences, int64_t prompt_tokens);

struct ThroughputCase {
  int batch_size = 0;
  int input_len = 0;
  int output_len = 0;
  std::vector<ThroughputRun> runs;
};

// The log text for a case's last run; at least one run.
std::string LastRunText(const ThroughputCase& one);

}  // namespace bulkhead
