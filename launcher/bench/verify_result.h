// What a group answered to the prompts of `bench verify`, as a file, and how two such answers
// compare. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/engine/request.h"

namespace bulkhead {

struct VerifiedAnswer {
  int input_len = 0;
  bool sampled = false;  // else greedy
  std::vector<TokenId> tokens;
  std::vector<uint32_t> logprob_bits;  // of each token's log probability when it was drawn
  std::string logits_sha256;  // of the logits behind every token, prompt and answer, computed anew
};

struct VerifiedGroup {
  // What must be equal for a comparison to mean anything: model, formats, prompts.
  std::map<std::string, std::string> subject;
  std::string version;
  int ranks = 1;
  std::vector<std::string> hosts;  // by rank; not in the file
  bool equal_shares = true;
  std::vector<VerifiedAnswer> answers;

  std::string ToJson() const;
  // DATA_LOSS when it is no such file.
  static absl::StatusOr<VerifiedGroup> FromJson(absl::string_view text);
};

struct AnswerComparison {
  int first_difference = -1;  // the index of the first token that differs; -1: none
  bool equal_logprobs = true;
  bool equal_logits = true;
};

struct Comparison {
  std::vector<AnswerComparison> answers;
  int tokens = 0;
  int differing_answers = 0;  // in their tokens
  int differing_bits = 0;     // answers whose log probabilities or logits differ
  bool bits_promised = true;  // equal shares, and 1, 2, 4 or 8 ranks on both sides
  bool ok() const { return differing_answers == 0 && (!bits_promised || differing_bits == 0); }
};

// INVALID_ARGUMENT naming the first of `subject` that differs.
absl::StatusOr<Comparison> Compare(const VerifiedGroup& reference, const VerifiedGroup& group);

// One line when all is equal, else a row per answer that differs.
std::string ComparisonText(const VerifiedGroup& reference, const VerifiedGroup& group,
                           const Comparison& comparison);
std::string ComparisonJson(const VerifiedGroup& reference, const VerifiedGroup& group,
                           const Comparison& comparison);

}  // namespace bulkhead
