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
  EXPECT_EQ(BuildPrompt(request, rules, /*room=*/1).value().size(), 10u);
  request.set_text(std::string(41, 'a'));
  const absl::Status refused = BuildPrompt(request, rules, /*room=*/1).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ReasonOf(refused), reason::kPromptTooLong);
  EXPECT_THAT(std::string(refused.message()),
              StartsWith("prompt.text: at least 11 tokens are more than the 10"));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("--max-model-len"));
  EXPECT_TRUE(BuildPrompt(request, rules, /*room=*/0).ok());
}

}  // namespace
}  // namespace bulkhead
