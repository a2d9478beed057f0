#include "runtime/tokenizer/decoder.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "runtime/tokenizer/byte_level.h"

namespace bulkhead {
namespace {

class TextSink : public TokenSink {
 public:
  TextSink(std::string* text, bool* joined) : text_(text), joined_(joined) {}
  void Append(absl::string_view fragment) override { absl::StrAppend(text_, fragment); }
  void EndToken() override {}
  void EndText() override {}
  void JoinAt(Place) override { *joined_ = true; }

 private:
  std::string* const text_;
  bool* const joined_;
};

}  // namespace

absl::StatusOr<Decoder> Decoder::Read(const JsonPart& part) {
  Decoder decoder;
  if (part.is_null()) {
    decoder.steps_.push_back(NewJoinWithSpaces());
  } else {
    BH_RETURN_IF_ERROR(ReadDecoderSteps(part, 0, &decoder.steps_, &decoder.growth_));
  }
  return decoder;
}

// Byte tokens are recognised by the steps' output for two of them.
void Decoder::LearnBytes() {
  is_byte_level_ = TextOf({ByteLevelChar(' ')}) == " ";
  has_byte_fallback_ = TextOf({"<0x41>"}) == "A";
  first_a_ = TextOf({"a"});
  next_a_ = TextOf({"a", "a"}).substr(first_a_.size());
}

std::string Decoder::TextOf(std::initializer_list<absl::string_view> tokens) const {
  const std::unique_ptr<Chain> chain = NewChain();
  for (const absl::string_view token : tokens) chain->front().Token(token);
  chain->front().EndText();
  return chain->TakeText();
}

std::optional<std::string> Decoder::BytesOf(absl::string_view token) const {
  std::string bytes;
  uint32_t byte = 0;
  if (is_byte_level_ && ByteLevelToBytes(token, &bytes)) return bytes;
  if (has_byte_fallback_ && token.size() == 6 && absl::StartsWith(token, "<0x") &&
      token.back() == '>' && absl::SimpleHexAtoi(token.substr(3, 2), &byte)) {
    return std::string(1, static_cast<char>(byte));
  }
  // For other tokens, compares the text with and without them.
  const std::string text = TextOf({"a", token});
  if (!absl::StartsWith(text, first_a_) || TextOf({"a", token, "a"}) != text + next_a_) {
    return std::nullopt;
  }
  return text.substr(first_a_.size());
}

std::unique_ptr<Decoder::Chain> Decoder::NewChain() const {
  auto chain = std::make_unique<Chain>();
  chain->sinks_.push_back(std::make_unique<TextSink>(&chain->text_, &chain->joined_));
  for (size_t i = steps_.size(); i-- > 0;) {
    chain->sinks_.push_back(steps_[i]->NewSink(chain->sinks_.back().get()));
  }
  chain->front_ = chain->sinks_.back().get();
  return chain;
}

}  // namespace bulkhead
