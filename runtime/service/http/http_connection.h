// HttpConnection: one client of HTTP/1.1. Reads a request, bounded in bytes and time, gives it to
// its handler and sends the answer; then the next. While a request is answered it keeps reading, so
// that a client that hangs up is noticed at once. Used only by the front end's thread.
#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "boost/asio/io_context.hpp"
#include "boost/asio/ip/tcp.hpp"
#include "runtime/service/http/allowed_origins.h"
#include "runtime/service/http/http_exchange.h"
#include "runtime/service/http/request_parser.h"
#include "runtime/service/service_core.h"

namespace bulkhead {

// Limit for a client that sends nothing between requests.
inline constexpr std::chrono::seconds kHttpIdleTime{120};
// Limit for a head that has begun.
inline constexpr std::chrono::seconds kHttpHeadTime{10};
// Limit for a client that does not read what was sent.
inline constexpr std::chrono::seconds kHttpStalledWriteTime{60};
// After a refusal, input is still read for this long, so that the client sees the answer.
inline constexpr std::chrono::seconds kHttpLingerTime{2};

// Whether a caller may make a request whose head has arrived, given its Authorization and its
// certificate's roles.
using HttpGate = std::function<absl::Status(const HttpRequest& request,
                                            absl::string_view authorization, RoleSet roles)>;
using HttpHandler =
    std::function<void(HttpRequest request, const std::shared_ptr<HttpExchange>& exchange)>;

// The source of a connection's requests, and their handler.
struct HttpCaller {
  const HttpHandler* handler = nullptr;
  // Bodies of other requests are not read: the handler answers without them.
  const std::function<bool(const HttpRequest&)>* takes_body = nullptr;
  const HttpGate* gate = nullptr;  // null: none
  const AllowedOrigins* origins = nullptr;
  RoleSet roles = kNoRole;  // roles of the client's certificate
};

class HttpConnection final : public std::enable_shared_from_this<HttpConnection> {
 public:
  using Clock = std::chrono::steady_clock;

  // All outlive the connection. `closed` is called once, last. `io` is used as long as an exchange
  // holds a `user`.
  HttpConnection(boost::asio::io_context& io, boost::asio::ip::tcp::socket socket,
                 ServiceCore* core, HttpCaller caller, std::shared_ptr<const void> user,
                 std::function<void()> closed);
  ~HttpConnection();

  void Start();
  // Several times a second. `bytes_are_wanted`: a body found no room since the last one.
  void Tick(Clock::time_point now, bool bytes_are_wanted);
  // Refuses a request that has begun and is not whole, if any.
  void RefusePartial(const absl::Status& why);
  // Closes when the current answer is complete, else at once; call RefusePartial first.
  void CloseWhenIdle(const absl::Status& why);
  // `reason` is counted (HostCounters::closed); empty: the client wanted it.
  void Close(const std::string& reason = "");

  // Between requests, with nothing of the next one but an empty line before it.
  bool is_idle() const { return phase_ == Phase::kReading && parser_ == nullptr; }
  // Body bytes and start of an incomplete request.
  size_t body_bytes() const { return parser_ == nullptr ? 0 : parser_->body_bytes(); }
  Clock::time_point since() const { return since_; }

 private:
  class Exchange;
  enum class Phase { kReading, kAnswering, kLingering, kClosed };
  struct Item {
    BodyParts parts;
    HttpExchange::Written written;
    bool is_last = false;
  };

  void WaitForBytes();
  void OnReadable();
  // Reads more, unless what has arrived waits for room.
  void ReadOn();
  void Parse();
  absl::Status MayRead(const HttpRequest& request, size_t bytes);
  bool IsTooSlowForOthers(Clock::time_point now) const;
  void NewParser();
  void Dispatch();
  void Refuse(const absl::Status& why, int http_status);
  // The head of an answer; without a length the body is sent in chunks, or until the connection
  // closes. The connection stays open unless the head says otherwise.
  std::string Head(const HttpAnswer& answer, std::optional<size_t> length);
  void Answer(HttpAnswer answer, HttpExchange::Written written);
  void BeginEvents();
  void Enqueue(Item item);
  // Writes the next slice, unless a write is in flight.
  void Pump();
  void Write(std::string bytes);
  void OnWritten(bool ok);
  void OnAnswered();
  std::string Framed(std::string slice, bool is_end) const;

  boost::asio::io_context& io_;
  boost::asio::ip::tcp::socket socket_;
  ServiceCore* const core_;
  const HttpCaller caller_;
  const std::shared_ptr<const void> user_;
  const std::function<void()> closed_;

  Phase phase_ = Phase::kReading;
  Clock::time_point since_ = Clock::now();     // start of the phase, or the request's first byte
  Clock::time_point deadline_ = Clock::now();  // for what the client is to do next
  Clock::time_point progress_ = Clock::now();  // last byte of the body
  Clock::time_point body_since_ = progress_;   // when its head arrived, or it found room
  std::string pending_;                        // received, not parsed
  std::unique_ptr<HttpRequestParser> parser_;
  bool had_empty_line_ = false;  // an empty line came before the next request
  bool has_request_ = false;     // its head has arrived
  bool wants_continue_ = false;
  bool waits_for_room_ = false;  // until the deadline
  bool reads_paused_ = false;
  bool leaves_body_ = false;  // no route takes it
  bool closing_ = false;      // after this answer
  bool discarding_ = false;   // what the client still sends of a refused request

  // The request being answered.
  uint64_t number_ = 0;
  bool keep_alive_ = true;
  bool takes_chunks_ = true;
  bool is_head_ = false;
  std::string request_id_;
  std::string origin_fields_;
  bool in_chunks_ = false;
  std::function<void()> gone_;
  std::deque<Item> items_;
  std::string prefix_;  // written before the next slice
  std::string writing_;
  bool write_in_flight_ = false;
  int items_done_ = 0;  // items at the front whose last bytes are in flight
};

}  // namespace bulkhead
