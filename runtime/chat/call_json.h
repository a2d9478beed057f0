// The JSON of calls as a model writes it, and ids of calls.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "base/json.h"

namespace bulkhead {

// Limits on the JSON of one call.
inline constexpr JsonLimits kCallLimits{.max_depth = 64, .max_values = 200'000};

// Ids of calls: equal for equal seeds and indices. `short_form`: the nine characters that Mistral's
// templates ask for.
std::string ToolCallId(absl::string_view seed, int index, bool short_form);

// Whether JSON text is a call {"name", "arguments" or "parameters"}, taken apart. Without arguments
// it is one if `may_lack_arguments`. `name_key`: what "name" is called.
bool ReadCall(absl::string_view json, const std::string& name_key, bool may_lack_arguments,
              std::string* name, std::string* arguments);

// Appends a string's characters as JSON writes them, without quotes. UTF-8 may be cut anywhere.
void AppendJsonCharacters(absl::string_view text, std::string* out);

// Whether JSON that comes in pieces is whole: one value, and white space around it. It keeps a bit
// for each level and the text of a number, so that a call that streams need not be kept to be
// checked.
class JsonChecker {
 public:
  void Add(absl::string_view text);
  bool is_whole() const;

 private:
  enum class Next { kValue, kValueOrEnd, kKey, kKeyOrEnd, kColon, kCommaOrEnd, kBroken };

  bool wants_value() const { return next_ == Next::kValue || next_ == Next::kValueOrEnd; }
  Next BehindCharacter(char c);    // of a string
  Next BehindPunctuation(char c);  // or white space

  Next next_ = Next::kValue;
  std::vector<bool> levels_;  // that are open; true: an object
  bool in_string_ = false;
  bool escaped_ = false;
  int hex_left_ = 0;    // digits of \u that are to come
  std::string scalar_;  // a number or a word so far
};

// Finds the arguments in the JSON of a call as it comes, byte by byte: of {"name": NAME,
// "arguments": {...}} the inner object, as soon as the name is known; or the object itself.
//
// Where the arguments come before the name, or are no object, none are found: ReadCall reads those
// once the text is whole.
class CallJsonReader {
 public:
  enum class Shape { kCall, kArguments };
  struct Step {
    bool is_argument = false;  // the byte is one of the arguments
    bool ends = false;         // the byte closes the JSON
    bool is_foreign = false;   // the byte is none of JSON: it was not taken
  };
  explicit CallJsonReader(Shape shape, const std::string& name_key = "name")
      : shape_(shape), name_key_('"' + name_key + '"') {}

  // The first byte must be {.
  Step Add(char c);
  // Empty until it is known; always for kArguments.
  const std::string& name() const { return name_; }

 private:
  // After the arguments of a call.
  enum class Tail { kNone, kBegun, kOtherFields };

  bool IsForeign(char c) const;
  void AddToString(char c);
  void Open(char c, Step* step);
  void Close(Step* step);

  Shape shape_;
  std::string name_key_;  // with its quotes
  int64_t depth_ = 0;
  bool in_string_ = false;
  bool escaped_ = false;
  bool in_arguments_ = false;
  bool is_value_ = false;  // of a field of the call
  Tail tail_ = Tail::kNone;
  std::string string_;  // the last of the call's own
  std::string key_;
  std::string name_;
};

}  // namespace bulkhead
