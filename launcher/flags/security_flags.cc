#include "launcher/flags/security_flags.h"

#include <cstdlib>
#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "launcher/flags/flag_values.h"

namespace bulkhead {
namespace {

// By spelling: no name is resolved.
bool IsLoopback(const std::string& host) {
  return host == "localhost" || host == "::1" || host == "[::1]" ||
         (absl::StartsWith(host, "127.") &&
          host.find_first_not_of("0123456789.") == std::string::npos);
}

constexpr size_t kMaxOrigins = 64, kMaxOriginBytes = 256;

bool IsOrigin(absl::string_view text) {
  const size_t at = text.find("://");
  return text == "*" || (at != absl::string_view::npos && at > 0 && at + 3 < text.size() &&
                         text.size() <= kMaxOriginBytes &&
                         text.find_first_of("/?#@*\"\\", at + 3) == absl::string_view::npos &&
                         absl::c_all_of(text, [](char c) { return c > 0x20 && c < 0x7F; }));
}

// A,B or ["A", "B"], appended to earlier values: origins have no commas and quotes.
absl::Status AddOrigins(absl::string_view text, std::vector<std::string>* origins) {
  if (absl::ConsumePrefix(&text, "[")) absl::ConsumeSuffix(&text, "]");
  for (absl::string_view one : absl::StrSplit(text, ',', absl::SkipWhitespace())) {
    one = absl::StripAsciiWhitespace(one);
    if (absl::ConsumePrefix(&one, "\"")) absl::ConsumeSuffix(&one, "\"");
    if (!IsOrigin(one)) {
      return absl::InvalidArgumentError(
          absl::StrCat("'", absl::CHexEscape(one.substr(0, kMaxOriginBytes)),
                       "' is not * or SCHEME://HOST[:PORT]", ", at most ", kMaxOriginBytes,
                       " bytes without a path; write it as https://example.org"));
    }
    origins->push_back(absl::AsciiStrToLower(one));
  }
  if (origins->size() <= kMaxOrigins) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(origins->size(), " origins are more than ",
                                                 kMaxOrigins, "; give fewer, or * for any"));
}

}  // namespace

void AddSecurityFlags(SecurityOptions* options, Flags* flags) {
  flags->Add("--api-key-file", "FILE",
             "file of API keys, of which clients must send one; a line is KEY or ROLE[,ROLE] KEY, "
             "with the roles generate, control and metrics; only rank 0 reads the file (default: "
             "the key in the environment variable BULKHEAD_API_KEY, or no keys)",
             TextValue(&options->api_key_file));
  flags->Add("--ssl-certfile", "FILE",
             "certificate in PEM format, which turns on TLS for --port, --http-port and "
             "--metrics-port (default: no TLS)",
             TextValue(&options->ssl_certfile));
  flags->Add("--ssl-keyfile", "FILE", "private key of the certificate, in PEM format",
             TextValue(&options->ssl_keyfile));
  flags->Add("--ssl-ca-certs", "FILE",
             "certificates of authorities in PEM format; clients must then have a certificate of "
             "one of them (default: client certificates are not required)",
             TextValue(&options->ssl_ca_certs));
  flags->Add("--ssl-client-roles", "FILE",
             "file with the roles of client certificates, by CN, DNS name or URI: lines "
             "ROLE[,ROLE] NAME (default: all roles, or none if there are API keys)",
             TextValue(&options->ssl_client_roles));
  flags->Add("--allowed-origins", "LIST",
             "origins whose web pages may call the HTTP API (CORS): SCHEME://HOST[:PORT], "
             "separated by commas or as a JSON list, or * for any origin (default: none)",
             [origins = &options->allowed_origins](const std::string& text) {
               return AddOrigins(text, origins);
             });
}

bool HasEnvironmentKey() {
  const char* const key = std::getenv("BULKHEAD_API_KEY");
  return key != nullptr && *key != '\0';
}

absl::Status CheckSecurity(const ServeOptions& options, bool is_rank0) {
  const SecurityOptions& security = options.security;
  const bool has_tls = security.ssl_certfile.has_value();
  if (has_tls != security.ssl_keyfile.has_value()) {
    return absl::InvalidArgumentError(
        "--ssl-certfile and --ssl-keyfile belong together; give both, or none");
  }
  if (security.ssl_ca_certs.has_value() && !has_tls) {
    return absl::InvalidArgumentError(
        "--ssl-ca-certs: client certificates need TLS; also give --ssl-certfile and --ssl-keyfile");
  }
  if (security.ssl_client_roles.has_value() && !security.ssl_ca_certs.has_value()) {
    return absl::InvalidArgumentError(
        "--ssl-client-roles: there are no client certificates; also give --ssl-ca-certs");
  }
  const bool knows_callers = !is_rank0 || security.HasAccessControl();
  if (options.insecure || IsLoopback(options.host) || (has_tls && knows_callers)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "--host: ", options.host, " is not loopback, and ",
      has_tls ? "" : "traffic is not encrypted (--ssl-certfile, --ssl-keyfile)",
      !has_tls && !knows_callers ? " and " : "",
      knows_callers ? ""
                    : "callers are not authenticated (--api-key-file, BULKHEAD_API_KEY or "
                      "--ssl-ca-certs)",
      "; give what is missing, or --insecure if the network is trusted"));
}

}  // namespace bulkhead
