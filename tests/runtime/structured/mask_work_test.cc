// Masks and tokens that are much work: what is kept, and what others have left, decides nothing.
#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/structured/grammar_cache.h"
#include "runtime/structured/matcher.h"
#include "tests/runtime/structured/grammars.h"

namespace bulkhead::structured {
namespace {

using ::testing::HasSubstr;

// Words of small letters, and what is behind them in the grammars here.
std::vector<std::string> Tokens() {
  std::vector<std::string> tokens;
  for (int byte = ' '; byte < 127; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  for (int i = 0; i < 400; ++i) {
    tokens.emplace_back();
    for (int j = 0; j <= 2 + i % 5; ++j) {
      tokens.back() += static_cast<char>('a' + (i * 7 + j * (i % 11 + 3)) % 26);
    }
    tokens.push_back(absl::StrCat(tokens.back(), i));
  }
  return tokens;
}

const TokenTrie& Trie() {
  static const auto* const trie = new TokenTrie(Tokens());
  return *trie;
}

// `count` alternatives that differ behind up to 300 letters.
std::string Alternatives(int count, const std::string& end) {
  std::string pattern;
  for (int i = 0; i < count; ++i) {
    absl::StrAppend(&pattern, i > 0 ? "|" : "", "[a-z ]{0,300}<", i, end);
  }
  return pattern;
}

std::shared_ptr<Automaton> NewAutomaton(const std::string& pattern, size_t max_bytes) {
  const auto grammar = RegexGrammar(pattern);
  EXPECT_TRUE(grammar.ok()) << grammar.status();
  return std::make_shared<Automaton>(*grammar, &Trie(), max_bytes);
}

using Words = std::vector<uint32_t>;

// In as many calls as it takes, which are counted.
absl::StatusOr<Words> MaskOf(Matcher& matcher, int* calls) {
  Automaton::Masks masks;
  for (bool made = false; !made; ++*calls) {
    int64_t work = 0;
    const absl::StatusOr<bool> status = matcher.MakeMasks(&masks, &work);
    if (!status.ok()) return status.status();
    EXPECT_LT(work, 3 * Automaton::kMaxWork / 2);
    made = *status;
  }
  Words mask((Trie().vocab_size() + 31) / 32);
  const absl::Status filled = matcher.FillMask(masks, absl::MakeSpan(mask));
  if (!filled.ok()) return filled;
  return mask;
}

TEST(MaskWorkTest, ARefusalOfTooManyStatesIsTheSameEachTime) {
  std::string alternatives;
  for (int i = 0; i < 4200; ++i) absl::StrAppend(&alternatives, i > 0 ? "|" : "", 1000 + i);
  const auto automaton = NewAutomaton(absl::StrCat("(t(", alternatives, ")|[^t]*)"), 16 << 20);
  for (int request = 0; request < 4; ++request) {
    Matcher matcher(automaton, {});
    int calls = 0;
    const absl::Status refused = MaskOf(matcher, &calls).status();
    EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted) << request;
    EXPECT_THAT(refused.message(), HasSubstr("more than 4096 states at once"));
    EXPECT_EQ(matcher.Accept('t' - ' '), refused) << request;
  }
}

TEST(MaskWorkTest, AMaskThatIsMoreThanACallsWorkIsMadeInSeveralWhateverMemoryThereIs) {
  const std::string pattern = Alternatives(900, "V");
  std::vector<Words> masks;
  for (const size_t max_bytes : {size_t{256} << 20, size_t{256} << 20, size_t{1} << 16}) {
    const auto automaton = NewAutomaton(pattern, max_bytes);
    Matcher matcher(automaton, {});
    for (int token = 0; token < 3; ++token) {
      int calls = 0;
      const absl::StatusOr<Words> mask = MaskOf(matcher, &calls);
      ASSERT_TRUE(mask.ok()) << mask.status();
      if (token == 0) {
        EXPECT_GT(calls, 1);
        masks.push_back(*mask);
      }
      ASSERT_TRUE(matcher.Accept('b' - ' ').ok());
    }
    int calls = 0;
    Matcher same(automaton, {});
    ASSERT_TRUE(MaskOf(same, &calls).ok());
    if (max_bytes > 1 << 20) {
      EXPECT_EQ(calls, 1) << "it is kept";
    }
  }
  EXPECT_EQ(masks[0], masks[1]);
  EXPECT_EQ(masks[0], masks[2]);
}

TEST(MaskWorkTest, WorkThatIsDroppedInBetweenGoesOn) {
  const auto automaton = NewAutomaton(Alternatives(900, "V"), size_t{256} << 20);
  Matcher expected(automaton, {});
  int calls = 0;
  const absl::StatusOr<Words> want = MaskOf(expected, &calls);
  ASSERT_TRUE(want.ok()) << want.status();
  automaton->SetMaxBytes(0);
  Matcher matcher(automaton, {});
  Automaton::Masks masks;
  int64_t work = 0;
  int rounds = 0;
  for (bool made = false; !made; ++rounds) {
    const absl::StatusOr<bool> status = matcher.MakeMasks(&masks, &work);
    ASSERT_TRUE(status.ok()) << status.status();
    made = *status;
    automaton->SetMaxBytes(rounds % 2 == 0 ? size_t{256} << 20 : 0);
    Matcher other(automaton, {});
    EXPECT_TRUE(other.Accept('a' - ' ').ok());
    ASSERT_LT(rounds, 32);
  }
  EXPECT_GT(rounds, 1);
  Words mask(want->size());
  ASSERT_TRUE(matcher.FillMask(masks, absl::MakeSpan(mask)).ok());
  EXPECT_EQ(mask, *want);
}

TEST(MaskWorkTest, AnAnswerGoesOnBesideManyOtherGrammarsWhoseMemoryItHadBefore) {
  constexpr size_t kBytes = size_t{48} << 20;
  GrammarCache cache(Tokens, Trie().vocab_size(), kBytes);
  const auto regex = [](int count, const std::string& end) {
    return GrammarSpec{.form = GrammarSpec::Form::kRegex, .texts = {Alternatives(count, end)}};
  };
  const auto own = cache.Get(regex(900, "V"));
  ASSERT_TRUE(own.ok()) << own.status();
  Matcher matcher(*own, {});
  std::vector<std::shared_ptr<Automaton>> others;
  std::vector<std::unique_ptr<Matcher>> matchers;
  int most = 0;
  for (int token = 0; token < 16; ++token) {
    int calls = 0;
    const absl::StatusOr<Words> mask = MaskOf(matcher, &calls);
    ASSERT_TRUE(mask.ok()) << mask.status() << " at token " << token;
    if (token >= 4) most = std::max(most, calls);
    ASSERT_TRUE(matcher.Accept('b' - ' ').ok());
    for (int i = 0; i < 5 && token >= 4 && token < 12; ++i) {
      const auto other = cache.Get(regex(20, absl::StrCat("W", others.size())));
      ASSERT_TRUE(other.ok()) << other.status();
      others.push_back(*other);
      matchers.push_back(std::make_unique<Matcher>(*other, absl::Span<const int32_t>()));
      ASSERT_TRUE(MaskOf(*matchers.back(), &calls).ok());
    }
  }
  EXPECT_GT(most, 1);
}

TEST(MaskWorkTest, ARefusalForWorkIsKeptAndOneForLackOfMemoryIsNoFaultOfTheGrammar) {
  std::vector<std::string> tokens(1200);
  std::minstd_rand random(7);
  for (std::string& token : tokens) {
    for (int i = 0; i < 16; ++i) token += random() / 64 % 2 == 0 ? 'a' : 'b';
  }
  const TokenTrie trie(tokens);
  std::string pattern = "[ab]*a[ab]{18}x";  // each way has its own set of counts
  for (int i = 0; i < 90; ++i) absl::StrAppend(&pattern, "|[ab]*a[ab]{18}", i);
  const auto grammar = RegexGrammar(pattern);
  ASSERT_TRUE(grammar.ok()) << grammar.status();
  for (const bool has_memory : {true, false}) {
    const auto automaton = std::make_shared<Automaton>(
        *grammar, &trie, has_memory ? size_t{1} << 30 : size_t{1} << 16);
    const int32_t begin = automaton->AddPlace();
    ASSERT_TRUE(automaton->Advance(begin, std::string(40, 'a')).ok());
    int64_t works[2] = {};
    for (int64_t& work : works) {
      const int32_t place = automaton->CopyPlace(begin);
      Automaton::Masks masks;
      absl::StatusOr<bool> made = false;
      while (made.ok() && !*made) made = automaton->MakeMasks(place, &masks, &work);
      EXPECT_EQ(made.status().code(),
                has_memory ? absl::StatusCode::kResourceExhausted : absl::StatusCode::kUnavailable);
      EXPECT_THAT(made.status().message(), HasSubstr("more than 256 million units of work"));
      automaton->DropPlace(place);
      if (!has_memory) break;
    }
    EXPECT_GT(works[0], Automaton::kMaxMaskWork);
    EXPECT_LT(works[1], Automaton::kMaxWork);
  }
}

TEST(MaskWorkTest, ATokenThatIsMoreThanACallsWorkIsAcceptedInSeveral) {
  const auto automaton = NewAutomaton(Alternatives(300, "V"), size_t{1} << 20);
  Matcher at_once(automaton, {});
  Matcher in_parts(automaton, {});
  const auto token = static_cast<int32_t>(Tokens().size()) - 2;
  ASSERT_GE(Trie().token(token).size(), 4);
  ASSERT_TRUE(at_once.Accept(token).ok());
  int calls = 0;
  for (bool accepted = false; !accepted; ++calls) {
    int64_t work = 0;
    const absl::StatusOr<bool> status = in_parts.Accept(token, 1000, &work);
    ASSERT_TRUE(status.ok()) << status.status();
    accepted = *status;
  }
  EXPECT_EQ(calls, Trie().token(token).size()) << "a byte each";
  int masks = 0;
  EXPECT_EQ(MaskOf(in_parts, &masks), MaskOf(at_once, &masks));
}

// Arrays in which each level doubles the states, `levels` deep, and others behind them.
std::string NestedAlternatives(int levels) {
  std::string schema = R"({"$ref":"#/$defs/L0","$defs":{)";
  for (int i = 0; i < levels; ++i) {
    absl::StrAppend(&schema, "\"L", i, R"(":{"anyOf":[)");
    for (const int most : {2, 3}) {
      absl::StrAppend(&schema, most > 2 ? "," : "", R"({"type":"array","items":{"$ref":"#/$defs/L)",
                      i + 1, R"("},"minItems":1,"maxItems":)", most, "}");
    }
    absl::StrAppend(&schema, "]},");
  }
  const std::string last = absl::StrCat("L", levels);
  return absl::StrCat(schema, "\"", last, R"(":{"anyOf":[{"type":"null"},{"type":"array","items":)",
                      R"({"$ref":"#/$defs/)", last, R"("}}]}}})");
}

TEST(MaskWorkTest, PlacesOfManyStatesEndWhereThePoolDoes) {
  const auto grammar = JsonSchemaGrammar(NestedAlternatives(10));
  ASSERT_TRUE(grammar.ok()) << grammar.status();
  constexpr int64_t kPoolBytes = int64_t{64} << 20;
  constexpr size_t kMost = size_t{1} << 20;
  const auto pool = std::make_shared<Automaton::Pool>(kPoolBytes);
  const int32_t open = '[' - ' ';
  std::vector<std::unique_ptr<Matcher>> matchers;
  absl::Status refused;
  int64_t accepted = 0;
  // Each of another automaton, as grammars differ; held where they are.
  while (refused.ok() && matchers.size() < 64) {
    matchers.push_back(std::make_unique<Matcher>(
        std::make_shared<Automaton>(*grammar, &Trie(), kMost, pool), absl::Span<const int32_t>()));
    for (int i = 0; i < 40 && refused.ok(); ++i) refused = matchers.back()->Accept(open);
    accepted += refused.ok() ? 1 : 0;
    EXPECT_GE(pool->load(), 0);
  }
  EXPECT_EQ(refused.code(), absl::StatusCode::kUnavailable) << refused;
  EXPECT_THAT(refused.message(), HasSubstr("try again when there are fewer"));
  EXPECT_GE(accepted, 1);
  // A place of few states needs nothing of it.
  Matcher plain(std::make_shared<Automaton>(*Grammar::Of({}), &Trie(), kMost, pool), {});
  int calls = 0;
  EXPECT_TRUE(MaskOf(plain, &calls).ok());
  EXPECT_TRUE(plain.Accept('{' - ' ').ok());
  // What one has is another's when it ends.
  matchers.erase(matchers.begin());
  matchers.pop_back();
  Matcher next(std::make_shared<Automaton>(*grammar, &Trie(), kMost, pool), {});
  for (int i = 0; i < 40; ++i) ASSERT_TRUE(next.Accept(open).ok()) << i;
  matchers.clear();
  EXPECT_LT(pool->load(), kPoolBytes);
  EXPECT_EQ(Matcher(next, {}).is_complete(), false);
}

TEST(MaskWorkTest, PlacesOfManyStatesOfManyGrammarsStayInTheBudget) {
  constexpr size_t kBytes = size_t{32} << 20;
  GrammarCache cache(Tokens, Trie().vocab_size(), kBytes);
  std::vector<std::shared_ptr<Automaton>> automata;
  std::vector<std::unique_ptr<Matcher>> matchers;
  int refused = 0;
  for (int i = 0; i < 24; ++i) {
    const auto automaton = cache.Get({.form = GrammarSpec::Form::kJsonSchema,
                                      .texts = {NestedAlternatives(9)},
                                      .prefix = absl::StrCat(i)});
    ASSERT_TRUE(automaton.ok()) << automaton.status();
    automata.push_back(*automaton);
    matchers.push_back(std::make_unique<Matcher>(*automaton, absl::Span<const int32_t>()));
    for (const char digit : absl::StrCat(i)) ASSERT_TRUE(matchers.back()->Accept(digit - ' ').ok());
    absl::Status status;
    for (int level = 0; level < 40 && status.ok(); ++level) {
      status = matchers.back()->Accept('[' - ' ');
    }
    if (!status.ok()) {
      EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
      ++refused;
      matchers.pop_back();  // as the answer ends
    }
    size_t bytes = cache.charged_bytes();
    for (const auto& one : automata) bytes += one->bytes();
    EXPECT_LE(bytes, kBytes) << i;
  }
  EXPECT_GT(refused, 0);
  EXPECT_GT(matchers.size(), 0);
}

}  // namespace
}  // namespace bulkhead::structured
