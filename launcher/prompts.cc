#include "launcher/prompts.h"

#include <algorithm>
#include <fstream>
#include <iostream>
#include <limits>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/exit_code.h"
#include "base/log.h"
#include "base/message_json.h"
#include "base/status.h"
#include "base/utf8.h"
#include "base/whole_file.h"
#include "nlohmann/json.hpp"

namespace bulkhead {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using nlohmann::ordered_json;

// A field of the request or of one of its parts, by its key in a line; no field: an unknown key.
std::pair<Message*, const FieldDescriptor*> FieldOf(const std::string& key,
                                                    v1::GenerateRequest* request) {
  const auto field = [](Message* part, const std::string& name) {
    return std::make_pair(part, part->GetDescriptor()->FindFieldByName(name));
  };
  if (key == "prompt") return field(request, "text");
  if (key == "prompt_token_ids") return field(request->mutable_token_ids(), "ids");
  if (key == "text" || key == "embedding") return {};  // output fields: a result is its text
  for (Message* part :
       std::initializer_list<Message*>{request, request->mutable_sampling(),
                                       request->mutable_stopping(), request->mutable_output()}) {
    const auto found = field(part, key);
    if (found.second != nullptr && found.second->message_type() == nullptr) return found;
  }
  return {};
}

template <typename Integer>
std::string OutOfRange(const ordered_json& value) {
  if (!value.is_number_integer()) return "must be a whole number";
  return absl::StrCat(value.dump(), " is out of range: at least ",
                      std::numeric_limits<Integer>::min(), ", at most ",
                      std::numeric_limits<Integer>::max());
}

// Why the field cannot hold `value`.
std::string WhyNot(const FieldDescriptor& field, const ordered_json& value) {
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_BOOL:
      return "must be true or false";
    case FieldDescriptor::CPPTYPE_INT32:
      return OutOfRange<int32_t>(value);
    case FieldDescriptor::CPPTYPE_UINT32:
      return OutOfRange<uint32_t>(value);
    case FieldDescriptor::CPPTYPE_UINT64:
      return OutOfRange<uint64_t>(value);
    case FieldDescriptor::CPPTYPE_FLOAT:
      if (!value.is_number()) return "must be a number";
      return absl::StrCat(value.dump(), " does not fit a 32-bit float");
    default:
      return "must be a string";
  }
}

// {"ID": BIAS}, as OpenAI's clients send it.
absl::Status SetLogitBias(const ordered_json& value, v1::Sampling* sampling) {
  if (!value.is_object()) {
    return absl::InvalidArgumentError("logit_bias must be an object of ids and numbers");
  }
  sampling->clear_logit_bias();
  for (const auto& [text, bias] : value.items()) {
    uint32_t id = 0;
    const std::string name = absl::StrCat("logit_bias.", absl::Utf8SafeCEscape(text.substr(0, 64)));
    if (!absl::SimpleAtoi(text, &id)) {
      return absl::InvalidArgumentError(absl::StrCat(name, ": the key is not a token id"));
    }
    if (!bias.is_number()) return absl::InvalidArgumentError(name + " must be a number");
    (*sampling->mutable_logit_bias())[id] = bias.get<float>();
  }
  return absl::OkStatus();
}

// Whether `value` has lists and objects nested deeper than `levels`.
bool IsDeeper(const ordered_json& value, int levels) {
  if (!value.is_structured()) return false;
  if (levels == 0) return true;
  for (const ordered_json& part : value) {
    if (IsDeeper(part, levels - 1)) return true;
  }
  return false;
}

bool IsForm(absl::string_view key) {
  return key == "json_schema" || key == "json_object" || key == "regex" || key == "choice";
}

