// LogitsProcessor: changes one request's logits before its tokens are sampled, on rank 0's host.
// Steps and order equal vLLM's v1 sampler: the grammar of the answer, allowed ids, bad words,
// (min_tokens' bans, by the Sampler: no later step raises -inf), bias, then repetition, frequency
// and presence penalty. Arithmetic in float, like transformers' RepetitionPenaltyLogitsProcessor
// and vLLM's penalties. Its state depends only on the request's tokens: ranks, batches, chunks,
// preemption and resumption do not change a bit.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "runtime/engine/request.h"
#include "runtime/structured/matcher.h"

namespace bulkhead {

// Follows the emitted tokens of a resumed request along its grammar, for LogitsParams::reached.
// Call before the request is submitted, not on the rank loop's thread: it may take most of a
// second; reached_status is INVALID_ARGUMENT (STRUCTURED_OUTPUT) if that is not enough.
void FollowGrammar(absl::Span<const TokenId> emitted, LogitsParams& params);

class LogitsProcessor {
 public:
  // `end_ids` end a sequence: allowed only where the answer's grammar is complete.
  explicit LogitsProcessor(LogitsParams params, std::vector<TokenId> end_ids = {});
  ~LogitsProcessor();

  // Bytes of `params` and of all state for a request of at most `max_total_tokens` tokens, with up
  // to `max_drafted` drafted at once.
  static int64_t MaxBytes(const LogitsParams& params, int64_t max_total_tokens, int max_drafted);

  // Once, before the first row: `tokens` are the prompt and then tokens already generated, for
  // which `params` have the grammar state. Later tokens are added one by one, up to
  // `max_total_tokens` in all. Not ok from then on if the tokens do not match the grammar,
  // INVALID_ARGUMENT (STRUCTURED_OUTPUT), or it takes too much work.
  void Begin(absl::Span<const TokenId> tokens, int64_t prompt_tokens, int64_t max_total_tokens);
  // Work on the grammar beyond kFreeTokenWork is taken from `work_left`. If that has too little,
  // the grammar does not advance by the token yet: Follow must, before any other call.
  absl::Status Add(TokenId generated, int64_t* work_left);
  bool awaits_follow() const { return unfollowed_.has_value(); }
  // Takes its work, up to kMaxWork, from `work_left`, which may be less; if it needs more, call it
  // again.
  absl::Status Follow(int64_t* work_left);
  absl::Status Add(TokenId generated) {
    int64_t work_left = structured::Automaton::kMaxWork;
    return Add(generated, &work_left);
  }
  // Before Apply with the same tokens: finds what the grammar allows there. Work is begun if
  // `work_left` is positive and is taken from it, up to kMaxWork; false: not ready, a later call
  // continues. Work beyond kMaxMaskWork is an error, returned by Apply.
  bool Prepare(absl::Span<const TokenId> drafted, int64_t* work_left);
  // Length of the prefix of `drafted` that the grammar allows, up to its end, and that is now
  // prepared; all without a grammar.
  int NumAllowed(absl::Span<const TokenId> drafted, int64_t* work_left);
  bool has_grammar() const { return matcher_ != nullptr; }
  // The grammar is complete, and nothing may follow.
  bool is_complete() const;

  // Changes the row that the next token is sampled from, [V] without NaN and +inf, in place; -inf
  // excludes an id. Results are clamped to the largest float. The row is computed as if `drafted`,
  // which are prepared, had been added. Errors of Add, and INVALID_ARGUMENT (STRUCTURED_OUTPUT) if
  // no token continues the grammar or it takes too much work; RESOURCE_EXHAUSTED
  // (STRUCTURED_OUTPUT) with a retry hint if memory is short. Several threads may call it at once.
  absl::Status Apply(absl::Span<float> logits, absl::Span<const TokenId> drafted = {}) const;

  // In units of structured::Automaton::kMaxWork: work that any token of a grammar may take.
  static constexpr int64_t kFreeTokenWork = 16'000;

 private:
  // The grammar after some of the drafted tokens.
  struct Ahead {
    TokenId token = 0;  // the last of them
    structured::Matcher matcher;
    structured::Automaton::Masks masks = {};
    absl::Status status = {};
  };
  struct IdCount {
    TokenId id = 0;
    int32_t generated = 0;  // how often; 0: only in the prompt
  };
  void CountAll(absl::Span<const TokenId> tokens, int64_t prompt_tokens, int64_t max_total_tokens);
  void Count(TokenId generated);
  static absl::Status AcceptDraft(Ahead& ahead, int64_t* work);
  bool PrepareNext(absl::Span<const TokenId> drafted, int64_t* work_left);
  absl::Status KeepGrammar(absl::Span<float> logits, absl::Span<const TokenId> drafted) const;
  void KeepAllowed(absl::Span<float> logits) const;
  void BanWords(absl::Span<float> logits, absl::Span<const TokenId> drafted) const;
  void Penalise(absl::Span<float> logits, absl::Span<const TokenId> drafted) const;

  LogitsParams params_;
  const std::vector<TokenId> end_ids_;
  std::unique_ptr<structured::Matcher> matcher_;  // null: any text; from Begin on
  absl::Status status_;                           // of the matcher
  std::optional<TokenId> unfollowed_;             // the last token passed to Add
  int64_t token_work_ = 0;       // of the last token, until a step's budget covers it
  std::vector<Ahead> ahead_;     // [i]: after i of the drafted tokens
  size_t longest_bad_word_ = 0;  // in tokens
  std::vector<IdCount> counts_;  // ascending ids; empty without a penalty
  std::vector<TokenId> last_;    // last generated ones, as many as bad words need
};

}  // namespace bulkhead
