#include "runtime/tokenizer/json_part.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/utf8.h"

namespace bulkhead {

absl::Status CheckJsonBounds(absl::string_view text) {
  constexpr int kMaxDepth = 128;              // as in the reference
  constexpr int64_t kMaxValues = 20'000'000;  // ten times the largest known vocabularies
  int depth = 0;
  int64_t num_values = 1;
  for (size_t i = 0; i < text.size(); ++i) {
    switch (text[i]) {
      case '"':
        for (++i; i < text.size() && text[i] != '"'; ++i) i += text[i] == '\\';
        continue;
      case '[':
      case '{':
        if (++depth > kMaxDepth) {
          return absl::InvalidArgumentError(
              absl::StrCat("is nested too deep: more than ", kMaxDepth, " levels (byte ", i, ")"));
        }
        break;
      case ']':
      case '}':
        --depth;
        continue;
      case ',':
        break;
      default:
        continue;
    }
    if (++num_values > kMaxValues) {
      return absl::InvalidArgumentError(
          absl::StrCat("holds more than ", kMaxValues, " values (byte ", i, ")"));
    }
  }
  return absl::OkStatus();
}

std::optional<JsonPart> JsonPart::Find(absl::string_view key) const {
  if (!json_->is_object()) return std::nullopt;
  const auto field = json_->find(std::string(key));
  if (field == json_->end() || field->is_null()) return std::nullopt;
  return JsonPart(*field, absl::StrCat(path_, ".", key));
}

absl::StatusOr<JsonPart> JsonPart::Get(absl::string_view key) const {
  if (!json_->is_object()) return Invalid("is not an object");
  std::optional<JsonPart> field = Find(key);
  if (!field.has_value()) return Invalid(absl::StrCat("has no field \"", key, "\""));
  return *std::move(field);
}

absl::StatusOr<std::vector<JsonPart>> JsonPart::Elements() const {
  if (!json_->is_array()) return Invalid("is not an array");
  std::vector<JsonPart> elements;
  elements.reserve(json_->size());
  for (size_t i = 0; i < json_->size(); ++i) {
    elements.emplace_back((*json_)[i], absl::StrCat(path_, "[", i, "]"));
  }
  return elements;
}

absl::StatusOr<std::string> JsonPart::AsString() const {
  if (!json_->is_string()) return Invalid("is not a string");
  return json_->get_ref<const std::string&>();
}

absl::StatusOr<int64_t> JsonPart::AsCount(int64_t limit) const {
  if (!json_->is_number_integer()) return Invalid("is not a whole number");
  const bool fits = json_->is_number_unsigned()
                        ? json_->get<uint64_t>() <= static_cast<uint64_t>(limit)
                        : json_->get<int64_t>() >= 0 && json_->get<int64_t>() <= limit;
  if (!fits) return Invalid(absl::StrCat("is ", json_->dump(), ", not between 0 and ", limit));
  return json_->get<int64_t>();
}

absl::StatusOr<std::string> JsonPart::GetString(absl::string_view key) const {
  BH_ASSIGN_OR_RETURN(const JsonPart field, Get(key));
  return field.AsString();
}

absl::StatusOr<bool> JsonPart::GetBool(absl::string_view key) const {
  BH_ASSIGN_OR_RETURN(const JsonPart field, Get(key));
  if (!field.json().is_boolean()) return field.Invalid("is neither true nor false");
  return field.json().get<bool>();
}

absl::StatusOr<bool> JsonPart::GetBool(absl::string_view key, bool absent) const {
  if (!Find(key).has_value()) return absent;
  return GetBool(key);
}

absl::StatusOr<int64_t> JsonPart::GetCount(absl::string_view key, int64_t limit) const {
  BH_ASSIGN_OR_RETURN(const JsonPart field, Get(key));
  return field.AsCount(limit);
}

absl::StatusOr<std::string> JsonPart::GetChar(absl::string_view key) const {
  BH_ASSIGN_OR_RETURN(const JsonPart field, Get(key));
  BH_ASSIGN_OR_RETURN(const std::string text, field.AsString());
  if (text.empty() || CharBytes(text[0]) != text.size()) {
    return field.Invalid("is not one character");
  }
  return text;
}

absl::Status JsonPart::Invalid(absl::string_view why) const {
  return absl::InvalidArgumentError(absl::StrCat(path_, " ", why));
}

absl::Status JsonPart::Unsupported(absl::string_view what) const {
  return absl::UnimplementedError(absl::StrCat(path_, ": ", what, " is not supported"));
}

absl::Status JsonPart::Wrap(const absl::Status& status) const {
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat(path_, ": ", status.message()));
}

}  // namespace bulkhead