// Replaces a value already given by a flag or the line.
absl::Status SetForm(const std::string& key, const ordered_json& value,
                     v1::GenerateRequest* request) {
  v1::StructuredOutput& form = *request->mutable_structured();
  form.Clear();
  constexpr int kMostLevels = 64;
  if (IsDeeper(value, kMostLevels)) {
    return absl::InvalidArgumentError(
        absl::StrCat(key, " is nested deeper than ", kMostLevels, " levels"));
  }
  if (key == "json_schema" && (value.is_object() || value.is_string())) {
    form.set_json_schema(value.is_string() ? value.get<std::string>() : value.dump());
  } else if (key == "json_object" && value.is_boolean()) {
    form.set_json_object(true);
    if (!value.get<bool>()) request->clear_structured();
  } else if (key == "regex" && value.is_string()) {
    form.set_regex(value.get<std::string>());
  } else if (key == "choice" && value.is_array()) {
    for (const ordered_json& text : value) {
      if (!text.is_string()) return absl::InvalidArgumentError("choice must be a list of strings");
      form.mutable_choice()->add_texts(text.get<std::string>());
    }
  } else {
    return absl::InvalidArgumentError(absl::StrCat(key, " must be ",
                                                   key == "json_schema"   ? "an object or a string"
                                                   : key == "json_object" ? "true or false"
                                                   : key == "regex"       ? "a string"
                                                                          : "a list of strings"));
  }
  return absl::OkStatus();
}

absl::Status SetKey(const std::string& key, const ordered_json& value,
                    v1::GenerateRequest* request) {
  if (key == "logit_bias") return SetLogitBias(value, request->mutable_sampling());
  if (IsForm(key)) return SetForm(key, value, request);
  const auto [message, field] = FieldOf(key, request);
  if (field == nullptr) {
    return absl::InvalidArgumentError(
        key == "messages"
            ? "unknown key messages: chat templates are not applied here; give the text that the "
              "model's template makes of them as prompt, with add_special_tokens false"
            : absl::StrCat("unknown key ", absl::Utf8SafeCEscape(key.substr(0, 64))));
  }
  message->GetReflection()->ClearField(message, field);
  // Deeply nested values are not copied.
  std::string wrong = key == "stop" && value.is_string()
                          ? SetField(ordered_json::array({value}), *field, message)
                          : SetField(value, *field, message);
  if (wrong.empty()) return absl::OkStatus();
  wrong.replace(0, field->name().size(), key);  // "ids[1]" is "prompt_token_ids[1]"
  if (!field->is_repeated()) {
    absl::StrAppend(&wrong, " ", WhyNot(*field, value));
  } else if (!value.is_array()) {
    absl::StrAppend(&wrong, " must be a list", key == "stop" ? " of strings, or one" : "");
  } else {
    size_t i = 0;
    while (i < value.size() && wrong != absl::StrCat(key, "[", i, "]")) ++i;
    absl::StrAppend(&wrong, " ", WhyNot(*field, value[i]));
  }
  return absl::InvalidArgumentError(wrong);
}

bool IsGiven(const ordered_json& line, const char* key) {
  const auto entry = line.find(key);
  return entry != line.end() && !entry->is_null();
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
  if (options.repetition_penalty) sampling.set_repetition_penalty(*options.repetition_penalty);
  if (options.presence_penalty) sampling.set_presence_penalty(*options.presence_penalty);
  if (options.frequency_penalty) sampling.set_frequency_penalty(*options.frequency_penalty);
  for (const auto& [id, bias] : options.logit_bias) (*sampling.mutable_logit_bias())[id] = bias;
  for (const uint32_t id : options.allowed_token_ids) sampling.add_allowed_token_ids(id);
  for (const std::string& word : options.bad_words) sampling.add_bad_words(word);
  if (options.seed) sampling.set_seed(*options.seed);
  if (options.max_tokens) stopping.set_max_tokens(*options.max_tokens);
  if (options.min_tokens) stopping.set_min_tokens(*options.min_tokens);
  if (options.ignore_eos) stopping.set_ignore_eos(*options.ignore_eos);
  for (const std::string& stop : options.stop) stopping.add_stop(stop);
  for (const uint32_t id : options.stop_token_ids) stopping.add_stop_token_ids(id);
  if (options.logprobs) request.mutable_output()->set_logprobs(*options.logprobs);
  if (options.prompt_logprobs) {
    request.mutable_output()->set_prompt_logprobs(*options.prompt_logprobs);
  }
  if (options.truncate_prompt_tokens) {
    request.set_truncate_prompt_tokens(*options.truncate_prompt_tokens);
  }
  if (options.time_limit_ms) request.set_time_limit_ms(*options.time_limit_ms);
  if (options.add_special_tokens) request.set_add_special_tokens(*options.add_special_tokens);
  if (options.priority) request.set_priority(*options.priority);
  if (options.json_schema) request.mutable_structured()->set_json_schema(*options.json_schema);
  if (options.regex) request.mutable_structured()->set_regex(*options.regex);
  for (const std::string& text : options.choice) {
    request.mutable_structured()->mutable_choice()->add_texts(text);
  }
  return request;
}

