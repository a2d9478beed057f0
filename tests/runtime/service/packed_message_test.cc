#include "runtime/service/packed_message.h"

#include <gtest/gtest.h>

#include <limits>
#include <random>

#include "absl/strings/str_join.h"
#include "google/protobuf/util/message_differencer.h"
#include "runtime/service/message_conversion.h"

namespace bulkhead {
namespace {

using google::protobuf::util::MessageDifferencer;

GeneratedToken RandomToken(std::mt19937& random, int vocab_size, int num_logprobs) {
  const auto id = [&] { return static_cast<TokenId>(random() % vocab_size); };
  const auto logprob = [&] { return -static_cast<float>(random() % 1000) / 37; };
  GeneratedToken token;
  token.id = id();
  if (num_logprobs < 0) return token;
  token.logprob = logprob();
  token.rank = 1 + id();
  for (int i = 0; i < num_logprobs; ++i) token.top.push_back({id(), logprob()});
  return token;
}

TEST(PackedMessageTest, PackedTokensParseToWhatTheObjectsAre) {
  std::mt19937 random(7);
  v1::GenerateResponse objects;
  std::string packed;
  for (const int vocab_size : {1, 128, 129, 32000, 2'000'000, 1 << 30}) {
    for (const int num_logprobs : {-1, 0, 1, 20}) {
      const GeneratedToken token = RandomToken(random, vocab_size, num_logprobs);
      const size_t before = packed.size();
      PackToken(v1::GenerateResponse::kTokensFieldNumber, token, &packed);
      const auto most = num_logprobs < 0 ? std::nullopt : std::optional<int>(num_logprobs);
      EXPECT_LE(static_cast<int64_t>(packed.size() - before), MaxTokenBytes(vocab_size, most));
      *objects.add_tokens() = ToProto(token);
    }
  }
  v1::GenerateResponse parsed;
  ASSERT_TRUE(parsed.ParseFromString(packed));
  EXPECT_TRUE(MessageDifferencer::Equals(parsed, objects)) << parsed.DebugString();
}

TEST(PackedMessageTest, MostTokenBytesIsReached) {
  GeneratedToken token;
  token.id = 151'935;
  token.logprob = -1;
  token.rank = token.id + 1;
  token.top.assign(20, {token.id, -1});
  std::string packed;
  PackToken(2, token, &packed);
  EXPECT_EQ(static_cast<int64_t>(packed.size()), MaxTokenBytes(token.id + 1, 20));
}

TEST(PackedMessageTest, EveryOtherFieldParsesToo) {
  v1::ScoreResponse objects;
  objects.set_request_id("r");
  objects.set_epoch("");
  objects.set_nll(-std::numeric_limits<double>::infinity());
  objects.set_perplexity(1e300);
  std::string packed;
  PackString(v1::ScoreResponse::kRequestIdFieldNumber, "r", &packed);
  PackString(v1::ScoreResponse::kEpochFieldNumber, "", &packed);
  const std::vector<TokenId> ids = {0, 1, 127, 128, 16383, 16384, 151'935};
  const std::vector<float> logprobs = {-0.25F, -1e-3F, 0};
  const size_t before = packed.size();
  PackTokenIds(v1::ScoreResponse::kTokenIdsFieldNumber, ids, &packed);
  EXPECT_EQ(static_cast<int64_t>(packed.size() - before), TokenIdsBytes(ids));
  EXPECT_LE(TokenIdsBytes(ids), MaxTokenIdsBytes(151'936, static_cast<int64_t>(ids.size())));
  objects.mutable_token_ids()->mutable_ids()->Add(ids.begin(), ids.end());
  PackFloats(v1::ScoreResponse::kTokenLogprobsFieldNumber, logprobs, &packed);
  for (const float logprob : logprobs) objects.add_token_logprobs(logprob);
  PackDouble(v1::ScoreResponse::kNllFieldNumber, objects.nll(), &packed);
  PackDouble(v1::ScoreResponse::kPerplexityFieldNumber, objects.perplexity(), &packed);
  v1::ScoreResponse parsed;
  ASSERT_TRUE(parsed.ParseFromString(packed));
  EXPECT_TRUE(MessageDifferencer::Equals(parsed, objects)) << parsed.DebugString();

  packed.clear();
  PackTokenIds(v1::TokenizeResponse::kTokenIdsFieldNumber, {}, &packed);
  v1::TokenizeResponse empty;
  ASSERT_TRUE(empty.ParseFromString(packed));
  EXPECT_TRUE(empty.has_token_ids());
  EXPECT_EQ(TokenIdsBytes({}), static_cast<int64_t>(packed.size()));
}

TEST(PackedBytesTest, PiecesJoinedAreWhatWasAppendedAndTakeLittleMore) {
  std::mt19937 random(3);
  PackedBytes bytes;
  std::string want;
  for (int i = 0; i < 3000; ++i) {
    const std::string part(random() % (i % 100 == 0 ? 5000 : 60), static_cast<char>(random()));
    bytes.Append(part);
    want += part;
  }
  EXPECT_EQ(bytes.size(), static_cast<int64_t>(want.size()));
  const std::vector<std::string> pieces = bytes.TakePieces();
  EXPECT_EQ(absl::StrJoin(pieces, ""), want);
  size_t taken = 0;
  for (const std::string& piece : pieces) taken += piece.capacity();
  EXPECT_LE(taken, want.size() + want.size() / 4 + 512);
  EXPECT_EQ(bytes.size(), 0);
}

}  // namespace
}  // namespace bulkhead
