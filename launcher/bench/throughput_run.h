// What one run of `bench throughput` measured. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace bulkhead {

// One sequence of one run, in seconds since the batch was submitted.
struct SequenceTimes {
  std::vector<double> token_s;  // when each of its tokens came
};

// One run of one batch.
struct ThroughputRun {
  double prefill_tokens_per_s = 0;  // prompt tokens over the time until all have their first token
  // Tokens over time while all sequences generate: from the last first token to the first last one.
  // Where they never all did, of all tokens after the first ones, over the time since the first of
  // all. Absent where there are no such tokens.
  std::optional<double> decode_tokens_per_s;
  double total_tokens_per_s = 0;      // prompt and generated tokens over the whole time
  std::vector<double> first_token_s;  // of each sequence, since the batch was submitted
  std::vector<double> step_s;  // between two tokens of a sequence, while all sequences generate
};
// `prompt_tokens`: those of all prompts that were computed.
ThroughputRun RunOf(const std::vector<SequenceTimes>& sequences, int64_t prompt_tokens);

struct ThroughputCase {
  int batch_size = 0;
  int input_len = 0;
  int output_len = 0;
  std::vector<ThroughputRun> runs;
};

// What the log says of a case's last run; of one run at least.
std::string LastRunText(const ThroughputCase& one);

}  // namespace bulkhead
