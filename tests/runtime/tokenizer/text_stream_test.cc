#include "runtime/tokenizer/text_stream.h"

#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <chrono>
#include <random>

#include "base/utf8.h"
#include "tests/runtime/tokenizer/streaming.h"
#include "tests/runtime/tokenizer/tokenizer_files.h"

namespace bulkhead {
namespace {

Ids Encoded(const Tokenizer& tokenizer, const std::string& text) {
  const auto ids = tokenizer.Encode(text, false);
  EXPECT_TRUE(ids.ok()) << ids.status();
  return ids.ok() ? *ids : Ids{};
}

TEST(TextStream, EqualsDecodingTheWholeHoweverTheTextIsCut) {
  constexpr uint32_t kSeed = 5;
  std::printf("seed %u\n", kSeed);
  std::mt19937 random(kSeed);
  for (const std::string& name : TrainedTokenizers()) {
    SCOPED_TRACE(name);
    const std::unique_ptr<Tokenizer> tokenizer = LoadTokenizer(name);
    ASSERT_NE(tokenizer, nullptr);
    int whole_texts = 0;
    for (const nlohmann::json& line : ReadJsonLines(TokenizerDir(name) + "/cases.jsonl")) {
      const Ids ids = line["ids"];
      // Cut anywhere, including inside characters.
      const size_t cut = random() % (ids.size() + 1);
      const Ids prompt(ids.begin(), ids.begin() + cut), generated(ids.begin() + cut, ids.end());
      const Streamed streamed = Stream(tokenizer.get(), prompt, generated, {});
      ASSERT_EQ(streamed.text, Continuation(*tokenizer, prompt, generated)) << line["text"];
      const std::string alone = Stream(tokenizer.get(), {}, ids, {}).text;
      ASSERT_EQ(alone, tokenizer->Decode(ids, true)) << line["text"];
      whole_texts += tokenizer->Decode(prompt, true) + streamed.text == alone;
    }
    EXPECT_GT(whole_texts, 150);
  }
}

TEST(TextStream, EqualsDecodingTheWholeForRandomTokens) {
  constexpr uint32_t kSeed = 6;
  std::printf("seed %u\n", kSeed);
  std::mt19937 random(kSeed);
  for (const std::string& name : TrainedTokenizers()) {
    SCOPED_TRACE(name);
    const std::unique_ptr<Tokenizer> tokenizer = LoadTokenizer(name);
    ASSERT_NE(tokenizer, nullptr);
    for (int round = 0; round < 200; ++round) {
      Ids ids(random() % 40);
      // The lowest ids are special tokens and bytes: they split characters.
      for (int32_t& id : ids) {
        id = static_cast<int32_t>(random() % (random() % 2 == 0 ? 260 : tokenizer->vocab_size()));
      }
      const size_t cut = random() % (ids.size() + 1);
      const Ids prompt(ids.begin(), ids.begin() + cut), generated(ids.begin() + cut, ids.end());
      ASSERT_EQ(Stream(tokenizer.get(), prompt, generated, {}).text,
                Continuation(*tokenizer, prompt, generated));
      TextStream::Options options;
      options.skip_special_tokens = false;
      ASSERT_EQ(Stream(tokenizer.get(), {}, ids, options).text, tokenizer->Decode(ids, false));
    }
  }
}

TEST(TextStream, NeverGivesOutHalfACharacter) {
  const std::string family =
      "\xF0\x9F\x91\xA9\xE2\x80\x8D\xF0\x9F\x91\xA7 \xE4\xBD\xA0\xE5\xA5\xBD";
  for (const std::string& name : TrainedTokenizers()) {
    const std::unique_ptr<Tokenizer> tokenizer = LoadTokenizer(name);
    ASSERT_NE(tokenizer, nullptr);
    const Ids ids = Encoded(*tokenizer, family);
    EXPECT_EQ(Stream(tokenizer.get(), {}, ids, {}).text, family) << name;
    const Ids half(ids.begin(), ids.begin() + 2);
    const std::string text = Stream(tokenizer.get(), {}, half, {}).text;
    EXPECT_TRUE(IsValidUtf8(text));
    EXPECT_EQ(text, tokenizer->Decode(half, true)) << name;
  }
}

TEST(TextStream, StopStringsAreNotLookedForInAForcedBeginning) {
  const std::unique_ptr<Tokenizer> tokenizer = LoadTokenizer("gpt2");
  ASSERT_NE(tokenizer, nullptr);
  const Ids ids = Encoded(*tokenizer, "<tool_call>\nab\nc");
  TextStream::Options options;
  options.stop = {"\n", ">\na"};
  options.forced = "<tool_call>\n";
  const Streamed streamed = Stream(tokenizer.get(), {}, ids, options);
  EXPECT_EQ(streamed.text, "<tool_call>\nab");
  EXPECT_EQ(streamed.stop, "\n");
  const Ids others = Encoded(*tokenizer, "<think>a\nb");
  EXPECT_EQ(Stream(tokenizer.get(), {}, others, options).text, "<think>a") << "it is not forced";
}

TEST(TextStream, NorInWhatTheDecoderHoldsOfItAtTheEnd) {
  const std::unique_ptr<Tokenizer> tokenizer = LoadTokenizer("gpt2");
  ASSERT_NE(tokenizer, nullptr);
  Ids ids = Encoded(*tokenizer, "a\xF0\x9F\xA6\x84");
  ids.resize(2);  // the answer ends within the character: U+FFFD
  TextStream::Options options;
  options.stop = {"\uFFFD"};
  options.forced = tokenizer->Decode(ids, true);
  ASSERT_EQ(options.forced, "a\uFFFD");
  const Streamed streamed = Stream(tokenizer.get(), {}, ids, options);
  EXPECT_EQ(streamed.text, options.forced);
  EXPECT_FALSE(streamed.stop.has_value());
}

TEST(TextStream, APromptThatEndsInsideACharacterIsNotRepeated) {
  const std::unique_ptr<Tokenizer> tokenizer = LoadTokenizer("gpt2");
  ASSERT_NE(tokenizer, nullptr);
  const Ids ids = Encoded(*tokenizer, "say \xF0\x9F\xA6\x84!");
  for (size_t cut = 1; cut < ids.size(); ++cut) {
    const Ids prompt(ids.begin(), ids.begin() + cut), generated(ids.begin() + cut, ids.end());
    const std::string text = Stream(tokenizer.get(), prompt, generated, {}).text;
    EXPECT_EQ(text.find("say"), cut < 3 ? text.find("say") : std::string::npos);
    EXPECT_EQ(text.substr(text.size() - 1), "!");
    EXPECT_EQ(text, Continuation(*tokenizer, prompt, generated));
  }
}

TEST(TextStream, AStopStringIsFoundAcrossTokensAndCutOff) {
  for (const std::string& name : TrainedTokenizers()) {
    SCOPED_TRACE(name);
    const std::unique_ptr<Tokenizer> tokenizer = LoadTokenizer(name);
    ASSERT_NE(tokenizer, nullptr);
    const Ids prompt = Encoded(*tokenizer, "Question one:");
    const Ids generated = Encoded(*tokenizer, "first answer\n\nUser: more and more");
    TextStream::Options options;
    options.stop = {"User:", "\n\nUs"};
    const Streamed streamed = Stream(tokenizer.get(), prompt, generated, options);
    ASSERT_TRUE(streamed.stop.has_value());
    EXPECT_EQ(*streamed.stop, "\n\nUs");
    EXPECT_EQ(streamed.text.substr(streamed.text.size() - 12), "first answer");
    EXPECT_LT(streamed.num_tokens, static_cast<int>(generated.size()));
    options.include_stop_in_output = true;
    const std::string kept = Stream(tokenizer.get(), prompt, generated, options).text;
    EXPECT_EQ(kept, streamed.text + "\n\nUs");
  }
}

TEST(TextStream, TokensThatMayNotStopDoNot) {
  const auto tokenizer = SmallTokenizer();
  ASSERT_NE(tokenizer, nullptr);
  TextStream::Options options;
  options.stop = {"b"};
  TextStream stream(tokenizer.get(), {}, options);
  std::string text = stream.Add(0, false).text;
  text += stream.Add(1, false).text;
  text += stream.Add(0, true).text;
  EXPECT_EQ(text, "aba");
  const TextStream::Piece piece = stream.Add(3, true);
  EXPECT_EQ(piece.text, "a");
  EXPECT_EQ(piece.stop_string, "b");
  EXPECT_EQ(stream.Flush(), "");
}

TEST(TextStream, HeldBackTextComesWithTheFlush) {
  const auto tokenizer = SmallTokenizer();
  ASSERT_NE(tokenizer, nullptr);
  TextStream::Options options;
  options.stop = {"abcabc"};
  TextStream stream(tokenizer.get(), {}, options);
  EXPECT_EQ(stream.Add(4, true).text, "");
  EXPECT_EQ(stream.Add(0, true).text, "");
  EXPECT_EQ(stream.Flush(), "abca");
}

// An interrupted stream is rebuilt from its tokens, and continues as if uninterrupted.
TEST(TextStream, AddingTheSameTokensAgainGivesTheSameText) {
  const std::unique_ptr<Tokenizer> tokenizer = LoadTokenizer("metaspace");
  ASSERT_NE(tokenizer, nullptr);
  const Ids ids = Encoded(*tokenizer, "one two \xE4\xBD\xA0 three four");
  TextStream first(tokenizer.get(), {}, {}), second(tokenizer.get(), {}, {});
  std::string a, b;
  for (const int32_t id : ids) a += first.Add(id, true).text;
  for (const int32_t id : ids) b += second.Add(id, true).text;
  EXPECT_EQ(a, b);
  EXPECT_EQ(a + first.Flush(), tokenizer->Decode(ids, true));
}

TEST(TextStream, WithoutATokenizerTheTextIsEmpty) {
  TextStream::Options options;
  options.stop = {"a"};
  const Streamed streamed = Stream(nullptr, {1, 2}, {3, 4}, options);
  EXPECT_EQ(streamed.text, "");
  EXPECT_EQ(streamed.num_tokens, 2);
}

TEST(TextStream, LongStreamsTakeTheTimeOfTheirLength) {
  for (const std::string& name : TrainedTokenizers()) {
    const std::unique_ptr<Tokenizer> tokenizer = LoadTokenizer(name);
    ASSERT_NE(tokenizer, nullptr);
    Ids ids(100'000);
    for (size_t i = 0; i < ids.size(); ++i) {
      ids[i] = static_cast<int32_t>(i * 7 % tokenizer->vocab_size());
    }
    const auto begin = std::chrono::steady_clock::now();
    TextStream::Options options;
    options.stop = {"no such text is ever written here"};
    EXPECT_EQ(Stream(tokenizer.get(), ids, ids, options).text, Continuation(*tokenizer, ids, ids));
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    std::printf("%s: 100,000 tokens streamed in %.2f s\n", name.c_str(), took.count());
  }
}

size_t HeapBytes() {  // 0 with a sanitizer's heap
  const struct mallinfo2 info = mallinfo2();
  return info.uordblks + info.hblkhd;
}

// The limit is the planned memory of a request's text (kTextStreamBytes of
// runtime/service/host_quotas.h).
TEST(TextStream, HoldsLittleHoweverManyByteTokensThereAre) {
  constexpr size_t kMaxBytes = size_t{24} << 10;
  const std::unique_ptr<Tokenizer> tokenizer = LoadTokenizer("llama2");
  ASSERT_NE(tokenizer, nullptr);
  for (const int32_t byte : {0x61, 0xFF}) {
    const int32_t id = 3 + byte;
    ASSERT_EQ(tokenizer->Decode({id}, true), byte == 0x61 ? "a" : std::string(kReplacementChar));
    const Ids prompt(100'000, id);
    TextStream::Options options;
    for (int k = 0; k < 16; ++k) options.stop.emplace_back(256, 'a');
    const size_t before = HeapBytes();
    TextStream stream(tokenizer.get(), prompt, std::move(options));
    size_t bytes = 0;
    for (int i = 0; i < 100'000; ++i) {
      bytes += stream.Add(id, false).text.size();
      if (i % 10'000 == 0) {
        ASSERT_LT(HeapBytes(), before + kMaxBytes);
      }
    }
    std::printf("%zu bytes\n", HeapBytes() - std::min(HeapBytes(), before));
    EXPECT_GT(bytes, 90'000);
  }
}

}  // namespace
}  // namespace bulkhead
