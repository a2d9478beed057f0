// What libraries are told through the environment of the process.
#pragma once

namespace bulkhead {

// First thing in main: setenv while another thread may call getenv is undefined. What the user has
// set stays.
void SetProcessEnvironment();

}  // namespace bulkhead
