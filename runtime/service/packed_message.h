// Messages of the public API as the bytes that go over the wire, made field by field: an answer of
// many tokens is never a tree of objects. What is packed parses to the same message as the objects
// would. Knows nothing of gRPC.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "runtime/engine/request.h"

namespace bulkhead {

// Bytes that grow at the end, in pieces: nothing is copied as they grow, and at most a quarter and
// half a kilobyte more than they are is taken for them. Used by one thread.
class PackedBytes {
 public:
  void Append(absl::string_view bytes);
  int64_t size() const { return size_; }
  // In order; afterwards it is empty.
  std::vector<std::string> TakePieces();

 private:
  std::vector<std::string> pieces_;
  int64_t size_ = 0;
};

// Appended to `out`. `field`: its number.
void PackVarint(uint64_t value, std::string* out);
void PackNumber(int field, uint64_t value, std::string* out);
void PackFloat(int field, float value, std::string* out);
void PackDouble(int field, double value, std::string* out);
// Also a message, by its bytes.
void PackString(int field, absl::string_view value, std::string* out);
// Tag and length of a field whose `bytes` bytes follow.
void PackHead(int field, int64_t bytes, std::string* out);
// `repeated float`.
void PackFloats(int field, absl::Span<const double> values, std::string* out);
// A v1::TokenIds.
void PackTokenIds(int field, absl::Span<const TokenId> ids, std::string* out);
// A v1::Token.
void PackToken(int field, const GeneratedToken& token, std::string* out);

// What PackTokenIds appends, exactly.
int64_t TokenIdsBytes(absl::Span<const TokenId> ids);
// What PackToken appends at the most.
int64_t MostTokenBytes(int vocab_size, std::optional<int> num_logprobs);
// What PackTokenIds appends at the most.
int64_t MostTokenIdsBytes(int vocab_size, int64_t num_ids);

}  // namespace bulkhead
