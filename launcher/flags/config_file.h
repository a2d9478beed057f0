// --config FILE: a flat TOML file whose keys are a command's flags without "--":
//   model = "org/name"
//   max-num-seqs = 64        # or max_num_seqs
//   strict-config = true
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace bulkhead {

struct ConfigEntry {
  std::string flag;                 // "--max-num-seqs"
  std::vector<std::string> values;  // a TOML list gives several
  size_t line = 0;
};

// Entries in the order of lines. INVALID_ARGUMENT naming `path`, and the line, if it cannot be
// read, is larger than 64 KiB, is not TOML, has sections, or has a key twice.
absl::StatusOr<std::vector<ConfigEntry>> ReadConfigFile(const std::string& path);

// `text` as TOML, in one line.
std::string TomlString(const std::string& text);

// The environment variable of a flag: BULKHEAD_MAX_NUM_SEQS for "--max-num-seqs".
std::string EnvironmentNameOf(const std::string& flag);

// Logs a warning for each variable BULKHEAD_... that the program does not read and that differs in
// one or two letters from that of a flag in `names`.
void WarnOfMisspeltEnvironment(const std::vector<std::string>& names);

}  // namespace bulkhead
