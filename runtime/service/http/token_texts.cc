#include "runtime/service/http/token_texts.h"

#include <algorithm>
#include <optional>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "base/utf8.h"
#include "runtime/service/http/body_parts.h"

namespace bulkhead {
namespace {

// JSON has no infinity: as in vLLM.
std::string Number(float logprob) { return absl::StrFormat("%.9g", std::max(logprob, -9999.0F)); }

std::string BytesJson(absl::string_view text) {
  std::string out = "[";
  for (const char c : text) {
    absl::StrAppend(&out, out.size() > 1 ? "," : "", static_cast<unsigned char>(c));
  }
  return out + "]";
}

}  // namespace

TokenTexts::TokenTexts(const Tokenizer* tokenizer, const GenerationOptions& options)
    : tokenizer_(tokenizer),
      as_ids_(tokenizer == nullptr || options.tokens_as_ids),
      skip_special_tokens_(options.skip_special_tokens) {
  if (tokenizer_ == nullptr) return;
  const auto before = tokenizer_->Encode("a", false);
  if (before.ok()) before_ = *before;
  before_text_ = tokenizer_->Decode(before_, false);
  decoder_ = tokenizer_->NewTextDecoder(before_, skip_special_tokens_);
}

void TokenTexts::BeginPrompt() {
  if (tokenizer_ != nullptr) decoder_ = tokenizer_->NewTextDecoder({}, skip_special_tokens_);
}

void TokenTexts::BeginAnswer(int num_tokens, size_t text_bytes) {
  num_left_ = num_tokens;
  bytes_ahead_ += static_cast<int64_t>(text_bytes);
}

std::string TokenTexts::Next(uint32_t id) {
  if (tokenizer_ == nullptr) return "";
  std::string text = decoder_->Add(static_cast<int32_t>(id));
  if (num_left_ == 0) return text;  // the prompt's
  bytes_ahead_ -= static_cast<int64_t>(text.size());
  if (--num_left_ > 0 || bytes_ahead_ <= 0) return text;
  text += decoder_->Finish();
  decoder_ = tokenizer_->NewTextDecoder(before_, skip_special_tokens_);
  return text;
}

std::string TokenTexts::Shown(uint32_t id, const std::string& text) const {
  return as_ids_ ? absl::StrCat("token_id:", id) : text;
}

std::string TokenTexts::BytesOf(uint32_t id, const std::string& text) const {
  std::optional<std::string> own;
  if (tokenizer_ != nullptr) own = tokenizer_->BytesOf(static_cast<int32_t>(id));
  return own.value_or("").empty() ? text : *std::move(own);
}

std::string TokenTexts::Alone(uint32_t id) const {
  if (as_ids_) return absl::StrCat("token_id:", id);
  std::vector<int32_t> ids = before_;
  ids.push_back(static_cast<int32_t>(id));
  const std::string text = tokenizer_->Decode(ids, false);
  absl::string_view alone = text;
  if (absl::ConsumePrefix(&alone, before_text_)) return std::string(alone);
  return tokenizer_->Decode({ids.back()}, false);
}

void CompletionLogprobs::Add(const v1::Token& token, TokenTexts& texts, size_t* offset,
                             bool with_top) {
  const char* comma = tokens.empty() ? "" : ",";
  const std::string in_answer = texts.Next(token.id());
  const std::string text = texts.Shown(token.id(), in_answer);
  absl::StrAppend(&tokens, comma, JsonString(text));
  absl::StrAppend(&token_logprobs, comma, token.has_logprob() ? Number(token.logprob()) : "null");
  absl::StrAppend(&text_offset, comma, *offset);
  *offset += CountChars(in_answer);
  if (!with_top) return;
  // Different tokens may have one text, and an object one value for it: the likeliest's.
  std::set<std::string> seen;
  std::string top;
  for (const v1::TokenLogprob& one : token.top()) {
    std::string key = JsonString(one.id() == token.id() ? text : texts.Alone(one.id()));
    if (!seen.insert(key).second) continue;
    absl::StrAppend(&top, top.empty() ? "" : ",", key, ":", Number(one.logprob()));
  }
  // The sampled token is always included.
  const std::string drawn = JsonString(text);
  if (token.has_logprob() && !seen.contains(drawn)) {
    absl::StrAppend(&top, top.empty() ? "" : ",", drawn, ":", Number(token.logprob()));
  }
  absl::StrAppend(&top_logprobs, comma, top.empty() ? "null" : absl::StrCat("{", top, "}"));
}

std::string CompletionLogprobs::Json() const {
  return absl::StrCat("{\"tokens\":[", tokens, "],\"token_logprobs\":[", token_logprobs,
                      "],\"top_logprobs\":[", top_logprobs, "],\"text_offset\":[", text_offset,
                      "]}");
}

void AppendPromptLogprob(const v1::Token& token, const TokenTexts& texts, std::string* out) {
  if (!token.has_logprob()) {
    *out += "null";
    return;
  }
  const auto add = [&](uint32_t id, float logprob, uint32_t rank) {
    absl::StrAppend(out, out->back() == '{' ? "\"" : ",\"", id, "\":{\"logprob\":", Number(logprob),
                    ",\"rank\":", rank, ",\"decoded_token\":", JsonString(texts.Alone(id)), "}");
  };
  *out += '{';
  add(token.id(), token.logprob(), token.rank());
  for (int i = 0; i < token.top_size(); ++i) {
    if (token.top(i).id() == token.id()) continue;
    add(token.top(i).id(), token.top(i).logprob(), static_cast<uint32_t>(i) + 1);
  }
  *out += '}';
}

void AppendChatLogprob(const v1::Token& token, TokenTexts& texts, std::string* out) {
  const auto one = [&texts](uint32_t id, const std::string& text, float logprob) {
    return absl::StrCat("{\"token\":", JsonString(text), ",\"logprob\":", Number(logprob),
                        ",\"bytes\":", BytesJson(texts.BytesOf(id, text)));
  };
  const std::string text = texts.Shown(token.id(), texts.Next(token.id()));
  absl::StrAppend(out, one(token.id(), text, token.logprob()), ",\"top_logprobs\":[");
  bool first = true;
  for (const v1::TokenLogprob& top : token.top()) {
    absl::StrAppend(
        out, first ? "" : ",",
        one(top.id(), top.id() == token.id() ? text : texts.Alone(top.id()), top.logprob()), "}");
    first = false;
  }
  *out += "]}";
}

}  // namespace bulkhead
