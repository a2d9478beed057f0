// HeaderReader: reads the fields of a call's header block that decide whether it is allowed: method
// and key. Decodes all blocks of one connection in order, since they share a table (RFC 7541); used
// if calls need an API key, in addition to gRPC's own decoder.
#pragma once

#include <memory>
#include <string>

#include "absl/strings/string_view.h"

struct nghttp2_hd_inflater;

namespace bulkhead {

class HeaderReader {
 public:
  HeaderReader();
  ~HeaderReader();
  HeaderReader(const HeaderReader&) = delete;
  HeaderReader& operator=(const HeaderReader&) = delete;

  // The next block. False: it is not HPACK, and no block of the connection can be read any more.
  bool Read(absl::string_view block);

  // From the last block. A key that is too long, or one of two, reads as something that is no key.
  const std::string& path() const { return path_; }
  const std::string& authorization() const { return authorization_; }
  // Wipes what was read.
  void Clear();

 private:
  void Take(absl::string_view name, absl::string_view value);

  nghttp2_hd_inflater* inflater_ = nullptr;
  std::string path_;
  std::string authorization_;
};

}  // namespace bulkhead
