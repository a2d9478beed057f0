#include "launcher/group/security.h"

#include <cstdlib>
#include <utility>

#include "base/log.h"
#include "base/status.h"

namespace bulkhead {

absl::StatusOr<AccessControl> ReadAccess(const ServeOptions& options) {
  const SecurityOptions& security = options.security;
  const char* const key = std::getenv(kApiKeyVariable);
  BH_ASSIGN_OR_RETURN(AccessControl access,
                      AccessControl::Read({.api_key_file = security.api_key_file,
                                           .environment_key = key == nullptr ? "" : key,
                                           .client_certificates = security.ssl_ca_certs.has_value(),
                                           .client_roles_file = security.ssl_client_roles}));
  const bool has_tls = security.ssl_certfile.has_value();
  if (!access.is_on() && !has_tls) return access;
  BH_LOG(kInfo) << "callers: " << access.Text() << (has_tls ? "; TLS" : "; no TLS");
  if (options.insecure && !has_tls) {
    BH_LOG(kWarning) << "API keys go over --host " << options.host
                     << " in the clear: give --ssl-certfile and --ssl-keyfile";
  }
  return access;
}

absl::StatusOr<std::shared_ptr<const TlsContext>> LoadTls(const SecurityOptions& options,
                                                          absl::string_view protocol) {
  if (!options.ssl_certfile.has_value()) return std::shared_ptr<const TlsContext>();
  return TlsContext::Load({.certfile = *options.ssl_certfile,
                           .keyfile = options.ssl_keyfile.value_or(""),
                           .ca_certs = options.ssl_ca_certs},
                          protocol);
}

}  // namespace bulkhead
