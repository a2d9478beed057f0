// Digest: 64-bit FNV-1a, to detect accidental differences.
#pragma once

#include <cstdint>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace bulkhead {

class Digest {
 public:
  void Add(absl::string_view bytes) {
    for (const char byte : bytes)
      value_ = (value_ ^ static_cast<unsigned char>(byte)) * 0x100000001b3ULL;
    value_ = (value_ ^ 0xff) * 0x100000001b3ULL;  // field separator: this byte never occurs in the
                                                  // texts
  }
  void Add(int64_t number) { Add(absl::StrCat(number)); }
  uint64_t value() const { return value_; }

 private:
  uint64_t value_ = 0xcbf29ce484222325ULL;
};

}  // namespace bulkhead
