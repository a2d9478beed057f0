#include "launcher/clients/http_call.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <limits>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "base/exit_code.h"
#include "base/status.h"
#include "boost/asio/io_context.hpp"
#include "boost/asio/ip/tcp.hpp"
#include "boost/asio/ssl.hpp"
#include "boost/beast/core/flat_buffer.hpp"
#include "boost/beast/core/tcp_stream.hpp"
#include "boost/beast/http.hpp"
#include "boost/beast/ssl.hpp"
#include "launcher/version.h"

namespace bulkhead {
namespace {

namespace beast = boost::beast;
namespace http = boost::beast::http;
namespace ssl = boost::asio::ssl;
using boost::asio::ip::tcp;
using ErrorCode = boost::system::error_code;

constexpr std::chrono::seconds kHttpConnectLimit(5);
// Requests without a body are answered at once; answers to prompts take time.
constexpr absl::Duration kGetLimit = absl::Seconds(5);
constexpr uint32_t kMaxHeadBytes = 16 << 10;
// Limit of a refusal: its JSON is a few lines.
constexpr size_t kMaxRefusalBytes = 64 << 10;
// A machine that vanished is noticed after 30 s and three probes.
constexpr int kProbeAfterSeconds = 30;
constexpr int kProbeEverySeconds = 5;
constexpr int kNumProbes = 3;

absl::Status NoServer(const std::string& address) {
  return absl::UnavailableError(
      absl::StrCat("no server answers at ", address,
                   "; start one with 'bulkhead serve --http-port PORT', or name another with "
                   "--http HOST:PORT"));
}

absl::Status NotHttp(const std::string& address, const ErrorCode& error) {
  return absl::UnavailableError(
      absl::StrCat("the program at ", address, " does not speak HTTP/1.1 (", error.message(),
                   "): give --http the address after http= in the server's READY line, "
                   "not the one after grpc=; a server with TLS needs --ssl-ca-certs"));
}

absl::Status NoTls(const std::string& address, const ErrorCode& error) {
  return absl::UnavailableError(absl::StrCat(
      "the program at ", address, " made no TLS connection (", error.message(),
      "): it does not use TLS, its certificate is from another authority or for another host "
      "(--ssl-ca-certs), or it requires a client certificate (--ssl-certfile)"));
}

absl::Status Broken(const std::string& address, const ErrorCode& error) {
  return absl::UnavailableError(absl::StrCat("the server at ", address,
                                             " can no longer be reached (", error.message(),
                                             "); its last line says why it ended"));
}

}  // namespace

class HttpCall::Connection {
 public:
  // Within kHttpConnectLimit, or until Stop.
  absl::Status Open(const HttpTarget& target) {
    const size_t colon = target.address.rfind(':');
    std::string host = target.address.substr(0, colon);
    if (host.size() > 2 && host.front() == '[') host = host.substr(1, host.size() - 2);
    const bool is_tls = !target.ssl_ca_certs.empty();
    if (is_tls) BH_RETURN_IF_ERROR(ReadFiles(target));
    ErrorCode error = boost::asio::error::timed_out;  // until a handler sets it
    const auto shake_hands = [&] {
      ErrorCode unset;
      tls_.emplace(stream_, context_);
      SSL_set_tlsext_host_name(tls_->native_handle(), host.c_str());
      tls_->set_verify_callback(ssl::host_name_verification(host), unset);
      tls_->async_handshake(ssl::stream_base::client, [&](const ErrorCode& e) { error = e; });
    };
    const auto connect = [&](const tcp::resolver::results_type& found) {
      stream_.async_connect(found, [&](const ErrorCode& refused, const tcp::endpoint&) {
        if (!refused && is_tls) return shake_hands();
        error = refused;
      });
    };
    looks_up_ = true;
    resolver_.async_resolve(host, target.address.substr(colon + 1),
                            [&](const ErrorCode& unknown, const auto& found) {
                              looks_up_ = false;
                              if (!unknown) return connect(found);
                              error = unknown;
                            });
    while (looks_up_ && io_.run_one() > 0) continue;  // a resolver has its own limits
    io_.run_for(kHttpConnectLimit);
    if (error) return tls_.has_value() ? NoTls(target.address, error) : NoServer(target.address);
    fd_ = stream_.socket().native_handle();
    ProbeWhenIdle();
    return absl::OkStatus();
  }

  // The name lookup continues: it cannot be ended, and the destructor waits for it.
  bool looks_up() const { return looks_up_; }

  // Any thread.
  void Stop() {
    io_.stop();
    if (fd_ >= 0) shutdown(fd_, SHUT_RDWR);
  }

  // The result of `work` on the stream, plain or TLS.
  template <typename Work>
  void Use(Work work) {
    tls_.has_value() ? work(*tls_) : work(stream_);
  }

 private:
  absl::Status ReadFiles(const HttpTarget& target) {
    ErrorCode error;
    const auto bad = [&](const char* flag, const std::string& path) {
      return WithExitCode(
          absl::InvalidArgumentError(absl::StrCat("--", flag, " ", path, ": ", error.message())),
          ExitCode::kUsage);
    };
    context_.set_verify_mode(ssl::verify_peer, error);
    context_.load_verify_file(target.ssl_ca_certs, error);
    if (error) return bad("ssl-ca-certs", target.ssl_ca_certs);
    if (target.ssl_certfile.empty()) return absl::OkStatus();
    context_.use_certificate_chain_file(target.ssl_certfile, error);
    if (error) return bad("ssl-certfile", target.ssl_certfile);
    context_.use_private_key_file(target.ssl_keyfile, ssl::context::pem, error);
    return error ? bad("ssl-keyfile", target.ssl_keyfile) : absl::OkStatus();
  }

