// Drafts of a sequence's next tokens by prompt lookup, and how long they should be. A draft is a
// guess that a step computes together with the token before it; what is sampled decides
// (scheduler.h), so that nothing here changes an answer. Pure; used by one thread.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "runtime/engine/request.h"

namespace bulkhead {

inline constexpr int kMaxDraftTokens = 16;
inline constexpr int kMaxLookupTokens = 16;
// Earlier places of a sequence that are compared, the latest first, and of all sequences in a step.
inline constexpr int64_t kPlacesOfSequence = 16384;
inline constexpr int64_t kPlacesOfStep = 65536;

// --speculative-config with the method ngram; the names are vLLM's.
struct NgramDrafts {
  int num_speculative_tokens = 0;  // of a draft, at most kMaxDraftTokens; 0: no drafts
  int prompt_lookup_max = 0;       // tokens that must be the same, at most kMaxLookupTokens
  int prompt_lookup_min = 0;       // in [1, prompt_lookup_max]

  bool operator==(const NgramDrafts&) const = default;
};

// Up to `max_tokens` tokens that followed the latest of the earlier places with the most of the
// last tokens, prompt_lookup_max at most; none with less than prompt_lookup_min. What followed may
// reach into the draft itself. Places that were compared are taken from `places_left`.
std::vector<TokenId> DraftByLookup(absl::Span<const TokenId> tokens, const NgramDrafts& drafts,
                                   int max_tokens, int64_t& places_left);

// What became of a sequence's drafts, and what that says of the next one.
class DraftAcceptance {
 public:
  // Tokens of a draft, at most `max_tokens`: as many as are each accepted with a probability of
  // more than `worth`, what one more token costs (DecodeCost).
  // Where that is none, one now and then, to notice a change.
  int NextLength(double worth, int max_tokens) const;
  // A step generated `tokens` of the sequence, after `accepted` of `drafted` tokens.
  void Record(int drafted, int accepted, int tokens);

 private:
  double rate_ = 0.5;
  double trials_ = 1;
};

// What a token costs in steps that compute no prompts: a line through the times of the latest of
// them, by their tokens.
class DecodeCost {
 public:
  void Record(int64_t tokens, double seconds);
  // One more token for each of `sequences`, in units of the step without them; in [0, 1].
  double OfAnotherEach(int64_t sequences) const;

 private:
  // Sums, older steps with less weight.
  double weight_ = 0;
  double tokens_ = 0;
  double seconds_ = 0;
  double tokens_squared_ = 0;
  double products_ = 0;
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
