// ConfigFields: reads one JSON object field by field. Every number is checked against limits before
// it is used, and every field that was read is remembered, so that the rest is unknown.
//
// The first error sticks: a failed read returns a harmless value, and status() returns the error.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"

namespace bulkhead {

class ConfigFields {
 public:
  // `source`: the file's name; `prefix`: path of the enclosing field ("rope_scaling.").
  ConfigFields(nlohmann::json object, std::string source, std::string prefix = "");

  bool Has(absl::string_view name) const;  // present, null or not
  bool WasAskedFor(absl::string_view name) const { return known_.contains(name); }
  bool IsNullOrMissing(absl::string_view name) const;

  // nullopt if the field is missing or null. Whole numbers are JSON integers in [min, max].
  std::optional<int> Int(absl::string_view name, int min, int max);
  std::optional<double> Number(absl::string_view name, double min, double max);
  std::optional<bool> Bool(absl::string_view name);
  std::optional<std::string> String(absl::string_view name);
  std::optional<std::vector<std::string>> Strings(absl::string_view name);
  std::vector<int> IntOrList(absl::string_view name, int min, int max);  // may have length 0
  const nlohmann::json* Object(absl::string_view name);                  // null if there is none

  int RequiredInt(absl::string_view name, int min, int max);
  double RequiredNumber(absl::string_view name, double min, double max);
  std::vector<double> RequiredNumbers(absl::string_view name, double min, double max);

  // From here on the field, which is missing or null, has this value.
  void SetDefault(absl::string_view name, nlohmann::json value);
  // Marks a field as known whatever it holds.
  void Ignore(absl::string_view name);
  // Marks it as known; UNIMPLEMENTED unless it is missing or switched off: null, false, 0, "", [],
  // {}.
  void RefuseUnlessOff(absl::string_view name);
  // Marks it as known. Returns its value, for a message, unless it is missing or switched off.
  std::optional<std::string> ValueUnlessOff(absl::string_view name);
  // As RefuseUnlessOff, but a value of 1 is also accepted.
  void RefuseUnlessOne(absl::string_view name);
  // UNIMPLEMENTED with the field and its value; `supported` says what would be accepted.
  void Unsupported(absl::string_view name, absl::string_view supported);
  // INVALID_ARGUMENT: "config.json: <name> is <value>; <demand>".
  void Invalid(absl::string_view name, absl::string_view demand);
  void Fail(absl::Status status);

  // Names, with prefix, of fields that were not read and are not null.
  std::vector<std::string> UnknownNames() const;
  // "NAME=VALUE" of every present field that was read, by name. Refused or ignored fields do not
  // count as read.
  std::vector<std::string> Values() const;
  const absl::Status& status() const { return status_; }
  const std::string& source() const { return source_; }

 private:
  // The field, or null if missing or null. Find marks it as known, and Read also as read.
  const nlohmann::json* Find(absl::string_view name);
  const nlohmann::json* Read(absl::string_view name);
  std::string Describe(absl::string_view name) const;  // "config.json: hidden_size is -3"

  nlohmann::json object_;
  std::string source_;
  std::string prefix_;
  std::set<std::string, std::less<>> known_;
  std::map<std::string, std::string> values_;  // of fields that were read
  absl::Status status_;
};

}  // namespace bulkhead
