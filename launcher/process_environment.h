// Configures libraries through environment variables, and the sizes of stacks.
#pragma once

#include "absl/status/status.h"

namespace bulkhead {

// First call in main: setenv is undefined while another thread may call getenv. Variables set by
// the user are kept.
void SetProcessEnvironment();

// Before any thread: the stacks of all threads are large enough whatever `ulimit -s` is.
// RESOURCE_EXHAUSTED (exit code 5) if the main thread's cannot be.
absl::Status EnsureStacks();

}  // namespace bulkhead
