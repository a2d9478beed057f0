// Helpers of the flag tests: parse a command line and expect a result.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/exit_code.h"
#include "launcher/flags/options.h"

namespace bulkhead {

using Args = std::vector<std::string>;

template <typename Options>
Options Parsed(const Args& args) {
  const absl::StatusOr<Command> command = ParseCommandLine(args);
  EXPECT_TRUE(command.ok()) << command.status();
  if (!command.ok() || !std::holds_alternative<Options>(*command)) {
    ADD_FAILURE() << "not the options of this command";
    return Options();
  }
  return std::get<Options>(*command);
}

inline std::string Refusal(const Args& args) {
  const absl::StatusOr<Command> command = ParseCommandLine(args);
  EXPECT_FALSE(command.ok());
  EXPECT_EQ(ExitCodeOf(command.status()), command.ok() ? ExitCode::kOk : ExitCode::kUsage);
  return std::string(command.status().message());
}

inline Args Serve(const Args& more) {
  Args args = {"serve", "--model", "m"};
  args.insert(args.end(), more.begin(), more.end());
  return args;
}

}  // namespace bulkhead
