// The flags of a request, shared by `generate` and `run`.
#pragma once

#include "launcher/flags.h"
#include "launcher/options.h"

namespace bulkhead {

void AddRequestFlags(RequestOptions* options, Flags* flags);

}  // namespace bulkhead
