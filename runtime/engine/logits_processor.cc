#include "runtime/engine/logits_processor.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/check.h"
#include "base/status.h"
#include "runtime/engine/logits_row.h"
#include "runtime/engine/refusal.h"
#include "runtime/engine/step_runner.h"

namespace bulkhead {
namespace {

constexpr float kExcluded = -std::numeric_limits<float>::infinity();

// Work for all emitted tokens of a request, in units of structured::Automaton::kMaxWork.
constexpr int64_t kFollowWork = 64'000'000;
// Memory for it, one request at a time, in addition to the grammars' part.
constexpr size_t kFollowBytes = size_t{8} << 20;

constexpr absl::Duration kRetry = absl::Seconds(5);

// A matcher's errors are due to the grammar that the client sent, unless memory is short.
absl::Status GrammarError(const absl::Status& status) {
  if (status.ok()) return status;
  const std::string why = absl::StrCat("structured output: ", status.message());
  if (!absl::IsUnavailable(status)) {
    return WithReason(absl::InvalidArgumentError(why), reason::kStructuredOutput);
  }
  return WithRetryAfter(WithReason(absl::ResourceExhaustedError(why), reason::kStructuredOutput),
                        kRetry);
}

}  // namespace

void FollowGrammar(absl::Span<const TokenId> emitted, LogitsParams& params) {
  // The rank loop would have to wait for each token that the shared automaton follows.
  structured::Matcher matcher(params.grammar->Another(kFollowBytes), {});
  int64_t work = 0;
  for (size_t i = 0; i < emitted.size() && params.complete_after == 0; ++i) {
    const absl::StatusOr<bool> accepted = matcher.Accept(emitted[i], kFollowWork - work, &work);
    params.reached_status = GrammarError(accepted.status());
    if (accepted.ok() && (!*accepted || work > kFollowWork)) {
      params.reached_status = GrammarError(absl::ResourceExhaustedError(absl::StrCat(
          "the emitted tokens up to number ", i + 1, " need more than ", kFollowWork / 1'000'000,
          " million units of work; simplify the grammar's "
          "repetitions, or send the answer so far as part of the prompt")));
    }
    if (!params.reached_status.ok()) break;
    if (matcher.is_finished() && matcher.is_complete()) params.complete_after = i + 1;
  }
  params.reached = std::make_shared<structured::Matcher>(params.grammar, matcher);
  if (!params.reached_status.ok()) return;
  params.reached_status = GrammarError(params.grammar->CheckPlaces());
  if (!params.reached_status.ok()) {
    params.reached = std::make_shared<structured::Matcher>(params.grammar, std::vector<TokenId>{});
  }
}

LogitsProcessor::LogitsProcessor(LogitsParams params, std::vector<TokenId> end_ids)
    : params_(std::move(params)), end_ids_(std::move(end_ids)) {
  for (const std::vector<TokenId>& word : params_.bad_words) {
    BH_CHECK(!word.empty());
    longest_bad_word_ = std::max(longest_bad_word_, word.size());
  }
}

LogitsProcessor::~LogitsProcessor() = default;

int64_t LogitsProcessor::MaxBytes(const LogitsParams& params, int64_t max_total_tokens,
                                  int max_drafted) {
  if (params.off()) return 0;
  size_t bytes = sizeof(LogitsProcessor) + params.bias.capacity() * sizeof(LogitBias) +
                 params.allowed.capacity() * sizeof(TokenId);
  size_t longest = 0;
  for (const std::vector<TokenId>& word : params.bad_words) {
    bytes += sizeof(word) + word.capacity() * sizeof(TokenId);
    longest = std::max(longest, word.size());
  }
  bytes += longest * sizeof(TokenId);
  if (params.grammar != nullptr) {  // incl. masks in work or only held by this request
    const structured::TokenTrie& trie = params.grammar->trie();
    const size_t mask_bytes = static_cast<size_t>(trie.vocab_size()) / 4;
    for (const auto& part : trie.parts()) bytes += part.byte.size() / 8;  // of a rule in work
    bytes += 2 * sizeof(structured::Matcher) +
             (2 + static_cast<size_t>(max_drafted)) *
                 (sizeof(Ahead) + mask_bytes + structured::Automaton::kPlaceBytes);
  }
  if (params.penalises()) bytes += static_cast<size_t>(max_total_tokens) * sizeof(IdCount);
  return static_cast<int64_t>(bytes);
}

void LogitsProcessor::Begin(absl::Span<const TokenId> tokens, int64_t prompt_tokens,
                            int64_t max_total_tokens) {
  BH_CHECK(counts_.empty() && last_.empty());
  const absl::Span<const TokenId> generated = tokens.subspan(prompt_tokens);
  last_.reserve(longest_bad_word_);
  const size_t kept = std::min(generated.size(), std::max<size_t>(longest_bad_word_, 1) - 1);
  last_.assign(generated.end() - static_cast<int64_t>(kept), generated.end());
  if (params_.penalises()) CountAll(tokens, prompt_tokens, max_total_tokens);
  if (params_.grammar != nullptr) {
    const auto reached = std::exchange(params_.reached, nullptr);
    BH_CHECK(reached != nullptr || generated.empty());
    matcher_ = reached != nullptr
                   ? std::make_unique<structured::Matcher>(*reached, end_ids_)
                   : std::make_unique<structured::Matcher>(params_.grammar, end_ids_);
    status_ = std::move(params_.reached_status);
  }
}

// Sorted once: inserting ids one by one would move all larger ones each time.
void LogitsProcessor::CountAll(absl::Span<const TokenId> tokens, int64_t prompt_tokens,
                               int64_t max_total_tokens) {
  counts_.reserve(max_total_tokens);
  for (const TokenId id : tokens.first(prompt_tokens)) {
    if (id != kGivenRow) counts_.push_back({id, 0});
  }
  for (const TokenId id : tokens.subspan(prompt_tokens)) counts_.push_back({id, 1});
  if (counts_.empty()) return;
  std::sort(counts_.begin(), counts_.end(),
            [](const IdCount& a, const IdCount& b) { return a.id < b.id; });
  auto last = counts_.begin();
  for (auto next = last + 1; next != counts_.end(); ++next) {
    if (next->id == last->id) {
      last->generated += next->generated;
    } else {
      *++last = *next;
    }
  }
  counts_.erase(last + 1, counts_.end());
}

bool LogitsProcessor::is_complete() const {
  return matcher_ != nullptr && status_.ok() && matcher_->is_finished() && matcher_->is_complete();
}

absl::Status LogitsProcessor::Add(TokenId generated, int64_t* work_left) {
  ahead_.clear();
  Count(generated);
  if (matcher_ == nullptr || !status_.ok()) return status_;
  const int64_t most = kFreeTokenWork + std::max<int64_t>(0, *work_left);
  token_work_ = 0;
  const absl::StatusOr<bool> accepted = matcher_->Accept(generated, most, &token_work_);
  *work_left -= std::max<int64_t>(0, token_work_ - kFreeTokenWork);
  token_work_ = std::min(structured::Automaton::kMaxWork, token_work_);
  if (accepted.ok() && !*accepted) unfollowed_ = generated;
  return status_ = GrammarError(accepted.status());
}

absl::Status LogitsProcessor::Follow(int64_t* work_left) {
  constexpr int64_t kMost = structured::Automaton::kMaxWork;
  int64_t work = 0;
  const absl::StatusOr<bool> accepted = matcher_->Accept(*unfollowed_, kMost, &work);
  token_work_ = std::min(kMost, token_work_ + work);
  *work_left -= work;
  if (!accepted.ok() || *accepted) unfollowed_.reset();
  return status_ = GrammarError(accepted.status());
}

// For penalties and bad words.
void LogitsProcessor::Count(TokenId generated) {
  if (longest_bad_word_ > 1) {
    if (last_.size() + 1 == longest_bad_word_) last_.erase(last_.begin());
    last_.push_back(generated);
  }
  if (!params_.penalises()) return;
  const auto found = std::lower_bound(counts_.begin(), counts_.end(), generated,
                                      [](const IdCount& a, TokenId id) { return a.id < id; });
  if (found != counts_.end() && found->id == generated) {
    ++found->generated;
  } else {
    counts_.insert(found, {generated, 1});
  }
}

absl::Status LogitsProcessor::Apply(absl::Span<float> logits,
                                    absl::Span<const TokenId> drafted) const {
  BH_RETURN_IF_ERROR(KeepGrammar(logits, drafted));
  KeepAllowed(logits);
  BanWords(logits, drafted);
  for (const LogitBias& bias : params_.bias) logits[bias.id] += bias.bias;
  Penalise(logits, drafted);
  return absl::OkStatus();
}

bool LogitsProcessor::Prepare(absl::Span<const TokenId> drafted, int64_t* work_left) {
  if (matcher_ == nullptr || !status_.ok()) return true;
  if (awaits_follow()) return false;
  for (size_t i = 0; i < drafted.size() && i + 1 < ahead_.size(); ++i) {
    if (ahead_[i + 1].token == drafted[i]) continue;
    while (ahead_.size() > i + 1) ahead_.pop_back();
  }
  while (ahead_.size() <= drafted.size()) {
    if (!PrepareNext(drafted, work_left)) return false;
  }
  return true;
}

// A draft that takes more work than a token may without waiting is not worth it.
absl::Status LogitsProcessor::AcceptDraft(Ahead& ahead, int64_t* work) {
  const absl::StatusOr<bool> accepted = ahead.matcher.Accept(ahead.token, kFreeTokenWork, work);
  if (!accepted.ok() || *accepted) return accepted.status();
  return absl::ResourceExhaustedError("the draft is too much work");
}

// After drafts, which may be rejected, unfinished work is started anew.
bool LogitsProcessor::PrepareNext(absl::Span<const TokenId> drafted, int64_t* work_left) {
  const size_t behind = ahead_.size();
  int64_t work = 0;
  bool is_made = true;
  Ahead next{.matcher = behind == 0 ? *matcher_ : ahead_.back().matcher};
  if (behind > 0) {
    next.token = drafted[behind - 1];
    next.status = ahead_.back().status;
    if (next.status.ok()) next.status = AcceptDraft(next, &work);
  } else if (token_work_ > kFreeTokenWork) {
    // The next token is likely to take as much.
    if (*work_left <= 0) return false;
    work = std::exchange(token_work_, 0);
  }
  if (next.status.ok() && !next.matcher.FindMasks(&next.masks)) {
    if (*work_left <= 0) return false;
    // Uses the matcher that also exists in later steps.
    structured::Matcher& matcher = behind == 0 ? *matcher_ : next.matcher;
    const absl::StatusOr<bool> made = matcher.MakeMasks(&next.masks, &work);
    next.status = made.status();
    is_made = made.ok() && *made;
  }
  *work_left -= work;
  if (!is_made && next.status.ok()) return false;
  if (behind > 0 && !next.status.ok()) return false;  // no draft
  ahead_.push_back(std::move(next));
  return true;
}

int LogitsProcessor::NumAllowed(absl::Span<const TokenId> drafted, int64_t* work_left) {
  if (matcher_ == nullptr || !status_.ok()) return static_cast<int>(drafted.size());
  if (!Prepare({}, work_left)) return 0;
  for (size_t i = 0; i < drafted.size(); ++i) {
    if (ahead_[i].matcher.is_finished()) return static_cast<int>(i);
    if (!Prepare(drafted.first(i + 1), work_left)) return static_cast<int>(i);
  }
  return static_cast<int>(drafted.size());
}

absl::Status LogitsProcessor::KeepGrammar(absl::Span<float> logits,
                                          absl::Span<const TokenId> drafted) const {
  if (matcher_ == nullptr) return absl::OkStatus();
  BH_RETURN_IF_ERROR(status_);
  BH_CHECK(ahead_.size() > drafted.size());
  const Ahead& ahead = ahead_[drafted.size()];
  BH_RETURN_IF_ERROR(GrammarError(ahead.status));
  std::vector<uint32_t> mask((logits.size() + 31) / 32);
  BH_RETURN_IF_ERROR(GrammarError(ahead.matcher.FillMask(ahead.masks, absl::MakeSpan(mask))));
  KeepMasked(mask.data(), logits);
  return absl::OkStatus();
}

void LogitsProcessor::KeepAllowed(absl::Span<float> logits) const {
  if (params_.allowed.empty()) return;
  size_t begin = 0;
  for (const TokenId id : params_.allowed) {
    std::fill(logits.begin() + begin, logits.begin() + id, kExcluded);
    begin = static_cast<size_t>(id) + 1;
  }
  std::fill(logits.begin() + begin, logits.end(), kExcluded);
}

// Bans the last token of each word whose other tokens were the last ones generated.
void LogitsProcessor::BanWords(absl::Span<float> logits, absl::Span<const TokenId> drafted) const {
  std::vector<TokenId> last = last_;
  last.insert(last.end(), drafted.begin(), drafted.end());
  for (const std::vector<TokenId>& word : params_.bad_words) {
    const size_t before = word.size() - 1;
    if (before > last.size()) continue;
    if (std::equal(word.begin(), word.end() - 1, last.end() - static_cast<int64_t>(before))) {
      logits[word.back()] = kExcluded;
    }
  }
}

void LogitsProcessor::Penalise(absl::Span<float> logits, absl::Span<const TokenId> drafted) const {
  if (!params_.penalises()) return;
  constexpr float kMax = std::numeric_limits<float>::max();
  const float repetition = params_.repetition_penalty;
  const auto penalise = [&](TokenId id, int32_t generated) {
    float& logit = logits[id];
    logit = logit > 0 ? std::min(logit / repetition, kMax) : logit * repetition;
    logit -= params_.frequency_penalty * static_cast<float>(generated);
    if (generated > 0) logit -= params_.presence_penalty;
  };
  const auto ahead = [drafted](TokenId id) {
    return static_cast<int32_t>(std::count(drafted.begin(), drafted.end(), id));
  };
  for (const IdCount& count : counts_) penalise(count.id, count.generated + ahead(count.id));
  for (size_t i = 0; i < drafted.size(); ++i) {
    const TokenId id = drafted[i];
    const auto before = drafted.first(i);
    const auto found = std::lower_bound(counts_.begin(), counts_.end(), id,
                                        [](const IdCount& a, TokenId b) { return a.id < b; });
    const bool counted = found != counts_.end() && found->id == id;
    if (counted || std::find(before.begin(), before.end(), id) != before.end()) continue;
    penalise(id, ahead(id));
  }
}

}  // namespace bulkhead
