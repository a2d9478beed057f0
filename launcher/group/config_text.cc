#include "launcher/group/config_text.h"

#include <openssl/sha.h>

#include <fstream>
#include <sstream>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace bulkhead {

ConfigText ReadConfigText(const std::string& dir) {
  std::ifstream file(absl::StrCat(dir, "/config.json"), std::ios::binary);
  if (!file) return {};
  std::ostringstream text;
  text << file.rdbuf();
  ConfigText config;
  config.json = text.str();
  unsigned char digest[SHA256_DIGEST_LENGTH];
  SHA256(reinterpret_cast<const unsigned char*>(config.json.data()), config.json.size(), digest);
  config.sha256 = absl::BytesToHexString(
      absl::string_view(reinterpret_cast<const char*>(digest), sizeof(digest)));
  return config;
}

}  // namespace bulkhead
