// Flags of a server's TLS, API keys and client certificates.
#pragma once

#include "absl/status/status.h"
#include "launcher/flags/flags.h"
#include "launcher/flags/options.h"

namespace bulkhead {

void AddSecurityFlags(SecurityOptions* options, Flags* flags);
bool HasEnvironmentKey();  // BULKHEAD_API_KEY
// INVALID_ARGUMENT if a flag lacks another, or a non-loopback host lacks TLS or, on rank 0 (only it
// may have the environment's key), a way to authenticate callers.
absl::Status CheckSecurity(const ServeOptions& options, bool is_rank0);

}  // namespace bulkhead
