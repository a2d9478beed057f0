// Messages of the public API serialised directly to wire format, field by field: an answer of many
// tokens never exists as a tree of objects. The result parses to the same message. Independent of
// gRPC.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "runtime/engine/request.h"

namespace bulkhead {

// Append-only bytes in pieces: no copying on growth, and at most a quarter plus half a kilobyte of
// unused capacity. Used by one thread.
class PackedBytes {
 public:
  void Append(absl::string_view bytes);
  int64_t size() const { return size_; }
  // In order; empty afterwards.
  std::vector<std::string> TakePieces();

 private:
  std::vector<std::string> pieces_;
  int64_t size_ = 0;
};

// Appends to `out`. `field`: its number.
void PackVarint(uint64_t value, std::string* out);
void PackNumber(int field, uint64_t value, std::string* out);
void PackFloat(int field, float value, std::string* out);
void PackDouble(int field, double value, std::string* out);
// Also for a serialised message.
void PackString(int field, absl::string_view value, std::string* out);
// Tag and length of a field of `bytes` bytes, which the caller appends.
void PackHead(int field, int64_t bytes, std::string* out);
// `repeated float`.
void PackFloats(int field, absl::Span<const float> values, std::string* out);
// A v1::TokenIds.
void PackTokenIds(int field, absl::Span<const TokenId> ids, std::string* out);
// A v1::Token.
void PackToken(int field, const GeneratedToken& token, std::string* out);

// Exact size of PackTokenIds.
int64_t TokenIdsBytes(absl::Span<const TokenId> ids);
// Maximum size of PackToken.
int64_t MaxTokenBytes(int vocab_size, std::optional<int> num_logprobs);
// Maximum size of PackTokenIds.
int64_t MaxTokenIdsBytes(int vocab_size, int64_t num_ids);

}  // namespace bulkhead
