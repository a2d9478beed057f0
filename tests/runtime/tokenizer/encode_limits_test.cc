// Long texts, invalid texts, and patterns that would never end.
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <fstream>
#include <latch>
#include <thread>

#include "runtime/tokenizer/regex.h"
#include "tests/runtime/tokenizer/tokenizer_files.h"

namespace bulkhead {
namespace {

std::string Repeat(const std::string& part, size_t bytes) {
  std::string text;
  while (text.size() < bytes) text += part;
  return text;
}

// A quadratic step would take minutes here: the test's own time limit is the assertion.
TEST(EncodeLimits, LongRunsTakeTheTimeOfTheirLength) {
  const std::vector<std::string> parts = {"a",         "1",        "A",           "aA",
                                          " ",         "ab 12,\n", "\n",          "\xE4\xB8\x80",
                                          "a\xCC\x81", "<|",       "\xE2\x96\x81"};
  for (const std::string& name : TrainedTokenizers()) {
    const std::unique_ptr<Tokenizer> tokenizer = LoadTokenizer(name);
    ASSERT_NE(tokenizer, nullptr);
    const auto begin = std::chrono::steady_clock::now();
    for (const std::string& part : parts) {
      const std::string text = Repeat(part, part == "a" || part == " " ? 1 << 20 : 1 << 17);
      const auto ids = tokenizer->Encode(text, false);
      ASSERT_TRUE(ids.ok()) << name << ": " << ids.status();
      const std::string back = tokenizer->Decode(*ids, false);
      EXPECT_GE(3 * back.size() + 3, text.size()) << name;
    }
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    std::printf("%s: long texts in %.2f s\n", name.c_str(), took.count());
  }
}

TEST(EncodeLimits, LongRunsOfCombiningMarksTakeTheTimeOfTheirLength) {
  const std::unique_ptr<Tokenizer> tokenizer = LoadTokenizer("qwen2");  // NFC
  ASSERT_NE(tokenizer, nullptr);
  for (const char* marks : {"\xCC\x81\xCC\xA3", "\xE0\xBD\xB3", "\xCD\x84\xCC\xA3"}) {
    EXPECT_TRUE(tokenizer->Encode(Repeat(marks, 1 << 19), false).ok());
  }
}

TEST(EncodeLimits, TextThatIsNotUtf8IsRefused) {
  const std::unique_ptr<Tokenizer> tokenizer = LoadTokenizer("gpt2");
  ASSERT_NE(tokenizer, nullptr);
  for (const char* text :
       {"\xFF", "a\xC3", "\xED\xA0\x80", "\xC0\x80", "\xF4\x90\x80\x80", "\x80"}) {
    EXPECT_EQ(tokenizer->Encode(text, true).status().code(), absl::StatusCode::kInvalidArgument);
  }
  EXPECT_TRUE(tokenizer->Encode("", true).ok());
}

TEST(EncodeLimits, APatternThatBacktracksWithoutEndIsGivenUp) {
  const auto regex = Regex::Compile("(?:a|a)*(?:a|a)*(?:a|a)*[bc]");
  ASSERT_TRUE(regex.ok()) << regex.status();
  RegexBudget budget;
  std::vector<Span> spans;
  EXPECT_EQ((*regex)->FindAll(Repeat("a", 2000), budget, &spans).code(),
            absl::StatusCode::kResourceExhausted);
}

int64_t ResidentBytes() {
  int64_t size = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> size >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

// Each repetition uses PCRE2's stack: 12 MiB for this text.
TEST(EncodeLimits, ThreadsKeepNothingOfADeepMatch) {
  const auto regex = Regex::Compile("(?:a|b)+");
  ASSERT_TRUE(regex.ok()) << regex.status();
  const std::string text = Repeat("ab", 1 << 19);
  constexpr int kThreads = 4;
  const int64_t before = ResidentBytes();
  std::latch matched(kThreads), measured(1);
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      RegexBudget budget;
      std::vector<Span> spans;
      EXPECT_TRUE((*regex)->FindAll(text, budget, &spans).ok());
      EXPECT_EQ(spans.size(), 1U);
      matched.count_down();
      measured.wait();  // a thread's memory is held until it ends
    });
  }
  matched.wait();
  EXPECT_LT(ResidentBytes() - before, int64_t{8} << 20);
  measured.count_down();
  for (std::thread& thread : threads) thread.join();
}

TEST(EncodeLimits, ARequestHasSoMuchTimeForPatternsAndNoMore) {
  const auto regex = Regex::Compile("a+b");  // reads the rest of the text at every position
  ASSERT_TRUE(regex.ok()) << regex.status();
  RegexBudget budget(std::chrono::milliseconds(0));
  std::vector<Span> spans;
  EXPECT_EQ((*regex)->FindAll(Repeat("a", 1 << 20), budget, &spans).code(),
            absl::StatusCode::kResourceExhausted);
}

TEST(EncodeLimits, TimeInWhichTheThreadDoesNotRunIsNotSpent) {
  RegexBudget budget(std::chrono::milliseconds(100));
  std::this_thread::sleep_for(std::chrono::milliseconds(150));
  for (int i = 0; i < 1000; ++i) ASSERT_TRUE(budget.Spend()) << i;
}

TEST(EncodeLimits, ATextThatGrowsWithoutBoundIsGivenUp) {
  const nlohmann::json grow = {
      {"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", std::string(1000, 'a')}};
  const auto tokenizer = SmallTokenizer(
      {{"normalizer", {{"type", "Sequence"}, {"normalizers", {grow, grow, grow, grow}}}}});
  ASSERT_NE(tokenizer, nullptr);
  EXPECT_EQ(tokenizer->Encode("a", false).status().code(), absl::StatusCode::kResourceExhausted);
}

TEST(EncodeLimits, AnUnknownCharacterWithoutAnUnknownTokenIsRefused) {
  const auto tokenizer = SmallTokenizer({{"model", {{"unk_token", "<unk>"}}}});
  ASSERT_NE(tokenizer, nullptr);
  EXPECT_TRUE(tokenizer->Encode("abc", false).ok());
  EXPECT_EQ(tokenizer->Encode("abz", false).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(EncodeLimits, ManyThreadsShareOneTokenizer) {
  const std::unique_ptr<Tokenizer> tokenizer = LoadTokenizer("llama3");
  ASSERT_NE(tokenizer, nullptr);
  const std::string text = Repeat("It's 2024: hello, w\xC3\xB6rld!\n", 1 << 14);
  const auto expected = tokenizer->Encode(text, true);
  ASSERT_TRUE(expected.ok());
  std::vector<std::thread> threads;
  std::vector<int> same(4, 0);
  for (size_t i = 0; i < same.size(); ++i) {
    threads.emplace_back([&, i] {
      for (int round = 0; round < 5; ++round) {
        const auto ids = tokenizer->Encode(text, true);
        same[i] += ids.ok() && *ids == *expected && tokenizer->Decode(*ids, true) == text;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(same, std::vector<int>(4, 5));
}

}  // namespace
}  // namespace bulkhead
