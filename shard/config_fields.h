// ConfigFields: reads one JSON object field by field. Every number is checked against limits before
// anybody sees it, and every field that was read is remembered, so that the rest is unknown.
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
  // `source` is the file's name, `prefix` that of an enclosing field ("rope_scaling.").
  ConfigFields(nlohmann::json object, std::string source, std::string prefix = "");

  bool Has(absl::string_view name) const;  // present, null or not
  bool WasAskedFor(absl::string_view name) const { return known_.contains(name); }
  bool IsNullOrMissing(absl::string_view name) const;

  // nullopt where the field is missing or null. Whole numbers are JSON integers in [min, max].
  std::optional<int> Int(absl::string_view name, int min, int max);
  std::optional<double> Number(absl::string_view name, double min, double max);
  std::optional<bool> Bool(absl::string_view name);
  std::optional<std::string> String(absl::string_view name);
  std::optional<std::vector<std::string>> Strings(absl::string_view name);
  std::vector<int> IntOrList(absl::string_view name, int min, int max);  // also of length 0
  const nlohmann::json* Object(absl::string_view name);                  // null where there is none

  int RequiredInt(absl::string_view name, int min, int max);
  double RequiredNumber(absl::string_view name, double min, double max);
  std::vector<double> RequiredNumbers(absl::string_view name, double min, double max);

  // From here on the field, which is missing or null, has this value.
  void SetDefault(absl::string_view name, nlohmann::json value);
  // Marks a field as known whatever it holds.
  void Ignore(absl::string_view name);
  // Marks it as known, and UNIMPLEMENTED unless it is missing or switched off: null, false, 0, "",
  // [], {}.
  void RefuseUnlessOff(absl::string_view name);
  // Marks it as known. Its value, for a message, unless it is missing or switched off.
  std::optional<std::string> ValueUnlessOff(absl::string_view name);
  // As RefuseUnlessOff, unless it is missing, null or 1.
  void RefuseUnlessOne(absl::string_view name);
  // UNIMPLEMENTED with the field and its value; `supported` says what would be accepted.
  void Unsupported(absl::string_view name, absl::string_view supported);
  // INVALID_ARGUMENT: "config.json: <name> is <value>; <demand>".
  void Invalid(absl::string_view name, absl::string_view demand);
  void Fail(absl::Status status);

  // Names, with prefix, of fields that were not read and are not null.
  std::vector<std::string> UnknownNames() const;
  // "NAME=VALUE" of every field that was read and is there, by name. Refused or ignored ones are
  // not read.
  std::vector<std::string> Values() const;
  const absl::Status& status() const { return status_; }
  const std::string& source() const { return source_; }

 private:
  // Null where missing or null. Mark it as known, and Read as read.
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
