// AccessControl: API keys and client certificates with their roles. Immutable once read;
// thread-safe. Keys are held as SHA-256 digests and compared in constant time; no message, log line
// or error contains one.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/sha256.h"
#include "runtime/service/access/roles.h"

namespace bulkhead {

inline constexpr size_t kMinApiKeyBytes = 16;
inline constexpr size_t kMaxApiKeyBytes = 512;
inline constexpr size_t kMaxApiKeys = 1024;
// The environment's key, with all roles; also used by clients.
inline constexpr char kApiKeyVariable[] = "BULKHEAD_API_KEY";

struct AccessOptions {
  // --api-key-file: lines "KEY" (all roles) or "ROLE[,ROLE] KEY"; empty ones and those that begin
  // with # are comments.
  std::optional<std::string> api_key_file = std::nullopt;
  std::string environment_key = {};  // the value of kApiKeyVariable; empty: none
  // --ssl-ca-certs: connections have a client certificate.
  bool client_certificates = false;
  // --ssl-client-roles: lines "ROLE[,ROLE] NAME". Absent: every certificate has all roles if there
  // are no API keys, and none if there are.
  std::optional<std::string> client_roles_file = std::nullopt;
};

class AccessControl {
 public:
  AccessControl() = default;  // open to all
  // INVALID_ARGUMENT with exit code 2 naming file, line and remedy. Warns of files that others than
  // owner and group can read.
  static absl::StatusOr<AccessControl> Read(const AccessOptions& options);

  bool is_on() const { return is_on_; }
  // "3 API keys, client certificates": for the log.
  std::string Text() const;

  // Roles of a verified certificate with these names (CN, DNS and URI of its alternative names).
  RoleSet RolesOfCertificate(absl::Span<const std::string> names) const;

  // Whether a caller with this `authorization` ("Bearer KEY", or empty), on a connection whose
  // certificate has the roles `of_connection`, may do what needs one of `need`. UNAUTHENTICATED
  // (UNAUTHENTICATED): no key, or one that is not known. PERMISSION_DENIED (PERMISSION_DENIED): it
  // has other roles.
  absl::Status Check(RoleSet need, absl::string_view authorization,
                     RoleSet of_connection = kNoRole) const;

 private:
  struct Key {
    Sha256Digest digest;
    RoleSet roles;
  };

  absl::Status AddKey(absl::string_view key, RoleSet roles);
  absl::Status AddKeyFile(const std::string& path);
  absl::Status AddRolesFile(const std::string& path);
  // kNoRole: not known.
  RoleSet RolesOfKey(absl::string_view key) const;

  bool is_on_ = false;
  bool has_certificates_ = false;
  std::vector<Key> keys_;
  std::optional<std::map<std::string, RoleSet>> roles_of_names_;
};

// The first key of a file as above, for a client; the environment's if `path` is absent; empty if
// there is neither. INVALID_ARGUMENT with exit code 2.
absl::StatusOr<std::string> ReadClientKey(const std::optional<std::string>& path,
                                          const char* environment_key);

}  // namespace bulkhead
