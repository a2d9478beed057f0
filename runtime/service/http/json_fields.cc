#include "runtime/service/http/json_fields.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/edit_distance.h"
#include "base/ordered_json.h"
#include "runtime/service/refusal.h"

namespace bulkhead {
namespace {

// Fields of llama.cpp's, SGLang's and vLLM's servers.
constexpr std::pair<absl::string_view, absl::string_view> kRenamed[] = {
    {"max_new_tokens", "max_tokens"},         {"n_predict", "max_tokens"},
    {"repeat_penalty", "repetition_penalty"}, {"enable_thinking", "chat_template_kwargs"},
    {"thinking", "chat_template_kwargs"},     {"reasoning", "reasoning_effort"},
    {"max_completion_tokens", "max_tokens"},
};
constexpr std::pair<absl::string_view, absl::string_view> kForeign[] = {
    {"extra_body", "a client library puts its fields into the body itself; send them there"},
    {"ebnf", "grammars are not supported; response_format and structured_outputs are"},
    {"grammar", "grammars are not supported; response_format and structured_outputs are"},
    {"guided_grammar", "grammars are not supported; guided_json, guided_regex and others are"},
    {"structured_outputs.grammar", "grammars are not supported; json, regex and choice are"},
    {"structured_outputs.structural_tag", "not supported; json, regex and choice are"},
    {"guided_decoding_backend", "there is one backend; leave it out"},
    {"mirostat", "not supported; temperature, top_p, top_k and min_p are"},
};

}  // namespace

absl::StatusOr<Json> ParseBody(absl::string_view body) {
  absl::StatusOr<Json> parsed = ParseOrderedJsonObject(body, "the body");
  if (parsed.ok()) return parsed;
  return WithReason(absl::InvalidArgumentError(
                        absl::StrCat(parsed.status().message(), "; send one JSON object as UTF-8")),
                    reason::kMalformedRequest);
}

absl::Status WrongValue(absl::string_view field, const Json& value, absl::string_view wanted) {
  std::string text;
  if (value.is_string()) {
    text = Quoted(value.get_ref<const std::string&>(), 64);
  } else if (value.is_structured() && !value.empty()) {
    text = absl::StrCat("a value of type ", value.type_name());
  } else {
    text = value.dump();
  }
  return InvalidField(field, absl::StrCat(text, " is not ", wanted));
}

JsonFields::JsonFields(const Json& object, std::string path)
    : object_(object), path_(std::move(path)) {}

std::string JsonFields::Path(absl::string_view name) const { return absl::StrCat(path_, name); }

const Json* JsonFields::Find(const std::string& name) {
  known_.insert(name);
  const auto found = object_.find(name);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

absl::Status JsonFields::Read(const std::string& name, std::optional<bool>* out) {
  const Json* value = Find(name);
  if (value == nullptr) return absl::OkStatus();
  if (!value->is_boolean()) return WrongValue(Path(name), *value, "true or false");
  *out = value->get<bool>();
  return absl::OkStatus();
}

absl::Status JsonFields::Read(const std::string& name, std::optional<int64_t>* out) {
  const Json* value = Find(name);
  if (value == nullptr) return absl::OkStatus();
  // 2^53: beyond it clients' own numbers are not exact.
  constexpr double kExact = 9007199254740992.0;
  if (value->is_number_unsigned() &&
      value->get<uint64_t>() <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
    *out = static_cast<int64_t>(value->get<uint64_t>());
  } else if (value->is_number_integer() && !value->is_number_unsigned()) {
    *out = value->get<int64_t>();
  } else if (value->is_number_float() && value->get<double>() >= -kExact &&
             value->get<double>() <= kExact &&
             static_cast<double>(static_cast<int64_t>(value->get<double>())) ==
                 value->get<double>()) {
    *out = static_cast<int64_t>(value->get<double>());
  } else {
    return WrongValue(Path(name), *value, "a whole number of 64 bits");
  }
  return absl::OkStatus();
}

absl::Status JsonFields::Read(const std::string& name, std::optional<double>* out) {
  const Json* value = Find(name);
  if (value == nullptr) return absl::OkStatus();
  if (!value->is_number()) return WrongValue(Path(name), *value, "a number");
  *out = value->get<double>();
  return absl::OkStatus();
}

absl::Status JsonFields::Read(const std::string& name, std::optional<std::string>* out) {
  const Json* value = Find(name);
  if (value == nullptr) return absl::OkStatus();
  if (!value->is_string()) return WrongValue(Path(name), *value, "a string");
  *out = value->get<std::string>();
  return absl::OkStatus();
}

absl::Status JsonFields::ReadTexts(const std::string& name, size_t most,
                                   std::vector<std::string>* out) {
  const Json* value = Find(name);
  if (value == nullptr) return absl::OkStatus();
  if (value->is_string()) {
    out->push_back(value->get<std::string>());
    return absl::OkStatus();
  }
  if (!value->is_array()) return WrongValue(Path(name), *value, "a string or a list of strings");
  if (value->size() > most) {
    return InvalidField(Path(name), absl::StrCat(value->size(), " are more than the limit of ",
                                                 most, "; send fewer"));
  }
  for (const Json& one : *value) {
    if (!one.is_string()) return WrongValue(Path(name), one, "a string");
    out->push_back(one.get<std::string>());
  }
  return absl::OkStatus();
}

void JsonFields::Ignore(std::initializer_list<const char*> names) {
  for (const char* name : names) known_.insert(name);
}

absl::Status JsonFields::Refuse(std::initializer_list<const char*> names,
                                const std::vector<Json>& neutral, absl::string_view why) {
  for (const char* const name : names) {
    const Json* value = Find(name);
    if (value == nullptr || absl::c_linear_search(neutral, *value)) continue;
    return InvalidField(Path(name), why, reason::kUnsupportedParameter);
  }
  return absl::OkStatus();
}

std::string JsonFields::HintOf(absl::string_view name) const {
  for (const auto& [theirs, ours] : kRenamed) {
    if (name == theirs && known_.contains(ours))
      return absl::StrCat("this server does not know it; write ", ours);
  }
  for (const auto& [theirs, hint] : kForeign) {
    if (Path(name) == theirs) return std::string(hint);
  }
  const std::string nearest = NearestField(name);
  return nearest.empty()
             ? "this server does not know it; leave it out"
             : absl::StrCat("this server does not know it; did you mean ", nearest, "?");
}

std::string JsonFields::NearestField(absl::string_view name) const {
  constexpr size_t kMinLetters = 5;  // fewer letters may match another name by chance
  constexpr size_t kMostLetters = 40;
  std::string nearest;
  size_t least = 3;
  if (name.size() < kMinLetters || name.size() > kMostLetters) return nearest;
  for (const std::string& known : known_) {
    const size_t distance = EditDistance(name, known);
    if (distance < least) nearest = known;
    least = std::min(least, distance);
  }
  return nearest;
}

absl::Status JsonFields::Finish() const {
  for (const auto& [name, value] : object_.items()) {
    if (known_.contains(name) || value.is_null()) continue;
    return InvalidField(Path(Quoted(name).substr(1, Quoted(name).size() - 2)), HintOf(name),
                        reason::kUnsupportedParameter);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<uint32_t>> TokenIdsOf(const Json& list, const std::string& field) {
  std::vector<uint32_t> ids;
  ids.reserve(list.size());
  for (const Json& id : list) {
    const bool fits =
        id.is_number_unsigned() && id.get<uint64_t>() <= std::numeric_limits<uint32_t>::max();
    if (!fits) return WrongValue(field, id, "a token id");
    ids.push_back(static_cast<uint32_t>(id.get<uint64_t>()));
  }
  return ids;
}

}  // namespace bulkhead
