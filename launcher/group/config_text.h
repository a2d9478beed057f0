// config.json as read, and its hash, to compare two servers.
#pragma once

#include <string>

namespace bulkhead {

struct ConfigText {
  std::string json;
  std::string sha256;  // of the text, in hexadecimal
};

// The config of a model loaded from `dir`; both are empty if the file can no longer be read.
ConfigText ReadConfigText(const std::string& dir);

}  // namespace bulkhead
