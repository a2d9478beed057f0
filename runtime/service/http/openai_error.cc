#include "runtime/service/http/openai_error.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "google/rpc/error_details.pb.h"
#include "runtime/service/refusal.h"

namespace bulkhead {
namespace {

// The OpenAI API's name of a field of our messages.
std::string ParamOf(absl::string_view field) {
  for (const absl::string_view group : {"sampling.", "stopping.", "output.", "structured."}) {
    if (absl::ConsumePrefix(&field, group)) return std::string(field);
  }
  for (const absl::string_view prompt : {"prompt.text", "prompt.token_ids"}) {
    if (absl::ConsumePrefix(&field, prompt)) return absl::StrCat("prompt", field);
  }
  return std::string(field);
}

std::string FieldOf(const absl::Status& status) {
  google::rpc::BadRequest bad;
  const auto payload =
      status.GetPayload(absl::StrCat(kPayloadUrl, bad.GetDescriptor()->full_name()));
  if (!payload.has_value() || !bad.ParseFromString(std::string(*payload)) ||
      bad.field_violations().empty()) {
    return "";
  }
  return bad.field_violations(0).field();
}

absl::string_view TypeOf(int http_status) {
  if (http_status == 429) return "rate_limit_error";
  if (http_status >= 500) return "server_error";
  return http_status == 404 ? "not_found_error" : "invalid_request_error";
}

}  // namespace

absl::string_view HttpReason(int http_status) {
  switch (http_status) {
    case 200:
      return "OK";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 409:
      return "Conflict";
    case 413:
      return "Content Too Large";
    case 415:
      return "Unsupported Media Type";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 499:
      return "Client Closed Request";
    case 501:
      return "Not Implemented";
    case 503:
      return "Service Unavailable";
    case 504:
      return "Gateway Timeout";
    case 505:
      return "HTTP Version Not Supported";
    default:
      return "Internal Server Error";
  }
}

int HttpStatusOf(const absl::Status& status) {
  const std::string why = ReasonOf(status);
  if (why == reason::kMessageTooLarge) return 413;
  if (why == reason::kHostMemory) return 503;
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return 200;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kOutOfRange:
      return 400;
    case absl::StatusCode::kUnauthenticated:
      return 401;
    case absl::StatusCode::kPermissionDenied:
      return 403;
    case absl::StatusCode::kNotFound:
      return 404;
    case absl::StatusCode::kAlreadyExists:
      return 409;
    case absl::StatusCode::kResourceExhausted:
      return 429;
    case absl::StatusCode::kCancelled:
      return 499;
    case absl::StatusCode::kUnavailable:
      return 503;
    case absl::StatusCode::kDeadlineExceeded:
      return 504;
    case absl::StatusCode::kUnimplemented:
      return 501;
    default:
      return 500;
  }
}

std::string CodeOf(const absl::Status& status) {
  const std::string code = ReasonOf(status);
  if (code == reason::kPromptTooLong) return "context_length_exceeded";
  return code.empty() ? reason::kInternal : code;
}

std::string ErrorJson(const absl::Status& status, int http_status) {
  const std::string field = FieldOf(status);
  const std::string param = ParamOf(field);
  // Truncated, and UTF-8.
  std::string message = ToRpcStatus(status).message();
  if (!field.empty() && absl::StartsWith(message, field)) message.replace(0, field.size(), param);
  const std::string code = CodeOf(status);
  return absl::StrCat("{\"error\":{\"message\":", JsonString(message), ",\"type\":\"",
                      TypeOf(http_status),
                      "\",\"param\":", param.empty() ? "null" : JsonString(param),
                      ",\"code\":", JsonString(code), "}}");
}

HttpAnswer ErrorAnswer(const absl::Status& status, int http_status) {
  HttpAnswer answer;
  answer.status = http_status != 0 ? http_status : HttpStatusOf(status);
  answer.body.Add(ErrorJson(status, answer.status));
  if (const std::optional<absl::Duration> delay = RetryAfter(status); delay.has_value()) {
    const int64_t ms = absl::ToInt64Milliseconds(*delay);
    answer.headers.emplace_back("Retry-After", absl::StrCat((ms + 999) / 1000));
    answer.headers.emplace_back("Retry-After-Ms", absl::StrCat(ms));
  } else if (answer.status == 429 || answer.status == 503) {
    answer.headers.emplace_back("Retry-After", "1");
  } else if (answer.status == 401) {
    answer.headers.emplace_back("WWW-Authenticate", "Bearer");
  }
  return answer;
}

absl::Status WithFieldsRenamed(
    const absl::Status& status,
    std::initializer_list<std::pair<absl::string_view, absl::string_view>> from_to) {
  const std::string field = FieldOf(status);
  for (const auto& [from, to] : from_to) {
    absl::string_view rest = field, message = status.message();
    if (!absl::ConsumePrefix(&rest, from)) continue;
    if (!rest.empty() && rest[0] != '.' && rest[0] != '[') continue;
    absl::ConsumePrefix(&message, field + ": ");
    return InvalidField(absl::StrCat(to, rest), message, ReasonOf(status));
  }
  return status;
}

absl::Status InFormField(const absl::Status& status, absl::string_view form_field) {
  const std::string definition = "#/$defs/";
  absl::string_view why = status.message();
  if (form_field.empty() || !absl::ConsumePrefix(&why, "structured.")) return status;
  const size_t at = why.find(": ");
  if (at == absl::string_view::npos) return status;
  why.remove_prefix(at + 2);
  std::string field(form_field), rest(why);
  const size_t place = rest.find(definition);
  if (form_field == kToolsField && place != std::string::npos) {
    const size_t begin = place + definition.size();
    const std::string tool =
        rest.substr(begin, rest.find_first_not_of("0123456789", begin) - begin);
    field = absl::StrCat("tools[", tool, "].function.parameters");
    rest = absl::StrReplaceAll(rest, {{absl::StrCat(definition, tool), "#"}});
  }
  if (!FieldOf(status).empty()) return InvalidField(field, rest, ReasonOf(status));
  absl::Status named(status.code(), absl::StrCat(field, ": ", rest));
  status.ForEachPayload([&named](absl::string_view type, const absl::Cord& payload) {
    named.SetPayload(type, payload);
  });
  return named;
}

absl::Status NotSupported(absl::string_view field, absl::string_view why) {
  return InvalidField(field, why, reason::kUnsupportedParameter);
}

}  // namespace bulkhead
