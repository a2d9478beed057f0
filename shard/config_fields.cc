#include "shard/config_fields.h"

#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/json.h"

namespace bulkhead {
namespace {

using nlohmann::json;

constexpr size_t kMaxListLength = 65536;
constexpr size_t kMaxNameBytes = 80;  // of an unknown field, in a message

// A JSON integer within [min, max]; unsigned ones above 2^63 are not taken for negative ones.
bool IsIntWithin(const json& value, int min, int max) {
  if (value.is_number_unsigned()) {
    const uint64_t number = value.get<uint64_t>();
    return number <= static_cast<uint64_t>(INT64_MAX) && static_cast<int64_t>(number) >= min &&
           static_cast<int64_t>(number) <= max;
  }
  if (!value.is_number_integer()) return false;
  const int64_t number = value.get<int64_t>();
  return number >= min && number <= max;
}

std::string IntDemand(int min, int max) {
  return absl::StrCat("it must be a whole number from ", min, " to ", max);
}

}  // namespace

ConfigFields::ConfigFields(json object, std::string source, std::string prefix)
    : object_(std::move(object)), source_(std::move(source)), prefix_(std::move(prefix)) {}

bool ConfigFields::Has(absl::string_view name) const { return object_.contains(std::string(name)); }

bool ConfigFields::IsNullOrMissing(absl::string_view name) const {
  const auto found = object_.find(std::string(name));
  return found == object_.end() || found->is_null();
}

const json* ConfigFields::Find(absl::string_view name) {
  known_.emplace(name);
  const auto found = object_.find(std::string(name));
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

const json* ConfigFields::Read(absl::string_view name) {
  const auto found = object_.find(std::string(name));
  if (found != object_.end()) values_[std::string(name)] = found->dump();
  return Find(name);
}

std::string ConfigFields::Describe(absl::string_view name) const {
  const auto found = object_.find(std::string(name));
  if (found == object_.end()) return absl::StrCat(source_, ": ", prefix_, name, " is missing");
  return absl::StrCat(source_, ": ", prefix_, name, " is ", JsonExcerpt(*found));
}

void ConfigFields::Fail(absl::Status status) {
  if (status_.ok()) status_ = std::move(status);
}

void ConfigFields::Invalid(absl::string_view name, absl::string_view demand) {
  Fail(absl::InvalidArgumentError(absl::StrCat(Describe(name), "; ", demand)));
}

void ConfigFields::Unsupported(absl::string_view name, absl::string_view supported) {
  known_.emplace(name);
  Fail(absl::UnimplementedError(
      absl::StrCat(Describe(name), ", which is not supported; ", supported)));
}

std::optional<int> ConfigFields::Int(absl::string_view name, int min, int max) {
  const json* value = Read(name);
  if (value == nullptr) return std::nullopt;
  if (IsIntWithin(*value, min, max)) return value->get<int>();
  Invalid(name, IntDemand(min, max));
  return min;
}

std::optional<double> ConfigFields::Number(absl::string_view name, double min, double max) {
  const json* value = Read(name);
  if (value == nullptr) return std::nullopt;
  if (value->is_number()) {
    const double number = value->get<double>();
    if (number >= min && number <= max) return number;
  }
  Invalid(name, absl::StrCat("it must be a number from ", min, " to ", max));
  return min;
}

std::optional<bool> ConfigFields::Bool(absl::string_view name) {
  const json* value = Read(name);
  if (value == nullptr) return std::nullopt;
  if (value->is_boolean()) return value->get<bool>();
  Invalid(name, "it must be true or false");
  return false;
}

std::optional<std::string> ConfigFields::String(absl::string_view name) {
  const json* value = Read(name);
  if (value == nullptr) return std::nullopt;
  if (value->is_string()) return value->get<std::string>();
  Invalid(name, "it must be a string");
  return std::string();
}

std::optional<std::vector<std::string>> ConfigFields::Strings(absl::string_view name) {
  const json* value = Read(name);
  if (value == nullptr) return std::nullopt;
  std::vector<std::string> strings;
  bool valid = value->is_array() && value->size() <= kMaxListLength;
  for (size_t i = 0; valid && i < value->size(); ++i) {
    valid = (*value)[i].is_string();
    if (valid) strings.push_back((*value)[i].get<std::string>());
  }
  if (!valid)
    Invalid(name, absl::StrCat("it must be a list of at most ", kMaxListLength, " strings"));
  return strings;
}

std::vector<int> ConfigFields::IntOrList(absl::string_view name, int min, int max) {
  const json* value = Read(name);
  std::vector<int> numbers;
  if (value == nullptr) return numbers;
  const bool is_list = value->is_array();
  bool valid = !is_list || value->size() <= kMaxListLength;
  for (size_t i = 0; valid && i < (is_list ? value->size() : 1); ++i) {
    const json& item = is_list ? (*value)[i] : *value;
    valid = IsIntWithin(item, min, max);
    if (valid) numbers.push_back(item.get<int>());
  }
  if (!valid) Invalid(name, absl::StrCat(IntDemand(min, max), ", or a list of such"));
  return numbers;
}

const json* ConfigFields::Object(absl::string_view name) {
  const json* value = Read(name);
  if (value == nullptr || value->is_object()) return value;
  Invalid(name, "it must be an object");
  return nullptr;
}

int ConfigFields::RequiredInt(absl::string_view name, int min, int max) {
  const std::optional<int> value = Int(name, min, max);
  if (!value.has_value()) Invalid(name, IntDemand(min, max));
  return value.value_or(min);
}

double ConfigFields::RequiredNumber(absl::string_view name, double min, double max) {
  const std::optional<double> value = Number(name, min, max);
  if (!value.has_value())
    Invalid(name, absl::StrCat("it must be a number from ", min, " to ", max));
  return value.value_or(min);
}

std::vector<double> ConfigFields::RequiredNumbers(absl::string_view name, double min, double max) {
  const json* value = Read(name);
  std::vector<double> numbers;
  bool valid = value != nullptr && value->is_array() && value->size() <= kMaxListLength;
  for (size_t i = 0; valid && i < value->size(); ++i) {
    const json& item = (*value)[i];
    valid = item.is_number() && item.get<double>() >= min && item.get<double>() <= max;
    if (valid) numbers.push_back(item.get<double>());
  }
  if (!valid) Invalid(name, absl::StrCat("it must be a list of numbers from ", min, " to ", max));
  return numbers;
}

void ConfigFields::SetDefault(absl::string_view name, json value) {
  object_[std::string(name)] = std::move(value);
}

void ConfigFields::Ignore(absl::string_view name) { known_.emplace(name); }

std::optional<std::string> ConfigFields::ValueUnlessOff(absl::string_view name) {
  const json* value = Find(name);
  if (value == nullptr || *value == json(false)) return std::nullopt;
  if (value->is_number() && value->get<double>() == 0) return std::nullopt;
  if (value->is_string() && value->get_ref<const std::string&>().empty()) return std::nullopt;
  if (value->is_structured() && value->empty()) return std::nullopt;
  return JsonExcerpt(*value);
}

void ConfigFields::RefuseUnlessOff(absl::string_view name) {
  if (ValueUnlessOff(name).has_value()) Unsupported(name, "it must be absent or off");
}

void ConfigFields::RefuseUnlessOne(absl::string_view name) {
  const json* value = Find(name);
  if (value == nullptr || (value->is_number() && value->get<double>() == 1)) return;
  Unsupported(name, "it must be absent or 1");
}

std::vector<std::string> ConfigFields::Values() const {
  std::vector<std::string> values;
  for (const auto& [name, value] : values_) values.push_back(absl::StrCat(name, "=", value));
  return values;
}

std::vector<std::string> ConfigFields::UnknownNames() const {
  std::vector<std::string> names;
  for (const auto& item : object_.items()) {
    // A null field counts as absent.
    if (!known_.contains(item.key()) && !item.value().is_null())
      names.push_back(prefix_ + item.key().substr(0, kMaxNameBytes));
  }
  return names;
}

}  // namespace bulkhead
