// The answers of /v1/chat/completions: chat.completion and chat.completion.chunk.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/chat/output_parser.h"
#include "runtime/service/answer_budget.h"
#include "runtime/service/http/answer_format.h"
#include "runtime/service/http/token_texts.h"

namespace bulkhead {

struct ChatFormatOptions {
  // How the text is taken apart, but for the choice in call_id_seed; none: it is all content.
  std::optional<OutputParserOptions> parser;
  bool several_tool_calls = true;
  bool includes_reasoning = true;
  AnswerBudget* answers = nullptr;  // for what parsers hold back; outlives the format
  AnswerBudget::Hold tools_hold;    // of the parsers' copies of the tools
};

class ChatFormat final : public AnswerFormat {
 public:
  // `tokenizer` (may be null) outlives the format. The frames are those of the two objects.
  ChatFormat(AnswerFrame whole, AnswerFrame chunk, GenerationOptions options,
             ChatFormatOptions chat, const Tokenizer* tokenizer, int num_choices);

  absl::StatusOr<BodyParts> Delta(int choice, PackedMessage delta,
                                  const UsageCounts& usage) override;
  BodyParts Finished(int choice, const v1::Finished& finished, const UsageCounts& usage) override;
  BodyParts Usage(const UsageCounts& usage) override;
  BodyParts Whole(const std::vector<PackedMessage>& responses, const UsageCounts& usage) override;

 private:
  // Of a choice, from one event to the next.
  struct Place {
    std::optional<OutputParser> parser;
    std::optional<TokenTexts> texts;
    bool has_role = false;
    int64_t held_bytes = 0;  // of text, by the parser, at most
    AnswerBudget::Hold hold;
  };
  // `given` bytes to the parser, which gave these back: they are held until the next delta shows
  // that they were written.
  absl::Status CountHeld(Place& place, size_t given, const std::vector<ParsedDelta>& got) const;
  // Only those that the client wants.
  std::deque<ParsedDelta> Wanted(std::vector<ParsedDelta> deltas) const;
  std::string EventJson(int choice, absl::string_view delta, absl::string_view logprobs,
                        absl::string_view finish, const UsageCounts& usage);
  // The next part of the front of `deltas`, which then goes.
  static std::string NextDelta(std::deque<ParsedDelta>* deltas);
  BodyParts Events(int choice, std::deque<ParsedDelta> deltas, std::optional<PackedMessage> tokens,
                   const UsageCounts& usage);
  void AddMessage(int choice, const PackedMessage& response, BodyParts* out) const;
  void AddLogprobs(const PackedMessage& response, BodyParts* out) const;
  OutputParserOptions ParserOf(int choice) const;

  const AnswerFrame whole_;
  const AnswerFrame chunk_;
  const GenerationOptions options_;
  const ChatFormatOptions chat_;
  const Tokenizer* const tokenizer_;
  std::vector<Place> places_;
};

}  // namespace bulkhead
