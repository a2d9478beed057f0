// Keys and certificates of servers and clients.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace bulkhead {

// Who may call a server, and with what encryption. Files are in the formats of
// runtime/service/access and tls.
struct SecurityOptions {
  std::optional<std::string> api_key_file;
  std::optional<std::string> ssl_certfile;  // absent: no TLS
  std::optional<std::string> ssl_keyfile;
  std::optional<std::string> ssl_ca_certs;      // absent: clients need no certificate
  std::optional<std::string> ssl_client_roles;  // absent: see AccessOptions::client_roles_file
  std::vector<std::string> allowed_origins;     // of web pages, lower case; "*": any
  bool environment_key = false;                 // BULKHEAD_API_KEY is set, where rank 0 is

  bool HasAccessControl() const {
    return api_key_file.has_value() || environment_key || ssl_ca_certs.has_value();
  }
};

// How a client command authenticates itself and the server.
struct ClientCredentials {
  std::optional<std::string> api_key_file;  // absent: BULKHEAD_API_KEY, or none
  std::optional<std::string> ssl_ca_certs;  // absent: no TLS
  std::optional<std::string> ssl_certfile;  // with ssl_keyfile: the client's own
  std::optional<std::string> ssl_keyfile;
};

}  // namespace bulkhead
