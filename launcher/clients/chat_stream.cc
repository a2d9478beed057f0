#include "launcher/clients/chat_stream.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/json.h"
#include "base/status.h"
#include "launcher/clients/http_call.h"

namespace bulkhead {
namespace {

using nlohmann::json;

constexpr size_t kMaxEventBytes = size_t{1} << 20;

// `object`.`key`, or null.
const json& Member(const json& object, const char* key) {
  static const json kNull;
  if (!object.is_object()) return kNull;
  const auto found = object.find(key);
  return found == object.end() ? kNull : *found;
}

std::string Text(const json& value) {
  return value.is_string() ? value.get<std::string>() : std::string();
}

// What can be done about a refusal.
absl::string_view AdviceOn(int http_status) {
  return http_status == 401 ? "; give a key with --api-key-file FILE or in BULKHEAD_API_KEY" : "";
}

absl::Status ErrorOf(const json& error, int http_status) {
  const std::string code = Text(Member(error, "code"));
  const std::string message = Text(Member(error, "message"));
  const std::string text =
      absl::StrCat(code, code.empty() ? "" : ": ",
                   message.empty() ? "the server names an error without a message" : message,
                   AdviceOn(http_status));
  switch (http_status) {
    case 401:
      return absl::UnauthenticatedError(text);
    case 403:
      return absl::PermissionDeniedError(text);
    case 404:
      return absl::NotFoundError(text);
    case 429:
      return absl::ResourceExhaustedError(text);
    case 503:
      return absl::UnavailableError(text);
    default:
      return http_status >= 400 && http_status < 500 ? absl::InvalidArgumentError(text)
                                                     : absl::InternalError(text);
  }
}

}  // namespace

absl::Status RefusalOf(int http_status, absl::string_view body, const std::string& address) {
  const absl::StatusOr<json> parsed = ParseJsonObject(body, "refusal");
  if (parsed.ok() && !Text(Member(Member(*parsed, "error"), "message")).empty()) {
    return ErrorOf(Member(*parsed, "error"), http_status);
  }
  return absl::UnavailableError(
      absl::StrCat("the program at ", address, " answers with HTTP status ", http_status,
                   ", and not as a Bulkhead server; name one with --http HOST:PORT"));
}

absl::Status EventStreamReader::Append(absl::string_view bytes,
                                       std::vector<std::string>* payloads) {
  while (!bytes.empty() && !broken_) {
    const size_t end = bytes.find('\n');
    const absl::string_view piece = bytes.substr(0, end);
    broken_ = line_.size() + piece.size() > kMaxEventBytes;
    if (broken_) break;
    line_.append(piece.data(), piece.size());
    if (end == absl::string_view::npos) break;
    bytes.remove_prefix(end + 1);
    absl::string_view line = line_;
    absl::ConsumeSuffix(&line, "\r");
    if (absl::ConsumePrefix(&line, "data:")) {
      absl::ConsumePrefix(&line, " ");
      payloads->emplace_back(line);
    }
    line_.clear();
  }
  if (!broken_) return absl::OkStatus();
  return absl::OutOfRangeError(
      absl::StrCat("the server sent an event of more than ", kMaxEventBytes, " bytes"));
}

absl::Status ChatStreamReader::Append(absl::string_view bytes, std::vector<ChatPiece>* pieces) {
  if (!failed_.ok()) return failed_;
  std::vector<std::string> payloads;
  failed_ = events_.Append(bytes, &payloads);
  for (const std::string& payload : payloads) {
    const absl::Status read = Read(payload, pieces);
    if (read.ok()) continue;
    failed_ = read;
    break;
  }
  return failed_;
}

absl::Status ChatStreamReader::Read(const std::string& payload, std::vector<ChatPiece>* pieces) {
  if (payload == "[DONE]") {
    done_ = true;
    return absl::OkStatus();
  }
  const absl::StatusOr<json> event = ParseJsonObject(payload, "event");
  if (!event.ok()) {
    return absl::DataLossError(
        absl::StrCat("the server sent an invalid event: ", event.status().message()));
  }
  if (event->contains("error")) return ErrorOf(Member(*event, "error"), 500);
  const json& choices = Member(*event, "choices");
  if (!choices.is_array() || choices.empty()) return absl::OkStatus();
  const json& choice = choices[0];
  const json& delta = Member(choice, "delta");
  const std::string reasoning = Text(Member(delta, "reasoning_content"));
  const std::string content = Text(Member(delta, "content"));
  if (!reasoning.empty()) pieces->push_back({true, reasoning});
  if (!content.empty()) pieces->push_back({false, content});
  content_ += content;
  bytes_ += reasoning.size() + content.size();
  if (bytes_ > kMaxAnswerBytes) {
    return absl::OutOfRangeError(
        absl::StrCat("the server's answer has more than ", kMaxAnswerBytes, " bytes"));
  }
  const json& finish = Member(choice, "finish_reason");
  if (finish.is_string()) finish_reason_ = finish.get<std::string>();
  return absl::OkStatus();
}

absl::Status ChatStreamReader::End() const {
  if (!failed_.ok()) return failed_;
  if (!done_) return absl::DataLossError("the server's answer ended before it was complete");
  return absl::OkStatus();
}

}  // namespace bulkhead
