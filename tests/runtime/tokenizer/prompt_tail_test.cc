// A prompt is decoded only from as near its end as gives the right text.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
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

// A prompt of which only the last page can be read: reading another ends the process.
class GuardedPrompt {
 public:
  static size_t PageTokens() { return sysconf(_SC_PAGESIZE) / sizeof(int32_t); }

  // Of whole pages.
  explicit GuardedPrompt(const Ids& ids) : size_(ids.size()) {
    void* const at =
        mmap(nullptr, bytes(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT_NE(at, MAP_FAILED);
    ids_ = static_cast<int32_t*>(at);
    std::copy(ids.begin(), ids.end(), ids_);
    EXPECT_EQ(mprotect(ids_, bytes() - PageTokens() * sizeof(int32_t), PROT_NONE), 0);
  }
  ~GuardedPrompt() { munmap(ids_, bytes()); }
  GuardedPrompt(const GuardedPrompt&) = delete;
  GuardedPrompt& operator=(const GuardedPrompt&) = delete;
  absl::Span<const int32_t> ids() const { return {ids_, size_}; }

 private:
  size_t bytes() const { return size_ * sizeof(int32_t); }

  const size_t size_;
  int32_t* ids_ = nullptr;
};

TEST(PromptTail, ALongPromptCostsItsTailAlone) {
  for (const std::string& name : TrainedTokenizers()) {
    SCOPED_TRACE(name);
    const std::unique_ptr<Tokenizer> tokenizer = LoadTokenizer(name);
    ASSERT_NE(tokenizer, nullptr);
    Ids prompt(100 * GuardedPrompt::PageTokens());
    for (size_t i = 0; i < prompt.size(); ++i) {
      prompt[i] = static_cast<int32_t>(i * 7 % tokenizer->vocab_size());
    }
    const Ids generated(prompt.begin(), prompt.begin() + 100);
    const std::string want = Continuation(*tokenizer, prompt, generated);
    const GuardedPrompt guarded(prompt);
    TextStream stream(tokenizer.get(), guarded.ids(), {});
    std::string text;
    for (const int32_t id : generated) text += stream.Add(id, /*may_stop=*/true).text;
    EXPECT_EQ(text + stream.Flush(), want);
  }
}

}  // namespace
}  // namespace bulkhead
