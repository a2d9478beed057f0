#include "runtime/structured/matcher.h"

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/runtime/structured/grammars.h"

namespace bulkhead::structured {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

// Tokens by their texts; the last id ends an answer.
class Vocabulary {
 public:
  explicit Vocabulary(std::vector<std::string> tokens) : tokens_(std::move(tokens)) {
    tokens_.emplace_back();
    trie_ = std::make_unique<TokenTrie>(tokens_);
  }
  static Vocabulary OfBytes() {
    std::vector<std::string> tokens;
    for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
    return Vocabulary(std::move(tokens));
  }

  int32_t end() const { return static_cast<int32_t>(tokens_.size()) - 1; }
  int32_t id(const std::string& text) const {
    for (int32_t id = 0; id < end(); ++id) {
      if (tokens_[id] == text) return id;
    }
    return -1;
  }
  std::shared_ptr<Automaton> NewAutomaton(
      const absl::StatusOr<std::shared_ptr<const Grammar>>& grammar,
      size_t max_bytes = size_t{1} << 20) const {
    EXPECT_TRUE(grammar.ok()) << grammar.status();
    return std::make_shared<Automaton>(*grammar, trie_.get(), max_bytes);
  }
  Matcher NewMatcher(const std::shared_ptr<Automaton>& automaton) const {
    return Matcher(automaton, {end()});
  }
  std::vector<std::string> Allowed(Matcher& matcher) const {
    std::vector<uint32_t> mask((tokens_.size() + 31) / 32);
    const absl::Status filled = matcher.FillMask(absl::MakeSpan(mask));
    if (!filled.ok()) return {std::string(filled.message())};
    std::vector<std::string> allowed;
    for (int32_t id = 0; id <= end(); ++id) {
      if ((mask[id / 32] >> (id % 32) & 1) != 0) {
        allowed.push_back(id == end() ? "END" : tokens_[id]);
      }
    }
    return allowed;
  }
  bool Accept(Matcher& matcher, const std::string& text) const {
    return matcher.Accept(id(text)).ok();
  }
  const TokenTrie& trie() const { return *trie_; }

