// A prompt is decoded only from as near its end as gives the right text.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <random>

#include "tests/runtime/tokenizer/streaming.h"
#include "tests/runtime/tokenizer/tokenizer_files.h"

namespace bulkhead {
namespace {

using nlohmann::json;

// Runs of few different tokens, including bytes, special tokens and spaces, and of any; ids that
// decode to nothing leave little at the end to decide.
Ids RandomIds(std::mt19937& random, int vocab_size, size_t size) {
  const uint32_t nothing_in_100 = std::vector<uint32_t>{0, 0, 50, 90, 97}[random() % 5];
  Ids ids;
  while (ids.size() < size) {
    const int of = random() % 2 == 0 ? vocab_size : std::min(vocab_size, 260);
    const int first = static_cast<int>(random() % of);
    const int different = 1 + static_cast<int>(random() % (random() % 3 == 0 ? of : 3));
    for (int run = 1 + static_cast<int>(random() % 60); run > 0; --run) {
      ids.push_back(random() % 100 < nothing_in_100
                        ? vocab_size
                        : (first + static_cast<int>(random() % different)) % of);
    }
  }
  ids.resize(size);
  return ids;
}

void ExpectContinuesAnyPrompt(const Tokenizer& tokenizer, std::mt19937& random, int rounds) {
  for (int round = 0; round < rounds; ++round) {
    const Ids prompt = RandomIds(random, tokenizer.vocab_size(), random() % 1200);
    const Ids generated = RandomIds(random, tokenizer.vocab_size(), random() % 40);
    TextStream::Options options;
    options.skip_special_tokens = round % 2 == 0;
    ASSERT_EQ(Stream(&tokenizer, prompt, generated, options).text,
              Continuation(tokenizer, prompt, generated, options.skip_special_tokens));
  }
}

TEST(PromptTail, EveryTrainedTokenizerGoesOnAsAfterTheWholePrompt) {
  constexpr uint32_t kSeed = 21;
  std::printf("seed %u\n", kSeed);
  std::mt19937 random(kSeed);
  for (const std::string& name : TrainedTokenizers()) {
    SCOPED_TRACE(name);
    const std::unique_ptr<Tokenizer> tokenizer = LoadTokenizer(name);
    ASSERT_NE(tokenizer, nullptr);
    ExpectContinuesAnyPrompt(*tokenizer, random, 300);
  }
}

TEST(PromptTail, EveryMadeTokenizerGoesOnAsAfterTheWholePrompt) {
  constexpr uint32_t kSeed = 22;
  std::printf("seed %u\n", kSeed);
  std::mt19937 random(kSeed);
  for (const MadeTokenizer& made : MadeTokenizers()) {
    SCOPED_TRACE(made.name);
    ASSERT_NE(made.tokenizer, nullptr);
    ExpectContinuesAnyPrompt(*made.tokenizer, random, 30);
  }
}

TEST(PromptTail, ALongPromptCostsItsTailAlone) {
  using std::chrono::steady_clock;
  using Microseconds = std::chrono::duration<double, std::micro>;
  for (const std::string& name : TrainedTokenizers()) {
    const std::unique_ptr<Tokenizer> tokenizer = LoadTokenizer(name);
    ASSERT_NE(tokenizer, nullptr);
    Ids prompt(100'000);
    for (size_t i = 0; i < prompt.size(); ++i) {
      prompt[i] = static_cast<int32_t>(i * 7 % tokenizer->vocab_size());
    }
    steady_clock::time_point begin = steady_clock::now();
    EXPECT_FALSE(tokenizer->Decode(prompt, true).empty());
    const Microseconds whole = steady_clock::now() - begin;
    begin = steady_clock::now();
    const TextStream stream(tokenizer.get(), prompt, {});
    const Microseconds took = steady_clock::now() - begin;
    std::printf("%s: 100,000 tokens of prompt: %.0f us, all decoded once %.0f us\n", name.c_str(),
                took.count(), whole.count());
    EXPECT_LT(took, whole / 10) << name;
  }
}

}  // namespace
}  // namespace bulkhead
