// The Python tool (tools/bench), which turns measurements into tables, JSON, pages and charts. It
// is in share/bulkhead/tools beside the program's folder, both in a build and in an installation.
// BULKHEAD_PYTHON overrides the interpreter /usr/bin/python3.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace bulkhead {

// This process becomes the tool, which reads `input` as its standard input (none: this process's
// own) and ends with the exit code. Returns only on failure: NOT_FOUND with exit code 2, naming the
// packages.
absl::Status BecomePythonTool(const std::vector<std::string>& args, absl::string_view input = "");

// Runs the tool beside this process, to its end. Errors: the tool's last line and exit code, or
// BecomePythonTool's.
absl::Status RunPythonTool(const std::vector<std::string>& args, absl::string_view input = "");

// Checks that the tool can run, before anything is measured. Errors are RunPythonTool's.
absl::Status CheckPythonTool();

}  // namespace bulkhead
