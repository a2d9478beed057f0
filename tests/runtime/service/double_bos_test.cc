#include "runtime/service/double_bos.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace bulkhead {
namespace {

using testing::HasSubstr;

// One token per letter; prepends a 7, or nothing.
class BosTokenizer final : public Tokenizer {
 public:
  explicit BosTokenizer(bool adds) : adds_(adds) {}
  absl::StatusOr<std::vector<int32_t>> Encode(absl::string_view text, bool add) const override {
    std::vector<int32_t> ids;
    if (add && adds_) ids.push_back(7);
    for (const char c : text) ids.push_back(c - '0');
    return ids;
  }
  std::string Decode(absl::Span<const int32_t> /*ids*/, bool /*skip*/) const override { return ""; }
  int vocab_size() const override { return 10; }

 private:
  const bool adds_;
};

bool Twice(const Tokenizer& tokenizer, const std::string& text) {
  return BeginsWithTwoBos(tokenizer, *tokenizer.Encode(text, true));
}

TEST(DoubleBosTest, ATextThatBeginsWithTheBosThatIsAddedIsKnown) {
  const BosTokenizer adds(true);
  EXPECT_TRUE(Twice(adds, "7123"));
  EXPECT_FALSE(Twice(adds, "123"));
  EXPECT_FALSE(Twice(adds, "1177"));
  EXPECT_FALSE(Twice(adds, ""));
}

TEST(DoubleBosTest, WhereNothingIsAddedATextMayBeginWithTheSameTokenTwice) {
  EXPECT_FALSE(Twice(BosTokenizer(false), "77"));
}

TEST(DoubleBosTest, ThereIsOneWarningAMinute) {
  constexpr int64_t kSecond = 1'000'000'000;
  const auto log_at = [](int64_t now_ns) {
    testing::internal::CaptureStderr();
    WarnOfTwoBos(now_ns);
    return testing::internal::GetCapturedStderr();
  };
  EXPECT_THAT(log_at(100 * kSecond), HasSubstr("add_special_tokens"));
  EXPECT_EQ(log_at(159 * kSecond), "");
  EXPECT_THAT(log_at(161 * kSecond), HasSubstr("BOS"));
}

}  // namespace
}  // namespace bulkhead
