// Drafts of a sequence's next tokens, by prompt lookup, by a draft model or by the model's MTP
// layer, and how long they should be. A draft token is computed by a step together with the
// token before it; what is sampled decides (scheduler.h), so that nothing here changes an answer.
// Pure; used by one thread.
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
// Earlier places of a sequence that are compared, the latest first, and of all sequences in a step.
inline constexpr int64_t kPlacesOfSequence = 16384;
inline constexpr int64_t kPlacesOfStep = 65536;

// Fields of --speculative-config, named as in vLLM.
struct DraftOptions {
  int num_speculative_tokens = 0;  // of a draft, at most kMaxDraftTokens; 0: no drafts
  // Of prompt lookup: tokens that must be the same, at most kMaxLookupTokens, and at least, >= 1.
  int prompt_lookup_max = 0;
  int prompt_lookup_min = 0;
  int draft_model_len = 0;  // positions that the draft model has; 0: prompt lookup
  bool mtp = false;         // the draft model is the model's MTP layer
  // Of a draft model with states: they move on after multiples of this many positions; 0: it has
  // none.
  int draft_state_tokens = 0;

  bool by_model() const { return draft_model_len > 0; }
  bool operator==(const DraftOptions&) const = default;
};

// While prompts are computed drafts have this part of a step.
inline constexpr int kDraftsBesidePrompts = 8;
// Most tokens per step with which a draft model catches up on its sequences.
inline int UnseenTokens(const Limits& limits) {
  return std::max(16, limits.max_num_batched_tokens / 8);
}
// Most tokens of a draft model's step: UnseenTokens and two of each sequence.
inline int DraftStepTokens(const Limits& limits) {
  return std::min(limits.max_num_batched_tokens, UnseenTokens(limits) + 2 * limits.max_num_seqs);
}

// Up to `max_tokens` tokens after the latest earlier occurrence of the longest matching suffix, of
// at most prompt_lookup_max tokens; none if it has fewer than prompt_lookup_min. They may reach
// into the draft itself. Places that were compared are subtracted from `places_left`.
std::vector<TokenId> DraftByLookup(absl::Span<const TokenId> tokens, const DraftOptions& drafts,
                                   int max_tokens, int64_t& places_left);

// What became of a sequence's drafts, and what that says of the next one.
class DraftAcceptance {
 public:
  DraftAcceptance() = default;
  // What is known of it, and the weight of a token in what becomes of that.
  DraftAcceptance(double rate, double rate_step) : rate_(rate), rate_step_(rate_step) {}

  // Tokens of a draft, at most `max_tokens`: as many as are each accepted with a probability of
  // more than `worth`, what one more token costs (DecodeCost).
  // Where that is none, one now and then, to notice a change.
  int NextLength(double worth, int max_tokens) const;
  double rate() const { return rate_; }
  // A step generated `tokens` of the sequence, after `accepted` of `drafted` tokens.
  void Record(int drafted, int accepted, int tokens);

  // Of prompt lookup where steps are planned ahead: whether step `number` may wait for the tokens
  // that a draft is looked up by. One step in n does, so that sequences wait in the same steps; n
  // is doubled where nothing was found or accepted, and 1 again where something was.
  bool Awaits(uint64_t number) const { return number % steps_of_wait_ == 0; }
  void FoundNone() { steps_of_wait_ = std::min(2 * steps_of_wait_, kMostStepsOfWait); }

 private:
  static constexpr uint64_t kMostStepsOfWait = 16;

  double rate_ = 0.5;
  double rate_step_ = 0.25;
  double trials_ = 1;
  uint64_t steps_of_wait_ = 1;
};

// What a token costs in steps that compute no prompts: a line through the times of the latest of
// them, by their tokens.
class DecodeCost {
 public:
  // Returns the seconds that count: what held it up does not.
  double Record(int64_t tokens, double seconds);
  // One more token for each of `sequences`, in units of the step without them; in [0, 1].
  double OfAnotherEach(int64_t sequences) const;
  // Of a step of `tokens` tokens, and the mean of the steps recorded; 0: unknown.
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

// What a draft model may take of the time: what accepted tokens have saved, and a part of all other
// steps, so that little is lost where nothing is accepted. In steps that decode. The debt is
// capped, so that one slow step does not stop drafting for long.
class DraftAllowance {
 public:
  // The part that may be spent of a step that decodes or computes prompts.
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
