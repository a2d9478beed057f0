#include "runtime/service/access/access_control.h"

#include <openssl/crypto.h>
#include <sys/stat.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/exit_code.h"
#include "base/log.h"
#include "base/status.h"
#include "base/whole_file.h"
#include "runtime/service/refusal.h"

namespace bulkhead {
namespace {

constexpr absl::string_view kBearer = "bearer ";
constexpr off_t kMaxFileBytes = off_t{1} << 20;

absl::Status Bad(absl::string_view what) {
  return WithExitCode(absl::InvalidArgumentError(what), ExitCode::kUsage);
}

// `key` is never part of the message.
absl::Status CheckKey(absl::string_view key) {
  if (key.size() < kMinApiKeyBytes || key.size() > kMaxApiKeyBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("the API key has ", key.size(), " characters, and ", kMinApiKeyBytes, " to ",
                     kMaxApiKeyBytes, " are accepted; make one with 'openssl rand -hex 32'"));
  }
  const bool printable =
      std::all_of(key.begin(), key.end(), [](char c) { return c > ' ' && c < 0x7F; });
  if (!printable) {
    return absl::InvalidArgumentError(
        "the API key has a character that is not printable ASCII, or a space; make one with "
        "'openssl rand -hex 32'");
  }
  return absl::OkStatus();
}

// Calls `take(roles, word)` for each line "WORD" or "ROLES WORD". The text is wiped afterwards.
absl::Status ForEachLine(
    absl::string_view flag, const std::string& path,
    const std::function<absl::Status(std::optional<RoleSet>, absl::string_view)>& take) {
  struct stat file = {};
  if (stat(path.c_str(), &file) == 0) {
    if (S_ISREG(file.st_mode) && file.st_size > kMaxFileBytes) {
      return Bad(absl::StrCat(flag, ": ", path, " has ", file.st_size, " bytes, more than ",
                              kMaxFileBytes, "; give a file with a line for each"));
    }
    if (S_ISREG(file.st_mode) && (file.st_mode & S_IROTH) != 0) {
      BH_LOG(kWarning) << flag << " " << path
                       << " can be read by every user of this machine; chmod 600 it";
    }
  }
  absl::StatusOr<std::string> text = ReadWholeFile(path);
  if (!text.ok()) return Bad(absl::StrCat(flag, ": ", text.status().message()));
  absl::Status status;
  int number = 0;
  for (const absl::string_view whole : absl::StrSplit(*text, '\n')) {
    ++number;
    const absl::string_view line = absl::StripAsciiWhitespace(whole);
    if (line.empty() || line.front() == '#') continue;
    const std::vector<absl::string_view> words =
        absl::StrSplit(line, absl::ByAnyChar(" \t"), absl::SkipEmpty());
    if (words.size() > 2) {
      status = absl::InvalidArgumentError("a line is ROLE[,ROLE] and one word behind it");
    } else if (words.size() == 1) {
      status = take(std::nullopt, words[0]);
    } else if (const absl::StatusOr<RoleSet> roles = ParseRoles(words[0]); !roles.ok()) {
      status = roles.status();
    } else {
      status = take(*roles, words[1]);
    }
    if (status.ok()) continue;
    status = Bad(absl::StrCat(flag, ": ", path, ", line ", number, ": ", status.message()));
    break;
  }
  OPENSSL_cleanse(text->data(), text->size());
  return status;
}

absl::Status Unauthenticated(absl::string_view why) {
  return WithReason(
      absl::UnauthenticatedError(absl::StrCat(why, "; send 'Authorization: Bearer KEY'")),
      reason::kUnauthenticated);
}

}  // namespace

absl::StatusOr<AccessControl> AccessControl::Read(const AccessOptions& options) {
  AccessControl access;
  if (options.api_key_file.has_value()) {
    BH_RETURN_IF_ERROR(access.AddKeyFile(*options.api_key_file));
  }
  if (!options.environment_key.empty()) {
    if (const absl::Status added = access.AddKey(options.environment_key, kAllRoles); !added.ok()) {
      return Bad(absl::StrCat(kApiKeyVariable, ": ", added.message()));
    }
  }
  access.has_certificates_ = options.client_certificates;
  if (options.client_roles_file.has_value()) {
    BH_RETURN_IF_ERROR(access.AddRolesFile(*options.client_roles_file));
  }
  access.is_on_ = !access.keys_.empty() || access.has_certificates_;
  return access;
}

std::string AccessControl::Text() const {
  std::vector<std::string> parts;
  if (!keys_.empty()) {
    parts.push_back(absl::StrCat(keys_.size(), keys_.size() == 1 ? " API key" : " API keys"));
  }
  if (has_certificates_) parts.push_back("client certificates");
  return parts.empty() ? "open to all" : absl::StrJoin(parts, ", ");
}

