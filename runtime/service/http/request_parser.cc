#include "runtime/service/http/request_parser.h"

#include <openssl/crypto.h>

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "boost/beast/http/error.hpp"
#include "runtime/service/http/openai_error.h"
#include "runtime/service/refusal.h"

namespace bulkhead {
namespace {

namespace http = boost::beast::http;

constexpr size_t kMaxEchoedBytes = 256;

absl::string_view Of(boost::beast::string_view text) { return {text.data(), text.size()}; }

bool IsPrintable(absl::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c >= 0x20 && c < 0x7F; });
}

absl::Status Malformed(absl::string_view why) {
  return WithReason(absl::InvalidArgumentError(absl::StrCat("the request is not HTTP/1.1: ", why)),
                    reason::kMalformedRequest);
}

}  // namespace

HttpRequestParser::HttpRequestParser(int64_t max_body_bytes, BodyClaim claim, MayRead may_read)
    : max_body_bytes_(max_body_bytes), may_read_(std::move(may_read)) {
  request_.claim = std::move(claim);
  Base::eager(true);
  Base::header_limit(kMaxHeadBytes);
  Base::body_limit(static_cast<uint64_t>(max_body_bytes));
}

size_t HttpRequestParser::Feed(absl::string_view input) {
  size_t used = 0;
  while (refusal_ == 0 && !Base::is_done() && used < input.size()) {
    ErrorCode ec;
    // Beast's limit is only for a head that is not whole.
    const bool in_head = !has_head();
    const size_t bytes =
        in_head ? std::min(input.size() - used, kMaxHeadBytes - head_bytes_) : input.size() - used;
    const size_t taken = Base::put(boost::asio::const_buffer(input.data() + used, bytes), ec);
    used += taken;
    if (in_head) head_bytes_ += taken;
    if (ec == http::error::need_more) ec = {};
    if (ec && refusal_ == 0) RefuseFor(ec);
    if (taken == 0) break;
  }
  // A head, or a chunk's head, that is still incomplete.
  const size_t left = input.size() - used;
  if (refusal_ == 0 && !lacks_room_ &&
      (left > kMaxHeadBytes || (!has_head() && head_bytes_ + left >= kMaxHeadBytes))) {
    RefuseFor(ErrorCode(http::error::header_limit));
  }
  return used;
}

void HttpRequestParser::Refuse(int http_status, absl::Status why, ErrorCode* ec) {
  refusal_ = http_status;
  why_ = std::move(why);
  if (ec != nullptr) *ec = http::error::bad_value;  // ends the parse
}

void HttpRequestParser::RefuseFor(const ErrorCode& ec) {
  if (ec == http::error::header_limit) {
    return Refuse(431, WithReason(absl::InvalidArgumentError(absl::StrCat(
                                      "the request's head has more than ", kMaxHeadBytes,
                                      " bytes; send shorter header fields")),
                                  reason::kMetadataTooLarge));
  }
  if (ec == http::error::body_limit) {
    return Refuse(413, WithReason(absl::ResourceExhaustedError(
                                      absl::StrCat("the body has more than the limit of ",
                                                   max_body_bytes_, " bytes; send a shorter one")),
                                  reason::kMessageTooLarge));
  }
  Refuse(ec == http::error::bad_version ? 505 : 400, Malformed(ec.message()));
}

void HttpRequestParser::on_request_impl(http::verb, Text method, Text target, int version,
                                        ErrorCode&) {
  request_.method = std::string(Of(method));
  absl::string_view path = Of(target);
  // A client of a proxy also names the host.
  for (const absl::string_view scheme : {"http://", "https://"}) {
    if (!absl::StartsWith(path, scheme)) continue;
    path.remove_prefix(std::min(path.find('/', scheme.size()), path.size()));
  }
  request_.path = std::string(path.substr(0, path.find_first_of("?#")));
  request_.takes_chunks = version >= 11;
}

