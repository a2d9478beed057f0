#include "memory/block_key.h"

#include <algorithm>
#include <bit>
#include <string>

#include "base/check.h"
#include "base/sha256.h"

namespace bulkhead {
namespace {

static_assert(std::endian::native == std::endian::little);

// The concatenated fields of a digest.
class Fields {
 public:
  explicit Fields(absl::string_view tag) { String(tag); }
  void String(absl::string_view text) {
    Number(static_cast<uint32_t>(text.size()));
    Bytes(text.data(), text.size());
  }
  void Digest(const KvDigest& digest) { Bytes(digest.data(), digest.size()); }
  template <typename T>
  void Number(T number) {
    Bytes(&number, sizeof(number));
  }
  void Bytes(const void* data, size_t size) { bytes_.append(static_cast<const char*>(data), size); }

  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

}  // namespace

KvDigest SequenceDigest(absl::string_view salt, absl::string_view adapter) {
  if (salt.empty() && adapter.empty()) return {};
  Fields fields("bulkhead.kv.sequence.1");
  fields.String(salt);
  fields.String(adapter);
  return Sha256(fields.bytes());
}

BlockKey SequenceKey::Block(int64_t i, int block_tokens, BlockId parent) const {
  const int64_t begin = i * block_tokens;
  const int64_t end = begin + block_tokens;
  BlockKey key{.parent = parent, .tokens = tokens.subspan(begin, block_tokens)};
  BH_CHECK(static_cast<int>(key.tokens.size()) == block_tokens);
  if (i == 0) key.context = sequence;
  const auto first = std::partition_point(
      spans.begin(), spans.end(), [begin](const ContentSpan& span) { return span.end <= begin; });
  if (first == spans.end() || first->begin >= end) return key;
  Fields fields("bulkhead.kv.content.1");
  fields.Digest(key.context);
  for (auto span = first; span != spans.end() && span->begin < end; ++span) {
    const int64_t from = std::max(begin, span->begin);
    fields.Digest(span->content);
    fields.Number(static_cast<uint64_t>(from - begin));
    fields.Number(static_cast<uint64_t>(from - span->begin));
    fields.Number(static_cast<uint64_t>(std::min(end, span->end) - from));
  }
  key.context = Sha256(fields.bytes());
  return key;
}

KvDigest BlockIdentity(const KvDigest& parent, const BlockKey& key) {
  Fields fields("bulkhead.kv.block.1");
  fields.Digest(parent);
  fields.Digest(key.context);
  fields.Number(static_cast<uint32_t>(key.tokens.size()));
  fields.Bytes(key.tokens.data(), key.tokens.size() * sizeof(int32_t));
  if (key.group > 0) fields.Number(static_cast<uint32_t>(key.group));
  return Sha256(fields.bytes());
}

}  // namespace bulkhead
