// The flags of a request, shared by `generate` and `run`.
#pragma once

#include "launcher/flags/flags.h"
#include "launcher/flags/options.h"

namespace bulkhead {

void AddRequestFlags(RequestOptions* options, Flags* flags);

}  // namespace bulkhead
