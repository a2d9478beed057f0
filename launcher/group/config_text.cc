#include "launcher/group/config_text.h"

#include <openssl/sha.h>

#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/whole_file.h"

namespace bulkhead {

ConfigText ReadConfigText(const std::string& dir) {
  absl::StatusOr<std::string> text = ReadWholeFile(absl::StrCat(dir, "/config.json"));
  if (!text.ok()) return {};
  ConfigText config;
  config.json = *std::move(text);
  unsigned char digest[SHA256_DIGEST_LENGTH];
  SHA256(reinterpret_cast<const unsigned char*>(config.json.data()), config.json.size(), digest);
  config.sha256 = absl::BytesToHexString(
      absl::string_view(reinterpret_cast<const char*>(digest), sizeof(digest)));
  return config;
}

}  // namespace bulkhead
