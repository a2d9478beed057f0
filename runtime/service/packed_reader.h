// PackedReader: reads the fields of a message that this server packed, one after another: a tree of
// objects would take many times its bytes. Used by one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "bulkhead/v1/generation.pb.h"
#include "runtime/service/call_transport.h"

namespace bulkhead {

// A message, or a part of one, and the owner of its bytes.
struct PackedMessage {
  std::shared_ptr<const std::string> owner;
  absl::string_view bytes;
};

class PackedReader {
 public:
  explicit PackedReader(absl::string_view message) : rest_(message) {}

  // The next field; false at the end.
  bool Next();
  int field() const { return field_; }
  uint64_t number() const { return number_; }         // of a varint
  absl::string_view bytes() const { return bytes_; }  // of a string or message

  // The next number of a packed field's bytes; false at the end.
  bool NextNumber(uint64_t* number) { return !rest_.empty() && ReadVarint(number); }

  // The next v1::Token in `field`; false at the end.
  bool NextToken(int field, v1::Token* token);

 private:
  bool ReadVarint(uint64_t* value);

  absl::string_view rest_;
  int field_ = 0;
  uint64_t number_ = 0;
  absl::string_view bytes_;
};

// The pieces as one text.
std::string Joined(MessagePieces pieces);
// The last value of a field of bytes; empty if there is none.
absl::string_view BytesOf(absl::string_view message, int field);
int CountOf(absl::string_view message, int field);

}  // namespace bulkhead
