#include "runtime/engine/drafts.h"

#include <algorithm>

#include "base/check.h"
#include "runtime/engine/step_runner.h"

namespace bulkhead {
namespace {

constexpr double kLeastWorth = 0.05;
constexpr double kTrialsPerToken = 1.0 / 40;  // a trial costs at most a token's time
constexpr double kMaxTrials = 2;
constexpr double kKeptWeight = 1 - 1.0 / 256;  // per later step, of a step's weight
constexpr double kUnknownCost = 0.3;
constexpr double kLeastVariance = 0.01;  // of the number of tokens, to fit a line
constexpr double kLongestMeans = 3;      // longer times have another cause

}  // namespace

std::vector<TokenId> DraftByLookup(absl::Span<const TokenId> tokens, const DraftOptions& drafts,
                                   int max_tokens, int64_t& places_left) {
  const auto size = static_cast<int64_t>(tokens.size());
  int64_t longest = drafts.prompt_lookup_min - 1;
  int64_t found = 0;  // position after the match
  const int64_t last = std::max<int64_t>(0, size - 1 - std::min(places_left, kPlacesOfSequence));
  int64_t end = size - 1;
  for (; end > last && longest < drafts.prompt_lookup_max; --end) {
    if (tokens[end - 1] != tokens[size - 1]) continue;
    const int64_t limit = std::min<int64_t>(end, drafts.prompt_lookup_max);
    int64_t same = 1;
    while (same < limit && tokens[end - 1 - same] == tokens[size - 1 - same]) ++same;
    if (same <= longest) continue;
    longest = same;
    found = end;
  }
  places_left -= std::max<int64_t>(0, size - 1 - end);
  std::vector<TokenId> draft;
  if (found == 0) return draft;
  for (int64_t at = found; static_cast<int>(draft.size()) < max_tokens; ++at) {
    const TokenId token = at < size ? tokens[at] : draft[at - size];
    if (token == kGivenRow) break;  // has no id
    draft.push_back(token);
  }
  return draft;
}

int DraftAcceptance::NextLength(double worth, int max_tokens) const {
  int length = 0;
  double accepted = rate_;
  for (; length < max_tokens && accepted > std::max(worth, kLeastWorth); ++length)
    accepted *= rate_;
  return length > 0 || trials_ < 1 ? length : std::min(1, max_tokens);
}

void DraftAcceptance::Record(int drafted, int accepted, int tokens) {
  BH_CHECK(accepted <= drafted);
  for (int i = 0; i < accepted; ++i) rate_ += (1 - rate_) * rate_step_;
  if (accepted > 0) {
    steps_of_wait_ = 1;
  } else if (drafted > 0) {
    FoundNone();
  }
  if (accepted < drafted) {
    rate_ -= rate_ * rate_step_;
    trials_ = std::max(0.0, trials_ - 1);
  }
  trials_ = std::min(kMaxTrials, trials_ + tokens * kTrialsPerToken);
}

double DecodeCost::Record(int64_t tokens, double seconds) {
  const auto x = static_cast<double>(tokens);
  if (weight_ >= 1) seconds = std::min(seconds, kLongestMeans * seconds_ / weight_);
  for (double* sum : {&weight_, &tokens_, &seconds_, &tokens_squared_, &products_})
    *sum *= kKeptWeight;
  weight_ += 1;
  tokens_ += x;
  seconds_ += seconds;
  tokens_squared_ += x * x;
  products_ += x * seconds;
  return seconds;
}

std::optional<double> DecodeCost::TokenSeconds() const {
  if (weight_ < kLeastSteps) return std::nullopt;
  const double mean = tokens_ / weight_;
  const double variance = tokens_squared_ / weight_ - mean * mean;
  if (variance < kLeastVariance) return std::nullopt;
  return (products_ - mean * seconds_) / weight_ / variance;
}

double DecodeCost::OfAnotherEach(int64_t sequences) const {
  const std::optional<double> token_s = TokenSeconds();
  if (!token_s.has_value()) return kUnknownCost;
  const double more_s = *token_s * static_cast<double>(sequences);
  const double alone_s = Seconds(sequences);
  if (more_s <= 0) return 0;
  return alone_s <= more_s ? 1 : more_s / alone_s;
}

double DecodeCost::Seconds(int64_t tokens) const {
  if (weight_ < kLeastSteps) return 0;
  const double more = static_cast<double>(tokens) - tokens_ / weight_;
  return std::max(0.0, MeanSeconds() + TokenSeconds().value_or(0) * more);
}

void DraftTotals::Count(int drafted, int accepted) {
  if (drafted == 0) return;
  ++drafts;
  draft_tokens += static_cast<uint64_t>(drafted);
  accepted_tokens += static_cast<uint64_t>(accepted);
  for (int i = 0; i < accepted; ++i) ++accepted_by_position[i];
}

}  // namespace bulkhead
