#include "runtime/service/prompt_builder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "runtime/service/refusal.h"
#include "tests/runtime/service/letter_tokenizer.h"

namespace bulkhead {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

// One token per four letters, for short texts.
class ShortTextTokenizer final : public Tokenizer {
 public:
  absl::StatusOr<std::vector<int32_t>> Encode(absl::string_view text, bool /*add*/) const override {
    EXPECT_LE(text.size(), 44u) << "its length said enough";
    return std::vector<int32_t>(MinTokenCount(text.size()), 'a');
  }
  size_t MinTokenCount(size_t text_bytes) const override { return (text_bytes + 3) / 4; }
  std::string Decode(absl::Span<const int32_t> /*ids*/, bool /*skip*/) const override { return ""; }
  int vocab_size() const override { return LetterTokenizer::kVocabSize; }
};

TEST(PromptBuilderTest, ATextWhoseLengthSaysThatItIsTooLongIsNotTokenised) {
  const ShortTextTokenizer tokenizer;
  RequestRules rules;
  rules.tokenizer = &tokenizer;
  rules.vocab_size = tokenizer.vocab_size();
  rules.max_model_len = 11;
  v1::GenerateRequest request;
  request.set_text(std::string(40, 'a'));
  EXPECT_EQ(BuildPrompt(request, rules, /*reserved_tokens=*/1).value().size(), 10u);
  request.set_text(std::string(41, 'a'));
  const absl::Status refused = BuildPrompt(request, rules, /*reserved_tokens=*/1).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ReasonOf(refused), reason::kPromptTooLong);
  EXPECT_THAT(std::string(refused.message()),
              StartsWith("prompt.text: the prompt is too long: at least 11 tokens"));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("--max-model-len"));
  EXPECT_TRUE(BuildPrompt(request, rules, /*reserved_tokens=*/0).ok());
}

// One token per letter; prepends a 7, or nothing.
class BosTokenizer final : public Tokenizer {
 public:
  explicit BosTokenizer(bool adds) : adds_(adds) {}
  absl::StatusOr<std::vector<int32_t>> Encode(absl::string_view text, bool add) const override {
    std::vector<int32_t> ids;
    if (add && adds_) ids.push_back(7);
    for (const char c : text) ids.push_back(c - '0');
    return ids;
  }
  std::string Decode(absl::Span<const int32_t> /*ids*/, bool /*skip*/) const override { return ""; }
  int vocab_size() const override { return 10; }

 private:
  const bool adds_;
};

bool Twice(const Tokenizer& tokenizer, const std::string& text) {
  return BeginsWithTwoBos(tokenizer, *tokenizer.Encode(text, true));
}

TEST(DoubleBosTest, ATextThatBeginsWithTheBosThatIsAddedIsKnown) {
  const BosTokenizer adds(true);
  EXPECT_TRUE(Twice(adds, "7123"));
  EXPECT_FALSE(Twice(adds, "123"));
  EXPECT_FALSE(Twice(adds, "1177"));
  EXPECT_FALSE(Twice(adds, ""));
}

TEST(DoubleBosTest, WhereNothingIsAddedATextMayBeginWithTheSameTokenTwice) {
  EXPECT_FALSE(Twice(BosTokenizer(false), "77"));
}

TEST(DoubleBosTest, ThereIsOneWarningAMinute) {
  constexpr int64_t kSecond = 1'000'000'000;
  const auto log_at = [](int64_t now_ns) {
    testing::internal::CaptureStderr();
    WarnOfTwoBos(now_ns);
    return testing::internal::GetCapturedStderr();
  };
  EXPECT_THAT(log_at(100 * kSecond), HasSubstr("add_special_tokens"));
  EXPECT_EQ(log_at(159 * kSecond), "");
  EXPECT_THAT(log_at(161 * kSecond), HasSubstr("BOS"));
}

}  // namespace
}  // namespace bulkhead