absl::Status AccessControl::AddKey(absl::string_view key, RoleSet roles) {
  BH_RETURN_IF_ERROR(CheckKey(key));
  if (keys_.size() == kMaxApiKeys) {
    return absl::InvalidArgumentError(
        absl::StrCat("more than ", kMaxApiKeys, " API keys; remove those not in use"));
  }
  keys_.push_back({Sha256(key), roles});
  return absl::OkStatus();
}

absl::Status AccessControl::AddKeyFile(const std::string& path) {
  BH_RETURN_IF_ERROR(ForEachLine("--api-key-file", path,
                                 [this](std::optional<RoleSet> roles, absl::string_view key) {
                                   return AddKey(key, roles.value_or(kAllRoles));
                                 }));
  if (!keys_.empty()) return absl::OkStatus();
  return Bad(absl::StrCat("--api-key-file: ", path,
                          " has no key; give lines of KEY, or of ROLE[,ROLE] KEY"));
}

absl::Status AccessControl::AddRolesFile(const std::string& path) {
  roles_of_names_.emplace();
  BH_RETURN_IF_ERROR(ForEachLine(
      "--ssl-client-roles", path, [this](std::optional<RoleSet> roles, absl::string_view name) {
        (*roles_of_names_)[std::string(name)] |= roles.value_or(kAllRoles);
        return absl::OkStatus();
      }));
  if (!roles_of_names_->empty()) return absl::OkStatus();
  return Bad(absl::StrCat("--ssl-client-roles: ", path,
                          " has no name; give lines of NAME, or of ROLE[,ROLE] NAME"));
}

RoleSet AccessControl::RolesOfCertificate(absl::Span<const std::string> names) const {
  if (!has_certificates_) return kNoRole;
  if (!roles_of_names_.has_value()) return keys_.empty() ? kAllRoles : kNoRole;
  RoleSet roles = kNoRole;
  for (const std::string& name : names) {
    if (const auto found = roles_of_names_->find(name); found != roles_of_names_->end()) {
      roles |= found->second;
    }
  }
  return roles;
}

RoleSet AccessControl::RolesOfKey(absl::string_view key) const {
  const Sha256Digest digest = Sha256(key);
  RoleSet roles = kNoRole;
  // Compares with all keys, so that the time reveals nothing.
  for (const Key& known : keys_) {
    const bool same = CRYPTO_memcmp(known.digest.data(), digest.data(), digest.size()) == 0;
    roles |= static_cast<RoleSet>(known.roles & -static_cast<int>(same));
  }
  return roles;
}

absl::Status AccessControl::Check(RoleSet need, absl::string_view authorization,
                                  RoleSet of_connection) const {
  if (!is_on_ || need == kNoRole || (of_connection & need) != 0) return absl::OkStatus();
  RoleSet roles = of_connection;
  if (!authorization.empty()) {
    if (!absl::StartsWithIgnoreCase(authorization, kBearer)) {
      return Unauthenticated("the authorization is not an API key");
    }
    const RoleSet of_key =
        RolesOfKey(absl::StripAsciiWhitespace(authorization.substr(kBearer.size())));
    if (of_key == kNoRole) return Unauthenticated("the API key is not known");
    roles |= of_key;
  }
  if ((roles & need) != 0) return absl::OkStatus();
  if (roles == kNoRole) {
    return Unauthenticated(keys_.empty() ? "this needs a client certificate with a role, on a port "
                                           "with TLS, and the server has no API keys"
                                         : "this needs an API key");
  }
  return WithReason(
      absl::PermissionDeniedError(absl::StrCat("this needs the role ", RolesText(need),
                                               ", and the caller has ", RolesText(roles))),
      reason::kPermissionDenied);
}

absl::StatusOr<std::string> ReadClientKey(const std::optional<std::string>& path,
                                          const char* environment_key) {
  std::string first;
  if (path.has_value()) {
    BH_RETURN_IF_ERROR(
        ForEachLine("--api-key-file", *path, [&](std::optional<RoleSet>, absl::string_view key) {
          BH_RETURN_IF_ERROR(CheckKey(key));
          if (first.empty()) first = std::string(key);
          return absl::OkStatus();
        }));
    if (first.empty()) return Bad(absl::StrCat("--api-key-file: ", *path, " has no key"));
  } else if (environment_key != nullptr && *environment_key != '\0') {
    if (const absl::Status good = CheckKey(environment_key); !good.ok()) {
      return Bad(absl::StrCat(kApiKeyVariable, ": ", good.message()));
    }
    first = environment_key;
  }
  return first;
}

}  // namespace bulkhead
