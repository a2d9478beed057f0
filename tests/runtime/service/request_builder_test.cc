#include "runtime/service/request_builder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "runtime/service/refusal.h"
#include "tests/runtime/service/request_checks.h"

namespace bulkhead {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(RequestBuilderTest, FieldsOfANewerClientAreRefusedByNumber) {
  v1::GenerateRequest request = Text("ab");
  request.GetReflection()->MutableUnknownFields(&request)->AddVarint(30, 1);
  ExpectRefused(request, "field 30", {"newer server"});
  request = Text("ab");
  v1::Sampling* sampling = request.mutable_sampling();
  sampling->GetReflection()->MutableUnknownFields(sampling)->AddFixed32(30, 1);
  ExpectRefused(request, "sampling.field 30", {});
  EXPECT_EQ(ReasonOf(BuildRequest(request, Rules()).status()), reason::kUnsupportedParameter);
}

TEST(RequestBuilderTest, DefaultsAreFilledIn) {
  const Request request = Built(Text("ab"));
  EXPECT_THAT(request.prompt, ElementsAre(256, 'a', 'b'));
  EXPECT_EQ(request.sampling.temperature, 1.0F);
  EXPECT_EQ(request.sampling.top_p, 1.0F);
  EXPECT_EQ(request.sampling.top_k, 0);
  EXPECT_EQ(request.sampling.min_p, 0.0F);
  EXPECT_EQ(request.stopping.max_tokens, kModelLen - 3);
  EXPECT_TRUE(request.wants_text);
  EXPECT_TRUE(request.skip_special_tokens);
  EXPECT_FALSE(request.num_logprobs.has_value());
  EXPECT_TRUE(request.emitted.empty());
}

TEST(RequestBuilderTest, DefaultMaxTokensIsWhatIsLeftAtMostTheServersDefault) {
  RequestRules rules = Rules();
  rules.default_max_tokens = 10;
  EXPECT_EQ(Built(Text("ab"), rules).stopping.max_tokens, 10);
  EXPECT_EQ(Built(Text(std::string(60, 'a')), rules).stopping.max_tokens, 3);
}

TEST(RequestBuilderTest, ExplicitMaxTokensMayGoBeyondTheModel) {
  v1::GenerateRequest message = Text("ab");
  message.mutable_stopping()->set_max_tokens(std::numeric_limits<uint32_t>::max());
  const Request request = Built(message);
  EXPECT_GE(request.stopping.max_tokens, kModelLen - 3);
  EXPECT_EQ(EffectiveMaxTokens(request, kModelLen), kModelLen - 3);
  message.mutable_stopping()->set_max_tokens(5);
  EXPECT_EQ(EffectiveMaxTokens(Built(message), kModelLen), 5);
}

TEST(RequestBuilderTest, TheRequestWinsOverGenerationConfigAndThatOverTheDefault) {
  RequestRules rules = Rules();
  rules.defaults = {
      .do_sample = true, .temperature = 0.5, .top_p = 0.25, .min_p = 0.125, .top_k = 3};
  Request request = Built(Text("ab"), rules);
  EXPECT_EQ(request.sampling.temperature, 0.5F);
  EXPECT_EQ(request.sampling.top_p, 0.25F);
  EXPECT_EQ(request.sampling.min_p, 0.125F);
  EXPECT_EQ(request.sampling.top_k, 3);
  v1::GenerateRequest message = Text("ab");
  message.mutable_sampling()->set_temperature(0);
  message.mutable_sampling()->set_top_p(1);
  message.mutable_sampling()->set_min_p(0);
  message.mutable_sampling()->set_top_k(0);
  request = Built(message, rules);
  EXPECT_EQ(request.sampling.temperature, 0.0F);
  EXPECT_EQ(request.sampling.top_p, 1.0F);
  EXPECT_EQ(request.sampling.min_p, 0.0F);
  EXPECT_EQ(request.sampling.top_k, 0);
}

TEST(RequestBuilderTest, AConfigThatSaysNotToSampleIsGreedyUnlessTheRequestAsks) {
  RequestRules rules = Rules();
  rules.defaults = {.do_sample = false, .temperature = 0.5, .top_p = {}, .min_p = {}, .top_k = {}};
  EXPECT_EQ(Built(Text("ab"), rules).sampling.temperature, 0.0F);
  v1::GenerateRequest message = Text("ab");
  message.mutable_sampling()->set_temperature(0.75F);
  EXPECT_EQ(Built(message, rules).sampling.temperature, 0.75F);
}

TEST(RequestBuilderTest, AConfigsTopKOfMinusOneOrBeyondTheVocabularyIsOff) {
  for (const int top_k : {-1, 0, LetterTokenizer::kVocabSize, 1 << 30}) {
    RequestRules rules = Rules();
    rules.defaults.top_k = top_k;
    EXPECT_EQ(Built(Text("ab"), rules).sampling.top_k, 0) << top_k;
  }
}

TEST(RequestBuilderTest, AConfigsBadValueIsRefusedByName) {
  RequestRules rules = Rules();
  rules.defaults.top_p = std::nan("");
  ExpectRefused(Text("ab"), "sampling.top_p", {"generation_config.json", "nan"}, rules);
}

TEST(RequestBuilderTest, AMissingSeedIsDrawnAndAGivenOneKept) {
  EXPECT_NE(Built(Text("ab")).sampling.seed, Built(Text("ab")).sampling.seed);
  v1::GenerateRequest message = Text("ab");
  message.mutable_sampling()->set_seed(0);
  EXPECT_EQ(Built(message).sampling.seed, 0U);
  message.mutable_sampling()->set_seed(std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(Built(message).sampling.seed, std::numeric_limits<uint64_t>::max());
}

TEST(RequestBuilderTest, SpecialTokensAreAddedUnlessRefused) {
  v1::GenerateRequest message = Text("ab");
  message.set_add_special_tokens(false);
  EXPECT_THAT(Built(message).prompt, ElementsAre('a', 'b'));
}

// One row of the table of limits: a float field, and whether each value of interest is valid.
struct FloatRow {
  const char* field;
  void (*set)(v1::Sampling&, float);
  float max;
  bool zero_is_legal;
};

TEST(RequestBuilderTest, FloatFieldsKeepTheirRanges) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const std::vector<FloatRow> rows = {
      {"sampling.temperature", [](v1::Sampling& s, float v) { s.set_temperature(v); }, 100, true},
      {"sampling.top_p", [](v1::Sampling& s, float v) { s.set_top_p(v); }, 1, false},
      {"sampling.min_p", [](v1::Sampling& s, float v) { s.set_min_p(v); }, 1, true},
  };
  for (const FloatRow& row : rows) {
    SCOPED_TRACE(row.field);
    const auto with = [&row](float value) {
      v1::GenerateRequest message = Text("ab");
      row.set(*message.mutable_sampling(), value);
      return message;
    };
    for (const float bad : {-1.0F, std::nanf(""), -std::nanf(""), kInf, -kInf, row.max + 1,
                            std::nextafter(row.max, kInf), std::nextafter(0.0F, -1.0F)}) {
      SCOPED_TRACE(bad);
      ExpectRefused(with(bad), row.field, {});
    }
    for (const float zero : {0.0F, -0.0F}) {
      if (row.zero_is_legal) {
        const SamplingParams sampling = Built(with(zero)).sampling;
        EXPECT_FALSE(std::signbit(sampling.temperature));
        EXPECT_FALSE(std::signbit(sampling.min_p));
      } else {
        ExpectRefused(with(zero), row.field, {"0"});
      }
    }
    Built(with(row.max));
    Built(with(std::nextafter(0.0F, 1.0F)));
  }
}

TEST(RequestBuilderTest, IntegerFieldsKeepTheirRanges) {
  constexpr uint32_t kMax = std::numeric_limits<uint32_t>::max();
  v1::GenerateRequest message = Text("ab");
  message.mutable_stopping()->set_max_tokens(0);
  ExpectRefused(message, "stopping.max_tokens", {"0", "1"});
  message = Text("ab");
  message.mutable_stopping()->set_max_tokens(4);
  message.mutable_stopping()->set_min_tokens(4);
  EXPECT_EQ(Built(message).stopping.min_tokens, 4);
  for (const uint32_t bad : {5U, kMax}) {
    message.mutable_stopping()->set_min_tokens(bad);
    ExpectRefused(message, "stopping.min_tokens", {std::to_string(bad), "4"});
  }
  message = Text("ab");
  for (const uint32_t good : {0U, 20U}) {
    message.mutable_output()->set_logprobs(good);
    EXPECT_EQ(Built(message).num_logprobs, static_cast<int>(good));
  }
  for (const uint32_t bad : {21U, kMax}) {
    message.mutable_output()->set_logprobs(bad);
    ExpectRefused(message, "output.logprobs", {std::to_string(bad), "20"});
  }
  message = Text("ab");
  message.mutable_sampling()->set_top_k(kMax);
  EXPECT_EQ(Built(message).sampling.top_k, 0);
  message.mutable_sampling()->set_top_k(40);
  EXPECT_EQ(Built(message).sampling.top_k, 40);
}

TEST(RequestBuilderTest, PromptsAreBounded) {
  ExpectRefused(v1::GenerateRequest(), "prompt", {"missing"});
  ExpectRefused(Ids({}), "prompt.token_ids", {"empty"});
  v1::GenerateRequest bare = Text("");
  EXPECT_THAT(Built(bare).prompt, ElementsAre(256));
  bare.set_add_special_tokens(false);
  ExpectRefused(bare, "prompt.text", {"empty"});
  EXPECT_EQ(Built(Ids(std::vector<uint32_t>(kModelLen - 1, 5))).stopping.max_tokens, 1);
  for (const size_t length : {kModelLen, kModelLen + 1}) {
    ExpectRefused(Ids(std::vector<uint32_t>(length, 5)), "prompt.token_ids",
                  {std::to_string(length), "max_model_len 64", "63"});
    ExpectRefused(Text(std::string(length - 1, 'a')), "prompt.text",
                  {std::to_string(length), "max_model_len 64"});
  }
}

TEST(RequestBuilderTest, IdsBeyondTheVocabularyAreRefusedByPlace) {
  EXPECT_THAT(Built(Ids({0, 256})).prompt, ElementsAre(0, 256));
  for (const uint32_t bad : {257U, 100000000U, 0x7FFFFFFFU, 0x80000000U, 0xFFFFFFFFU}) {
    ExpectRefused(Ids({1, bad}), "prompt.token_ids[1]", {std::to_string(bad), "257"});
    v1::GenerateRequest message = Text("ab");
    message.mutable_stopping()->add_stop_token_ids(bad);
    ExpectRefused(message, "stopping.stop_token_ids[0]", {std::to_string(bad)});
  }
}

TEST(RequestBuilderTest, ATokenizerThatDoesNotFitTheModelIsRefused) {
  RequestRules rules = Rules();
  rules.vocab_size = 256;
  ExpectRefused(Text("ab"), "prompt.text", {"256"}, rules);
}

TEST(RequestBuilderTest, TextTheTokenizerCannotTakeIsTheClientsError) {
  ExpectRefused(Text("too hard"), "prompt.text", {"match limit"});
}

TEST(RequestBuilderTest, StopStringsAreBounded) {
  v1::GenerateRequest message = Text("ab");
  for (int i = 0; i < kMaxStopStrings; ++i) {
    message.mutable_stopping()->add_stop(std::string(kMaxStopStringBytes, 'x'));
  }
  EXPECT_EQ(Built(message).stopping.stop.size(), 16U);
  message.mutable_stopping()->add_stop("x");
  ExpectRefused(message, "stopping.stop", {"17", "16"});
  message = Text("ab");
  message.mutable_stopping()->add_stop(std::string(kMaxStopStringBytes + 1, 'x'));
  ExpectRefused(message, "stopping.stop[0]", {"257", "256"});
  message = Text("ab");
  message.mutable_stopping()->add_stop("");
  ExpectRefused(message, "stopping.stop[0]", {"empty"});
}

TEST(RequestBuilderTest, StopStringsAreUtf8) {
  for (const char* good : {"\xC3\xA9", "\xE2\x82\xAC", "\xF0\x9F\x98\x80", "a\xEF\xBF\xBD"}) {
    v1::GenerateRequest message = Text("ab");
    message.mutable_stopping()->add_stop(good);
    Built(message);
  }
  // A lone continuation byte, an overlong form, a surrogate, beyond U+10FFFF, truncated.
  for (const char* bad :
       {"\x80", "\xC0\xAF", "\xE0\x80\x80", "\xED\xA0\x80", "\xF4\x90\x80\x80", "\xF5\x80\x80\x80",
        "\xC3", "\xE2\x82", "\xFF", "\xC3(", "\xF0\x80\x80\x80"}) {
    v1::GenerateRequest message = Text("ab");
    message.mutable_stopping()->add_stop(bad);
    ExpectRefused(message, "stopping.stop[0]", {"UTF-8"});
  }
}

TEST(RequestBuilderTest, TooManyStopTokenIdsAreRefused) {
  v1::GenerateRequest message = Text("ab");
  for (int i = 0; i < kMaxStopTokenIds; ++i) message.mutable_stopping()->add_stop_token_ids(1);
  Built(message);
  message.mutable_stopping()->add_stop_token_ids(1);
  ExpectRefused(message, "stopping.stop_token_ids", {"257", "256"});
}

TEST(RequestBuilderTest, WithoutATokenizerOnlyIdsAreServed) {
  RequestRules rules = Rules();
  rules.tokenizer = nullptr;
  ExpectRefused(Text("ab"), "prompt.text", {"tokenizer.json", "token ids"}, rules);
  EXPECT_FALSE(Built(Ids({1}), rules).wants_text);
  v1::GenerateRequest message = Ids({1});
  message.mutable_stopping()->add_stop("x");
  ExpectRefused(message, "stopping.stop", {"stop_token_ids"}, rules);
}

TEST(RequestBuilderTest, ModelsThatAreNotServedAreNotFound) {
  v1::GenerateRequest message = Text("ab");
  message.set_model("alphabet");
  Built(message);
  message.set_model("numbers");
  const absl::Status status = BuildRequest(message, Rules()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(ReasonOf(status), reason::kModelNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr("letters"));
}

TEST(RequestBuilderTest, AnAdapterIsChosenByTheModelsName) {
  RequestRules rules = Rules();
  rules.adapters = {{"sql", "a"}, {"chess", "b"}};
  v1::GenerateRequest message = Text("ab");
  for (const char* model : {"", "letters", "alphabet"}) {
    message.set_model(model);
    EXPECT_EQ(Built(message, rules).adapter, 0) << model;
    EXPECT_EQ(Built(message, rules).adapter_name, "") << model;
  }
  message.set_model("chess");
  EXPECT_EQ(Built(message, rules).adapter, 2);
  EXPECT_EQ(Built(message, rules).adapter_name, "chess");
  v1::ScoreRequest score;
  score.set_text("ab");
  score.set_model("sql");
  EXPECT_EQ(BuildScoreRequest(score, rules)->adapter, 1);
  EXPECT_EQ(BuildScoreRequest(score, rules)->adapter_name, "sql");
  message.set_model("numbers");
  EXPECT_THAT(std::string(BuildRequest(message, rules).status().message()),
              HasSubstr("letters, alphabet, sql, chess is"));
  EXPECT_EQ(ReasonOf(BuildScoreRequest(score, Rules()).status()), reason::kModelNotFound);
}

TEST(RequestBuilderTest, RequestIdsArePrintable) {
  v1::GenerateRequest message = Text("ab");
  message.set_request_id(std::string(kMaxRequestIdBytes, 'x'));
  EXPECT_EQ(Built(message).request_id, message.request_id());
  for (const std::string& bad :
       {std::string(kMaxRequestIdBytes + 1, 'x'), std::string("a b"), std::string("a\n"),
        std::string("\xC3\xA9"), std::string(1, '\0')}) {
    message.set_request_id(bad);
    ExpectRefused(message, "request_id", {"128"});
  }
}

TEST(RequestBuilderTest, AResumeIsChecked) {
  v1::GenerateRequest message = Text("ab");
  message.mutable_sampling()->set_seed(9);
  message.mutable_stopping()->set_max_tokens(4);
  auto* resume = message.mutable_resume();
  for (const uint32_t id : {'x', 'y', 'z'}) resume->add_emitted_token_ids(id);
  resume->set_text_bytes_sent(3);
  const Request request = Built(message);
  EXPECT_THAT(request.emitted, ElementsAre('x', 'y', 'z'));
  EXPECT_EQ(request.text_bytes_sent, 3U);
  resume->set_text_bytes_sent(100);
  ExpectRefused(message, "resume.text_bytes_sent", {"100"});
  resume->set_text_bytes_sent(3);
  message.mutable_stopping()->set_max_tokens(3);
  Built(message);
  message.mutable_stopping()->set_max_tokens(2);
  ExpectRefused(message, "resume.emitted_token_ids", {"3", "2"});
  message.mutable_stopping()->set_max_tokens(4);
  message.mutable_sampling()->clear_seed();
  ExpectRefused(message, "sampling.seed", {"resumed"});
  message.mutable_sampling()->set_temperature(0);
  Built(message);
  resume->add_emitted_token_ids(257);
  ExpectRefused(message, "resume.emitted_token_ids[3]", {"257"});
}

TEST(RequestBuilderTest, TheRestIsPassedOn) {
  v1::GenerateRequest message = Text("ab");
  message.set_priority(-3);
  message.mutable_stopping()->set_ignore_eos(true);
  message.mutable_stopping()->set_include_stop_in_output(true);
  message.mutable_stopping()->add_stop_token_ids(7);
  message.mutable_output()->set_text(false);
  message.mutable_output()->set_skip_special_tokens(false);
  const Request request = Built(message);
  EXPECT_EQ(request.priority, -3);
  EXPECT_TRUE(request.stopping.ignore_eos);
  EXPECT_TRUE(request.stopping.include_stop_in_output);
  EXPECT_THAT(request.stopping.stop_token_ids, ElementsAre(7));
  EXPECT_FALSE(request.wants_text);
  EXPECT_FALSE(request.skip_special_tokens);
}

}  // namespace
}  // namespace bulkhead
