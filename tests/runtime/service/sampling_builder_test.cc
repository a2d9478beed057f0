#include "runtime/service/sampling_builder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "runtime/service/refusal.h"
#include "tests/runtime/service/letter_tokenizer.h"

namespace bulkhead {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const LetterTokenizer kTokenizer;

RequestRules Rules() {
  RequestRules rules;
  rules.tokenizer = &kTokenizer;
  rules.vocab_size = LetterTokenizer::kVocabSize;
  rules.max_model_len = 64;
  return rules;
}

LogitsParams Built(const v1::Sampling& asked, const RequestRules& rules = Rules()) {
  absl::StatusOr<LogitsParams> params = BuildLogits(asked, rules);
  EXPECT_TRUE(params.ok()) << params.status() << " for " << asked.ShortDebugString();
  return params.ok() ? *std::move(params) : LogitsParams();
}

void ExpectRefused(const v1::Sampling& asked, const std::vector<std::string>& says,
                   const RequestRules& rules = Rules()) {
  const absl::Status status = BuildLogits(asked, rules).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << asked.ShortDebugString();
  EXPECT_NE(ReasonOf(status), "");
  for (const std::string& text : says) EXPECT_THAT(std::string(status.message()), HasSubstr(text));
}

TEST(SamplingBuilderTest, NothingChangesLogitsUnlessAsked) {
  EXPECT_TRUE(Built(v1::Sampling()).off());
  v1::Sampling neutral;
  neutral.set_repetition_penalty(1);
  neutral.set_presence_penalty(0);
  neutral.set_frequency_penalty(-0.0F);
  EXPECT_TRUE(Built(neutral).off());
}

TEST(SamplingBuilderTest, PenaltiesAreTakenWithinTheirLimitsAndRefusedBeyond) {
  struct Range {
    const char* name;
    void (v1::Sampling::*set)(float);
    float LogitsParams::*get;
    std::vector<float> good;
    std::vector<float> bad;
  };
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float inf = std::numeric_limits<float>::infinity();
  const Range ranges[] = {{"repetition_penalty",
                           &v1::Sampling::set_repetition_penalty,
                           &LogitsParams::repetition_penalty,
                           {0.01F, 1.3F, 100},
                           {0, -1, 0.009F, 100.5F, nan, inf}},
                          {"presence_penalty",
                           &v1::Sampling::set_presence_penalty,
                           &LogitsParams::presence_penalty,
                           {-2, 0.5F, 2},
                           {-2.1F, 2.1F, nan, inf, -inf}},
                          {"frequency_penalty",
                           &v1::Sampling::set_frequency_penalty,
                           &LogitsParams::frequency_penalty,
                           {-2, 0.5F, 2},
                           {-2.1F, 2.1F, nan, inf, -inf}}};
  for (const Range& range : ranges) {
    for (const float value : range.good) {
      v1::Sampling asked;
      (asked.*range.set)(value);
      EXPECT_EQ(Built(asked).*range.get, value);
    }
    for (const float value : range.bad) {
      v1::Sampling asked;
      (asked.*range.set)(value);
      ExpectRefused(asked, {std::string("sampling.") + range.name, "is outside ["});
    }
  }
}

TEST(SamplingBuilderTest, TheRequestWinsOverGenerationConfig) {
  RequestRules rules = Rules();
  rules.defaults.repetition_penalty = 1.25;
  EXPECT_EQ(Built(v1::Sampling(), rules).repetition_penalty, 1.25F);
  v1::Sampling asked;
  asked.set_repetition_penalty(1);
  EXPECT_TRUE(Built(asked, rules).off());
}

TEST(SamplingBuilderTest, BiasesAndAllowedIdsAreOfTheVocabularyAndBounded) {
  v1::Sampling asked;
  (*asked.mutable_logit_bias())[70] = 100;
  (*asked.mutable_logit_bias())[3] = -100;
  for (const uint32_t id : {9, 4, 9}) asked.add_allowed_token_ids(id);
  const LogitsParams params = Built(asked);
  ASSERT_EQ(params.bias.size(), 2);
  EXPECT_EQ(params.bias[0].id, 3);
  EXPECT_EQ(params.bias[0].bias, -100);
  EXPECT_EQ(params.bias[1].id, 70);
  EXPECT_THAT(params.allowed, ElementsAre(4, 9));

  const uint32_t beyond = LetterTokenizer::kVocabSize;
  v1::Sampling bad;
  (*bad.mutable_logit_bias())[beyond] = 1;
  ExpectRefused(bad, {"sampling.logit_bias", std::to_string(beyond)});
  bad.Clear();
  for (const float bias : {100.5F, -101.0F, std::numeric_limits<float>::quiet_NaN()}) {
    (*bad.mutable_logit_bias())[5] = bias;
    ExpectRefused(bad, {"sampling.logit_bias[5]", "[-100, 100]"});
  }
  bad.Clear();
  bad.add_allowed_token_ids(beyond);
  ExpectRefused(bad, {"sampling.allowed_token_ids[0]", std::to_string(beyond)});

  RequestRules rules = Rules();
  rules.vocab_size = 5000;
  v1::Sampling many;
  for (uint32_t id = 0; id < kMaxLogitBiases; ++id) {
    (*many.mutable_logit_bias())[id] = 1;
    many.add_allowed_token_ids(id);
  }
  EXPECT_EQ(Built(many, rules).bias.size(), kMaxLogitBiases);
  (*many.mutable_logit_bias())[4999] = 1;
  ExpectRefused(many, {"sampling.logit_bias", "1025", "1024"}, rules);
  many.clear_logit_bias();
  many.add_allowed_token_ids(1);
  ExpectRefused(many, {"sampling.allowed_token_ids", "1025", "1024"}, rules);
}

// "X" behind a space is one token, 'X' + 100.
class SpacedTokenizer final : public Tokenizer {
 public:
  absl::StatusOr<std::vector<int32_t>> Encode(absl::string_view text, bool add) const override {
    EXPECT_FALSE(add);
    std::vector<int32_t> ids;
    for (size_t i = 0; i < text.size(); ++i) {
      const bool spaced = text[i] == ' ' && i + 1 < text.size() && text[i + 1] != 'z';
      ids.push_back(spaced ? text[++i] + 100 : text[i]);
    }
    return ids;
  }
  std::string Decode(absl::Span<const int32_t>, bool) const override { return ""; }
  int vocab_size() const override { return LetterTokenizer::kVocabSize; }
};

TEST(SamplingBuilderTest, BadWordsAreTokensWithAndWithoutASpaceBefore) {
  const SpacedTokenizer spaced;
  RequestRules rules = Rules();
  rules.tokenizer = &spaced;
  v1::Sampling asked;
  asked.add_bad_words("ab");
  asked.add_bad_words("  c");  // as without its spaces
  asked.add_bad_words("z");    // is two tokens with a space: not the same word
  EXPECT_THAT(Built(asked, rules).bad_words,
              ElementsAre(ElementsAre('a', 'b'), ElementsAre('a' + 100, 'b'), ElementsAre('c'),
                          ElementsAre('c' + 100), ElementsAre('z')));
}

TEST(SamplingBuilderTest, BadWordsAreBoundedAndNeedATokenizer) {
  v1::Sampling asked;
  asked.add_bad_words(std::string(kMaxBadWordBytes, 'a'));
  EXPECT_EQ(Built(asked).bad_words.size(), 1);
  asked.add_bad_words(std::string(kMaxBadWordBytes + 1, 'a'));
  ExpectRefused(asked, {"sampling.bad_words[1]", "129", "128"});
  for (const char* bad : {"", "  ", "\xff"}) {
    asked.Clear();
    asked.add_bad_words(bad);
    ExpectRefused(asked, {"sampling.bad_words[0]"});
  }
  asked.Clear();
  for (int i = 0; i <= kMaxBadWords; ++i) asked.add_bad_words("a");
  ExpectRefused(asked, {"sampling.bad_words", "65", "64"});
  asked.Clear();
  asked.add_bad_words("a");
  RequestRules rules = Rules();
  rules.tokenizer = nullptr;
  ExpectRefused(asked, {"sampling.bad_words", "tokenizer.json"}, rules);
}

}  // namespace
}  // namespace bulkhead