absl::StatusOr<v1::GenerateRequest> ParsePromptLine(absl::string_view line,
                                                    const v1::GenerateRequest& defaults) {
  const auto parsed =
      ordered_json::parse(line.begin(), line.end(), nullptr, /*allow_exceptions=*/false);
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

absl::Status CheckUtf8(absl::string_view what, absl::string_view text) {
  if (IsValidUtf8(text)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the ", what, " is not valid UTF-8; convert it, as iconv does"));
}

absl::StatusOr<v1::GenerateRequest> TextRequest(const std::string& text,
                                                const v1::GenerateRequest& defaults) {
  BH_RETURN_IF_ERROR(CheckUtf8("prompt", text));
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
  BH_ASSIGN_OR_RETURN(std::ifstream file, OpenToRead(flag, path));
  PromptLines lines = ReadLines(file, parse);
  if (!file.bad()) return lines;
  return WithExitCode(
      absl::DataLossError(absl::StrCat(flag, ": ", path, " could not be read completely")),
      ExitCode::kUsage);
}

absl::StatusOr<v1::GenerateRequest> ParseTextLine(absl::string_view line) {
  const auto parsed =
      ordered_json::parse(line.begin(), line.end(), nullptr, /*allow_exceptions=*/false);
  if (!parsed.is_object()) return absl::InvalidArgumentError("the line is not a JSON object");
  if (IsGiven(parsed, "text") == IsGiven(parsed, "prompt_token_ids")) {
    return absl::InvalidArgumentError("give one of text and prompt_token_ids");
  }
  v1::GenerateRequest request;
  for (const auto& [key, value] : parsed.items()) {
    if (key != "text" && key != "prompt_token_ids" && key != "add_special_tokens" &&
        key != "model") {
      return absl::InvalidArgumentError(
          absl::StrCat("unknown key ", absl::Utf8SafeCEscape(key.substr(0, 64))));
    }
    if (value.is_null()) continue;
    if (key == "text" && !value.is_string()) {
      return absl::InvalidArgumentError("text must be a string");
    }
    BH_RETURN_IF_ERROR(SetKey(key == "text" ? "prompt" : key, value, &request));
  }
  return request;
}

}  // namespace

absl::StatusOr<PromptLines> ReadPrompts(const std::string& path,
                                        const v1::GenerateRequest& defaults,
                                        absl::string_view flag) {
  return ReadFile(flag, path,
                  [&](absl::string_view line) { return ParsePromptLine(line, defaults); });
}

absl::Status CheckLines(absl::string_view flag, const PromptLines& lines) {
  const auto is_broken = [](const PromptLine& line) { return !line.request.ok(); };
  const auto first = std::find_if(lines.begin(), lines.end(), is_broken);
  if (first == lines.end()) return absl::OkStatus();
  const size_t broken = std::count_if(first, lines.end(), is_broken);
  const std::string text =
      absl::StrCat(flag, ": ", first->request.status().message(), " (",
                   broken == lines.size() ? "no line is in order"
                                          : absl::StrCat(broken, " of ", lines.size(), " broken"),
                   ")");
  if (broken == lines.size()) {
    return WithExitCode(absl::InvalidArgumentError(text), ExitCode::kUsage);
  }
  BH_LOG(kWarning) << text << "; their results have the error";
  return absl::OkStatus();
}

absl::StatusOr<PromptLines> ReadTexts(const std::string& path) {
  return ReadFile("--texts", path, ParseTextLine);
}

absl::string_view FinishReasonText(v1::FinishReason reason) {
  if (reason == v1::FINISH_REASON_TIME_LIMIT) return "time_limit";
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
    if (result.wants_logprobs) line["logprobs"] = ordered_json::array();
    for (const v1::Token& token : result.tokens) {
      if (result.wants_logprobs) line["logprobs"].push_back(MessageToJson(token));
    }
    for (const v1::Token& token : result.prompt_logprobs) {
      line["prompt_logprobs"].push_back(MessageToJson(token));
    }
  } else {
    line["error"] = {{"code", absl::StatusCodeToString(result.status.code())},
                     {"message", std::string(result.status.message())}};
  }
  // Text cut within a character must not throw.
  return line.dump(-1, ' ', /*ensure_ascii=*/false, ordered_json::error_handler_t::replace);
}

}  // namespace bulkhead
