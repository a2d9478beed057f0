#include "launcher/prompts.h"

#include <cmath>
#include <fstream>
#include <iostream>
#include <limits>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/exit_code.h"
#include "base/status.h"
#include "base/whole_file.h"
#include "nlohmann/json.hpp"
#include "runtime/tokenizer/unicode.h"

namespace bulkhead {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr uint64_t kMaxUint32 = std::numeric_limits<uint32_t>::max();

absl::Status Wrong(const std::string& key, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(key, " ", what));
}

absl::StatusOr<uint64_t> Unsigned(const std::string& key, const json& value, uint64_t max) {
  if (!value.is_number_integer()) return Wrong(key, "must be a whole number");
  if (!value.is_number_unsigned() || value.get<uint64_t>() > max) {
    return Wrong(key, absl::StrCat(value.dump(), " is out of range: at least 0, at most ", max));
  }
  return value.get<uint64_t>();
}

absl::StatusOr<float> Real(const std::string& key, const json& value) {
  if (!value.is_number()) return Wrong(key, "must be a number");
  const double real = value.get<double>();
  if (!(std::fabs(real) <= std::numeric_limits<float>::max())) {
    return Wrong(key, absl::StrCat(value.dump(), " does not fit a 32-bit float"));
  }
  return static_cast<float>(real);
}

absl::StatusOr<bool> Boolean(const std::string& key, const json& value) {
  if (!value.is_boolean()) return Wrong(key, "must be true or false");
  return value.get<bool>();
}

absl::StatusOr<std::string> Text(const std::string& key, const json& value) {
  if (!value.is_string()) return Wrong(key, "must be a string");
  return value.get<std::string>();
}

template <typename Ids>
absl::Status AppendIds(const std::string& key, const json& value, Ids* ids) {
  if (!value.is_array()) return Wrong(key, "must be a list of token ids");
  ids->Clear();
  for (size_t i = 0; i < value.size(); ++i) {
    BH_ASSIGN_OR_RETURN(const uint64_t id,
                        Unsigned(absl::StrCat(key, "[", i, "]"), value[i], kMaxUint32));
    ids->Add(static_cast<uint32_t>(id));
  }
  return absl::OkStatus();
}

absl::Status SetStop(const std::string& key, const json& value, v1::Stopping* stopping) {
  stopping->clear_stop();
  if (value.is_string()) {
    stopping->add_stop(value.get<std::string>());
    return absl::OkStatus();
  }
  if (!value.is_array()) return Wrong(key, "must be a string or a list of strings");
  for (const json& stop : value) {
    BH_ASSIGN_OR_RETURN(*stopping->add_stop(), Text(key, stop));
  }
  return absl::OkStatus();
}

absl::Status SetPriority(const std::string& key, const json& value, v1::GenerateRequest* request) {
  if (!value.is_number_integer()) return Wrong(key, "must be a whole number");
  const bool fits = value.is_number_unsigned()
                        ? value.get<uint64_t>() <= std::numeric_limits<int32_t>::max()
                        : value.get<int64_t>() >= std::numeric_limits<int32_t>::min();
  if (!fits) return Wrong(key, absl::StrCat(value.dump(), " does not fit 32 bits"));
  request->set_priority(value.get<int32_t>());
  return absl::OkStatus();
}

