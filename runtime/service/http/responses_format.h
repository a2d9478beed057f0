// The answers of /v1/responses: the response object, or the events that build it up. Types as in
// https://platform.openai.com/docs/api-reference/responses-streaming.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "runtime/service/answer_budget.h"
#include "runtime/service/http/answer_format.h"
#include "runtime/service/http/chat_output.h"
#include "runtime/service/http/token_texts.h"

namespace bulkhead {

class ResponsesFormat final : public AnswerFormat {
 public:
  // `head`: the unchanging members of the object, in JSON with a comma at the end; `head_hold`
  // covers its bytes. `id`: the response's. `tokenizer` outlives the format.
  ResponsesFormat(std::string id, std::string head, AnswerBudget::Hold head_hold,
                  const GenerationOptions& options, ChatOutputOptions output,
                  const Tokenizer* tokenizer);

  BodyParts Opening() override;
  BodyParts Closing() override { return {}; }
  BodyParts Failure(const absl::Status& status) override;
  absl::StatusOr<BodyParts> Delta(int choice, PackedMessage delta,
                                  const UsageCounts& usage) override;
  BodyParts Finished(int choice, const v1::Finished& finished, const UsageCounts& usage) override;
  BodyParts Usage(const UsageCounts& /*usage*/) override { return {}; }
  BodyParts Whole(const std::vector<PackedMessage>& responses, const UsageCounts& usage) override;

 private:
  // A message, reasoning, or a call. Its text is final once the next one begins.
  struct Item {
    ParsedDelta::Kind kind = ParsedDelta::Kind::kContent;
    int output_index = 0;
    std::string id;
    int call_index = 0;  // this, call_id, name: a call's
    std::string call_id;
    std::string name;
    std::string text;  // or a call's arguments
    bool is_complete = true;
  };
  using ItemPointer = std::shared_ptr<Item>;

  // Adds new output to the items, and as events to `out` (null: no events).
  absl::Status Take(absl::string_view text, PackedReader tokens, int tokens_field, BodyParts* out);
  void TakeDeltas(std::deque<ParsedDelta> deltas, BodyParts* out);
  void Begin(const ParsedDelta& delta, BodyParts* out);
  void Close(BodyParts* out);
  // Adds the rest of the output; if the answer was cut off, the last item is incomplete, except a
  // call: its arguments decide.
  void Finish(bool is_complete, BodyParts* out);
  void CountToken();
  absl::Status CountText();

  // "event: ...", up to the first member specific to the event.
  void BeginEvent(absl::string_view type, BodyParts* out);
  void BeginItemEvent(absl::string_view type, const Item& item, BodyParts* out);
  void AddDeltaEvents(const ItemPointer& item, std::string text, BodyParts* out);
  void AddPart(const ItemPointer& item, bool with_text, BodyParts* out) const;
  void AddItem(const ItemPointer& item, bool with_text, BodyParts* out) const;
  // The response object; `error`, `usage`: JSON.
  void AddResponse(absl::string_view status, absl::string_view incomplete, absl::string_view error,
                   absl::string_view usage, BodyParts* out) const;
  std::string ResponsesUsageJson(const UsageCounts& usage) const;
  // After the last item: status, object and usage.
  void AddEnd(const v1::Finished& finished, const UsageCounts& usage, bool as_event,
              BodyParts* out);

  const std::string id_;
  const std::shared_ptr<const std::string> head_;
  const AnswerBudget::Hold head_hold_;
  const ChatOutputOptions options_;
  ChatOutput output_;
  std::vector<ItemPointer> items_;
  bool is_open_ = false;  // whether the last item is open
  AnswerBudget::Hold text_hold_;
  int64_t text_bytes_ = 0;
  int64_t next_number_ = 0;  // the next event's, counted when it is made

  // If reasoning is separated: which tokens belong to it. Texts come later than tokens.
  std::optional<TokenTexts> texts_;
  std::deque<int64_t> token_ends_;  // ends of tokens whose text has not come, in answer bytes
  int64_t token_bytes_ = 0;         // bytes of all tokens
  int64_t taken_bytes_ = 0;         // bytes of text taken
  uint64_t unsettled_tokens_ = 0;   // before the first piece of anything
  uint64_t reasoning_tokens_ = 0;
};

}  // namespace bulkhead
