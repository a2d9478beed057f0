// Flags that several commands share: of a request, and of the server to talk to.
#pragma once

#include <string>

#include "launcher/flags/flags.h"
#include "launcher/flags/options.h"

namespace bulkhead {

void AddRequestFlags(RequestOptions* options, Flags* flags);
// Begins the group "Server".
void AddTargetFlag(std::string* target, Flags* flags);

}  // namespace bulkhead