// Three tables from keys to fields, one per value type; false if the key is in none of them.
absl::StatusOr<bool> SetNumber(const std::string& key, const json& value,
                               v1::GenerateRequest* request) {
  v1::Sampling& sampling = *request->mutable_sampling();
  v1::Stopping& stopping = *request->mutable_stopping();
  const auto whole = [&](uint64_t max, const auto& set) -> absl::StatusOr<bool> {
    BH_ASSIGN_OR_RETURN(const uint64_t number, Unsigned(key, value, max));
    set(number);
    return true;
  };
  const auto real = [&](const auto& set) -> absl::StatusOr<bool> {
    BH_ASSIGN_OR_RETURN(const float number, Real(key, value));
    set(number);
    return true;
  };
  if (key == "max_tokens")
    return whole(kMaxUint32, [&](uint64_t n) { stopping.set_max_tokens(n); });
  if (key == "min_tokens")
    return whole(kMaxUint32, [&](uint64_t n) { stopping.set_min_tokens(n); });
  if (key == "top_k") return whole(kMaxUint32, [&](uint64_t n) { sampling.set_top_k(n); });
  if (key == "seed") {
    return whole(std::numeric_limits<uint64_t>::max(), [&](uint64_t n) { sampling.set_seed(n); });
  }
  if (key == "logprobs") {
    return whole(kMaxUint32, [&](uint64_t n) { request->mutable_output()->set_logprobs(n); });
  }
  if (key == "temperature") return real([&](float x) { sampling.set_temperature(x); });
  if (key == "top_p") return real([&](float x) { sampling.set_top_p(x); });
  if (key == "min_p") return real([&](float x) { sampling.set_min_p(x); });
  return false;
}

absl::StatusOr<bool> SetBoolean(const std::string& key, const json& value,
                                v1::GenerateRequest* request) {
  const auto boolean = [&](const auto& set) -> absl::StatusOr<bool> {
    BH_ASSIGN_OR_RETURN(const bool on, Boolean(key, value));
    set(on);
    return true;
  };
  if (key == "ignore_eos") {
    return boolean([&](bool on) { request->mutable_stopping()->set_ignore_eos(on); });
  }
  if (key == "include_stop_in_output") {
    return boolean([&](bool on) { request->mutable_stopping()->set_include_stop_in_output(on); });
  }
  if (key == "add_special_tokens")
    return boolean([&](bool on) { request->set_add_special_tokens(on); });
  if (key == "skip_special_tokens") {
    return boolean([&](bool on) { request->mutable_output()->set_skip_special_tokens(on); });
  }
  return false;
}

absl::Status SetKey(const std::string& key, const json& value, v1::GenerateRequest* request) {
  if (key == "prompt") {
    BH_ASSIGN_OR_RETURN(*request->mutable_text(), Text(key, value));
    return absl::OkStatus();
  }
  if (key == "prompt_token_ids") {
    return AppendIds(key, value, request->mutable_token_ids()->mutable_ids());
  }
  if (key == "request_id") {
    BH_ASSIGN_OR_RETURN(*request->mutable_request_id(), Text(key, value));
    return absl::OkStatus();
  }
  if (key == "model") {
    BH_ASSIGN_OR_RETURN(*request->mutable_model(), Text(key, value));
    return absl::OkStatus();
  }
  if (key == "cache_salt") {
    BH_ASSIGN_OR_RETURN(*request->mutable_cache_salt(), Text(key, value));
    return absl::OkStatus();
  }
  if (key == "stop") return SetStop(key, value, request->mutable_stopping());
  if (key == "stop_token_ids") {
    return AppendIds(key, value, request->mutable_stopping()->mutable_stop_token_ids());
  }
  if (key == "priority") return SetPriority(key, value, request);
  BH_ASSIGN_OR_RETURN(const bool is_number, SetNumber(key, value, request));
  if (is_number) return absl::OkStatus();
  BH_ASSIGN_OR_RETURN(const bool is_boolean, SetBoolean(key, value, request));
  if (is_boolean) return absl::OkStatus();
  if (key == "messages") {
    return absl::InvalidArgumentError(
        "unknown key messages: chat templates are not applied here; give the text that the model's "
        "template makes of them as prompt, with add_special_tokens false");
  }
  return absl::InvalidArgumentError(
      absl::StrCat("unknown key ", absl::Utf8SafeCEscape(key.substr(0, 64))));
}

bool IsGiven(const json& line, const char* key) {
  const auto entry = line.find(key);
  return entry != line.end() && !entry->is_null();
}

