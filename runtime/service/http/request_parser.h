// HttpRequestParser: parses bytes of a connection to one request with Beast's strict HTTP/1 parser:
// a message with both Content-Length and Transfer-Encoding, or with two lengths, is refused. Keeps
// only the fields that are used, so that a head takes its own bytes and no more.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "boost/beast/http/basic_parser.hpp"
#include "runtime/service/http/http_message.h"

namespace bulkhead {

inline constexpr size_t kMaxHeadBytes = size_t{16} << 10;

class HttpRequestParser final : private boost::beast::http::basic_parser<true> {
  using Base = boost::beast::http::basic_parser<true>;

 public:
  // `may_read`: asked before the first byte of a body of `bytes` (0: in chunks, not known yet) is
  // claimed or taken.
  using MayRead = std::function<absl::Status(const HttpRequest& request, size_t bytes)>;
  HttpRequestParser(int64_t max_body_bytes, BodyClaim claim, MayRead may_read);

  // Asked once the head has arrived, before any of the body is taken. Without it the head's
  // Authorization is ignored.
  using Gate =
      std::function<absl::Status(const HttpRequest& request, absl::string_view authorization)>;
  void AskGate(Gate gate) { gate_ = std::move(gate); }

  // Takes bytes off the front of `input`; returns how many. The rest is to be given again with more
  // after it.
  size_t Feed(absl::string_view input);

  bool has_head() const { return Base::is_header_done(); }
  bool is_done() const { return refusal_ == 0 && Base::is_done(); }
  // The HTTP status of a refused request, 0 while it is not refused, and the reason.
  int refusal() const { return refusal_; }
  const absl::Status& why() const { return why_; }
  // The client waits for "100 Continue".
  bool expects_continue() const { return expects_continue_; }
  size_t body_bytes() const { return request_.body.size(); }
  // Other bodies use all the memory for bodies: nothing more is taken until a Feed finds room.
  bool lacks_room() const { return lacks_room_; }

  const HttpRequest& request() const { return request_; }
  HttpRequest Take() { return std::move(request_); }

 private:
  using ErrorCode = boost::beast::error_code;
  using Text = boost::beast::string_view;

  void on_request_impl(boost::beast::http::verb, Text method, Text target, int version,
                       ErrorCode& ec) override;
  void on_response_impl(int, Text, int, ErrorCode&) override {}
  void on_field_impl(boost::beast::http::field name, Text name_text, Text value,
                     ErrorCode& ec) override;
  void on_header_impl(ErrorCode& ec) override;
  void on_body_init_impl(const boost::optional<std::uint64_t>& length, ErrorCode& ec) override;
  size_t on_body_impl(Text body, ErrorCode& ec) override;
  void on_chunk_header_impl(std::uint64_t, Text, ErrorCode&) override {}
  size_t on_chunk_body_impl(std::uint64_t remain, Text body, ErrorCode& ec) override;
  void on_finish_impl(ErrorCode&) override {}

  void Refuse(int http_status, absl::Status why, ErrorCode* ec = nullptr);
  void RefuseFor(const ErrorCode& ec);
  bool Claim(size_t bytes, ErrorCode& ec);

  const int64_t max_body_bytes_;
  const MayRead may_read_;
  Gate gate_;
  std::string authorization_;
  HttpRequest request_;
  int refusal_ = 0;
  absl::Status why_;
  bool lacks_room_ = false;
  bool in_head_ = true;
  size_t head_bytes_ = 0;  // taken so far, and body bytes taken with the head's end
  int num_hosts_ = 0;
  bool expects_continue_ = false;
};

}  // namespace bulkhead
