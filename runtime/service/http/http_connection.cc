#include "runtime/service/http/http_connection.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "boost/asio/post.hpp"
#include "boost/asio/write.hpp"
#include "runtime/service/http/openai_error.h"
#include "runtime/service/refusal.h"

namespace bulkhead {
namespace {

using boost::asio::ip::tcp;
using ErrorCode = boost::system::error_code;

// Maximum bytes of one read, into a buffer that all connections share.
constexpr size_t kReadBytes = size_t{16} << 10;
// Maximum bytes of the next request while one is answered.
constexpr size_t kMaxEarlyBytes = kMaxHeadBytes;
// An answer of at most this size has a Content-Length.
constexpr size_t kWholeBytes = BodyParts::kSliceBytes;

std::array<char, kReadBytes>& ReadBuffer() {
  static thread_local std::array<char, kReadBytes> buffer;
  return buffer;
}

}  // namespace

// Refers to the connection while its request is the current one.
class HttpConnection::Exchange final : public HttpExchange {
 public:
  Exchange(boost::asio::io_context& io, std::weak_ptr<HttpConnection> connection, uint64_t number,
           std::shared_ptr<const void> user)
      : io_(io), connection_(std::move(connection)), number_(number), user_(std::move(user)) {}

  void Post(std::function<void()> work) override { boost::asio::post(io_, std::move(work)); }
  std::function<bool()> Dropper() override {
    return [io = &io_, weak = connection_, number = number_, user = user_] {
      boost::asio::post(*io, [weak, number] {
        const auto connection = weak.lock();
        if (connection != nullptr && connection->number_ == number) {
          connection->Close(reason::kSlowReader);
        }
      });
      return true;
    };
  }
  void WhenGone(std::function<void()> gone) override {
    const auto connection = Current();
    if (connection == nullptr) return gone();
    connection->gone_ = std::move(gone);
  }
  void Answer(HttpAnswer answer, Written written) override {
    const auto connection = Current();
    if (connection == nullptr) return written(false);
    connection->Answer(std::move(answer), std::move(written));
  }
  void BeginEvents() override {
    if (const auto connection = Current(); connection != nullptr) connection->BeginEvents();
  }
  void Send(BodyParts parts, Written written) override {
    const auto connection = Current();
    if (connection == nullptr) return written(false);
    connection->Enqueue({std::move(parts), std::move(written), false});
  }
  void Finish(Written written) override {
    const auto connection = Current();
    if (connection == nullptr) return written(false);
    connection->Enqueue({BodyParts(), std::move(written), true});
  }

 private:
  std::shared_ptr<HttpConnection> Current() const {
    std::shared_ptr<HttpConnection> connection = connection_.lock();
    const bool is_current = connection != nullptr && connection->number_ == number_ &&
                            connection->phase_ == Phase::kAnswering;
    return is_current ? connection : nullptr;
  }

