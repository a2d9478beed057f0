// The texts of tokens beside their log probabilities, where a character has several tokens.
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/utf8.h"
#include "nlohmann/json.hpp"
#include "runtime/service/http/chat_format.h"
#include "runtime/service/http/completion_format.h"
#include "runtime/tokenizer/text_stream.h"
#include "tests/runtime/service/letter_tokenizer.h"

namespace bulkhead {
namespace {

using nlohmann::json;

constexpr char kEuro[] = "\xE2\x82\xAC";
constexpr char kReplaced[] = "\xEF\xBF\xBD";

// Ids are bytes; characters of three are final with their last.
class ByteTokenizer final : public LetterTokenizer {
 public:
  std::string Decode(absl::Span<const int32_t> ids, bool) const override {
    std::string text;
    for (const int32_t id : ids) text.push_back(id < 0x80 ? static_cast<char>(id) : '?');
    return text;
  }
  std::optional<std::string> BytesOf(int32_t id) const override {
    return id < kBegin ? std::string(1, static_cast<char>(id)) : "";
  }
  std::unique_ptr<TextDecoder> NewTextDecoder(absl::Span<const int32_t>, bool) const override {
    class Bytes final : public TextDecoder {
     public:
      std::string Add(int32_t id) override {
        begun_.push_back(static_cast<char>(id));
        const bool is_cut = begun_[0] == kEuro[0] && begun_.size() < 3;
        return is_cut ? "" : std::exchange(begun_, "");
      }
      std::string Finish() override { return std::exchange(begun_, "").empty() ? "" : kReplaced; }

     private:
      std::string begun_;
    };
    return std::make_unique<Bytes>();
  }
};

v1::Token TokenOf(char byte) {
  v1::Token token;
  token.set_id(static_cast<unsigned char>(byte));
  token.set_logprob(-1);
  return token;
}

std::string Made(BodyParts parts) {
  std::string out;
  while (!parts.Produce(&out)) {
  }
  return out;
}

PackedMessage Packed(const google::protobuf::Message& message) {
  auto bytes = std::make_shared<const std::string>(message.SerializeAsString());
  return {bytes, *bytes};
}

std::vector<std::string> TokensOf(const json& logprobs) {
  std::vector<std::string> texts;
  if (logprobs.is_null()) return texts;
  if (logprobs.contains("tokens")) return logprobs["tokens"];
  for (const json& one : logprobs["content"]) texts.push_back(one["token"]);
  return texts;
}

class TokenTextsTest : public testing::TestWithParam<bool> {
 protected:
  TokenTextsTest() {
    options_.logprobs = 0;
    const AnswerFrame frame("id", "object", 0, "letters", options_);
    if (GetParam()) {
      format_ =
          std::make_unique<ChatFormat>(frame, frame, options_, ChatOutputOptions(), &tokenizer_, 1);
    } else {
      format_ = std::make_unique<CompletionFormat>(frame, options_, &tokenizer_, 1);
    }
  }
  // Of an answer of these bytes, whose text is `text`.
  std::vector<std::string> Whole(const std::string& bytes, const std::string& text) {
    v1::GenerateResponse response;
    for (const char byte : bytes) *response.add_tokens() = TokenOf(byte);
    response.set_text(text);
    response.mutable_finished()->set_reason(v1::FINISH_REASON_MAX_TOKENS);
    const json answer = json::parse(Made(format_->Whole({Packed(response)}, {})));
    return TokensOf(answer["choices"][0]["logprobs"]);
  }
  std::vector<std::string> Delta(const std::string& bytes, const std::string& text) {
    v1::Delta delta;
    for (const char byte : bytes) *delta.add_tokens() = TokenOf(byte);
    delta.set_text(text);
    std::vector<std::string> all;
    for (absl::string_view event :
         absl::StrSplit(Made(*format_->Delta(0, Packed(delta), {})), "\n\n", absl::SkipEmpty())) {
      EXPECT_TRUE(absl::ConsumePrefix(&event, "data: "));
      for (std::string& token :
           TokensOf(json::parse(std::string(event))["choices"][0]["logprobs"])) {
        all.push_back(std::move(token));
      }
    }
    return all;
  }

