// From flags to the access rules and TLS settings of a server's front ends.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "launcher/flags/options.h"
#include "runtime/service/access/access_control.h"
#include "runtime/service/tls/tls_context.h"

namespace bulkhead {

// Rank 0: reads the files and logs who may call. INVALID_ARGUMENT with exit code 2.
absl::StatusOr<AccessControl> ReadAccess(const ServeOptions& options);

// Null without --ssl-certfile.
absl::StatusOr<std::shared_ptr<const TlsContext>> LoadTls(const SecurityOptions& options,
                                                          absl::string_view protocol);

}  // namespace bulkhead
