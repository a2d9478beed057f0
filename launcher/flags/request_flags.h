// Flags shared by several commands: of requests and of the server to connect to.
#pragma once

#include <string>

#include "launcher/flags/flags.h"
#include "launcher/flags/options.h"

namespace bulkhead {

void AddRequestFlags(RequestOptions* options, Flags* flags);
// Starts the group "Server".
void AddServerFlags(std::string* target, ClientCredentials* credentials, Flags* flags);

}  // namespace bulkhead
