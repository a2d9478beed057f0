// Converts call arguments that models write in tags to JSON text, as they arrive. Formats, after
// the models' own templates:
//   Qwen3-Coder: <parameter=KEY>\nVALUE\n</parameter> ... </function>
//   Seed-OSS:    the same, with only VALUE between the tags
//   MiniMax M2:  <parameter name="KEY">VALUE</parameter> ... </invoke>
//   GLM-4.5:     <arg_key>KEY</arg_key>\n<arg_value>VALUE</arg_value> ... </tool_call>
#pragma once

#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"

namespace bulkhead {

// The types that a parameter's schema allows; none if the schema does not say.
struct ParameterKinds {
  bool string = false, boolean = false, null = false, other = false;
  bool known() const { return string || boolean || null || other; }
  bool string_alone() const { return string && !boolean && !null && !other; }
};

// The types of parameters according to the schemas of a request's tools.
class ParameterTypes {
 public:
  explicit ParameterTypes(const nlohmann::ordered_json& tools);
  ParameterKinds KindsOf(const std::string& function, const std::string& parameter) const;

 private:
  absl::flat_hash_map<std::pair<std::string, std::string>, ParameterKinds> kinds_;
};

struct ArgumentTags {
  absl::string_view open_key, close_key;
  absl::string_view open_value;  // empty: the value begins after the key
  absl::string_view close_value;
  absl::string_view end;  // ends the call
  bool has_line_breaks;   // around each value, not part of it
  bool guesses_types;     // a value of unknown type is JSON if it parses, else a string
};

class TaggedArguments {
 public:
  enum class Result {
    kMore,     // needs more text
    kEnd,      // the call's end tag was taken
    kForeign,  // the next text is not an argument and was not taken
  };
  // `types` outlives this.
  TaggedArguments(const ArgumentTags& tags, std::string function, const ParameterTypes* types)
      : tags_(tags), function_(std::move(function)), types_(types) {}

  // Takes arguments off the front of `buffer` and appends their JSON to `out`. Strings are emitted
  // as they arrive, other values when complete. Nothing is taken before anything is emitted.
  Result Read(std::string* buffer, std::string* out);
  // Call at the end of the text: emits the incomplete value, whatever it would have become.
  void Finish(absl::string_view buffer, std::string* out) const;

 private:
  Result ReadKey(std::string* buffer, std::string* out);
  bool ReadString(std::string* buffer, std::string* out);
  bool ReadJson(std::string* buffer, std::string* out);
  std::string AsJson(absl::string_view value) const;

  const ArgumentTags tags_;
  const std::string function_;
  const ParameterTypes* const types_;
  bool in_value_ = false;
  ParameterKinds kinds_;  // types of the value
  bool is_string_ = false;
  bool at_begin_ = false;  // no character of the string was emitted yet
  int count_ = 0;
  size_t searched_ = 0;  // bytes of a JSON value in which its end tag does not begin
};

}  // namespace bulkhead
