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
  std::vector<std::string> values;  // a list of TOML is several
  size_t line = 0;
};

// In the order of lines. INVALID_ARGUMENT naming `path`, and the line, when it cannot be read, is
// larger than 64 KiB, no TOML, has sections, or a key twice.
absl::StatusOr<std::vector<ConfigEntry>> ReadConfigFile(const std::string& path);

// `text` as TOML, in one line.
std::string TomlString(const std::string& text);

// The environment variable of a flag: BULKHEAD_MAX_NUM_SEQS of "--max-num-seqs".
std::string EnvironmentNameOf(const std::string& flag);

// Logs a warning for each variable BULKHEAD_... that is one letter or two from that of a flag in
// `names`, and not one that the program reads.
void WarnOfMisspeltEnvironment(const std::vector<std::string>& names);

}  // namespace bulkhead
