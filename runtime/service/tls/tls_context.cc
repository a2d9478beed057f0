#include "runtime/service/tls/tls_context.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <ctime>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/exit_code.h"
#include "base/log.h"
#include "base/status.h"

namespace bulkhead {
namespace {

constexpr time_t kSoonS = 7 * 24 * 3600;
constexpr int kMaxNames = 64;

absl::Status Refused(absl::string_view flag, absl::string_view path, absl::string_view why) {
  return WithExitCode(absl::InvalidArgumentError(absl::StrCat(flag, ": ", path, " ", why)),
                      ExitCode::kUsage);
}

// OpenSSL's reason of the last failure.
std::string OpensslReason() {
  const char* const reason = ERR_reason_error_string(ERR_peek_last_error());
  ERR_clear_error();
  return reason == nullptr ? "no reason given" : reason;
}

absl::Status CheckCanRead(absl::string_view flag, const std::string& path) {
  if (std::ifstream(path).good()) {
    struct stat file = {};
    if (stat(path.c_str(), &file) == 0 && !S_ISDIR(file.st_mode)) return absl::OkStatus();
    return Refused(flag, path, "is a folder; give a file in PEM form");
  }
  return Refused(flag, path, absl::StrCat("cannot be read: ", std::strerror(errno)));
}

std::string TimeText(const ASN1_TIME* time) {
  std::tm parts = {};
  char text[32] = "an unknown time";
  if (ASN1_TIME_to_tm(time, &parts) == 1) {
    std::strftime(text, sizeof(text), "%Y-%m-%d %H:%M UTC", &parts);
  }
  return text;
}

// An encrypted key has no one to ask for its password.
int NoPassword(char*, int, int, void*) { return 0; }

std::string TextOf(const ASN1_STRING* text) {
  unsigned char* utf8 = nullptr;
  const int bytes = ASN1_STRING_to_UTF8(&utf8, text);
  if (bytes < 0) return "";
  std::string out(reinterpret_cast<const char*>(utf8), bytes);
  OPENSSL_free(utf8);
  return out;
}

}  // namespace

absl::StatusOr<std::shared_ptr<const TlsContext>> TlsContext::Load(const TlsFiles& files,
                                                                   absl::string_view protocol) {
  const std::shared_ptr<TlsContext> made(new TlsContext(protocol));
  BH_CHECK(made->context_ != nullptr);
  made->Configure();
  BH_RETURN_IF_ERROR(made->LoadCertificate(files));
  BH_RETURN_IF_ERROR(made->LoadKey(files));
  if (files.ca_certs.has_value()) BH_RETURN_IF_ERROR(made->LoadCaCerts(*files.ca_certs));
  return std::shared_ptr<const TlsContext>(made);
}

void TlsContext::Configure() {
  SSL_CTX* const context = context_.get();
  SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
  // Nothing is kept between connections. A client that ends without close_notify is no error: the
  // protocols inside have lengths.
  SSL_CTX_set_options(context, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_TICKET | SSL_OP_NO_COMPRESSION |
                                   SSL_OP_CIPHER_SERVER_PREFERENCE | SSL_OP_IGNORE_UNEXPECTED_EOF);
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_num_tickets(context, 0);
  // An idle connection holds no buffers; records without data are handled one at a time.
  SSL_CTX_set_mode(context, SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ENABLE_PARTIAL_WRITE |
                                SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  SSL_CTX_clear_mode(context, SSL_MODE_AUTO_RETRY);
  SSL_CTX_set_default_passwd_cb(context, NoPassword);
  SSL_CTX_set_alpn_select_cb(context, SelectProtocol, this);
}

absl::Status TlsContext::LoadCertificate(const TlsFiles& files) {
  constexpr absl::string_view kFlag = "--ssl-certfile";
  BH_RETURN_IF_ERROR(CheckCanRead(kFlag, files.certfile));
  if (SSL_CTX_use_certificate_chain_file(context_.get(), files.certfile.c_str()) != 1) {
    return Refused(kFlag, files.certfile,
                   absl::StrCat("has no certificate that can be used (", OpensslReason(),
                                "); give it in PEM form, the server's first"));
  }
  const X509* const certificate = SSL_CTX_get0_certificate(context_.get());
  const ASN1_TIME* const ends = X509_get0_notAfter(certificate);
  time_t soon = std::time(nullptr) + kSoonS;
  if (X509_cmp_current_time(ends) < 0) {
    return Refused(kFlag, files.certfile,
                   absl::StrCat("expired on ", TimeText(ends), "; give one that is valid"));
  }
  if (X509_cmp_current_time(X509_get0_notBefore(certificate)) > 0) {
    return Refused(kFlag, files.certfile,
                   absl::StrCat("is valid only from ", TimeText(X509_get0_notBefore(certificate)),
                                "; set this machine's clock, or give another"));
  }
  if (X509_cmp_time(ends, &soon) < 0) {
    BH_LOG(kWarning) << kFlag << " " << files.certfile << " expires on " << TimeText(ends)
                     << "; start the server again with a new one before that";
  }
  return absl::OkStatus();
}

absl::Status TlsContext::LoadKey(const TlsFiles& files) {
  constexpr absl::string_view kFlag = "--ssl-keyfile";
  BH_RETURN_IF_ERROR(CheckCanRead(kFlag, files.keyfile));
  struct stat file = {};
  if (stat(files.keyfile.c_str(), &file) == 0 && (file.st_mode & S_IROTH) != 0) {
    BH_LOG(kWarning) << kFlag << " " << files.keyfile
                     << " can be read by every user of this machine; chmod 600 it";
  }
  if (SSL_CTX_use_PrivateKey_file(context_.get(), files.keyfile.c_str(), SSL_FILETYPE_PEM) == 1) {
    return absl::OkStatus();
  }
  const int reason = ERR_GET_REASON(ERR_peek_last_error());
  if (reason == X509_R_KEY_VALUES_MISMATCH || reason == X509_R_KEY_TYPE_MISMATCH) {
    ERR_clear_error();
    return Refused(kFlag, files.keyfile,
                   absl::StrCat("is not the key of --ssl-certfile ", files.certfile,
                                "; give the two that belong together"));
  }
  return Refused(kFlag, files.keyfile,
                 absl::StrCat("has no private key that can be read (", OpensslReason(),
                              "); give it in PEM form, not encrypted"));
}

absl::Status TlsContext::LoadCaCerts(const std::string& path) {
  constexpr absl::string_view kFlag = "--ssl-ca-certs";
  BH_RETURN_IF_ERROR(CheckCanRead(kFlag, path));
  if (SSL_CTX_load_verify_locations(context_.get(), path.c_str(), nullptr) != 1) {
    return Refused(kFlag, path,
                   absl::StrCat("has no certificate that can be used (", OpensslReason(),
                                "); give those of the authorities in PEM form"));
  }
  SSL_CTX_set_client_CA_list(context_.get(), SSL_load_client_CA_file(path.c_str()));
  SSL_CTX_set_verify(context_.get(), SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  return absl::OkStatus();
}

int TlsContext::SelectProtocol(SSL*, const unsigned char** out, unsigned char* out_bytes,
                               const unsigned char* in, unsigned in_bytes, void* context) {
  const std::string& wanted = static_cast<const TlsContext*>(context)->protocol_;
  for (unsigned at = 0; at < in_bytes && in_bytes - at > in[at]; at += in[at] + 1U) {
    if (wanted.size() != in[at] || std::memcmp(in + at + 1, wanted.data(), wanted.size()) != 0) {
      continue;
    }
    *out = in + at + 1;
    *out_bytes = in[at];
    return SSL_TLSEXT_ERR_OK;
  }
  return SSL_TLSEXT_ERR_ALERT_FATAL;
}

TlsContext::Session TlsContext::NewSession(int fd) const {
  Session session(SSL_new(context_.get()));
  if (session == nullptr || SSL_set_fd(session.get(), fd) != 1) return nullptr;
  SSL_set_accept_state(session.get());
  return session;
}

std::vector<std::string> CertificateNames(const SSL* ssl) {
  std::vector<std::string> names;
  const X509* const certificate = SSL_get0_peer_certificate(ssl);
  if (certificate == nullptr) return names;
  const X509_NAME* const subject = X509_get_subject_name(certificate);
  const auto add = [&names](std::string name) {
    if (!name.empty() && names.size() < kMaxNames) names.push_back(std::move(name));
  };
  for (int at = -1; (at = X509_NAME_get_index_by_NID(subject, NID_commonName, at)) >= 0;) {
    add(TextOf(X509_NAME_ENTRY_get_data(X509_NAME_get_entry(subject, at))));
  }
  auto* const others = static_cast<GENERAL_NAMES*>(
      X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr));
  for (int i = 0; i < sk_GENERAL_NAME_num(others); ++i) {
    const GENERAL_NAME* const name = sk_GENERAL_NAME_value(others, i);
    if (name->type == GEN_DNS || name->type == GEN_URI) add(TextOf(name->d.ia5));
  }
  GENERAL_NAMES_free(others);
  return names;
}

}  // namespace bulkhead
