#include "runtime/service/http/completion_format.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/utf8.h"

namespace bulkhead {
namespace {

constexpr size_t kPartBytes = BodyParts::kSliceBytes / 2;

}  // namespace

CompletionFormat::CompletionFormat(AnswerFrame frame, GenerationOptions options,
                                   const Tokenizer* tokenizer, int num_choices)
    : frame_(std::move(frame)),
      options_(std::move(options)),
      tokenizer_(tokenizer),
      places_(static_cast<size_t>(num_choices)) {}

std::string CompletionFormat::ChoiceJson(int choice, absl::string_view text,
                                         absl::string_view logprobs, absl::string_view finish,
                                         absl::string_view ids) const {
  return absl::StrCat("{\"index\":", choice, ",\"text\":", JsonString(text),
                      ",\"logprobs\":", logprobs, ",\"finish_reason\":", finish,
                      options_.token_ids ? absl::StrCat(",\"token_ids\":[", ids, "]") : "", "}");
}

std::function<bool(std::string* out)> CompletionFormat::PromptText(PackedMessage ids) const {
  if (tokenizer_ == nullptr || !options_.echo) return [](std::string*) { return true; };
  std::shared_ptr<TextDecoder> decoder =
      tokenizer_->NewTextDecoder({}, options_.skip_special_tokens);
  return [decoder, owner = std::move(ids.owner),
          reader = PackedReader(ids.bytes)](std::string* out) mutable {
    const size_t enough = out->size() + kPartBytes;
    uint64_t id = 0;
    while (out->size() < enough) {
      if (!reader.NextNumber(&id)) {
        *out += decoder->Finish();
        return true;
      }
      *out += decoder->Add(static_cast<int32_t>(id));
    }
    return false;
  };
}

// The text in slices, one event each. The ids in the choice's first event, where clients look.
BodyParts CompletionFormat::Prompt(int choice, PackedMessage ids, const UsageCounts& usage) {
  BodyParts parts;
  if (options_.token_ids) {
    std::string begin = ChoiceJson(choice, "", "null", "null");
    begin.back() = ',';
    parts.Add(frame_.EventBegin(begin + "\"prompt_token_ids\":["));
    AddTokenIds(ids, std::nullopt, &parts);
    parts.Add("]}" + frame_.EventEnd(usage));
  }
  if (!options_.echo) return parts;
  parts.AddPart([this, choice, usage, next = PromptText(std::move(ids))](std::string* out) {
    std::string text;
    const bool was_last = next(&text);
    *out += frame_.Event(ChoiceJson(choice, text, "null", "null"), usage);
    return was_last;
  });
  return parts;
}

BodyParts CompletionFormat::PromptLogprobs(int choice, PackedMessage tokens,
                                           const UsageCounts& usage) {
  if (!options_.logprobs.has_value()) return {};  // not asked for: nothing else is computed
  return Events(choice, "", std::move(tokens), v1::PromptLogprobs::kTokensFieldNumber, usage);
}

absl::StatusOr<BodyParts> CompletionFormat::Delta(int choice, PackedMessage delta,
                                                  const UsageCounts& usage) {
  const absl::string_view text = BytesOf(delta.bytes, v1::Delta::kTextFieldNumber);
  // Also without text, as in vLLM: clients time tokens by their events.
  return Events(choice, text, std::move(delta), v1::Delta::kTokensFieldNumber, usage);
}

BodyParts CompletionFormat::Events(int choice, absl::string_view text, PackedMessage message,
                                   int field, const UsageCounts& usage) {
  Place& place = places_[choice];
  if (options_.logprobs.has_value() && !place.texts.has_value()) {
    place.texts.emplace(tokenizer_, options_);
    if (field == v1::PromptLogprobs::kTokensFieldNumber) place.texts->BeginPrompt();
  }
  if (place.texts.has_value() && field == v1::Delta::kTokensFieldNumber) {
    place.texts->BeginAnswer(CountOf(message.bytes, field), text.size());
  }
  BodyParts parts;
  // In slices, one event each.
  parts.AddPart([this, choice, text, field, tokens = PackedReader(message.bytes), usage, &place,
                 owner = std::move(message.owner)](std::string* out) mutable {
    const absl::string_view slice = WholeCharacters(text, kPartBytes);
    text.remove_prefix(slice.size());
    std::string ids;
    CompletionLogprobs lists;
    const bool has_ids = options_.token_ids && field == v1::Delta::kTokensFieldNumber;
    bool has_more = false;
    v1::Token token;
    while ((has_ids || options_.logprobs.has_value()) && ids.size() < kPartBytes &&
           lists.top_logprobs.size() < kPartBytes && (has_more = tokens.NextToken(field, &token))) {
      if (has_ids) absl::StrAppend(&ids, ids.empty() ? "" : ",", token.id());
      if (!options_.logprobs.has_value()) continue;
      lists.Add(token, *place.texts, &place.offset, /*with_top=*/true);
    }
    const std::string logprobs = options_.logprobs.has_value() ? lists.Json() : "null";
    *out += frame_.Event(ChoiceJson(choice, slice, logprobs, "null", ids), usage);
    return text.empty() && !has_more;
  });
  return parts;
}

BodyParts CompletionFormat::Finished(int choice, const v1::Finished& finished,
                                     const UsageCounts& usage) {
  return BodyParts(frame_.Event(
      ChoiceJson(
          choice, "", "null",
          absl::StrCat(FinishReasonJson(finished), ",\"stop_reason\":", StopReasonJson(finished))),
      usage));
}

BodyParts CompletionFormat::Usage(const UsageCounts& usage) {
  return BodyParts(frame_.UsageEvent(usage));
}

// A pass over the tokens for each of the lists, so that no list is in memory as a whole.
void CompletionFormat::AddLogprobs(const PackedMessage& response, BodyParts* out) const {
  constexpr std::string CompletionLogprobs::*kLists[] = {
      &CompletionLogprobs::tokens, &CompletionLogprobs::token_logprobs,
      &CompletionLogprobs::top_logprobs, &CompletionLogprobs::text_offset};
  constexpr const char* kNames[] = {"{\"tokens\":[", "],\"token_logprobs\":[",
                                    "],\"top_logprobs\":[", "],\"text_offset\":["};
  for (int list = 0; list < 4; ++list) {
    out->Add(kNames[list]);
    auto texts = std::make_shared<TokenTexts>(tokenizer_, options_);
    const auto begin_answer = [texts, bytes = response.bytes] {
      texts->BeginAnswer(CountOf(bytes, v1::GenerateResponse::kTokensFieldNumber),
                         BytesOf(bytes, v1::GenerateResponse::kTextFieldNumber).size());
    };
    int field = v1::GenerateResponse::kPromptLogprobsFieldNumber;
    if (!options_.prompt_logprobs && CountOf(response.bytes, field) > 0) {
      texts->BeginPrompt();
    } else {
      field = v1::GenerateResponse::kTokensFieldNumber;
      begin_answer();
    }
    out->AddPart([list = kLists[list], texts, begin_answer, response, offset = size_t{0},
                  is_first = true, tokens = PackedReader(response.bytes),
                  field](std::string* bytes) mutable {
      const size_t enough = bytes->size() + kPartBytes;
      v1::Token token;
      while (bytes->size() < enough) {
        if (!tokens.NextToken(field, &token)) {
          if (field == v1::GenerateResponse::kTokensFieldNumber) return true;
          field = v1::GenerateResponse::kTokensFieldNumber;  // the prompt's are first
          tokens = PackedReader(response.bytes);
          begin_answer();
          continue;
        }
        CompletionLogprobs one;
        one.Add(token, *texts, &offset, list == &CompletionLogprobs::top_logprobs);
        absl::StrAppend(bytes, is_first ? "" : ",", one.*list);
        is_first = false;
      }
      return false;
    });
  }
  out->Add("]}");
}

void CompletionFormat::AddPromptLogprobs(const PackedMessage& response, BodyParts* out) const {
  out->Add(",\"prompt_logprobs\":[");
  auto texts = std::make_shared<TokenTexts>(tokenizer_, options_);
  out->AddPart([texts, owner = response.owner, is_first = true,
                tokens = PackedReader(response.bytes)](std::string* bytes) mutable {
    const size_t enough = bytes->size() + kPartBytes;
    v1::Token token;
    while (bytes->size() < enough) {
      if (!tokens.NextToken(v1::GenerateResponse::kPromptLogprobsFieldNumber, &token)) return true;
      if (!std::exchange(is_first, false)) *bytes += ',';
      AppendPromptLogprob(token, *texts, bytes);
    }
    return false;
  });
  out->Add("]");
}

BodyParts CompletionFormat::Whole(const std::vector<PackedMessage>& responses,
                                  const UsageCounts& usage) {
  BodyParts parts(frame_.Begin());
  for (size_t i = 0; i < responses.size(); ++i) {
    const PackedMessage& response = responses[i];
    v1::Finished finished;
    finished.ParseFromString(
        std::string(BytesOf(response.bytes, v1::GenerateResponse::kFinishedFieldNumber)));
    const PackedMessage prompt = {
        response.owner,
        BytesOf(BytesOf(response.bytes, v1::GenerateResponse::kPromptTokenIdsFieldNumber),
                v1::TokenIds::kIdsFieldNumber)};
    parts.Add(absl::StrCat(i > 0 ? "," : "", "{\"index\":", i, ",\"text\":\""));
    parts.AddPart([next = PromptText(prompt)](std::string* out) {
      std::string text;
      const bool was_last = next(&text);
      AppendEscaped(text, out);
      return was_last;
    });
    parts.AddEscaped(BytesOf(response.bytes, v1::GenerateResponse::kTextFieldNumber),
                     response.owner);
    parts.Add("\",\"logprobs\":");
    if (options_.logprobs.has_value()) {
      AddLogprobs(response, &parts);
    } else {
      parts.Add("null");
    }
    if (options_.prompt_logprobs) AddPromptLogprobs(response, &parts);
    if (options_.token_ids) {
      parts.Add(",\"prompt_token_ids\":[");
      AddTokenIds(prompt, std::nullopt, &parts);
      parts.Add("],\"token_ids\":[");
      AddTokenIds(response, v1::GenerateResponse::kTokensFieldNumber, &parts);
      parts.Add("]");
    }
    parts.Add(absl::StrCat(",\"finish_reason\":", FinishReasonJson(finished),
                           ",\"stop_reason\":", StopReasonJson(finished), "}"));
  }
  parts.Add(AnswerFrame::End(usage));
  return parts;
}

}  // namespace bulkhead
