// HttpConnection: one client of HTTP/1.1. Reads a request, bounded in bytes and time, gives it to
// its handler and sends the answer; then the next. While a request is answered it goes on reading,
// so that a client that hangs up is noticed at once. Used by the front end's thread alone.
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

// A client that sends nothing between requests.
inline constexpr std::chrono::seconds kHttpIdleTime{120};
// A head that has begun.
inline constexpr std::chrono::seconds kHttpHeadTime{10};
// A client that does not take what was sent.
inline constexpr std::chrono::seconds kHttpStalledWriteTime{60};
// After a refusal: what the client still sends is read so long, for it to see the answer.
inline constexpr std::chrono::seconds kHttpLingerTime{2};

// Whether a caller may make a request whose head is there, with its Authorization and its
// certificate's roles.
using HttpGate = std::function<absl::Status(const HttpRequest& request,
                                            absl::string_view authorization, RoleSet roles)>;
using HttpHandler =
    std::function<void(HttpRequest request, const std::shared_ptr<HttpExchange>& exchange)>;

// Whom a connection's requests are from, and who answers them.
struct HttpCaller {
  const HttpHandler* handler = nullptr;
  // Others' bodies are not read: the handler answers without.
  const std::function<bool(const HttpRequest&)>* takes_body = nullptr;
  const HttpGate* gate = nullptr;  // null: none
  const AllowedOrigins* origins = nullptr;
  RoleSet roles = kNoRole;  // of the client's certificate
};

class HttpConnection final : public std::enable_shared_from_this<HttpConnection> {
 public:
  using Clock = std::chrono::steady_clock;

  // All outlive the connection; each exchange has a `user`, and as long as it does `io` is used.
  // `closed` is called once, last.
  HttpConnection(boost::asio::io_context& io, boost::asio::ip::tcp::socket socket,
                 ServiceCore* core, HttpCaller caller, std::shared_ptr<const void> user,
                 std::function<void()> closed);
  ~HttpConnection();

  void Start();
  // Several times a second. `bytes_are_wanted`: a body found no room since the last one.
  void Tick(Clock::time_point now, bool bytes_are_wanted);
  // A request that has begun and is not whole; nothing else.
  void RefusePartial(const absl::Status& why);
  // Once the answer under way is complete, or at once; RefusePartial first.
  void CloseWhenIdle(const absl::Status& why);
  // `reason` is counted (HostCounters::closed); empty: as the client wanted.
  void Close(const std::string& reason = "");

  // Between requests, with nothing of the next one but an empty line before it.
  bool is_idle() const { return phase_ == Phase::kReading && parser_ == nullptr; }
  // Body bytes and begin of a request that is not complete.
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
  // Unless what has come must first find room.
  void ReadOn();
  void Parse();
  absl::Status MayRead(const HttpRequest& request, size_t bytes);
  bool IsTooSlowForOthers(Clock::time_point now) const;
  void NewParser();
  void Dispatch();
  void Refuse(const absl::Status& why, int http_status);
  // The head of an answer; without a length it is sent in chunks, or up to the end. The connection
  // stays after it unless it says so.
  std::string Head(const HttpAnswer& answer, std::optional<size_t> length);
  void Answer(HttpAnswer answer, HttpExchange::Written written);
  void BeginEvents();
  void Enqueue(Item item);
  // Writes the next slice, unless one is on its way.
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
  Clock::time_point since_ = Clock::now();     // of the phase, or of the request's first byte
  Clock::time_point deadline_ = Clock::now();  // for what the client is to do next
  Clock::time_point progress_ = Clock::now();  // of the body
  Clock::time_point body_since_ = progress_;   // its head came, or it found room
  std::string pending_;                        // received, not parsed
  std::unique_ptr<HttpRequestParser> parser_;
  bool had_empty_line_ = false;  // before the next request
  bool has_request_ = false;     // its head is there
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
  int items_done_ = 0;  // of the front, whose last bytes are in flight
};

}  // namespace bulkhead
