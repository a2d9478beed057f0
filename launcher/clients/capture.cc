#include "launcher/clients/capture.h"

#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/exit_code.h"
#include "base/message_json.h"
#include "base/status.h"
#include "base/whole_file.h"
#include "launcher/version.h"

namespace bulkhead {

v1::SetLimitsResponse LimitsOf(const ServerSnapshot& seen) {
  v1::SetLimitsResponse limits;
  *limits.mutable_now() = seen.now;
  *limits.mutable_sealed() = seen.sealed;
  return limits;
}

v1::ModelInfo WithoutConfig(v1::ModelInfo model) {
  model.clear_config_json();
  return model;
}

absl::StatusOr<std::vector<std::string>> WriteCapture(const std::string& dir,
                                                      const std::string& target,
                                                      const ServerSnapshot& seen,
                                                      const std::string& summary) {
  std::error_code error;
  std::filesystem::create_directories(dir, error);
  if (!error && !std::filesystem::is_empty(dir, error) && !error) {
    return WithExitCode(absl::AlreadyExistsError(
                            absl::StrCat("--capture ", dir, " is not empty; name a new folder")),
                        ExitCode::kUsage);
  }
  const std::vector<std::pair<const char*, std::string>> files = {
      {"summary.txt", absl::StrCat("bulkhead ", Version(), " doctor of ", target, "\n\n", summary)},
      {"ledger.json", MessageToJsonText(seen.ranks)},
      {"limits.json", MessageToJsonText(LimitsOf(seen))},
      {"counters.json", MessageToJsonText(seen.load)},
      {"server.json", MessageToJsonText(seen.server)},
      {"model.json", MessageToJsonText(WithoutConfig(seen.model))},
      {"config.json", seen.model.config_json()},
  };
  std::vector<std::string> paths;
  for (const auto& [name, text] : files) {
    const std::string path = absl::StrCat(dir, "/", name);
    BH_RETURN_IF_ERROR(WriteWholeFile("--capture", path, text));
    paths.push_back(path);
  }
  return paths;
}

}  // namespace bulkhead
