// The answers of /v1/chat/completions: chat.completion and chat.completion.chunk.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/service/http/answer_format.h"
#include "runtime/service/http/chat_output.h"
#include "runtime/service/http/token_texts.h"

namespace bulkhead {

class ChatFormat final : public AnswerFormat {
 public:
  // `tokenizer` (may be null) outlives the format. The frames are for these two objects.
  ChatFormat(AnswerFrame whole, AnswerFrame chunk, GenerationOptions options,
             ChatOutputOptions output, const Tokenizer* tokenizer, int num_choices);

  absl::StatusOr<BodyParts> Delta(int choice, PackedMessage delta,
                                  const UsageCounts& usage) override;
  BodyParts Finished(int choice, const v1::Finished& finished, const UsageCounts& usage) override;
  BodyParts Prompt(int choice, PackedMessage ids, const UsageCounts& usage) override;
  BodyParts Usage(const UsageCounts& usage) override;
  BodyParts Whole(const std::vector<PackedMessage>& responses, const UsageCounts& usage) override;

 private:
  // State of a choice between two events.
  struct Place {
    std::optional<ChatOutput> output;
    std::optional<TokenTexts> texts;
    bool has_role = false;
  };
  ChatOutput& OutputOf(int choice);
  std::string EventJson(int choice, absl::string_view delta, absl::string_view logprobs,
                        absl::string_view finish, const UsageCounts& usage,
                        absl::string_view ids = "");
  // The first events of the choices before `choice` that have had none.
  std::string RolesBefore(int choice, const UsageCounts& usage);
  // The next part of the first of `deltas`, which is removed.
  static std::string NextDelta(std::deque<ParsedDelta>* deltas);
  BodyParts Events(int choice, std::deque<ParsedDelta> deltas, std::optional<PackedMessage> tokens,
                   const UsageCounts& usage);
  void AddMessage(int choice, const PackedMessage& response, BodyParts* out) const;
  void AddLogprobs(const PackedMessage& response, BodyParts* out) const;

  const AnswerFrame whole_;
  const AnswerFrame chunk_;
  const GenerationOptions options_;
  const ChatOutputOptions output_;
  const Tokenizer* const tokenizer_;
  std::vector<Place> places_;
};

}  // namespace bulkhead
