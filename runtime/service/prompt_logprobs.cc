#include "runtime/service/prompt_logprobs.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "runtime/engine/logits_row.h"

namespace bulkhead {
namespace {

constexpr size_t kPieceBytes = size_t{64} << 10;  // size of a stream's event

}  // namespace

PromptLogprobs::PromptLogprobs(std::vector<TokenId> prompt, int num_best, int field)
    : prompt_(std::move(prompt)), num_best_(num_best), field_(field), best_(num_best) {
  BH_CHECK(!prompt_.empty() && num_best >= 0 && num_best <= kHeapMax);
  GeneratedToken first;  // it has no preceding token
  first.id = prompt_[0];
  Pack(first);
}

absl::Status PromptLogprobs::OnRows(int64_t first_position, int64_t rows, int64_t vocab_size,
                                    const float* logits) {
  const auto prompt_tokens = static_cast<int64_t>(prompt_.size());
  for (int64_t i = 0; i < rows; ++i) {
    const int64_t position = first_position + i + 1;  // position of the row's token
    if (position < next_ || position >= prompt_tokens) continue;
    BH_CHECK(position == next_);
    const auto row = absl::MakeConstSpan(logits + i * vocab_size, static_cast<size_t>(vocab_size));
    const TokenId most_likely = HasNoNanOrPositiveInf(row) ? ArgMax(row) : -1;
    if (most_likely < 0) {
      return absl::InternalError("the model's logits are not finite numbers");
    }
    RowLogprobs logprobs(row, row[most_likely]);
    GeneratedToken token;
    token.id = prompt_[position];
    token.logprob = logprobs.Of(token.id);
    token.rank = logprobs.RankOf(token.id);
    const int64_t count = SelectBest(row, num_best_, best_.data());
    for (int64_t k = 0; k < count; ++k) token.top.push_back({best_[k], logprobs.Of(best_[k])});
    Pack(token);
    ++next_;
  }
  return absl::OkStatus();
}

void PromptLogprobs::Pack(const GeneratedToken& token) {
  if (pieces_.empty() || pieces_.back().size() >= kPieceBytes) pieces_.emplace_back();
  PackToken(field_, token, &pieces_.back());
}

std::vector<std::string> PromptLogprobs::TakePieces() { return std::exchange(pieces_, {}); }

int64_t PromptLogprobs::MaxBytes(int vocab_size, int64_t prompt_tokens, int num_best) {
  constexpr int64_t kEventBytes = 256;  // of each event in addition: its head, id and epoch
  const int64_t bytes = prompt_tokens * MaxTokenBytes(vocab_size, num_best) +
                        prompt_tokens * static_cast<int64_t>(sizeof(TokenId)) +
                        num_best * static_cast<int64_t>(sizeof(TokenId));
  return bytes + (bytes / static_cast<int64_t>(kPieceBytes) + 1) * kEventBytes;
}

}  // namespace bulkhead
