// The answers of /v1/completions: text_completion.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/service/http/answer_format.h"
#include "runtime/service/http/token_texts.h"

namespace bulkhead {

class CompletionFormat final : public AnswerFormat {
 public:
  // `tokenizer` (may be null) outlives the format.
  CompletionFormat(AnswerFrame frame, GenerationOptions options, const Tokenizer* tokenizer,
                   int num_choices);

  absl::StatusOr<BodyParts> Delta(int choice, PackedMessage delta,
                                  const UsageCounts& usage) override;
  BodyParts Finished(int choice, const v1::Finished& finished, const UsageCounts& usage) override;
  BodyParts Prompt(int choice, PackedMessage ids, const UsageCounts& usage) override;
  BodyParts PromptLogprobs(int choice, PackedMessage tokens, const UsageCounts& usage) override;
  BodyParts Usage(const UsageCounts& usage) override;
  BodyParts Whole(const std::vector<PackedMessage>& responses, const UsageCounts& usage) override;

 private:
  // State of a choice's log probabilities between two events.
  struct Place {
    std::optional<TokenTexts> texts;
    size_t offset = 0;
  };
  std::string ChoiceJson(int choice, absl::string_view text, absl::string_view logprobs,
                         absl::string_view finish, absl::string_view ids = "") const;
  // Appends the next piece of a prompt's text; true: it was the last. `ids`: packed.
  std::function<bool(std::string* out)> PromptText(PackedMessage ids) const;
  // The tokens are in `field` of `tokens`.
  BodyParts Events(int choice, absl::string_view text, PackedMessage tokens, int field,
                   const UsageCounts& usage);
  void AddLogprobs(const PackedMessage& response, BodyParts* out) const;
  void AddPromptLogprobs(const PackedMessage& response, BodyParts* out) const;

  const AnswerFrame frame_;
  const GenerationOptions options_;
  const Tokenizer* const tokenizer_;
  std::vector<Place> places_;
};

}  // namespace bulkhead
