#include "runtime/service/structured_builder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/runtime/service/request_checks.h"

namespace bulkhead {
namespace {

using testing::HasSubstr;

RequestRules GrammarRules(size_t max_bytes = size_t{8} << 20) {
  RequestRules rules = Rules();
  rules.grammars = std::make_shared<structured::GrammarCache>(
      [] {
        std::vector<std::string> tokens;
        for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
        return tokens;
      },
      LetterTokenizer::kVocabSize, max_bytes);
  return rules;
}

v1::GenerateRequest WithRegex(const std::string& pattern) {
  v1::GenerateRequest request = Text("ab");
  request.mutable_structured()->set_regex(pattern);
  return request;
}

TEST(StructuredBuilderTest, EqualGrammarsShareAnAutomatonAndOthersHaveNone) {
  const RequestRules rules = GrammarRules();
  const Request request = Built(WithRegex("a+"), rules);
  ASSERT_NE(request.logits.grammar, nullptr);
  EXPECT_FALSE(request.logits.off());
  EXPECT_EQ(Built(WithRegex("a+"), rules).logits.grammar, request.logits.grammar);
  v1::GenerateRequest wrapped = WithRegex("a+");
  wrapped.mutable_structured()->set_prefix("<");
  EXPECT_NE(Built(wrapped, rules).logits.grammar, request.logits.grammar);
  EXPECT_EQ(Built(Text("ab"), rules).logits.grammar, nullptr);
  v1::GenerateRequest all = Text("ab");
  all.mutable_structured()->set_json_object(true);
  EXPECT_NE(Built(all, rules).logits.grammar, nullptr);
  all.mutable_structured()->set_json_schema(R"({"type": "integer"})");
  EXPECT_NE(Built(all, rules).logits.grammar, nullptr);
  all.mutable_structured()->mutable_choice()->add_texts("yes");
  EXPECT_NE(Built(all, rules).logits.grammar, nullptr);
}

TEST(StructuredBuilderTest, StopStringsAreNotLookedForInThePrefixOfAGrammar) {
  const RequestRules rules = GrammarRules();
  v1::GenerateRequest request = WithRegex("a+");
  request.mutable_structured()->set_prefix("<\n");
  EXPECT_EQ(Built(request, rules).stopping.forced, "<\n");
  request.mutable_structured()->set_free_until("b");
  EXPECT_EQ(Built(request, rules).stopping.forced, "") << "what is free is the model's";
  request.mutable_structured()->set_free_from("c");
  EXPECT_EQ(Built(request, rules).stopping.forced, "<\n");
}

TEST(StructuredBuilderTest, EmittedTokensAreFollowedAlongTheGrammarBeforeTheRequestIsSubmitted) {
  const RequestRules rules = GrammarRules();
  v1::GenerateRequest request = WithRegex("ab?");
  request.mutable_sampling()->set_seed(1);
  request.mutable_stopping()->set_max_tokens(5);
  EXPECT_EQ(Built(request, rules).logits.reached, nullptr);
  request.mutable_resume()->add_emitted_token_ids('a');
  const Request resumed = Built(request, rules);
  EXPECT_NE(resumed.logits.reached, nullptr);
  EXPECT_TRUE(resumed.logits.reached_status.ok());
  EXPECT_EQ(resumed.logits.complete_after, 0);
  request.mutable_resume()->add_emitted_token_ids('b');
  EXPECT_EQ(Built(request, rules).logits.complete_after, 2);
  request.mutable_resume()->set_emitted_token_ids(0, 'c');
  EXPECT_FALSE(Built(request, rules).logits.reached_status.ok());
}

TEST(StructuredBuilderTest, WhatIsOutsideIsRefusedByNameAndPlace) {
  const RequestRules rules = GrammarRules();
  v1::GenerateRequest request = Text("ab");
  request.mutable_structured();
  ExpectRefused(request, "structured", {"has no form"}, rules);
  ExpectRefused(WithRegex("a(?=b)"), "structured.regex", {"byte 4"}, rules);
  ExpectRefused(WithRegex("("), "structured.regex", {}, rules);
  EXPECT_EQ(ReasonOf(BuildRequest(WithRegex("("), rules).status()), reason::kStructuredOutput);
  ExpectRefused(WithRegex("\xff"), "structured.regex", {"UTF-8"}, rules);
  request.mutable_structured()->set_json_schema(
      R"({"properties": {"a": {"type": "string", "contains": 1}}})");
  ExpectRefused(request, "structured.json_schema", {"#/properties/a"}, rules);
  request.mutable_structured()->set_json_schema("[");
  ExpectRefused(request, "structured.json_schema", {}, rules);
  request.mutable_structured()->set_json_schema(std::string(100'000, ' '));
  ExpectRefused(request, "structured.json_schema", {"100000", "65536"}, rules);
  request.mutable_structured()->mutable_choice();
  ExpectRefused(request, "structured.choice", {"empty"}, rules);
  request.mutable_structured()->set_json_object(false);
  ExpectRefused(request, "structured.json_object", {"is false"}, rules);
  request = WithRegex("a");
  request.mutable_structured()->set_suffix(std::string(257, 'x'));
  ExpectRefused(request, "structured.suffix", {"257", "256"}, rules);
  request = WithRegex("a");
  request.mutable_stopping()->set_ignore_eos(true);
  ExpectRefused(request, "stopping.ignore_eos", {"structured output"}, rules);
  ExpectRefused(WithRegex("a"), "structured.regex", {"tokenizer.json"}, Rules());
}

TEST(StructuredBuilderTest, GrammarsInFlightThatTakeTheRoomAreAReasonToComeBack) {
  const RequestRules rules = GrammarRules(size_t{1} << 20);
  std::vector<Request> held;
  absl::Status refused;
  while (refused.ok() && held.size() < 100) {
    absl::StatusOr<Request> built =
        BuildRequest(WithRegex(std::string(held.size() + 1, 'a')), rules);
    if (built.ok()) held.push_back(*std::move(built));
    refused = built.status();
  }
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(ReasonOf(refused), reason::kStructuredOutput);
  EXPECT_TRUE(RetryAfter(refused).has_value());
  held.clear();
  EXPECT_TRUE(BuildRequest(WithRegex("b"), rules).ok());
}

}  // namespace
}  // namespace bulkhead