ordered_json LogprobsJson(const std::vector<v1::Token>& tokens) {
  ordered_json list = ordered_json::array();
  for (const v1::Token& token : tokens) {
    ordered_json entry = {{"id", token.id()}, {"logprob", token.logprob()}};
    ordered_json top = ordered_json::array();
    for (const v1::TokenLogprob& other : token.top()) {
      top.push_back({{"id", other.id()}, {"logprob", other.logprob()}});
    }
    entry["top"] = std::move(top);
    list.push_back(std::move(entry));
  }
  return list;
}

}  // namespace

v1::GenerateRequest RequestOf(const RequestOptions& options) {
  v1::GenerateRequest request;
  v1::Sampling& sampling = *request.mutable_sampling();
  v1::Stopping& stopping = *request.mutable_stopping();
  if (options.temperature) sampling.set_temperature(*options.temperature);
  if (options.top_p) sampling.set_top_p(*options.top_p);
  if (options.top_k) sampling.set_top_k(*options.top_k);
  if (options.min_p) sampling.set_min_p(*options.min_p);
  if (options.seed) sampling.set_seed(*options.seed);
  if (options.max_tokens) stopping.set_max_tokens(*options.max_tokens);
  if (options.min_tokens) stopping.set_min_tokens(*options.min_tokens);
  if (options.ignore_eos) stopping.set_ignore_eos(*options.ignore_eos);
  for (const std::string& stop : options.stop) stopping.add_stop(stop);
  for (const uint32_t id : options.stop_token_ids) stopping.add_stop_token_ids(id);
  if (options.logprobs) request.mutable_output()->set_logprobs(*options.logprobs);
  if (options.add_special_tokens) request.set_add_special_tokens(*options.add_special_tokens);
  if (options.priority) request.set_priority(*options.priority);
  return request;
}

absl::StatusOr<v1::GenerateRequest> ParsePromptLine(absl::string_view line,
                                                    const v1::GenerateRequest& defaults) {
  const json parsed = json::parse(line.begin(), line.end(), nullptr, /*allow_exceptions=*/false);
  if (parsed.is_discarded()) return absl::InvalidArgumentError("the line is not JSON");
  if (!parsed.is_object()) return absl::InvalidArgumentError("the line is not a JSON object");
  v1::GenerateRequest request = defaults;
  for (const auto& [key, value] : parsed.items()) {
    if (!value.is_null()) BH_RETURN_IF_ERROR(SetKey(key, value, &request));
  }
  if (IsGiven(parsed, "prompt") == IsGiven(parsed, "prompt_token_ids")) {
    return absl::InvalidArgumentError("give one of prompt and prompt_token_ids");
  }
  // The flag applies only to the text prompts among the lines.
  if (request.has_token_ids() && !IsGiven(parsed, "add_special_tokens"))
    request.clear_add_special_tokens();
  return request;
}

absl::StatusOr<v1::GenerateRequest> TextRequest(const std::string& text,
                                                const v1::GenerateRequest& defaults) {
  if (!IsValidUtf8(text)) {
    return absl::InvalidArgumentError("the prompt is not valid UTF-8; convert it, as iconv does");
  }
  v1::GenerateRequest request = defaults;
  request.set_text(text);
  return request;
}

absl::Status AtLine(int64_t number, const absl::Status& status) {
  if (status.ok() || number == 0) return status;
  return absl::Status(status.code(), absl::StrCat("line ", number, ": ", status.message()));
}

namespace {

using ParseLine = absl::FunctionRef<absl::StatusOr<v1::GenerateRequest>(absl::string_view)>;

PromptLines ReadLines(std::istream& in, ParseLine parse) {
  PromptLines prompts;
  int64_t number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    if (absl::StripAsciiWhitespace(line).empty()) continue;
    absl::StatusOr<v1::GenerateRequest> request = parse(line);
    if (!request.ok()) request = AtLine(number, request.status());
    prompts.push_back({number, std::move(request)});
  }
  return prompts;
}

