#include "runtime/service/packed_message.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/numeric/bits.h"
#include "bulkhead/v1/generation.pb.h"

namespace bulkhead {
namespace {

constexpr uint32_t kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5;  // wire types

constexpr size_t kMinPieceBytes = 512;
constexpr size_t kMaxPieceBytes = size_t{64} << 10;

int64_t VarintBytes(uint64_t value) { return (absl::bit_width(value | 1) + 6) / 7; }
int64_t VarintBytes(TokenId id) { return VarintBytes(uint64_t{static_cast<uint32_t>(id)}); }

void PackTag(int field, uint32_t wire_type, std::string* out) {
  PackVarint((static_cast<uint32_t>(field) << 3U) | wire_type, out);
}

template <typename Value>
void PackFixed(Value value, std::string* out) {  // little-endian, as are all supported machines
  char bytes[sizeof(Value)];
  std::memcpy(bytes, &value, sizeof(Value));
  out->append(bytes, sizeof(Value));
}

// Fields 1 to 15 have a one-byte tag.
constexpr int64_t kTagBytes = 1;
constexpr int64_t kFloatBytes = kTagBytes + 4;

int64_t BodyBytes(const TokenLogprob& top) { return kTagBytes + VarintBytes(top.id) + kFloatBytes; }

int64_t BodyBytes(const GeneratedToken& token) {
  int64_t bytes = kTagBytes + VarintBytes(token.id) + (token.logprob.has_value() ? kFloatBytes : 0);
  if (token.rank.has_value()) bytes += kTagBytes + VarintBytes(TokenId{*token.rank});
  for (const TokenLogprob& top : token.top) {
    const int64_t body = BodyBytes(top);
    bytes += kTagBytes + VarintBytes(static_cast<uint64_t>(body)) + body;
  }
  return bytes;
}

}  // namespace

void PackedBytes::Append(absl::string_view bytes) {
  size_ += static_cast<int64_t>(bytes.size());
  while (!bytes.empty()) {
    if (pieces_.empty() || pieces_.back().size() == pieces_.back().capacity()) {
      pieces_.emplace_back().reserve(
          std::clamp(static_cast<size_t>(size_) / 4, kMinPieceBytes, kMaxPieceBytes));
    }
    std::string& piece = pieces_.back();
    const size_t fits = std::min(bytes.size(), piece.capacity() - piece.size());
    piece.append(bytes.data(), fits);
    bytes.remove_prefix(fits);
  }
}

std::vector<std::string> PackedBytes::TakePieces() {
  size_ = 0;
  return std::exchange(pieces_, {});
}

void PackVarint(uint64_t value, std::string* out) {
  for (; value >= 0x80; value >>= 7U) out->push_back(static_cast<char>(value | 0x80U));
  out->push_back(static_cast<char>(value));
}

void PackNumber(int field, uint64_t value, std::string* out) {
  PackTag(field, kVarint, out);
  PackVarint(value, out);
}

void PackFloat(int field, float value, std::string* out) {
  PackTag(field, kFixed32, out);
  PackFixed(value, out);
}

void PackDouble(int field, double value, std::string* out) {
  PackTag(field, kFixed64, out);
  PackFixed(value, out);
}

void PackHead(int field, int64_t bytes, std::string* out) {
  PackTag(field, kBytes, out);
  PackVarint(static_cast<uint64_t>(bytes), out);
}

void PackString(int field, absl::string_view value, std::string* out) {
  PackHead(field, static_cast<int64_t>(value.size()), out);
  out->append(value.data(), value.size());
}

void PackFloats(int field, absl::Span<const float> values, std::string* out) {
  if (values.empty()) return;
  out->reserve(out->size() + values.size() * sizeof(float) + 16);
  PackHead(field, static_cast<int64_t>(values.size() * sizeof(float)), out);
  for (const float value : values) PackFixed(value, out);
}

void PackTokenIds(int field, absl::Span<const TokenId> ids, std::string* out) {
  int64_t bytes = 0;
  for (const TokenId id : ids) bytes += VarintBytes(id);
  const int64_t head = ids.empty() ? 0 : kTagBytes + VarintBytes(static_cast<uint64_t>(bytes));
  out->reserve(out->size() + static_cast<size_t>(head + bytes) + 16);
  PackHead(field, head + bytes, out);
  if (ids.empty()) return;
  PackHead(v1::TokenIds::kIdsFieldNumber, bytes, out);
  for (const TokenId id : ids) PackVarint(static_cast<uint32_t>(id), out);
}

void PackToken(int field, const GeneratedToken& token, std::string* out) {
  PackHead(field, BodyBytes(token), out);
  PackNumber(v1::Token::kIdFieldNumber, static_cast<uint32_t>(token.id), out);
  if (token.logprob.has_value()) PackFloat(v1::Token::kLogprobFieldNumber, *token.logprob, out);
  for (const TokenLogprob& top : token.top) {
    PackHead(v1::Token::kTopFieldNumber, BodyBytes(top), out);
    PackNumber(v1::TokenLogprob::kIdFieldNumber, static_cast<uint32_t>(top.id), out);
    PackFloat(v1::TokenLogprob::kLogprobFieldNumber, top.logprob, out);
  }
  if (token.rank.has_value()) {
    PackNumber(v1::Token::kRankFieldNumber, static_cast<uint32_t>(*token.rank), out);
  }
}

int64_t TokenIdsBytes(absl::Span<const TokenId> ids) {
  int64_t bytes = 0;
  for (const TokenId id : ids) bytes += VarintBytes(id);
  const int64_t body =
      ids.empty() ? 0 : kTagBytes + VarintBytes(static_cast<uint64_t>(bytes)) + bytes;
  return kTagBytes + VarintBytes(static_cast<uint64_t>(body)) + body;
}

int64_t MaxTokenBytes(int vocab_size, std::optional<int> num_logprobs) {
  GeneratedToken token;
  token.id = std::max(vocab_size, 1) - 1;
  if (num_logprobs.has_value()) {
    token.logprob = 0;
    token.rank = std::max(vocab_size, 1);
    token.top.assign(*num_logprobs, {token.id, 0});
  }
  const int64_t body = BodyBytes(token);
  return kTagBytes + VarintBytes(static_cast<uint64_t>(body)) + body;
}

int64_t MaxTokenIdsBytes(int vocab_size, int64_t num_ids) {
  constexpr int64_t kHeads = 2 * (kTagBytes + 10);
  return kHeads + num_ids * VarintBytes(TokenId{std::max(vocab_size, 1) - 1});
}

}  // namespace bulkhead
