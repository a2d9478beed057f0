// Configures libraries through environment variables.
#pragma once

namespace bulkhead {

// First call in main: setenv is undefined while another thread may call getenv. Variables set by
// the user are kept.
void SetProcessEnvironment();

}  // namespace bulkhead
