#include "launcher/clients/capture.h"

#include <google/protobuf/util/json_util.h>

#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/exit_code.h"
#include "base/status.h"
#include "launcher/version.h"

namespace bulkhead {
namespace {

std::string JsonOf(const google::protobuf::Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.add_whitespace = true;
  options.always_print_primitive_fields = true;
  options.preserve_proto_field_names = true;
  std::string text;
  if (!google::protobuf::util::MessageToJsonString(message, &text, options).ok()) return "";
  return text;
}

}  // namespace

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
  v1::SetLimitsResponse limits;
  *limits.mutable_now() = seen.now;
  *limits.mutable_sealed() = seen.sealed;
  v1::ModelInfo model = seen.model;
  model.clear_config_json();
  const std::vector<std::pair<const char*, std::string>> files = {
      {"summary.txt", absl::StrCat("bulkhead ", Version(), " doctor of ", target, "\n\n", summary)},
      {"ledger.json", JsonOf(seen.ranks)},
      {"limits.json", JsonOf(limits)},
      {"counters.json", JsonOf(seen.load)},
      {"server.json", JsonOf(seen.server)},
      {"model.json", JsonOf(model)},
      {"config.json", seen.model.config_json()},
  };
  std::vector<std::string> paths;
  for (const auto& [name, text] : files) {
    const std::string path = absl::StrCat(dir, "/", name);
    std::ofstream file(path, std::ios::binary);
    if (!file.is_open()) {
      return WithExitCode(absl::PermissionDeniedError(absl::StrCat("cannot write ", path)),
                          ExitCode::kUsage);
    }
    file << text;
    file.close();
    if (!file) {  // for example, a full disk
      return WithExitCode(absl::DataLossError(absl::StrCat("writing ", path, " failed")),
                          ExitCode::kClientError);
    }
    paths.push_back(path);
  }
  return paths;
}

}  // namespace bulkhead
