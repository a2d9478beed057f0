// config.json as it was read, and what it hashes to, for those who compare two servers.
#pragma once

#include <string>

namespace bulkhead {

struct ConfigText {
  std::string json;
  std::string sha256;  // of it, in hexadecimal
};

// Of a model that was loaded from `dir`; both are empty when the file cannot be read any more.
ConfigText ReadConfigText(const std::string& dir);

}  // namespace bulkhead
