// JsonFields: the fields of an object in the body of a request, read by name. A field that was
// not read is refused at the end, so that nothing is silently ignored. Used by one thread.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"

namespace bulkhead {

using Json = nlohmann::ordered_json;  // the order of a tool's keys is the template's business

// The body of a request. INVALID_ARGUMENT (MALFORMED_REQUEST).
absl::StatusOr<Json> ParseBody(absl::string_view body);

// Null counts as absent everywhere. Errors name field, value and what is expected.
class JsonFields {
 public:
  // `path` names the object in messages: "", or "stream_options.". The object outlives this.
  explicit JsonFields(const Json& object, std::string path = "");

  const Json* Find(const std::string& name);  // null: absent
  absl::Status Read(const std::string& name, std::optional<bool>* out);
  absl::Status Read(const std::string& name, std::optional<int64_t>* out);
  absl::Status Read(const std::string& name, std::optional<double>* out);
  absl::Status Read(const std::string& name, std::optional<std::string>* out);
  // A string, or a list of at most `most`.
  absl::Status ReadTexts(const std::string& name, size_t most, std::vector<std::string>* out);
  // Fields without an effect on the answer.
  void Ignore(std::initializer_list<const char*> names);
  // INVALID_ARGUMENT (UNSUPPORTED_PARAMETER) for the first field whose value is not in `neutral`,
  // the values without an effect.
  absl::Status Refuse(std::initializer_list<const char*> names, const std::vector<Json>& neutral,
                      absl::string_view why = "this server does not support it; leave it out");
  // The same for a field that was not read.
  absl::Status Finish() const;

  std::string Path(absl::string_view name) const;

 private:
  // What to do about a field that was not read.
  std::string HintOf(absl::string_view name) const;
  // The nearest of the fields that were read; empty: none is near.
  std::string NearestField(absl::string_view name) const;

  const Json& object_;
  const std::string path_;
  std::set<std::string, std::less<>> known_;
};

// INVALID_ARGUMENT (INVALID_VALUE) "`field`: VALUE is not `wanted`".
absl::Status WrongValue(absl::string_view field, const Json& value, absl::string_view wanted);
// A list of numbers of 32 bits without a sign.
absl::StatusOr<std::vector<uint32_t>> TokenIdsOf(const Json& list, const std::string& field);

}  // namespace bulkhead
