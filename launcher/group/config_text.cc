#include "launcher/group/config_text.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/sha256.h"
#include "base/whole_file.h"

namespace bulkhead {

ConfigText ReadConfigText(const std::string& dir) {
  absl::StatusOr<std::string> text = ReadWholeFile(absl::StrCat(dir, "/config.json"));
  if (!text.ok()) return {};
  ConfigText config;
  config.json = *std::move(text);
  config.sha256 = Sha256Hex(config.json);
  return config;
}

}  // namespace bulkhead