  boost::asio::io_context& io_;
  const std::weak_ptr<HttpConnection> connection_;
  const uint64_t number_;
  const std::shared_ptr<const void> user_;
};

HttpConnection::HttpConnection(boost::asio::io_context& io, tcp::socket socket, ServiceCore* core,
                               HttpCaller caller, std::shared_ptr<const void> user,
                               std::function<void()> closed)
    : io_(io),
      socket_(std::move(socket)),
      core_(core),
      caller_(caller),
      user_(std::move(user)),
      closed_(std::move(closed)) {
  deadline_ = Clock::now() + kHttpIdleTime;
}

HttpConnection::~HttpConnection() = default;

void HttpConnection::Start() { WaitForBytes(); }

void HttpConnection::WaitForBytes() {
  socket_.async_wait(tcp::socket::wait_read, [self = shared_from_this()](const ErrorCode& ec) {
    if (self->phase_ == Phase::kClosed) return;
    if (ec) return self->Close();
    self->OnReadable();
  });
}

void HttpConnection::OnReadable() {
  reads_paused_ = phase_ == Phase::kReading && waits_for_room_;
  if (reads_paused_) return;  // it began to wait for room
  auto& buffer = ReadBuffer();
  ErrorCode ec;
  const size_t bytes = socket_.read_some(boost::asio::buffer(buffer), ec);
  if (ec == boost::asio::error::would_block) return WaitForBytes();
  if (ec || bytes == 0) return Close();
  if (discarding_ || phase_ == Phase::kLingering) return WaitForBytes();
  if (phase_ == Phase::kReading && pending_.empty() && parser_ == nullptr) {
    since_ = Clock::now();
    deadline_ = since_ + kHttpHeadTime;
  }
  pending_.append(buffer.data(), bytes);
  if (phase_ == Phase::kAnswering) {
    // The next request may come before the answer has been sent; more than a head of it may not.
    if (pending_.size() > kMaxEarlyBytes) return Close(reason::kMalformedRequest);
    pending_.shrink_to_fit();
    return WaitForBytes();
  }
  Parse();
  ReadOn();
}

void HttpConnection::Parse() {
  // RFC 9112, 2.2: an empty line before a request is not part of it; one is ignored.
  if (parser_ == nullptr && !had_empty_line_) {
    if (pending_ == "\r") return;
    had_empty_line_ = absl::StartsWith(pending_, "\r\n");
    if (had_empty_line_) pending_.erase(0, 2);
    if (pending_.empty()) {
      deadline_ = since_ + kHttpIdleTime;
      return;
    }
  }
  if (parser_ == nullptr) NewParser();
  const size_t body = parser_->body_bytes();
  pending_.erase(0, parser_->Feed(pending_));
  pending_.shrink_to_fit();
  const bool waited = std::exchange(waits_for_room_, parser_->lacks_room());
  if (parser_->refusal() != 0 && !leaves_body_) {
    return Refuse(parser_->why(), parser_->refusal());
  }
  if (parser_->is_done() || leaves_body_) return Dispatch();
  const Clock::time_point now = Clock::now();
  if (parser_->has_head() && !has_request_) {
    has_request_ = true;
    body_since_ = progress_ = now;
    if (parser_->expects_continue()) {
      wants_continue_ = true;
      Pump();
    }
  }
  if (waits_for_room_) {
    if (!waited) deadline_ = now + absl::ToChronoSeconds(kMaxWaitTime);
    body_since_ = progress_ = now;
    return;
  }
  if (parser_->body_bytes() > body) progress_ = now;
  if (has_request_) {
    const absl::Duration all = kMaxBodyTime + absl::Seconds(parser_->body_bytes() / kMinBodyRate);
    deadline_ = std::min(since_ + absl::ToChronoSeconds(all),
                         progress_ + absl::ToChronoSeconds(kStalledBodyTime));
  }
}

void HttpConnection::Dispatch() {
  HttpRequest request = parser_->Take();
  parser_ = nullptr;
  has_request_ = had_empty_line_ = wants_continue_ = false;
  discarding_ = leaves_body_;
  keep_alive_ = request.keep_alive && !leaves_body_;
  takes_chunks_ = request.takes_chunks;
  is_head_ = request.method == "HEAD";
  request_id_ = std::move(request.request_id);
  origin_fields_ = caller_.origins->FieldsFor(request.origin);
  phase_ = Phase::kAnswering;
  ++number_;
  // "100 Continue" may still be on its way.
  deadline_ = write_in_flight_ ? Clock::now() + kHttpStalledWriteTime : Clock::time_point::max();
  (*caller_.handler)(std::move(request),
                     std::make_shared<Exchange>(io_, weak_from_this(), number_, user_));
}

// After an invalid request all later input is invalid.
void HttpConnection::Refuse(const absl::Status& why, int http_status) {
  core_->errors.Add(why);
  HttpAnswer answer = ErrorAnswer(why, http_status);
  const HttpRequest& request = parser_->request();
  takes_chunks_ = true;
  is_head_ = request.method == "HEAD";
  request_id_ = request.request_id;
  origin_fields_ = caller_.origins->FieldsFor(request.origin);
  parser_ = nullptr;
  has_request_ = false;
  wants_continue_ = false;
  keep_alive_ = false;
  discarding_ = true;
  phase_ = Phase::kAnswering;
  ++number_;
  Answer(std::move(answer), [](bool) {});
}

std::string HttpConnection::Head(const HttpAnswer& answer, std::optional<size_t> length) {
  // Once it drains, the next request belongs elsewhere.
  const bool drains = core_->state.phase() >= ServingPhase::kDraining;
  if (drains || closing_ || !(length.has_value() || takes_chunks_)) keep_alive_ = false;
  std::string head = absl::StrCat(
      "HTTP/1.1 ", answer.status, " ", HttpReason(answer.status), "\r\nDate: ", HttpDate(),
      "\r\nContent-Type: ", answer.content_type, "\r\n", origin_fields_);
  for (const auto& [name, value] : answer.headers) {
    absl::StrAppend(&head, name, ": ", value, "\r\n");
  }
  if (!request_id_.empty()) absl::StrAppend(&head, "X-Request-Id: ", request_id_, "\r\n");
  if (length.has_value()) {
    absl::StrAppend(&head, "Content-Length: ", *length, "\r\n");
  } else if (takes_chunks_) {
    absl::StrAppend(&head, "Transfer-Encoding: chunked\r\n");
  }
  if (!keep_alive_) {
    absl::StrAppend(&head, "Connection: close\r\n");
  } else if (!takes_chunks_) {
    absl::StrAppend(&head, "Connection: keep-alive\r\n");
  }
  head += "\r\n";
  return head;
}

void HttpConnection::Answer(HttpAnswer answer, HttpExchange::Written written) {
  std::string first;
  const bool is_all = answer.body.Produce(&first);
  const bool whole = is_all && first.size() <= 4 * kWholeBytes;
  in_chunks_ = !whole;
  prefix_ = Head(answer, whole ? std::optional<size_t>(first.size()) : std::nullopt);
  BodyParts parts;
  if (!is_head_) {
    parts.Add(std::move(first));
    if (!is_all) parts.Add(std::move(answer.body));
  } else {
    in_chunks_ = false;
  }
  Enqueue({std::move(parts), std::move(written), true});
}

void HttpConnection::BeginEvents() {
  HttpAnswer answer;
  answer.content_type = "text/event-stream; charset=utf-8";
  answer.headers.emplace_back("Cache-Control", "no-cache");
  answer.headers.emplace_back("X-Accel-Buffering", "no");  // nginx would hold events back
  in_chunks_ = true;
  prefix_ = Head(answer, std::nullopt);
  Pump();
}

void HttpConnection::Enqueue(Item item) {
  items_.push_back(std::move(item));
  Pump();
}

std::string HttpConnection::Framed(std::string slice, bool is_end) const {
  if (!in_chunks_ || !takes_chunks_) return slice;
  std::string framed;
  if (!slice.empty()) framed = absl::StrFormat("%x\r\n%s\r\n", slice.size(), slice);
  if (is_end) framed += "0\r\n\r\n";
  return framed;
}

void HttpConnection::Pump() {
  if (write_in_flight_ || phase_ == Phase::kClosed) return;
  if (wants_continue_ && phase_ == Phase::kReading) {
    wants_continue_ = false;
    return Write("HTTP/1.1 100 Continue\r\n\r\n");
  }
  std::string bytes = std::exchange(prefix_, std::string());
  std::string slice;
  items_done_ = 0;
  bool is_end = false;
  // Small events are sent together, a large one in parts.
  while (items_done_ < static_cast<int>(items_.size()) && slice.size() < BodyParts::kSliceBytes) {
    Item& item = items_[items_done_];
    if (!item.parts.Produce(&slice)) break;
    is_end = item.is_last;
    ++items_done_;
  }
  bytes += Framed(std::move(slice), is_end);
  // An empty event needs no write.
  if (!bytes.empty()) return Write(std::move(bytes));
  if (items_done_ > 0) OnWritten(true);
}

void HttpConnection::Write(std::string bytes) {
  writing_ = std::move(bytes);
  write_in_flight_ = true;
  if (phase_ != Phase::kReading) deadline_ = Clock::now() + kHttpStalledWriteTime;
  boost::asio::async_write(socket_, boost::asio::buffer(writing_),
                           [self = shared_from_this()](const ErrorCode& ec, size_t) {
                             self->write_in_flight_ = false;
                             self->writing_.clear();
                             if (self->phase_ == Phase::kClosed) return;
                             if (ec) return self->Close();
                             self->OnWritten(true);
                           });
}

void HttpConnection::OnWritten(bool ok) {
  if (phase_ == Phase::kAnswering) deadline_ = Clock::time_point::max();
  const auto self = shared_from_this();
  // Remove all of them first: their callbacks may send more.
  std::vector<Item> done;
  for (; items_done_ > 0; --items_done_) {
    done.push_back(std::move(items_.front()));
    items_.pop_front();
  }
  const bool was_last = !done.empty() && done.back().is_last;
  if (was_last) gone_ = nullptr;
  for (const Item& item : done) item.written(ok);
  if (phase_ == Phase::kClosed) return;
  if (was_last) return OnAnswered();
  if (!write_in_flight_ && (!items_.empty() || !prefix_.empty())) Pump();
}

void HttpConnection::OnAnswered() {
  if (std::string().swap(writing_); !keep_alive_ || closing_) {
    ErrorCode ignored;
    socket_.shutdown(tcp::socket::shutdown_send, ignored);
    phase_ = Phase::kLingering;
    pending_ = std::string();
    deadline_ = Clock::now() + kHttpLingerTime;
    return;
  }
  phase_ = Phase::kReading;
  since_ = Clock::now();
  deadline_ = since_ + (pending_.empty() ? kHttpIdleTime : kHttpHeadTime);
  if (!pending_.empty()) Parse();
}

void HttpConnection::Close(const std::string& why) {
  if (phase_ == Phase::kClosed) return;
  const auto self = shared_from_this();
  phase_ = Phase::kClosed;
  if (!why.empty()) core_->host.closed.AddReason(why);
  ErrorCode ignored;
  socket_.close(ignored);
  parser_ = nullptr;
  pending_ = std::string();
  // The handler first: calls that end for it then end for this reason.
  if (const auto gone = std::exchange(gone_, nullptr)) gone();
  const std::deque<Item> unsent = std::exchange(items_, {});
  for (const Item& item : unsent) item.written(false);
  closed_();
}

}  // namespace bulkhead
