// The Python tool (tools/bench), which turns measurements into tables, JSON, pages and charts. It
// lies in share/bulkhead/tools beside the program's folder, in a build as in an installation.
// BULKHEAD_PYTHON names another interpreter than /usr/bin/python3.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace bulkhead {

// This process becomes the tool, which reads `input` as its standard input (none: this process's
// own) and ends with the exit code. Returns only what kept it from that: NOT_FOUND with exit code
// 2, naming the packages.
absl::Status BecomePythonTool(const std::vector<std::string>& args, absl::string_view input = "");

// Runs the tool beside this process, to its end. A failure is the tool's last line and exit code,
// or as of BecomePythonTool.
absl::Status RunPythonTool(const std::vector<std::string>& args, absl::string_view input = "");

// Whether there is a tool that runs, before something is measured in vain: as of RunPythonTool.
absl::Status CheckPythonTool();

}  // namespace bulkhead
