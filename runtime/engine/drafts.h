// Drafts of a sequence's next tokens, by prompt lookup, by a draft model or by the model's MTP
// layer, and how long they should be. A step computes a draft token together with the token before
// it and samples decide (scheduler.h): nothing here changes an answer. Pure; used by one thread.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/types/span.h"
#include "memory/limits.h"
#include "runtime/engine/request.h"

namespace bulkhead {

inline constexpr int kMaxDraftTokens = 16;
inline constexpr int kMaxLookupTokens = 16;
// Maximum earlier places compared, latest first: per sequence, and for all sequences in a step.
inline constexpr int64_t kPlacesOfSequence = 16384;
inline constexpr int64_t kPlacesOfStep = 65536;

// Fields of --speculative-config, named as in vLLM.
struct DraftOptions {
  int num_speculative_tokens = 0;  // per draft, at most kMaxDraftTokens; 0: no drafts
  // Prompt lookup: maximum (at most kMaxLookupTokens) and minimum (>= 1) length of a match, in
  // tokens.
  int prompt_lookup_max = 0;
  int prompt_lookup_min = 0;
  int draft_model_len = 0;  // max positions of the draft model; 0: prompt lookup
  bool mtp = false;         // the draft model is the model's MTP layer
  // Recurrent states of a draft model advance at multiples of this many positions; 0: no states.
  int draft_state_tokens = 0;

  bool by_model() const { return draft_model_len > 0; }
  bool operator==(const DraftOptions&) const = default;
};

// While prompts are computed drafts get 1 / this of a step.
inline constexpr int kDraftsBesidePrompts = 8;
// Maximum unseen tokens per step with which a draft model catches up on its sequences.
inline int UnseenTokens(const Limits& limits) {
  return std::max(16, limits.max_num_batched_tokens / 8);
}
// Maximum tokens of a draft model's step: UnseenTokens and two per sequence.
inline int DraftStepTokens(const Limits& limits) {
  return std::min(limits.max_num_batched_tokens, UnseenTokens(limits) + 2 * limits.max_num_seqs);
}

// Up to `max_tokens` tokens after the latest earlier occurrence of the longest matching suffix, of
// at most prompt_lookup_max tokens; none if it has fewer than prompt_lookup_min. They may reach
// into the draft itself. Places that were compared are subtracted from `places_left`.
std::vector<TokenId> DraftByLookup(absl::Span<const TokenId> tokens, const DraftOptions& drafts,
                                   int max_tokens, int64_t& places_left);

// Acceptance history of a sequence's drafts; determines the length of the next one.
class DraftAcceptance {
 public:
  DraftAcceptance() = default;
  // `rate`: initial acceptance rate; `rate_step`: weight of one token in its moving average.
  DraftAcceptance(double rate, double rate_step) : rate_(rate), rate_step_(rate_step) {}

  // Length of the next draft, at most `max_tokens`: tokens that are each accepted with a
  // probability above `worth`, the cost of one more token (DecodeCost). If that is none,
  // occasionally one, to notice a change.
  int NextLength(double worth, int max_tokens) const;
  double rate() const { return rate_; }
  // A step accepted `accepted` of `drafted` tokens and generated `tokens` of the sequence.
  void Record(int drafted, int accepted, int tokens);

  // Prompt lookup with steps planned ahead: whether step `number` may wait for the tokens that a
  // draft is looked up by. One step in n does, so that sequences wait in the same steps; n doubles
  // if nothing was found or accepted, and returns to 1 if something was.
  bool Awaits(uint64_t number) const { return number % steps_of_wait_ == 0; }
  void FoundNone() { steps_of_wait_ = std::min(2 * steps_of_wait_, kMostStepsOfWait); }

 private:
  static constexpr uint64_t kMostStepsOfWait = 16;

  double rate_ = 0.5;
  double rate_step_ = 0.25;
  double trials_ = 1;
  uint64_t steps_of_wait_ = 1;
};

// Cost of a token in steps without prompts: a line fitted to the times of recent steps over their
// number of tokens.
class DecodeCost {
 public:
  // Returns the seconds counted: at most three times the mean.
  double Record(int64_t tokens, double seconds);
  // Cost of one more token for each of `sequences`, relative to the step without them; in [0, 1].
  double OfAnotherEach(int64_t sequences) const;
  // Seconds of a step of `tokens` tokens, and the mean of recorded steps; 0: unknown.
  double Seconds(int64_t tokens) const;
  double MeanSeconds() const { return weight_ < kLeastSteps ? 0 : seconds_ / weight_; }

 private:
  static constexpr double kLeastSteps = 4;

  std::optional<double> TokenSeconds() const;  // the line's slope

  // Sums, older steps with less weight.
  double weight_ = 0;
  double tokens_ = 0;
  double seconds_ = 0;
  double tokens_squared_ = 0;
  double products_ = 0;
};

// Time that a draft model may take, in units of decode steps: the time saved by accepted tokens
// plus a part of all other steps, so that little is lost if nothing is accepted. The debt is
// capped, so that one slow step does not stop drafting for long.
class DraftAllowance {
 public:
  // The part of each decode or prefill step that may be spent.
  static constexpr double kShare = 1.0 / 40;

  bool is_left() const { return steps_ > 0; }
  void Add(double steps) { steps_ = std::clamp(steps_ + steps, -kMostOwed, kMost); }

 private:
  static constexpr double kMost = 100;
  static constexpr double kMostOwed = 25;
  double steps_ = kMost;
};

// Since the start, as vLLM counts them.
struct DraftTotals {
  uint64_t drafts = 0;
  uint64_t draft_tokens = 0;
  uint64_t accepted_tokens = 0;
  std::array<uint64_t, kMaxDraftTokens> accepted_by_position = {};

  void Count(int drafted, int accepted);
};

}  // namespace bulkhead
