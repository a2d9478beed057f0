#include "runtime/service/guard/refused_call.h"

#include <optional>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "runtime/service/guard/http2_frame.h"
#include "runtime/service/refusal.h"

namespace bulkhead {
namespace {

constexpr absl::Duration kRetry = absl::Seconds(1);

// RFC 7541, 5.2: not Huffman coded, the length in 7 bits, or in the bytes after them.
void AppendString(absl::string_view text, std::string* block) {
  constexpr size_t kMaxInPrefix = 127;
  size_t length = text.size();
  block->push_back(static_cast<char>(length < kMaxInPrefix ? length : kMaxInPrefix));
  if (length >= kMaxInPrefix) {
    for (length -= kMaxInPrefix; length >= 128; length /= 128) {
      block->push_back(static_cast<char>(length % 128 + 128));
    }
    block->push_back(static_cast<char>(length));
  }
  absl::StrAppend(block, text);
}

// RFC 7541, 6.2.2: a literal without indexing, with its name.
void AppendField(absl::string_view name, absl::string_view value, std::string* block) {
  block->push_back(0);
  AppendString(name, block);
  AppendString(value, block);
}

// gRPC wants everything except printable ASCII as %XX.
std::string PercentEncoded(absl::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c >= ' ' && c <= '~' && c != '%') {
      out.push_back(c);
    } else {
      absl::StrAppend(&out, "%", absl::Hex(static_cast<unsigned char>(c), absl::kZeroPad2));
    }
  }
  return out;
}

}  // namespace

absl::Status TooManyCalls(int64_t open_calls, int limit) {
  return WithRetryAfter(
      WithReason(absl::UnavailableError(absl::StrCat(
                     open_calls, " calls are open, of at most ", limit,
                     " of all connections together; the call has not begun: try again later")),
                 reason::kTooManyCalls,
                 {{"value", absl::StrCat(open_calls)}, {"limit", absl::StrCat(limit)}}),
      kRetry);
}

absl::Status TooManyIncompleteCalls(int incomplete, absl::string_view why) {
  return WithRetryAfter(WithReason(absl::UnavailableError(absl::StrCat(
                                       "the requests of ", incomplete,
                                       " calls of this connection are incomplete, and ", why,
                                       "; the call has not begun: finish those first")),
                                   reason::kTooManyCalls, {{"value", absl::StrCat(incomplete)}}),
                        kRetry);
}

absl::Status MetadataTooLarge(int64_t bytes, int64_t limit_bytes) {
  return WithReason(absl::ResourceExhaustedError(absl::StrCat("the call's metadata has ", bytes,
                                                              " bytes, more than the limit of ",
                                                              limit_bytes, "; send less of it")),
                    reason::kMetadataTooLarge,
                    {{"value", absl::StrCat(bytes)}, {"limit", absl::StrCat(limit_bytes)}});
}

absl::Status NoRoomForBody(int64_t bytes, int64_t limit_bytes) {
  return WithRetryAfter(
      WithReason(absl::ResourceExhaustedError(absl::StrCat(
                     "a request of ", bytes, " bytes does not fit into the ", limit_bytes,
                     " that all requests together may hold at the moment; try again later")),
                 reason::kRequestBytes,
                 {{"value", absl::StrCat(bytes)}, {"limit", absl::StrCat(limit_bytes)}}),
      kRetry);
}

absl::Status BodyTooSlow(int64_t received_bytes) {
  return WithReason(
      absl::ResourceExhaustedError(absl::StrCat(
          "the request arrives too slowly: ", received_bytes,
          " bytes of it have been received; send it without pauses, at more than 64 KiB a second")),
      reason::kSlowSender, {{"value", absl::StrCat(received_bytes)}});
}

absl::Status BodyLongerThanItSays(int64_t received_bytes, int64_t claimed_bytes) {
  return WithReason(
      absl::ResourceExhaustedError(absl::StrCat("the request has ", received_bytes,
                                                " bytes or more, and its message head says ",
                                                claimed_bytes, "; a call takes one message")),
      reason::kMessageTooLarge,
      {{"value", absl::StrCat(received_bytes)}, {"limit", absl::StrCat(claimed_bytes)}});
}

std::string RefusalFrames(uint32_t stream, const absl::Status& status, bool client_ended) {
  const google::rpc::Status rpc = ToRpcStatus(status);
  std::string block;
  AppendField(":status", "200", &block);
  AppendField("content-type", "application/grpc", &block);
  AppendField("grpc-status", absl::StrCat(rpc.code()), &block);
  AppendField("grpc-message", PercentEncoded(rpc.message()), &block);
  const std::string details = absl::Base64Escape(rpc.SerializeAsString());
  AppendField("grpc-status-details-bin", details.substr(0, details.find('=')), &block);
  const std::optional<std::string> pushback = RetryPushback(status);
  if (pushback.has_value()) AppendField(kRetryPushbackKey, *pushback, &block);
  std::string frames = ResponseFrame(stream, block);
  if (!client_ended) frames += RstStreamFrame(stream, Http2Error::kNoError);
  return frames;
}

}  // namespace bulkhead