void HttpRequestParser::on_field_impl(http::field name, Text name_text, Text value, ErrorCode& ec) {
  if (!in_head_) return;  // trailers
  const absl::string_view text = absl::StripAsciiWhitespace(Of(value));
  switch (name) {
    case http::field::host:
      ++num_hosts_;
      break;
    case http::field::content_type:
      request_.content_type =
          absl::AsciiStrToLower(absl::StripAsciiWhitespace(text.substr(0, text.find(';'))));
      break;
    case http::field::transfer_encoding:
      if (!absl::EqualsIgnoreCase(text, "chunked")) {
        Refuse(501,
               WithReason(absl::UnimplementedError(
                              absl::StrCat("Transfer-Encoding ", Quoted(text), " is not chunked")),
                          reason::kUnsupportedParameter),
               &ec);
      }
      break;
    case http::field::content_encoding:
      if (!text.empty() && !absl::EqualsIgnoreCase(text, "identity")) {
        Refuse(415,
               WithReason(absl::InvalidArgumentError(absl::StrCat("Content-Encoding ", Quoted(text),
                                                                  ": send the body as it is")),
                          reason::kUnsupportedParameter),
               &ec);
      }
      break;
    case http::field::expect:
      // RFC 9110, 10.1.1: a client of HTTP/1.0 knows no "100 Continue".
      expects_continue_ = request_.takes_chunks && absl::EqualsIgnoreCase(text, "100-continue");
      break;
    case http::field::authorization:
      // Two keys count as an unknown one.
      if (gate_) authorization_ = authorization_.empty() ? std::string(text) : "?";
      break;
    case http::field::origin:
      if (text.size() > kMaxEchoedBytes || !IsPrintable(text)) break;
      request_.origin = request_.origin.empty() ? std::string(text) : "?";
      break;
    case http::field::access_control_request_method:
      request_.asks_for_method = true;
      break;
    case http::field::unknown:
      if (absl::EqualsIgnoreCase(Of(name_text), "x-request-id") && text.size() <= kMaxEchoedBytes &&
          IsPrintable(text)) {
        request_.request_id = std::string(text);
      }
      break;
    default:
      break;
  }
}

void HttpRequestParser::on_header_impl(ErrorCode& ec) {
  in_head_ = false;
  request_.keep_alive = Base::keep_alive();
  if (request_.takes_chunks && num_hosts_ != 1) {
    return Refuse(400, Malformed("one Host field is needed"), &ec);
  }
  if (Base::upgrade()) request_.keep_alive = false;
  absl::Status may = gate_ ? gate_(request_, authorization_) : absl::OkStatus();
  OPENSSL_cleanse(authorization_.data(), authorization_.size());
  authorization_.clear();
  const size_t bytes = Base::content_length().value_or(0);
  if (may.ok() && bytes > static_cast<uint64_t>(max_body_bytes_)) {
    ec = http::error::body_limit;
    return;
  }
  if (may.ok() && (bytes > 0 || Base::chunked())) may = may_read_(request_, bytes);
  if (may.ok()) return;
  const int status = HttpStatusOf(may);
  Refuse(status, std::move(may), &ec);
}

bool HttpRequestParser::Claim(size_t bytes, ErrorCode& ec) {
  lacks_room_ = !request_.claim.GrowTo(static_cast<int64_t>(bytes));
  if (lacks_room_) ec = http::error::need_more;  // Beast gives the same bytes again
  return !lacks_room_;
}

void HttpRequestParser::on_body_init_impl(const boost::optional<std::uint64_t>& length,
                                          ErrorCode& ec) {
  if (refusal_ != 0) {  // by the head, after which Beast continues
    ec = http::error::bad_value;
    return;
  }
  const size_t bytes = length.value_or(0);
  if (Claim(bytes, ec)) request_.body.reserve(bytes);
}

size_t HttpRequestParser::on_body_impl(Text body, ErrorCode& ec) {
  const size_t bytes = request_.body.size() + body.size();
  if (bytes > static_cast<uint64_t>(max_body_bytes_)) {
    ec = http::error::body_limit;
    return 0;
  }
  // Chunks: as the string grows.
  if (bytes > request_.body.capacity()) {
    const size_t grown = std::min(std::max<size_t>(2 * bytes, size_t{4} << 10),
                                  static_cast<size_t>(max_body_bytes_));
    if (!Claim(grown, ec)) return 0;
    request_.body.reserve(grown);
  }
  request_.body.append(body.data(), body.size());
  return body.size();
}

size_t HttpRequestParser::on_chunk_body_impl(std::uint64_t, Text body, ErrorCode& ec) {
  return on_body_impl(body, ec);
}

}  // namespace bulkhead
