#include "runtime/service/http/chat_format.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/utf8.h"

namespace bulkhead {
namespace {

constexpr size_t kPartBytes = BodyParts::kSliceBytes / 2;

std::string CallHead(int index, const std::string& id, const std::string& name) {
  return absl::StrCat("{\"index\":", index, ",\"id\":", JsonString(id),
                      ",\"type\":\"function\",\"function\":{\"name\":", JsonString(name),
                      ",\"arguments\":\"");
}

using Owned = std::shared_ptr<const std::string>;

void AddString(const Owned& text, BodyParts* out) {
  out->Add("\"");
  out->AddEscaped(*text, text);
  out->Add("\"");
}

// `may_call`: there are calls, and they are whole; a client executes them on "tool_calls".
std::string FinishJson(const v1::Finished& finished, bool may_call) {
  std::string reason = FinishReasonJson(finished);
  if (may_call && reason == "\"stop\"") reason = "\"tool_calls\"";
  return absl::StrCat(reason, ",\"stop_reason\":", StopReasonJson(finished));
}

}  // namespace

ChatFormat::ChatFormat(AnswerFrame whole, AnswerFrame chunk, GenerationOptions options,
                       ChatOutputOptions output, const Tokenizer* tokenizer, int num_choices)
    : whole_(std::move(whole)),
      chunk_(std::move(chunk)),
      options_(std::move(options)),
      output_(std::move(output)),
      tokenizer_(tokenizer),
      places_(static_cast<size_t>(num_choices)) {}

ChatOutput& ChatFormat::OutputOf(int choice) {
  std::optional<ChatOutput>& output = places_[choice].output;
  if (!output.has_value()) output.emplace(&output_, choice);
  return *output;
}

std::string ChatFormat::EventJson(int choice, absl::string_view delta, absl::string_view logprobs,
                                  absl::string_view finish, const UsageCounts& usage,
                                  absl::string_view ids) {
  std::string events = RolesBefore(choice, usage);
  // With the first token, not before: its time is what clients take for the first token's.
  const char* role = std::exchange(places_[choice].has_role, true) ? "" : "\"role\":\"assistant\"";
  const char* comma = role[0] == '\0' || delta.empty() ? "" : ",";
  return events +
         chunk_.Event(
             absl::StrCat("{\"index\":", choice, ",\"delta\":{", role, comma, delta,
                          "},\"logprobs\":", logprobs, ",\"finish_reason\":", finish,
                          options_.token_ids ? absl::StrCat(",\"token_ids\":[", ids, "]") : "",
                          "}"),
             usage);
}

// OpenAI's client takes the first event of choice i for the i-th choice.
std::string ChatFormat::RolesBefore(int choice, const UsageCounts& usage) {
  std::string events;
  for (int before = 0; before < choice; ++before) {
    if (!places_[before].has_role) events += EventJson(before, "", "null", "null", usage);
  }
  return events;
}

std::string ChatFormat::NextDelta(std::deque<ParsedDelta>* deltas) {
  if (deltas->empty()) return "";
  ParsedDelta& delta = deltas->front();
  const absl::string_view slice = WholeCharacters(delta.text, kPartBytes);
  std::string json;
  if (delta.kind == ParsedDelta::Kind::kToolCall) {
    json = absl::StrCat(
        "\"tool_calls\":[",
        delta.call_name.empty()
            ? absl::StrCat("{\"index\":", delta.call_index, ",\"function\":{\"arguments\":\"")
            : CallHead(delta.call_index, delta.call_id, delta.call_name));
    AppendEscaped(slice, &json);
    json += "\"}}]";
    delta.call_name.clear();
  } else {
    std::string text;
    AppendEscaped(slice, &text);
    json = delta.kind == ParsedDelta::Kind::kContent
               ? absl::StrCat("\"content\":\"", text, "\"")
               : absl::StrCat("\"reasoning\":\"", text, "\",\"reasoning_content\":\"", text, "\"");
  }
  if (slice.size() == delta.text.size()) {
    deltas->pop_front();
  } else {
    delta.text.erase(0, slice.size());
  }
  return json;
}

BodyParts ChatFormat::Events(int choice, std::deque<ParsedDelta> deltas,
                             std::optional<PackedMessage> message, const UsageCounts& usage) {
  BodyParts parts;
  const bool has_logprobs = message.has_value() && options_.logprobs.has_value();
  const bool has_ids = message.has_value() && options_.token_ids;
  if (deltas.empty() && !message.has_value()) return parts;
  Place& place = places_[choice];
  if (has_logprobs && !place.texts.has_value()) place.texts.emplace(tokenizer_, options_);
  if (has_logprobs) {
    place.texts->BeginAnswer(CountOf(message->bytes, v1::Delta::kTokensFieldNumber),
                             BytesOf(message->bytes, v1::Delta::kTextFieldNumber).size());
  }
  PackedReader tokens(has_logprobs || has_ids ? message->bytes : absl::string_view());
  // In slices, one event each.
  parts.AddPart([this, choice, deltas = std::move(deltas), message = std::move(message), tokens,
                 has_logprobs, has_ids, usage, &place](std::string* out) mutable {
    std::string list, ids;
    bool has_more = false;
    v1::Token token;
    while (list.size() < kPartBytes && ids.size() < kPartBytes &&
           (has_more = tokens.NextToken(v1::Delta::kTokensFieldNumber, &token))) {
      if (has_ids) absl::StrAppend(&ids, ids.empty() ? "" : ",", token.id());
      if (!has_logprobs) continue;
      if (!list.empty()) list += ',';
      AppendChatLogprob(token, *place.texts, &list);
    }
    const std::string logprobs = list.empty() ? "null" : absl::StrCat("{\"content\":[", list, "]}");
    const std::string delta = NextDelta(&deltas);
    *out += EventJson(choice, delta, logprobs, "null", usage, ids);
    return deltas.empty() && !has_more;
  });
  return parts;
}

absl::StatusOr<BodyParts> ChatFormat::Delta(int choice, PackedMessage delta,
                                            const UsageCounts& usage) {
  const absl::string_view text = BytesOf(delta.bytes, v1::Delta::kTextFieldNumber);
  BH_ASSIGN_OR_RETURN(std::deque<ParsedDelta> deltas, OutputOf(choice).Append(text));
  return Events(choice, std::move(deltas), std::move(delta), usage);
}

BodyParts ChatFormat::Finished(int choice, const v1::Finished& finished, const UsageCounts& usage) {
  ChatOutput& output = OutputOf(choice);
  BodyParts parts;
  if (output_.parser.has_value()) parts = Events(choice, output.Finish(), std::nullopt, usage);
  // Built after the earlier events: the very first one has the role.
  parts.AddPart(
      [this, choice, usage, finish = FinishJson(finished, output.may_call())](std::string* out) {
        const bool is_first = !places_[choice].has_role;
        *out += EventJson(choice, is_first ? "\"content\":\"\"" : "", "null", finish, usage);
        return true;
      });
  return parts;
}

// The event with the role, which is the choice's first: clients look there.
BodyParts ChatFormat::Prompt(int choice, PackedMessage ids, const UsageCounts& usage) {
  BodyParts parts(RolesBefore(choice, usage));
  places_[choice].has_role = true;
  parts.Add(chunk_.EventBegin(
      absl::StrCat("{\"index\":", choice,
                   ",\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"logprobs\":null,"
                   "\"finish_reason\":null,\"token_ids\":[]}],\"prompt_token_ids\":[")));
  AddTokenIds(std::move(ids), std::nullopt, &parts);
  parts.Add(chunk_.EventEnd(usage));
  return parts;
}

BodyParts ChatFormat::Usage(const UsageCounts& usage) {
  return BodyParts(chunk_.UsageEvent(usage));
}

void ChatFormat::AddLogprobs(const PackedMessage& response, BodyParts* out) const {
  out->Add("{\"content\":[");
  auto texts = std::make_shared<TokenTexts>(tokenizer_, options_);
  texts->BeginAnswer(CountOf(response.bytes, v1::GenerateResponse::kTokensFieldNumber),
                     BytesOf(response.bytes, v1::GenerateResponse::kTextFieldNumber).size());
  out->AddPart([texts, is_first = true, tokens = PackedReader(response.bytes),
                owner = response.owner](std::string* bytes) mutable {
    const size_t enough = bytes->size() + kPartBytes;
    v1::Token token;
    while (bytes->size() < enough) {
      if (!tokens.NextToken(v1::GenerateResponse::kTokensFieldNumber, &token)) return true;
      if (!std::exchange(is_first, false)) *bytes += ',';
      AppendChatLogprob(token, *texts, bytes);
    }
    return false;
  });
  out->Add("]}");
}

void ChatFormat::AddMessage(int choice, const PackedMessage& response, BodyParts* out) const {
  const absl::string_view text = BytesOf(response.bytes, v1::GenerateResponse::kTextFieldNumber);
  v1::Finished finished;
  finished.ParseFromString(
      std::string(BytesOf(response.bytes, v1::GenerateResponse::kFinishedFieldNumber)));
  out->Add(
      absl::StrCat("{\"index\":", choice, ",\"message\":{\"role\":\"assistant\",\"content\":"));
  bool may_call = false;
  if (!output_.parser.has_value()) {
    out->Add("\"");
    out->AddEscaped(text, response.owner);
    out->Add("\"");
  } else {
    ParsedOutput parsed = ParseOutput(ParserOf(output_, choice), text);
    may_call = !parsed.tool_calls.empty();
    if (parsed.content.empty() && may_call) {
      out->Add("null");
    } else {
      AddString(std::make_shared<const std::string>(std::move(parsed.content)), out);
    }
    if (!parsed.reasoning.empty() && output_.includes_reasoning) {
      // The name in vLLM and in OpenAI's advice for gpt-oss, and vLLM's earlier name.
      const auto reasoning = std::make_shared<const std::string>(std::move(parsed.reasoning));
      out->Add(",\"reasoning\":");
      AddString(reasoning, out);
      out->Add(",\"reasoning_content\":");
      AddString(reasoning, out);
    }
    if (!output_.several_tool_calls && may_call) parsed.tool_calls.resize(1);
    for (size_t i = 0; i < parsed.tool_calls.size(); ++i) {
      const ToolCall& call = parsed.tool_calls[i];
      may_call = may_call && call.is_whole;
      std::string json = absl::StrCat(i == 0 ? ",\"tool_calls\":[" : ",",
                                      CallHead(static_cast<int>(i), call.id, call.name));
      AppendEscaped(call.arguments, &json);
      absl::StrAppend(&json, "\"}}", i + 1 == parsed.tool_calls.size() ? "]" : "");
      out->Add(std::move(json));
    }
  }
  out->Add("},\"logprobs\":");
  if (options_.logprobs.has_value()) {
    AddLogprobs(response, out);
  } else {
    out->Add("null");
  }
  if (options_.token_ids) {
    out->Add(",\"token_ids\":[");
    AddTokenIds(response, v1::GenerateResponse::kTokensFieldNumber, out);
    out->Add("]");
  }
  out->Add(absl::StrCat(",\"finish_reason\":", FinishJson(finished, may_call), "}"));
}

BodyParts ChatFormat::Whole(const std::vector<PackedMessage>& responses, const UsageCounts& usage) {
  BodyParts parts(whole_.Begin());
  for (size_t i = 0; i < responses.size(); ++i) {
    if (i > 0) parts.Add(",");
    AddMessage(static_cast<int>(i), responses[i], &parts);
  }
  if (options_.token_ids) {  // the same for every choice
    const absl::string_view ids =
        BytesOf(responses[0].bytes, v1::GenerateResponse::kPromptTokenIdsFieldNumber);
    parts.Add("],\"prompt_token_ids\":[");  // the list that End closes
    AddTokenIds({responses[0].owner, BytesOf(ids, v1::TokenIds::kIdsFieldNumber)}, std::nullopt,
                &parts);
  }
  parts.Add(AnswerFrame::End(usage));
  return parts;
}

}  // namespace bulkhead