  const ByteTokenizer tokenizer_;
  GenerationOptions options_;
  std::unique_ptr<AnswerFormat> format_;
};

using Texts = std::vector<std::string>;

TEST_P(TokenTextsTest, ACharacterIsTheTextOfTheLastOfItsTokens) {
  const std::string text = std::string("a") + kEuro + "b";
  EXPECT_EQ(Whole(text, text), (Texts{"a", "", "", kEuro, "b"}));
  EXPECT_EQ(Delta("a\xE2", "a"), (Texts{"a", ""}));
  EXPECT_EQ(Delta("\x82", ""), Texts{""});
  EXPECT_EQ(Delta("\xAC", kEuro), Texts{kEuro});
  EXPECT_EQ(Delta("b", "b"), Texts{"b"});
}

TEST_P(TokenTextsTest, ACharacterThatTheAnswerEndsInsideIsReplacedAsInItsText) {
  const std::string text = std::string("a") + kReplaced;
  EXPECT_EQ(Whole("a\xE2\x82", text), (Texts{"a", "", kReplaced}));
  EXPECT_EQ(Delta("a\xE2", "a"), (Texts{"a", ""}));
  EXPECT_EQ(Delta("\x82", kReplaced), Texts{kReplaced});
}

// The text of an id of stop_token_ids is left out, and a part of a character that it ends with.
TEST_P(TokenTextsTest, AStopTokenInsideACharacterHasOneTextStreamedOrNot) {
  EXPECT_EQ(Whole("a\xE2", "a"), (Texts{"a", ""}));
  EXPECT_EQ(Delta("a\xE2", "a"), (Texts{"a", ""}));
}

TEST_P(TokenTextsTest, ALogProbabilityHasAllItsBits) {
  constexpr float kLogprob = -14.8342705F;  // eight digits are those of another
  v1::GenerateResponse response;
  *response.add_tokens() = TokenOf('a');
  response.mutable_tokens(0)->set_logprob(kLogprob);
  const json answer = json::parse(Made(format_->Whole({Packed(response)}, {})));
  const json& logprobs = answer["choices"][0]["logprobs"];
  EXPECT_EQ(
      (GetParam() ? logprobs["content"][0]["logprob"] : logprobs["token_logprobs"][0]).get<float>(),
      kLogprob);
}

// Clients look the drawn token up among the likeliest.
TEST_P(TokenTextsTest, TheDrawnTokenHasOneTextInBothLists) {
  v1::GenerateResponse response;
  for (const char byte : std::string(kEuro)) {
    v1::Token& token = *response.add_tokens() = TokenOf(byte);
    v1::TokenLogprob& top = *token.add_top();
    top.set_id(token.id());
    top.set_logprob(token.logprob());
  }
  response.set_text(kEuro);
  options_.logprobs = 1;
  const json answer = json::parse(Made(format_->Whole({Packed(response)}, {})));
  const json logprobs = answer["choices"][0]["logprobs"];
  const Texts texts = TokensOf(logprobs);
  ASSERT_EQ(texts, (Texts{"", "", kEuro}));
  for (size_t i = 0; i < texts.size(); ++i) {
    if (GetParam()) {
      EXPECT_EQ(logprobs["content"][i]["top_logprobs"][0]["token"], texts[i]);
    } else {
      EXPECT_EQ(logprobs["top_logprobs"][i], json({{texts[i], -1.0}}));
    }
  }
}

TEST(ChatTokenBytes, AreTheTokensOwnAlsoInsideACharacter) {
  const ByteTokenizer tokenizer;
  GenerationOptions options;
  options.logprobs = 1;
  options.skip_special_tokens = false;
  v1::GenerateResponse response;
  for (const char byte : {'a', '\xE2', '\x82'}) {
    v1::Token& token = *response.add_tokens() = TokenOf(byte);
    for (const uint32_t id : {token.id(), uint32_t{0xAC}, uint32_t{LetterTokenizer::kBegin}}) {
      token.add_top()->set_id(id);
    }
  }
  response.set_text(std::string("a") + kReplaced);
  const AnswerFrame frame("id", "object", 0, "letters", options);
  ChatFormat format(frame, frame, options, ChatOutputOptions(), &tokenizer, 1);
  const json logprobs =
      json::parse(Made(format.Whole({Packed(response)}, {})))["choices"][0]["logprobs"];
  EXPECT_EQ(TokensOf(logprobs), (Texts{"a", "", kReplaced})) << "texts stay texts";
  const std::vector<std::vector<int>> expected = {{'a'}, {0xE2}, {0x82}};
  for (size_t i = 0; i < expected.size(); ++i) {
    const json& one = logprobs["content"][i];
    EXPECT_EQ(one["bytes"], json(expected[i]));
    EXPECT_EQ(one["top_logprobs"][0]["bytes"], json(expected[i]));
    EXPECT_EQ(one["top_logprobs"][1]["bytes"], json({0xAC}));
    EXPECT_EQ(one["top_logprobs"][2]["bytes"], json({'?'})) << "special: those of its text";
  }
}

TEST_P(TokenTextsTest, TextThatIsHeldBackEndsNoAnswer) {
  // For a stop string.
  EXPECT_EQ(Delta("ab", ""), (Texts{"a", "b"}));
  EXPECT_EQ(Delta("\xE2", "a"), Texts{""});
  EXPECT_EQ(Delta("\x82\xAC", "b"), (Texts{"", kEuro}));
}

// `text` without its first `characters` characters.
absl::string_view Behind(absl::string_view text, size_t characters) {
  for (; characters > 0 && !text.empty(); --characters) text.remove_prefix(CharBytes(text[0]));
  return text;
}

// An answer with an echo: its text, and the lists beside it.
struct Echoed {
  std::string text;
  std::vector<std::string> tokens;
  std::vector<size_t> offsets;