absl::StatusOr<PromptLines> ReadFile(absl::string_view flag, const std::string& path,
                                     ParseLine parse) {
  if (path == "-") {
    PromptLines lines = ReadLines(std::cin, parse);
    BH_RETURN_IF_ERROR(CheckStandardInput());
    return lines;
  }
  std::ifstream file(path);
  // A folder can be opened, and fails at the first read.
  if (!file || (file.peek(), file.bad())) {
    return WithExitCode(absl::NotFoundError(absl::StrCat(flag, ": cannot read ", path)),
                        ExitCode::kUsage);
  }
  file.clear();
  PromptLines lines = ReadLines(file, parse);
  if (!file.bad()) return lines;
  return WithExitCode(
      absl::DataLossError(absl::StrCat(flag, ": ", path, " could not be read completely")),
      ExitCode::kUsage);
}

absl::StatusOr<v1::GenerateRequest> ParseTextLine(absl::string_view line) {
  json parsed = json::parse(line.begin(), line.end(), nullptr, /*allow_exceptions=*/false);
  if (!parsed.is_object()) return absl::InvalidArgumentError("the line is not a JSON object");
  if (IsGiven(parsed, "text") == IsGiven(parsed, "prompt_token_ids")) {
    return absl::InvalidArgumentError("give one of text and prompt_token_ids");
  }
  v1::GenerateRequest request;
  for (const auto& [key, value] : parsed.items()) {
    if (key != "text" && key != "prompt_token_ids" && key != "add_special_tokens") {
      return absl::InvalidArgumentError(
          absl::StrCat("unknown key ", absl::Utf8SafeCEscape(key.substr(0, 64))));
    }
    if (value.is_null()) continue;
    BH_RETURN_IF_ERROR(SetKey(key == "text" ? "prompt" : key, value, &request));
  }
  return request;
}

}  // namespace

PromptLines ReadPromptLines(std::istream& in, const v1::GenerateRequest& defaults) {
  return ReadLines(in, [&](absl::string_view line) { return ParsePromptLine(line, defaults); });
}

absl::StatusOr<PromptLines> ReadPrompts(const std::string& path,
                                        const v1::GenerateRequest& defaults,
                                        absl::string_view flag) {
  return ReadFile(flag, path,
                  [&](absl::string_view line) { return ParsePromptLine(line, defaults); });
}

absl::StatusOr<PromptLines> ReadTexts(const std::string& path) {
  return ReadFile("--texts", path, ParseTextLine);
}

absl::string_view FinishReasonText(v1::FinishReason reason) {
  const bool ran_out =
      reason == v1::FINISH_REASON_MAX_TOKENS || reason == v1::FINISH_REASON_MODEL_LENGTH;
  return ran_out ? "length" : "stop";
}

std::string ResultLine(const GenerationResult& result) {
  ordered_json line = {{"index", result.index}};
  if (result.status.ok()) line["prompt_token_ids"] = result.prompt_token_ids;
  ordered_json ids = ordered_json::array();
  for (const v1::Token& token : result.tokens) ids.push_back(token.id());
  line["token_ids"] = std::move(ids);
  line["text"] = result.text;
  if (result.status.ok()) {
    line["finish_reason"] = std::string(FinishReasonText(result.finish_reason));
    line["seed"] = result.seed;
    if (result.wants_logprobs) line["logprobs"] = LogprobsJson(result.tokens);
  } else {
    line["error"] = {{"code", absl::StatusCodeToString(result.status.code())},
                     {"message", std::string(result.status.message())}};
  }
  // Text cut within a character must not throw.
  return line.dump(-1, ' ', /*ensure_ascii=*/false, ordered_json::error_handler_t::replace);
}

}  // namespace bulkhead
