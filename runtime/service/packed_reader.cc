#include "runtime/service/packed_reader.h"

#include <utility>

#include "base/check.h"

namespace bulkhead {

bool PackedReader::ReadVarint(uint64_t* value) {
  *value = 0;
  for (size_t i = 0; i < rest_.size() && i < 10; ++i) {
    const auto byte = static_cast<unsigned char>(rest_[i]);
    *value |= static_cast<uint64_t>(byte & 0x7FU) << (7 * i);
    if (byte < 0x80) {
      rest_.remove_prefix(i + 1);
      return true;
    }
  }
  return false;
}

bool PackedReader::Next() {
  if (rest_.empty()) return false;
  uint64_t tag = 0;
  BH_CHECK(ReadVarint(&tag));
  field_ = static_cast<int>(tag >> 3U);
  size_t bytes = 0;
  switch (tag & 7U) {
    case 0:
      BH_CHECK(ReadVarint(&number_));
      return true;
    case 1:
      bytes = 8;
      break;
    case 2:
      BH_CHECK(ReadVarint(&number_));
      bytes = number_;
      break;
    case 5:
      bytes = 4;
      break;
    default:
      BH_CHECK(false);
  }
  BH_CHECK(bytes <= rest_.size());
  bytes_ = rest_.substr(0, bytes);
  rest_.remove_prefix(bytes);
  return true;
}

bool PackedReader::NextToken(int field, v1::Token* token) {
  while (Next()) {
    if (field_ != field) continue;
    BH_CHECK(token->ParseFromArray(bytes_.data(), static_cast<int>(bytes_.size())));
    return true;
  }
  return false;
}

std::string Joined(MessagePieces pieces) {
  if (pieces.size() == 1) return std::move(pieces[0]);
  std::string whole;
  whole.reserve(static_cast<size_t>(SizeOf(pieces)));
  for (std::string& piece : pieces) {
    whole += piece;
    piece = std::string();
  }
  return whole;
}

absl::string_view BytesOf(absl::string_view message, int field) {
  PackedReader reader(message);
  absl::string_view bytes;
  while (reader.Next()) {
    if (reader.field() == field) bytes = reader.bytes();
  }
  return bytes;
}

int CountOf(absl::string_view message, int field) {
  PackedReader reader(message);
  int count = 0;
  while (reader.Next()) count += reader.field() == field ? 1 : 0;
  return count;
}

}  // namespace bulkhead