  void Add(const json& choice) {
    text += choice["text"].get<std::string>();
    if (choice["logprobs"].is_null()) return;
    for (const json& token : choice["logprobs"]["tokens"]) tokens.push_back(token);
    for (const json& offset : choice["logprobs"]["text_offset"]) offsets.push_back(offset);
  }
  void AddEvents(BodyParts parts) {
    for (absl::string_view event :
         absl::StrSplit(Made(std::move(parts)), "\n\n", absl::SkipEmpty())) {
      EXPECT_TRUE(absl::ConsumePrefix(&event, "data: "));
      Add(json::parse(std::string(event))["choices"][0]);
    }
  }
  void ExpectOffsetsIn(const std::string& whole) const {
    EXPECT_EQ(text, whole);
    ASSERT_EQ(offsets.size(), tokens.size());
    for (size_t i = 0; i < tokens.size(); ++i) {
      EXPECT_TRUE(absl::StartsWith(Behind(text, offsets[i]), tokens[i]))
          << "token " << i << " \"" << tokens[i] << "\" at " << offsets[i] << " of \"" << text
          << "\"";
    }
  }
};

TEST(EchoedTokenTexts, OffsetsAreThoseOfTheTextWithTheEcho) {
  for (const char* name : {"llama2", "metaspace", "gpt2"}) {
    const auto loaded = Tokenizer::Load(absl::StrCat(BH_TEST_DATA, "/tokenizers/", name));
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    const Tokenizer& tokenizer = **loaded;
    for (const bool skip : {true, false}) {
      SCOPED_TRACE(absl::StrCat(name, skip ? "" : " with special tokens"));
      GenerationOptions options;
      options.logprobs = 0;
      options.echo = true;
      options.skip_special_tokens = skip;
      const std::vector<int32_t> prompt = *tokenizer.Encode("Hello w\xC3\xB6rld", true);
      const std::vector<int32_t> made = *tokenizer.Encode("and \xE2\x82\xAC 5", false);
      TextStream stream(&tokenizer, prompt, {.skip_special_tokens = skip, .stop = {}});
      v1::GenerateResponse whole;
      v1::TokenIds ids;
      v1::PromptLogprobs prompt_logprobs;
      for (const int32_t id : prompt) {
        ids.add_ids(static_cast<uint32_t>(id));
        prompt_logprobs.add_tokens()->set_id(static_cast<uint32_t>(id));
      }
      *whole.mutable_prompt_token_ids() = ids;
      *whole.mutable_prompt_logprobs() = prompt_logprobs.tokens();
      std::vector<v1::Delta> deltas;
      for (const int32_t id : made) {
        v1::Delta delta;
        delta.add_tokens()->set_id(static_cast<uint32_t>(id));
        delta.set_text(stream.Add(id, true).text);
        deltas.push_back(delta);
      }
      *deltas.back().mutable_text() += stream.Flush();
      for (const v1::Delta& delta : deltas) {
        *whole.add_tokens() = delta.tokens(0);
        *whole.mutable_text() += delta.text();
      }
      std::vector<int32_t> all = prompt;
      all.insert(all.end(), made.begin(), made.end());
      const std::string text = tokenizer.Decode(all, skip);
      const AnswerFrame frame("id", "object", 0, "model", options);

      CompletionFormat whole_format(frame, options, &tokenizer, 1);
      Echoed answered;
      answered.Add(json::parse(Made(whole_format.Whole({Packed(whole)}, {})))["choices"][0]);
      answered.ExpectOffsetsIn(text);
      EXPECT_EQ(answered.tokens.size(), all.size());

      CompletionFormat stream_format(frame, options, &tokenizer, 1);
      Echoed streamed;
      const PackedMessage packed = Packed(ids);
      streamed.AddEvents(stream_format.Prompt(
          0, {packed.owner, BytesOf(packed.bytes, v1::TokenIds::kIdsFieldNumber)}, {}));
      streamed.AddEvents(stream_format.PromptLogprobs(0, Packed(prompt_logprobs), {}));
      for (const v1::Delta& delta : deltas) {
        streamed.AddEvents(*stream_format.Delta(0, Packed(delta), {}));
      }
      streamed.ExpectOffsetsIn(text);
      EXPECT_EQ(streamed.tokens, answered.tokens);
      EXPECT_EQ(streamed.offsets, answered.offsets);
    }
  }
}

TEST(EchoedTokenTexts, OffsetsAreThoseOfTheTextWhereTokensAreShownAsIds) {
  const ByteTokenizer tokenizer;
  GenerationOptions options;
  options.logprobs = 0;
  options.tokens_as_ids = true;
  const AnswerFrame frame("id", "object", 0, "letters", options);
  const std::string text = std::string("a") + kEuro + "b";
  v1::GenerateResponse whole;
  whole.set_text(text);
  CompletionFormat streamed(frame, options, &tokenizer, 1);
  Echoed events;
  for (const char byte : text) {
    *whole.add_tokens() = TokenOf(byte);
    v1::Delta delta;
    *delta.add_tokens() = TokenOf(byte);
    events.AddEvents(*streamed.Delta(0, Packed(delta), {}));
  }
  const std::vector<size_t> offsets = {0, 1, 1, 1, 2};
  CompletionFormat format(frame, options, &tokenizer, 1);
  const json logprobs =
      json::parse(Made(format.Whole({Packed(whole)}, {})))["choices"][0]["logprobs"];
  EXPECT_EQ(logprobs["text_offset"], json(offsets));
  EXPECT_EQ(logprobs["tokens"][4], "token_id:98");
  EXPECT_EQ(events.offsets, offsets);
  EXPECT_EQ(json(events.tokens), logprobs["tokens"]);
  // Without a tokenizer there is no text that offsets could be of.
  CompletionFormat no_text(frame, options, nullptr, 1);
  whole.clear_text();
  EXPECT_EQ(json::parse(
                Made(no_text.Whole({Packed(whole)}, {})))["choices"][0]["logprobs"]["text_offset"],
            json({0, 0, 0, 0, 0}));
}

INSTANTIATE_TEST_SUITE_P(Formats, TokenTextsTest, testing::Bool());

TEST(PromptLogprobs, AreAListOfTheirOwnInVllmsFormat) {
  const ByteTokenizer tokenizer;
  GenerationOptions options;
  options.logprobs = 0;
  options.prompt_logprobs = true;
  v1::GenerateResponse whole;
  whole.add_prompt_logprobs()->set_id('a');
  v1::Token& second = *whole.add_prompt_logprobs();
  second = TokenOf('b');
  second.set_logprob(-2.5F);
  second.set_rank(3);
  for (const char id : {'x', 'b'}) {
    v1::TokenLogprob& top = *second.add_top();
    top.set_id(static_cast<uint32_t>(id));
    top.set_logprob(id == 'x' ? -0.5F : -2.5F);
  }
  *whole.add_tokens() = TokenOf('c');
  whole.set_text("c");
  const AnswerFrame frame("id", "object", 0, "letters", options);
  CompletionFormat format(frame, options, &tokenizer, 1);
  const json choice = json::parse(Made(format.Whole({Packed(whole)}, {})))["choices"][0];
  EXPECT_EQ(choice["prompt_logprobs"],
            json::parse(R"([null, {"98": {"logprob": -2.5, "rank": 3, "decoded_token": "b"},
                                   "120": {"logprob": -0.5, "rank": 1, "decoded_token": "x"}}])"));
  EXPECT_EQ(choice["logprobs"]["tokens"], json::array({"c"})) << "those of the answer alone";
}

}  // namespace
}  // namespace bulkhead
