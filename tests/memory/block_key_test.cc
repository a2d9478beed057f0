// The identity of a block is a promise between processes and versions: fixed values, computed with
// another implementation of the documented fields.
#include "memory/block_key.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "memory/prefix_cache.h"

namespace bulkhead {
namespace {

std::string Hex(const KvDigest& digest) {
  return absl::BytesToHexString(
      absl::string_view(reinterpret_cast<const char*>(digest.data()), digest.size()));
}

// Of blocks of four tokens, one after the other.
std::vector<std::string> Identities(const SequenceKey& key) {
  std::vector<std::string> hex;
  KvDigest parent = {};
  for (int64_t i = 0; i < static_cast<int64_t>(key.tokens.size()) / 4; ++i) {
    parent = BlockIdentity(parent, key.Block(i, 4, i == 0 ? 0 : 77));
    hex.push_back(Hex(parent));
  }
  return hex;
}

const std::vector<int32_t>& Tokens() {
  static const std::vector<int32_t> tokens = {1, 2, 3, 4, 5, 6, 7, -1};
  return tokens;
}

TEST(BlockKeyTest, AnIdentityIsOfTheParentAndTheTokens) {
  EXPECT_EQ(Identities({.tokens = Tokens()}),
            (std::vector<std::string>{
                "88077dcf409165b6d978ea24bdf9818d6ed0c484f74aa6535075e3384b182179",
                "08f9b777d3353f6e8aa456f7cbb6003c5ac0745c333b8397396f256f002b6f2c"}));
}

TEST(BlockKeyTest, SaltAndAdapterAreOfTheWholeSequence) {
  EXPECT_EQ(SequenceDigest(""), KvDigest{});
  EXPECT_EQ(Hex(SequenceDigest("tenant")),
            "01033a90da4826fe7d4ba13c5f6af3e785d7747c3d7fda70f0cc8d03072cf3fd");
  const auto first = [](const KvDigest& sequence) {
    return Identities({.sequence = sequence, .tokens = Tokens()})[0];
  };
  EXPECT_EQ(first(SequenceDigest("tenant")),
            "a1d502bc067ca7d08179ae5f0bbd75a3779c5330fe5ffbe45f9909a4ac379bc9");
  EXPECT_EQ(first(SequenceDigest("", "lora")),
            "07e63bb9fc4d4d695d1c00c2b8fb84d374fd34f20aab4a7020d75c9bedbff79a");
  EXPECT_EQ(first(SequenceDigest("tenant", "lora")),
            "f1b2e31c13ef99aeb880ad06f3e1f9f3fb336109fa4dfc3fa0794ef2bb70848a");
  // Later blocks have them by their parents alone.
  const SequenceKey salted = {.sequence = SequenceDigest("tenant"), .tokens = Tokens()};
  EXPECT_EQ(salted.Block(1, 4, 7).context, KvDigest{});
}

TEST(BlockKeyTest, GivenRowsCountWhereTheyAre) {
  const std::vector<int32_t> tokens = {1, 2, 9, 9, 9, 9, 9, 4, 1, 1, 1, 1};
  ContentSpan span{.begin = 2, .end = 7};
  span.content.fill(0x11);
  const SequenceKey key = {SequenceDigest("tenant"), tokens, absl::MakeConstSpan(&span, 1)};
  const std::vector<std::string> identities = Identities(key);
  EXPECT_EQ(identities[0], "4f2ca22b19e26a87f9835912f4cf69767e32190db28acf3d0b4fa5921ad20de9");
  EXPECT_EQ(identities[1], "60a63bcbfc6dc052897a59518a1df698100b246c6e5cb55a372a788514802b79");
  EXPECT_EQ(key.Block(2, 4, 7).context, KvDigest{});
  ContentSpan other = span;
  other.content[31] = 0x12;
  EXPECT_NE(Identities({key.sequence, tokens, absl::MakeConstSpan(&other, 1)})[0], identities[0]);
}

// The cache has the identity of what it holds, whatever ids and seeded hashes are.
TEST(BlockKeyTest, TheCacheKnowsTheIdentityOfABlock) {
  PrefixCache cache(9, 4);
  const SequenceKey key = {.sequence = SequenceDigest("tenant"), .tokens = Tokens()};
  cache.Insert(key.Block(0, 4, 0), 6);
  cache.Insert(key.Block(1, 4, 6), 3);
  const std::vector<std::string> want = Identities(key);
  EXPECT_EQ(Hex(cache.Identity(6)), want[0]);
  EXPECT_EQ(Hex(cache.Identity(3)), want[1]);
}

}  // namespace
}  // namespace bulkhead
