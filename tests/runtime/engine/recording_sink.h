// Helpers of the coordinator tests: a sink that records, a tokenizer of letters, a manual clock.
#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "runtime/engine/request.h"
#include "runtime/tokenizer/tokenizer.h"

namespace bulkhead {

class RecordingSink final : public RequestSink {
 public:
  void OnDelta(OutputDelta delta) override {
    std::lock_guard<std::mutex> lock(mutex_);
    EXPECT_FALSE(end_.has_value()) << "a delta after the end";
    if (!delta.tokens.empty()) {
      if (tokens_.empty()) first_position_ = delta.position;
      EXPECT_EQ(delta.position, first_position_ + tokens_.size());
    }
    for (const GeneratedToken& token : delta.tokens) tokens_.push_back(token.id);
    text_ += delta.text;
    changed_.notify_all();
  }
  void OnEnd(RequestEnd end) override {
    std::lock_guard<std::mutex> lock(mutex_);
    EXPECT_FALSE(end_.has_value()) << "two ends";
    end_ = std::move(end);
    changed_.notify_all();
  }

  void WaitForTokens(size_t count) {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return tokens_.size() >= count || end_.has_value(); });
  }
  RequestEnd WaitForEnd() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return end_.has_value(); });
    return *end_;
  }
  bool ended() {
    std::lock_guard<std::mutex> lock(mutex_);
    return end_.has_value();
  }
  std::vector<TokenId> tokens() {
    std::lock_guard<std::mutex> lock(mutex_);
    return tokens_;
  }
  std::string text() {
    std::lock_guard<std::mutex> lock(mutex_);
    return text_;
  }
  uint64_t first_position() {
    std::lock_guard<std::mutex> lock(mutex_);
    return first_position_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<TokenId> tokens_;
  std::string text_;
  uint64_t first_position_ = 0;
  std::optional<RequestEnd> end_;
};

// Every token is one letter: id 0 is 'A', 25 'Z', 26 'a'.
class LetterTokenizer final : public Tokenizer {
 public:
  static char Letter(TokenId id) {
    return static_cast<char>(id < 26 ? 'A' + id : 'a' + (id - 26) % 26);
  }
  static std::string Text(const std::vector<TokenId>& ids) {
    std::string text;
    for (const TokenId id : ids) text += Letter(id);
    return text;
  }
  absl::StatusOr<std::vector<int32_t>> Encode(absl::string_view /*text*/,
                                              bool /*add*/) const override {
    return absl::UnimplementedError("letters are only written");
  }
  std::string Decode(absl::Span<const int32_t> ids, bool /*skip*/) const override {
    return Text({ids.begin(), ids.end()});
  }
  int vocab_size() const override { return 52; }
};

}  // namespace bulkhead
