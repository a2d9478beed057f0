// TlsContext: certificate, key and settings of a listener with TLS 1.2 or 1.3.
#pragma once

#include <openssl/ssl.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace bulkhead {

struct TlsFiles {
  std::string certfile;  // --ssl-certfile: PEM, the server's certificate first
  std::string keyfile;   // --ssl-keyfile: PEM, not encrypted
  // --ssl-ca-certs: clients need a certificate from one of these.
  std::optional<std::string> ca_certs = std::nullopt;
};

// ALPN names of the protocols inside TLS. A client that offers only others is refused.
inline constexpr absl::string_view kAlpnHttp2 = "h2";
inline constexpr absl::string_view kAlpnHttp1 = "http/1.1";

class TlsContext {
 public:
  struct Free {
    void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
    void operator()(SSL* ssl) const { SSL_free(ssl); }
  };
  using Session = std::unique_ptr<SSL, Free>;

  // INVALID_ARGUMENT with exit code 2 naming the flag, the file and the remedy: a file that cannot
  // be read or has nothing in PEM form, a key of another certificate, a certificate that has
  // expired. Warns of a key that others can read, and of a certificate that expires within a week.
  static absl::StatusOr<std::shared_ptr<const TlsContext>> Load(const TlsFiles& files,
                                                                absl::string_view protocol);

  // The server's side of a connection; null when out of memory. Any thread.
  Session NewSession(int fd) const;

 private:
  explicit TlsContext(absl::string_view protocol)
      : protocol_(protocol), context_(SSL_CTX_new(TLS_server_method())) {}
  void Configure();
  absl::Status LoadCertificate(const TlsFiles& files);
  absl::Status LoadKey(const TlsFiles& files);
  absl::Status LoadCaCerts(const std::string& path);
  static int SelectProtocol(SSL*, const unsigned char** out, unsigned char* out_bytes,
                            const unsigned char* in, unsigned in_bytes, void* context);

  const std::string protocol_;
  std::unique_ptr<SSL_CTX, Free> context_;
};

// CN, and DNS and URI of the alternative names, of the client's certificate; empty without one.
std::vector<std::string> CertificateNames(const SSL* ssl);

}  // namespace bulkhead