 private:
  std::vector<std::string> tokens_;
  std::unique_ptr<TokenTrie> trie_;
};

TEST(MatcherTest, AllowsTheTokensOfAChoiceAndThenOnlyTheEnd) {
  const Vocabulary words({"y", "ye", "yes", "es", "s", "no", "n", "yess"});
  Matcher matcher = words.NewMatcher(words.NewAutomaton(ChoiceGrammar({"yes", "no"})));
  EXPECT_THAT(words.Allowed(matcher), ElementsAre("y", "ye", "yes", "no", "n"));
  ASSERT_TRUE(words.Accept(matcher, "y"));
  EXPECT_THAT(words.Allowed(matcher), ElementsAre("es"));
  EXPECT_FALSE(words.Accept(matcher, "no"));
  EXPECT_EQ(matcher.Accept(words.end()).code(), absl::StatusCode::kInvalidArgument);
  ASSERT_TRUE(words.Accept(matcher, "es"));
  EXPECT_TRUE(matcher.is_complete());
  EXPECT_TRUE(matcher.is_finished());
  EXPECT_THAT(words.Allowed(matcher), ElementsAre("END"));
  EXPECT_TRUE(matcher.Accept(words.end()).ok());
  EXPECT_FALSE(words.Accept(matcher, "y"));
}

TEST(MatcherTest, TheEndIsAllowedWhereTheGrammarMayEndAndMayGoOn) {
  const Vocabulary words({"a", "b"});
  Matcher matcher = words.NewMatcher(words.NewAutomaton(RegexGrammar("a+b?")));
  EXPECT_THAT(words.Allowed(matcher), ElementsAre("a"));
  ASSERT_TRUE(words.Accept(matcher, "a"));
  EXPECT_FALSE(matcher.is_finished());
  EXPECT_THAT(words.Allowed(matcher), ElementsAre("a", "b", "END"));
}

TEST(MatcherTest, TokensMayCrossTheEndsOfRules) {
  const Vocabulary words(
      {"{\"", "a", "\":", "\": \"", "x\"", "x\"}", "x\"},", "\"}", "\"}]", "}", "]", "1"});
  Matcher matcher = words.NewMatcher(words.NewAutomaton(JsonSchemaGrammar(
      R"({"type":"object","properties":{"a":{"type":"string"}},"required":["a"]})")));
  for (const char* token : {"{\"", "a", "\": \""})
    ASSERT_TRUE(words.Accept(matcher, token)) << token;
  EXPECT_THAT(words.Allowed(matcher),
              UnorderedElementsAre("{\"", "a", "x\"", "x\"}", "\"}", "}", "]", "1"));
  ASSERT_TRUE(words.Accept(matcher, "x\"}"));
  EXPECT_THAT(words.Allowed(matcher), ElementsAre("END"));
}

TEST(MatcherTest, CharactersOfSeveralTokensAreWhole) {
  const Vocabulary bytes = Vocabulary::OfBytes();
  Matcher matcher =
      bytes.NewMatcher(bytes.NewAutomaton(JsonSchemaGrammar(R"({"type":"string","maxLength":1})")));
  ASSERT_TRUE(bytes.Accept(matcher, "\""));
  ASSERT_TRUE(bytes.Accept(matcher, "\xe0"));
  EXPECT_EQ(bytes.Allowed(matcher).size(), 32u);  // 0xa0 to 0xbf: no overlong form
  ASSERT_TRUE(bytes.Accept(matcher, "\xa4"));
  EXPECT_EQ(bytes.Allowed(matcher).size(), 64u);
  ASSERT_TRUE(bytes.Accept(matcher, "\xb9"));
  EXPECT_THAT(bytes.Allowed(matcher), ElementsAre("\""));
}

TEST(MatcherTest, ATypeBesideAlternativesIsThatOfThoseWithoutOne) {
  const Vocabulary bytes = Vocabulary::OfBytes();
  Matcher matcher = bytes.NewMatcher(bytes.NewAutomaton(
      JsonSchemaGrammar(R"({"type":"object","anyOf":[{},{"enum":[null,{"a":1}]}]})")));
  EXPECT_THAT(bytes.Allowed(matcher), ElementsAre("{"));
}

TEST(MatcherTest, ALargeClassOfCharactersIsExact) {
  // Every second of 2000 characters.
  std::string pattern = "[";
  const auto utf8 = [](int c) {
    return std::string{static_cast<char>(0xe0 | c >> 12), static_cast<char>(0x80 | (c >> 6 & 0x3f)),
                       static_cast<char>(0x80 | (c & 0x3f))};
  };
  for (int i = 0; i < 2000; i += 2) pattern += utf8(0x4e00 + i);
  const Vocabulary bytes = Vocabulary::OfBytes();
  const std::shared_ptr<Automaton> automaton = bytes.NewAutomaton(RegexGrammar(pattern + "]"));
  for (int i = 0; i < 2000; ++i) {
    const int32_t place = automaton->AddPlace();
    EXPECT_EQ(automaton->Advance(place, utf8(0x4e00 + i)).ok(), i % 2 == 0) << i;
    automaton->DropPlace(place);
  }
}

TEST(MatcherTest, CountsSeeTokensOfManyItems) {
  const Vocabulary words({"[", "]", "1", ",1", ",1,1", ",1,1,1,1", "aaaa", "\"", "a"});
  Matcher items = words.NewMatcher(words.NewAutomaton(
      JsonSchemaGrammar(R"({"type":"array","items":{"const":1},"minItems":3,"maxItems":4})")));
  ASSERT_TRUE(words.Accept(items, "[") && words.Accept(items, "1"));
  EXPECT_THAT(words.Allowed(items), ElementsAre(",1", ",1,1"));
  ASSERT_TRUE(words.Accept(items, ",1,1"));
  EXPECT_THAT(words.Allowed(items), ElementsAre("]", ",1"));
  Matcher text = words.NewMatcher(
      words.NewAutomaton(JsonSchemaGrammar(R"({"type":"string","minLength":5,"maxLength":1000})")));
  ASSERT_TRUE(words.Accept(text, "\""));
  for (int i = 0; i < 249; ++i) ASSERT_TRUE(words.Accept(text, "aaaa"));
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(words.Accept(text, "a"));
  EXPECT_THAT(words.Allowed(text), UnorderedElementsAre("[", "]", "1", ",1", "\"", "a"));
}

TEST(MatcherTest, WhiteSpaceEnds) {
  const Vocabulary words({"{", "}", "\"", "a", ":", " ", "  ", "\n", "1"});
  Matcher matcher = words.NewMatcher(words.NewAutomaton(Grammar::Of({})));
  for (const char* token : {"{", "\"", "a", "\"", ":", " "})
    ASSERT_TRUE(words.Accept(matcher, token));
  EXPECT_THAT(words.Allowed(matcher), UnorderedElementsAre("{", "\"", "1"));
}

TEST(MatcherTest, TheDeepestLevelCanStillEnd) {
  const Vocabulary bytes = Vocabulary::OfBytes();
  Matcher matcher = bytes.NewMatcher(bytes.NewAutomaton(JsonSchemaGrammar(
      R"({"type":"array","minItems":1,"items":{"anyOf":[{"$ref":"#"},{"type":"array","maxItems":0}]}})")));
  int depth = 0;
  while (bytes.Accept(matcher, "[")) ++depth;
  EXPECT_EQ(depth, kMaxDepth);
  EXPECT_THAT(bytes.Allowed(matcher), ElementsAre("]"));
  for (; depth > 0; --depth) ASSERT_TRUE(bytes.Accept(matcher, "]")) << depth;
  EXPECT_TRUE(matcher.is_complete());
}

TEST(MatcherTest, ACopyGoesItsOwnWay) {
  const Vocabulary words({"a", "b"});
  const std::shared_ptr<Automaton> automaton = words.NewAutomaton(ChoiceGrammar({"ab", "ba"}));
  Matcher matcher = words.NewMatcher(automaton);
  ASSERT_TRUE(words.Accept(matcher, "a"));
  Matcher copy(matcher);
  ASSERT_TRUE(words.Accept(copy, "b"));
  EXPECT_TRUE(copy.is_complete());
  EXPECT_FALSE(matcher.is_complete());
  EXPECT_THAT(words.Allowed(matcher), ElementsAre("b"));
}

TEST(MatcherTest, ACopyGoesOnInAnotherAutomaton) {
  const Vocabulary bytes = Vocabulary::OfBytes();
  const auto shared = bytes.NewAutomaton(Grammar::Of({}));
  auto first = std::make_unique<Matcher>(shared->Another(size_t{1} << 20),
                                         absl::Span<const int32_t>({bytes.end()}));
  for (const char* text : {"{", "\"", "a", "\"", ":", "[", "{"})
    ASSERT_TRUE(bytes.Accept(*first, text));
  EXPECT_EQ(shared->total_work(), 0);
  Matcher matcher(shared, *first);
  first = nullptr;
  EXPECT_FALSE(bytes.Accept(matcher, "]"));
  for (const char* text : {"}", "]"}) ASSERT_TRUE(bytes.Accept(matcher, text));
  EXPECT_THAT(bytes.Allowed(matcher), ElementsAre(",", "}"));
  ASSERT_TRUE(bytes.Accept(matcher, "}"));
  EXPECT_THAT(bytes.Allowed(matcher), ElementsAre("END"));
}

TEST(MatcherTest, NoTokenForAByteIsAnErrorOfThisAnswer) {
  const Vocabulary words({"a"});
  Matcher matcher = words.NewMatcher(words.NewAutomaton(ChoiceGrammar({"ab"})));
  ASSERT_TRUE(words.Accept(matcher, "a"));
  std::vector<uint32_t> mask(1);
  EXPECT_EQ(matcher.FillMask(absl::MakeSpan(mask)).code(), absl::StatusCode::kFailedPrecondition);
}

TEST(MatcherTest, AnAmbiguousGrammarFailsItsOwnAnswer) {
  const Vocabulary words({"a", "b"});
  Matcher matcher =
      words.NewMatcher(words.NewAutomaton(RegexGrammar("((a{0,90}b?){1,16}a{0,90}){1,16}c")));
  absl::Status status;
  std::vector<uint32_t> mask(1);
  for (int i = 0; i < 100 && status.ok(); ++i) {
    status = matcher.FillMask(absl::MakeSpan(mask));
    if (status.ok()) status = matcher.Accept(0);
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
}

TEST(MatcherTest, MemoryIsBoundedAndPlacesSurviveItsReuse) {
  const Vocabulary bytes = Vocabulary::OfBytes();
  constexpr size_t kMost = 200'000;
  const std::shared_ptr<Automaton> automaton = bytes.NewAutomaton(Grammar::Of({}), kMost);
  Matcher first = bytes.NewMatcher(automaton);
  for (const char* token : {"{", "\"", "a", "\"", ":", "["})
    ASSERT_TRUE(bytes.Accept(first, token));
  const std::vector<std::string> allowed = bytes.Allowed(first);
  const int64_t made = automaton->num_masks_made();
  Matcher second = bytes.NewMatcher(automaton);
  for (int i = 0; i < 40; ++i) {
    for (const char* token : {"{", "\"", "b", "\"", ":"}) {
      ASSERT_TRUE(bytes.Accept(second, token));
      bytes.Allowed(second);
      EXPECT_LE(automaton->bytes(), 2 * kMost);
    }
  }
  EXPECT_EQ(bytes.Allowed(first), allowed);
  EXPECT_GT(automaton->num_masks_made(), made);
}

TEST(MatcherTest, MasksAndTokensAreTheSameWithHardlyAnyMemory) {
  std::vector<std::string> tokens = {"{\"", "\":", "\",\"", "\"}", "[[", "a12", "12]", "]]}"};
  for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  const Vocabulary vocabulary(std::move(tokens));
  const std::pair<absl::StatusOr<std::shared_ptr<const Grammar>>, std::vector<const char*>>
      answers[] = {
          {Grammar::Of({}), {"{\"", "b", "\":", "[[", "1", "]", ",", "12]", "}"}},
          {JsonSchemaGrammar(
               R"({"type":"array","maxItems":9,"items":{"type":"string","maxLength":3}})"),
           {"[", "\"", "a12", "\",\"", "a", "\"", "]"}},
          {RegexGrammar("(a?[0-9]{0,5}){1,16}"), {"a12", "a12", "1", "a12"}},
      };
  for (const auto& [grammar, texts] : answers) {
    const auto little = vocabulary.NewAutomaton(grammar, 1);
    const auto much = vocabulary.NewAutomaton(grammar, size_t{1} << 30);
    Matcher with_little = vocabulary.NewMatcher(little);
    Matcher with_much = vocabulary.NewMatcher(much);
    Matcher other = vocabulary.NewMatcher(little);
    const std::vector<std::string> begin = vocabulary.Allowed(with_much);
    for (const char* const text : texts) {
      EXPECT_EQ(vocabulary.Allowed(with_little), vocabulary.Allowed(with_much)) << text;
      EXPECT_EQ(vocabulary.Allowed(other), begin);
      ASSERT_TRUE(vocabulary.Accept(with_much, text)) << text;
      EXPECT_TRUE(vocabulary.Accept(with_little, text)) << text;
    }
    EXPECT_LT(2 * little->bytes(), much->bytes());
    EXPECT_TRUE(with_little.is_complete());
  }
}

TEST(MatcherTest, PlacesOfMoreThanMayBeKeptAreCopiedNowAndThenAndThatIsWork) {
  const Vocabulary bytes = Vocabulary::OfBytes();
  const auto follow = [&](size_t max_bytes) {
    const auto automaton = bytes.NewAutomaton(RegexGrammar("[ab]*a[ab]{0,200}c"), max_bytes);
    std::vector<std::unique_ptr<Matcher>> matchers;
    for (int i = 0; i < 64; ++i) {
      matchers.push_back(std::make_unique<Matcher>(automaton, absl::Span<const int32_t>()));
    }
    for (int step = 0; step < 200; ++step) {
      for (int i = 0; i < 64; ++i) {
        int64_t work = 0;
        const int32_t token = (i >> step % 6 & 1) != 0 ? 'a' : 'b';
        EXPECT_TRUE(matchers[i]->Accept(token, 10'000, &work).ok());
      }
    }
    return automaton->total_work();
  };
  const int64_t without = follow(size_t{1} << 30);
  const int64_t with = follow(1000);
  EXPECT_GT(with, without);
  EXPECT_LT(with, 2 * without);
}

TEST(MatcherTest, MatchersInSeveralThreadsShareAnAutomaton) {
  const Vocabulary bytes = Vocabulary::OfBytes();
  // So little memory that what is kept is dropped now and then.
  const std::shared_ptr<Automaton> automaton = bytes.NewAutomaton(Grammar::Of({}), 100'000);
  const auto walk = [&] {
    std::vector<std::vector<std::string>> allowed;
    Matcher matcher = bytes.NewMatcher(automaton);
    for (int i = 0; i < 20; ++i) {
      for (const char* token : {"{", "\"", "b", "\"", ":"}) {
        EXPECT_TRUE(bytes.Accept(matcher, token));
        allowed.push_back(bytes.Allowed(matcher));
      }
    }
    return allowed;
  };
  const std::vector<std::vector<std::string>> alone = walk();
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < 10; ++round) EXPECT_EQ(walk(), alone);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(MatcherTest, AnObjectOfEmptyPropertiesHasNone) {
  const Vocabulary words({"{", "}", "\"", "1.0"});
  const auto inside = [&](const char* schema) {
    Matcher matcher = words.NewMatcher(words.NewAutomaton(
        Grammar::Of({.form = GrammarSpec::Form::kJsonSchema, .texts = {schema}})));
    EXPECT_TRUE(words.Accept(matcher, "{"));
    return words.Allowed(matcher);
  };
  EXPECT_THAT(inside(R"({"type": "object", "properties": {}})"), ElementsAre("}"));
  EXPECT_THAT(inside(R"({"type": "object"})"), ElementsAre("}", "\""));
  Matcher one = words.NewMatcher(
      words.NewAutomaton(Grammar::Of({.form = GrammarSpec::Form::kJsonSchema,
                                      .texts = {R"({"type": "integer", "const": 1.0})"}})));
  EXPECT_THAT(words.Allowed(one), ElementsAre("1.0"));
}

TEST(MatcherTest, TextsBeforeAndBehindAFormAreGiven) {
  const Vocabulary words({"<t>", "<", "t>", "yes", "no", "</t>", "x"});
  Matcher matcher =
      words.NewMatcher(words.NewAutomaton(Grammar::Of({.form = GrammarSpec::Form::kChoice,
                                                       .texts = {"yes", "no"},
                                                       .prefix = "<t>",
                                                       .suffix = "</t>"})));
  EXPECT_THAT(words.Allowed(matcher), UnorderedElementsAre("<t>", "<"));
  ASSERT_TRUE(words.Accept(matcher, "<t>"));
  EXPECT_THAT(words.Allowed(matcher), UnorderedElementsAre("yes", "no"));
  ASSERT_TRUE(words.Accept(matcher, "no"));
  EXPECT_FALSE(matcher.is_complete());
  ASSERT_TRUE(words.Accept(matcher, "</t>"));
  EXPECT_TRUE(matcher.is_finished());
}

TEST(MatcherTest, AnAnswerIsFreeUpToTheTextThatBeginsItsForm) {
  const Vocabulary bytes = Vocabulary::OfBytes();
  const std::shared_ptr<Automaton> automaton = bytes.NewAutomaton(
      Grammar::Of({.form = GrammarSpec::Form::kRegex, .texts = {"[0-9]"}, .free_until = "aabaaa"}));
  // Each is free until its last byte, which ends the first "aabaaa".
  for (const char* text : {"aabaaa", "xaabaaa", "aaaabaaa", "aabaabaaa",
                           "aabaa\xff"
                           "aabaaa"}) {
    Matcher matcher = bytes.NewMatcher(automaton);
    const std::string all = text;
    for (const char c : all) {
      EXPECT_EQ(bytes.Allowed(matcher).size(), 256u) << all;
      ASSERT_TRUE(bytes.Accept(matcher, std::string(1, c)));
    }
    EXPECT_EQ(bytes.Allowed(matcher).size(), 10u) << all;
  }
}

TEST(TokenTrieTest, SpecialAndLongTokensAreNeverAllowed) {
  const std::string longest(TokenTrie::kMaxTokenBytes, 'a');
  const Vocabulary words({"a", "", longest, longest + "a", "a"});
  Matcher matcher = words.NewMatcher(words.NewAutomaton(RegexGrammar("a*")));
  EXPECT_THAT(words.Allowed(matcher), ElementsAre("a", longest, "a", "END"));
  EXPECT_EQ(matcher.Accept(3).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(matcher.Accept(1).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(matcher.Accept(-1).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(matcher.Accept(1000).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_GT(words.trie().bytes(), longest.size());
}

}  // namespace
}  // namespace bulkhead::structured