  void ProbeWhenIdle() {
    const int on = 1;
    setsockopt(fd_, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
    setsockopt(fd_, IPPROTO_TCP, TCP_KEEPIDLE, &kProbeAfterSeconds, sizeof(int));
    setsockopt(fd_, IPPROTO_TCP, TCP_KEEPINTVL, &kProbeEverySeconds, sizeof(int));
    setsockopt(fd_, IPPROTO_TCP, TCP_KEEPCNT, &kNumProbes, sizeof(int));
  }

  boost::asio::io_context io_;
  tcp::resolver resolver_{io_};
  ssl::context context_{ssl::context::tls_client};
  beast::tcp_stream stream_{io_};
  std::optional<ssl::stream<beast::tcp_stream&>> tls_;
  bool looks_up_ = false;
  std::atomic<int> fd_ = -1;  // once it is open
};

HttpCall::HttpCall(HttpTarget target) : target_(std::move(target)) {}
HttpCall::~HttpCall() = default;

void HttpCall::Cancel() {
  const absl::MutexLock lock(&mutex_);
  cancelled_ = true;
  if (connection_ != nullptr) connection_->Stop();
}

bool HttpCall::cancelled() const {
  const absl::MutexLock lock(&mutex_);
  return cancelled_;
}

bool HttpCall::SetConnection(Connection* connection) {
  const absl::MutexLock lock(&mutex_);
  connection_ = connection;
  return !cancelled_;
}

absl::Status HttpCall::Send(const std::string& path, const std::string& body,
                            const OnBody& on_body) {
  auto connection = std::make_unique<Connection>();
  absl::Status status;
  if (SetConnection(connection.get())) status = connection->Open(target_);
  if (status.ok() && !cancelled()) {
    status = body.empty() ? GetInTime(*connection, path, on_body)
                          : Exchange(*connection, path, body, on_body);
  }
  SetConnection(nullptr);
  if (connection->looks_up()) static_cast<void>(connection.release());
  return cancelled() ? absl::CancelledError("stopped") : status;
}

absl::Status HttpCall::GetInTime(Connection& connection, const std::string& path,
                                 const OnBody& on_body) {
  absl::Notification ended;
  bool late = false;
  std::thread watch([&] {
    late = !ended.WaitForNotificationWithTimeout(kGetLimit);
    if (late) connection.Stop();
  });
  const absl::Status status = Exchange(connection, path, "", on_body);
  ended.Notify();
  watch.join();
  if (!late || status.ok()) return status;
  return absl::UnavailableError(absl::StrCat(
      target_.address, " accepts connections but has not answered ", path, " within ",
      absl::FormatDuration(kGetLimit),
      "; it may be stopped, or not an HTTP server: give --http the address after http= in READY"));
}

absl::Status HttpCall::Exchange(Connection& connection, const std::string& path,
                                const std::string& body, const OnBody& on_body) {
  http::request<http::string_body> request(body.empty() ? http::verb::get : http::verb::post, path,
                                           11, body);
  request.set(http::field::host, target_.address);
  request.set(http::field::user_agent, absl::StrCat("bulkhead/", Version()));
  request.set(http::field::connection, "close");
  if (!body.empty()) request.set(http::field::content_type, "application/json");
  if (!target_.api_key.empty()) {
    request.set(http::field::authorization, absl::StrCat("Bearer ", target_.api_key));
  }
  request.prepare_payload();
  ErrorCode error, sent;
  connection.Use([&](auto& stream) { http::write(stream, request, sent); });
  // A server may refuse a body before it has read it: its answer says more than the failed write.
  beast::flat_buffer buffer(kMaxHeadBytes);
  http::response_parser<http::buffer_body> parser;
  parser.header_limit(kMaxHeadBytes);
  // For a stream; boost::none fails for every answer with a length (Boost 1.74).
  parser.body_limit(std::numeric_limits<uint64_t>::max());
  connection.Use([&](auto& stream) { http::read_header(stream, buffer, parser, error); });
  if (error && sent) return Broken(target_.address, sent);
  const auto* const of_http = &http::make_error_code(http::error::bad_version).category();
  if (error == boost::asio::error::connection_reset || &error.category() == of_http) {
    return NotHttp(target_.address, error);
  }
  if (error) return Broken(target_.address, error);

  const int http_status = static_cast<int>(parser.get().result_int());
  std::string refusal;
  std::array<char, 4096> piece;
  while (!parser.is_done()) {
    parser.get().body().data = piece.data();
    parser.get().body().size = piece.size();
    connection.Use([&](auto& stream) { http::read_some(stream, buffer, parser, error); });
    if (error == http::error::need_buffer) error = {};
    const absl::string_view bytes(piece.data(), piece.size() - parser.get().body().size);
    if (http_status == 200) {
      if (!bytes.empty() && !on_body(bytes)) return absl::OkStatus();
    } else {
      refusal.append(bytes.data(), bytes.size());
    }
    if (error || refusal.size() >= kMaxRefusalBytes) break;
  }
  if (http_status != 200) return RefusalOf(http_status, refusal, target_.address);
  return error ? Broken(target_.address, error) : absl::OkStatus();
}

}  // namespace bulkhead
