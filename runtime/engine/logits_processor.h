// LogitsProcessor: changes one request's logits before its tokens are sampled, on rank 0's host.
// The steps and their order are those of vLLM's v1 sampler: the grammar of the answer, allowed ids,
// bad words, (min_tokens' bans, by the Sampler: no later step raises -inf), bias, then repetition,
// frequency and presence penalty. Arithmetic in float, as transformers'
// RepetitionPenaltyLogitsProcessor and vLLM's penalties have it. What it knows follows from the
// request's tokens alone, so that neither ranks, batches and chunks nor preemption and resumption
// change a bit.
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
// Before the request is submitted, and not by the rank loop's thread: it may take most of a second,
// and is INVALID_ARGUMENT (STRUCTURED_OUTPUT) in reached_status where that is not enough.
void FollowGrammar(absl::Span<const TokenId> emitted, LogitsParams& params);

class LogitsProcessor {
 public:
  // `end_ids` end a sequence: allowed where the grammar of the answer is complete, and nowhere
  // else.
  explicit LogitsProcessor(LogitsParams params, std::vector<TokenId> end_ids = {});
  ~LogitsProcessor();

  // Bytes of `params` and of all that is kept for a request of at most `max_total_tokens` tokens,
  // of which up to `max_drafted` are drafted at once.
  static int64_t MaxBytes(const LogitsParams& params, int64_t max_total_tokens, int max_drafted);

  // Once, before the first row: the prompt, and after it what was generated already, which
  // `params` have followed along the grammar. Later tokens are added one by one, up to
  // `max_total_tokens` in all. Not ok, from then on: the tokens are not of the grammar,
  // INVALID_ARGUMENT (STRUCTURED_OUTPUT), or it takes too much work.
  void Begin(absl::Span<const TokenId> tokens, int64_t prompt_tokens, int64_t max_total_tokens);
  // Work on the grammar beyond kFreeTokenWork is taken from `work_left`. Where that has too little,
  // the token is not followed along the grammar yet: that is Follow's, before anything else.
  absl::Status Add(TokenId generated, int64_t* work_left);
  bool awaits_follow() const { return unfollowed_.has_value(); }
  // Takes its work, up to kMaxWork, from `work_left`, which may be less; what needs more still
  // awaits it.
  absl::Status Follow(int64_t* work_left);
  absl::Status Add(TokenId generated) {
    int64_t work_left = structured::Automaton::kMaxWork;
    return Add(generated, &work_left);
  }
  // Before Apply with the same tokens: finds what the grammar allows there. That may be work, which
  // is begun where `work_left` is positive, and taken from it, up to kMaxWork; false: not now, and
  // a later call goes on. Only beyond kMaxMaskWork is it an error, of Apply.
  bool Prepare(absl::Span<const TokenId> drafted, int64_t* work_left);
  // How many of `drafted`, from the first on, the grammar allows, up to its end, and are prepared
  // now; all without a grammar.
  int NumAllowed(absl::Span<const TokenId> drafted, int64_t* work_left);
  bool has_grammar() const { return matcher_ != nullptr; }
  // The grammar is complete, and nothing may follow.
  bool is_complete() const;

  // The row from which the next token is sampled, [V], without NaN and +inf, in place; -inf
  // excludes an id. Results beyond the largest float become it. The row is as if `drafted`, which
  // are prepared, had been added, which they are not. Errors of Add, and INVALID_ARGUMENT
  // (STRUCTURED_OUTPUT) where no token goes on with the grammar, or that is too much work;
  // RESOURCE_EXHAUSTED (the same) with a retry hint where it is for lack of memory. Rows may be in
  // several threads.
  absl::Status Apply(absl::Span<float> logits, absl::Span<const TokenId> drafted = {}) const;

  // Units of structured::Automaton::kMaxWork: any token of a grammar may take as much.
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
    int32_t generated = 0;  // how often; 0: in the prompt alone
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
  std::optional<TokenId> unfollowed_;             // the last token, by Add
  int64_t token_work_ = 0;       // of the last token, until a step has room for as much
  std::vector<Ahead> ahead_;     // after none, one ... of the drafted tokens
  size_t longest_bad_word_ = 0;  // in tokens
  std::vector<IdCount> counts_;  // ascending ids; empty without a penalty
  std::vector<TokenId> last_;    // generated ones, as many as bad words need
};

}  // namespace bulkhead
