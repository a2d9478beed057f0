#include "runtime/service/http/responses_format.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"
#include "base/utf8.h"
#include "runtime/service/host_quotas.h"
#include "runtime/service/http/openai_error.h"
#include "runtime/service/refusal.h"

namespace bulkhead {
namespace {

using Kind = ParsedDelta::Kind;

constexpr size_t kPartBytes = BodyParts::kSliceBytes / 2;

struct KindNames {
  absl::string_view id_prefix;
  absl::string_view delta_event;
  absl::string_view done_event;
};

const KindNames& NamesOf(Kind kind) {
  static constexpr KindNames kMessage = {"msg_", "response.output_text.delta",
                                         "response.output_text.done"};
  static constexpr KindNames kReasoning = {"rs_", "response.reasoning_text.delta",
                                           "response.reasoning_text.done"};
  static constexpr KindNames kCall = {"fc_", "response.function_call_arguments.delta",
                                      "response.function_call_arguments.done"};
  if (kind == Kind::kReasoning) return kReasoning;
  return kind == Kind::kToolCall ? kCall : kMessage;
}

// Final text that `owner` holds.
void AddText(absl::string_view text, std::shared_ptr<const void> owner, BodyParts* out) {
  out->Add("\"");
  out->AddEscaped(text, std::move(owner));
  out->Add("\"");
}

void AddRaw(const std::shared_ptr<const std::string>& text, BodyParts* out) {
  out->AddPart([text, at = size_t{0}](std::string* bytes) mutable {
    const size_t size = std::min(BodyParts::kSliceBytes, text->size() - at);
    bytes->append(*text, at, size);
    at += size;
    return at == text->size();
  });
}

bool WasCutOff(const v1::Finished& finished) { return FinishReasonJson(finished) == "\"length\""; }

}  // namespace

ResponsesFormat::ResponsesFormat(std::string id, std::string head, AnswerBudget::Hold head_hold,
                                 const GenerationOptions& options, ChatOutputOptions output,
                                 const Tokenizer* tokenizer)
    : id_(std::move(id)),
      head_(std::make_shared<const std::string>(std::move(head))),
      head_hold_(std::move(head_hold)),
      options_(std::move(output)),
      output_(&options_, /*choice=*/0) {
  const bool has_reasoning =
      options_.parser.has_value() && options_.parser->format.reasoning != ReasoningFormat::kNone;
  if (has_reasoning) texts_.emplace(tokenizer, options);
}

void ResponsesFormat::BeginEvent(absl::string_view type, BodyParts* out) {
  out->AddPart([this, type](std::string* bytes) {
    absl::StrAppend(bytes, "event: ", type, "\ndata: {\"type\":\"", type,
                    "\",\"sequence_number\":", next_number_++, ",");
    return true;
  });
}

void ResponsesFormat::BeginItemEvent(absl::string_view type, const Item& item, BodyParts* out) {
  BeginEvent(type, out);
  out->Add(absl::StrCat("\"item_id\":\"", item.id, "\",\"output_index\":", item.output_index, ",",
                        item.kind == Kind::kToolCall ? "" : "\"content_index\":0,"));
}

void ResponsesFormat::AddDeltaEvents(const ItemPointer& item, std::string text, BodyParts* out) {
  if (text.empty()) return;
  // In slices, one event each.
  out->AddPart([this, item, text = std::move(text), at = size_t{0}](std::string* bytes) mutable {
    const absl::string_view slice = WholeCharacters(absl::string_view(text).substr(at), kPartBytes);
    BodyParts event;
    BeginItemEvent(NamesOf(item->kind).delta_event, *item, &event);
    event.Add(absl::StrCat("\"delta\":", JsonString(slice),
                           item->kind == Kind::kContent ? ",\"logprobs\":[]" : "", "}\n\n"));
    while (!event.Produce(bytes)) {
    }
    at += slice.size();
    return at == text.size();
  });
}

void ResponsesFormat::AddPart(const ItemPointer& item, bool with_text, BodyParts* out) const {
  out->Add(item->kind == Kind::kReasoning
               ? "{\"type\":\"reasoning_text\",\"text\":"
               : "{\"type\":\"output_text\",\"annotations\":[],\"logprobs\":[],\"text\":");
  AddText(with_text ? absl::string_view(item->text) : "", item, out);
  out->Add("}");
}

void ResponsesFormat::AddItem(const ItemPointer& item, bool with_text, BodyParts* out) const {
  const char* const status = !with_text          ? "in_progress"
                             : item->is_complete ? "completed"
                                                 : "incomplete";
  std::string begin = absl::StrCat("{\"id\":\"", item->id, "\",\"status\":\"", status, "\",");
  if (item->kind == Kind::kToolCall) {
    out->Add(absl::StrCat(begin,
                          "\"type\":\"function_call\",\"call_id\":", JsonString(item->call_id),
                          ",\"name\":", JsonString(item->name), ",\"arguments\":"));
    AddText(with_text ? absl::string_view(item->text) : "", item, out);
    out->Add("}");
    return;
  }
  out->Add(absl::StrCat(begin, item->kind == Kind::kReasoning
                                   ? "\"type\":\"reasoning\",\"summary\":[],\"content\":["
                                   : "\"type\":\"message\",\"role\":\"assistant\",\"content\":["));
  if (with_text) AddPart(item, true, out);
  out->Add("]}");
}

void ResponsesFormat::AddResponse(absl::string_view status, absl::string_view incomplete,
                                  absl::string_view error, absl::string_view usage,
                                  BodyParts* out) const {
  out->Add("{");
  AddRaw(head_, out);
  out->Add(absl::StrCat("\"status\":\"", status, "\",\"incomplete_details\":", incomplete,
                        ",\"error\":", error, ",\"output\":["));
  for (const ItemPointer& item : items_) {
    if (item->output_index > 0) out->Add(",");
    AddItem(item, true, out);
  }
  out->Add(absl::StrCat("],\"usage\":", usage, "}"));
}

std::string ResponsesFormat::ResponsesUsageJson(const UsageCounts& usage) const {
  // OpenAI's types require cache_write_tokens, which cost more because they are kept: none here.
  return absl::StrCat("{\"input_tokens\":", usage.prompt_tokens,
                      ",\"input_tokens_details\":{\"cached_tokens\":", usage.cached_tokens,
                      ",\"cache_write_tokens\":0},\"output_tokens\":", usage.completion_tokens,
                      ",\"output_tokens_details\":{\"reasoning_tokens\":",
                      std::min(reasoning_tokens_, usage.completion_tokens),
                      "},\"total_tokens\":", usage.prompt_tokens + usage.completion_tokens, "}");
}

void ResponsesFormat::AddEnd(const v1::Finished& finished, const UsageCounts& usage, bool as_event,
                             BodyParts* out) {
  const bool was_cut_off = WasCutOff(finished);
  if (as_event) {
    BeginEvent(was_cut_off ? "response.incomplete" : "response.completed", out);
    out->Add("\"response\":");
  }
  AddResponse(was_cut_off ? "incomplete" : "completed",
              was_cut_off ? "{\"reason\":\"max_output_tokens\"}" : "null", "null",
              ResponsesUsageJson(usage), out);
  if (as_event) out->Add("}\n\n");
}

void ResponsesFormat::Begin(const ParsedDelta& delta, BodyParts* out) {
  auto item = std::make_shared<Item>();
  item->kind = delta.kind;
  item->output_index = static_cast<int>(items_.size());
  item->id = absl::StrCat(NamesOf(delta.kind).id_prefix, id_, "_", items_.size());
  item->call_index = delta.call_index;
  item->call_id = delta.call_id;
  item->name = delta.call_name;
  items_.push_back(item);
  is_open_ = true;
  if (out == nullptr) return;
  BeginEvent("response.output_item.added", out);
  out->Add(absl::StrCat("\"output_index\":", item->output_index, ",\"item\":"));
  AddItem(item, false, out);
  out->Add("}\n\n");
  if (item->kind == Kind::kToolCall) return;
  BeginItemEvent("response.content_part.added", *item, out);
  out->Add("\"part\":");
  AddPart(item, false, out);
  out->Add("}\n\n");
}

void ResponsesFormat::Close(BodyParts* out) {
  if (!std::exchange(is_open_, false)) return;
  const ItemPointer& item = items_.back();
  const bool is_call = item->kind == Kind::kToolCall;
  if (is_call) item->is_complete = output_.is_call_whole(item->call_index);
  if (out == nullptr) return;
  BeginItemEvent(NamesOf(item->kind).done_event, *item, out);
  if (is_call) out->Add(absl::StrCat("\"name\":", JsonString(item->name), ","));
  if (item->kind == Kind::kContent) out->Add("\"logprobs\":[],");
  out->Add(is_call ? "\"arguments\":" : "\"text\":");
  AddText(item->text, item, out);
  out->Add("}\n\n");
  if (!is_call) {
    BeginItemEvent("response.content_part.done", *item, out);
    out->Add("\"part\":");
    AddPart(item, true, out);
    out->Add("}\n\n");
  }
  BeginEvent("response.output_item.done", out);
  out->Add(absl::StrCat("\"output_index\":", item->output_index, ",\"item\":"));
  AddItem(item, true, out);
  out->Add("}\n\n");
}

void ResponsesFormat::TakeDeltas(std::deque<ParsedDelta> deltas, BodyParts* out) {
  for (ParsedDelta& delta : deltas) {
    const bool is_call = delta.kind == Kind::kToolCall;
    const bool goes_on = is_open_ && items_.back()->kind == delta.kind &&
                         (!is_call || items_.back()->call_index == delta.call_index);
    if (!goes_on) {
      if (!is_call && delta.text.empty()) continue;
      Close(out);
      Begin(delta, out);
    }
    items_.back()->text += delta.text;
    text_bytes_ += static_cast<int64_t>(delta.text.size());
    if (out != nullptr) AddDeltaEvents(items_.back(), std::move(delta.text), out);
  }
}

void ResponsesFormat::Finish(bool is_complete, BodyParts* out) {
  TakeDeltas(output_.Finish(), out);
  for (; !token_ends_.empty(); token_ends_.pop_front()) CountToken();
  // Clients read the content of the first item.
  if (items_.empty()) Begin({Kind::kContent, "", 0, "", ""}, out);
  if (is_open_) items_.back()->is_complete = is_complete;
  Close(out);
}

void ResponsesFormat::CountToken() {
  const std::optional<Kind> kind = output_.last_kind();
  ++unsettled_tokens_;
  if (!kind.has_value()) return;
  const uint64_t tokens = std::exchange(unsettled_tokens_, 0);
  if (kind == Kind::kReasoning) reasoning_tokens_ += tokens;
}

// All of the text is kept, because the last event repeats it.
absl::Status ResponsesFormat::CountText() {
  // A few are part of the stream's own share.
  if (options_.answers == nullptr || text_bytes_ <= std::max(kStreamShareBytes, text_hold_.bytes()))
    return absl::OkStatus();
  if (text_hold_.bytes() == 0) {
    BH_ASSIGN_OR_RETURN(text_hold_, options_.answers->Admit(0));
  }
  return options_.answers->Grow(text_hold_, text_bytes_ + kStreamShareBytes,
                                AnswerBudget::Use::kAcceptedWork);
}

absl::Status ResponsesFormat::Take(absl::string_view text, PackedReader tokens, int tokens_field,
                                   BodyParts* out) {
  v1::Token token;
  const auto next_token = [&] {
    if (!texts_.has_value() || !tokens.NextToken(tokens_field, &token)) return false;
    token_bytes_ += static_cast<int64_t>(texts_->Next(token.id()).size());
    token_ends_.push_back(token_bytes_);
    return true;
  };
  while (!text.empty()) {
    if (token_ends_.empty()) next_token();
    absl::string_view piece = text;
    if (!token_ends_.empty()) {
      // A token may have no text of its own.
      const int64_t wanted = std::max<int64_t>(token_ends_.front() - taken_bytes_, 0);
      piece = wanted == 0 ? "" : WholeCharacters(text, static_cast<size_t>(wanted));
    }
    text.remove_prefix(piece.size());
    taken_bytes_ += static_cast<int64_t>(piece.size());
    BH_ASSIGN_OR_RETURN(std::deque<ParsedDelta> deltas, output_.Append(piece));
    TakeDeltas(std::move(deltas), out);
    for (; !token_ends_.empty() && token_ends_.front() <= taken_bytes_; token_ends_.pop_front()) {
      CountToken();
    }
  }
  while (next_token()) {
  }
  return absl::OkStatus();
}

BodyParts ResponsesFormat::Opening() {
  BodyParts parts;
  for (const char* const type : {"response.created", "response.in_progress"}) {
    BeginEvent(type, &parts);
    parts.Add("\"response\":");
    AddResponse("in_progress", "null", "null", "null", &parts);
    parts.Add("}\n\n");
  }
  return parts;
}

BodyParts ResponsesFormat::Failure(const absl::Status& status) {
  BodyParts parts;
  if (is_open_) items_.back()->is_complete = false;
  Close(nullptr);
  BeginEvent("response.failed", &parts);
  parts.Add("\"response\":");
  AddResponse("failed", "null",
              absl::StrCat("{\"code\":", JsonString(CodeOf(status)),
                           ",\"message\":", JsonString(ToRpcStatus(status).message()), "}"),
              "null", &parts);
  parts.Add("}\n\n");
  return parts;
}

absl::StatusOr<BodyParts> ResponsesFormat::Delta(int /*choice*/, PackedMessage delta,
                                                 const UsageCounts& /*usage*/) {
  BodyParts parts;
  BH_RETURN_IF_ERROR(Take(BytesOf(delta.bytes, v1::Delta::kTextFieldNumber),
                          PackedReader(delta.bytes), v1::Delta::kTokensFieldNumber, &parts));
  BH_RETURN_IF_ERROR(CountText());
  return parts;
}

BodyParts ResponsesFormat::Finished(int /*choice*/, const v1::Finished& finished,
                                    const UsageCounts& usage) {
  BodyParts parts;
  Finish(!WasCutOff(finished), &parts);
  AddEnd(finished, usage, /*as_event=*/true, &parts);
  return parts;
}

BodyParts ResponsesFormat::Whole(const std::vector<PackedMessage>& responses,
                                 const UsageCounts& usage) {
  const PackedMessage& response = responses.front();
  v1::Finished finished;
  finished.ParseFromString(
      std::string(BytesOf(response.bytes, v1::GenerateResponse::kFinishedFieldNumber)));
  BodyParts parts;
  const absl::Status taken =
      Take(BytesOf(response.bytes, v1::GenerateResponse::kTextFieldNumber),
           PackedReader(response.bytes), v1::GenerateResponse::kTokensFieldNumber, nullptr);
  BH_CHECK(taken.ok());  // nothing is counted
  Finish(!WasCutOff(finished), nullptr);
  AddEnd(finished, usage, /*as_event=*/false, &parts);
  return parts;
}

}  // namespace bulkhead
