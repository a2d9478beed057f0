// From flags to what a server's front ends need to know callers and to encrypt.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "launcher/flags/options.h"
#include "runtime/service/access/access_control.h"
#include "runtime/service/tls/tls_context.h"

namespace bulkhead {

// Of rank 0: reads the files, and says in the log who may call. INVALID_ARGUMENT with exit code 2.
absl::StatusOr<AccessControl> ReadAccess(const ServeOptions& options);

// Null without --ssl-certfile.
absl::StatusOr<std::shared_ptr<const TlsContext>> LoadTls(const SecurityOptions& options,
                                                          absl::string_view protocol);

}  // namespace bulkhead
