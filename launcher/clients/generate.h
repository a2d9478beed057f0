// `bulkhead generate`: sends prompts to a server, prints texts or JSON lines.
#pragma once

#include "absl/status/status.h"
#include "launcher/flags/options.h"

namespace bulkhead {

// Exit code 1 when any prompt failed, 128 + n after signal n.
absl::Status RunGenerate(const GenerateOptions& options);

}  // namespace bulkhead
