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

// The id of a call: equal for equal seeds and indices. `short_form`: the nine characters that
// Mistral's templates ask for.
std::string ToolCallId(absl::string_view seed, int index, bool short_form);

// Whether JSON text is a call {"name", "arguments" or "parameters"}; returns its parts. A call may
// lack arguments if `may_lack_arguments`. `name_key`: the key used for "name".
bool ReadCall(absl::string_view json, const std::string& name_key, bool may_lack_arguments,
              std::string* name, std::string* arguments);

// Appends a string's characters escaped for JSON, without quotes. UTF-8 may be cut anywhere.
void AppendJsonCharacters(absl::string_view text, std::string* out);

// Checks whether JSON that arrives in pieces is complete: one value, and white space around it.
// Keeps only a bit per level and the text of a number, so that a streamed call need not be stored.
class JsonChecker {
 public:
  void Add(absl::string_view text);
  bool is_whole() const;

 private:
  enum class Next { kValue, kValueOrEnd, kKey, kKeyOrEnd, kColon, kCommaOrEnd, kBroken };

  bool wants_value() const { return next_ == Next::kValue || next_ == Next::kValueOrEnd; }
  Next BehindCharacter(char c);    // after a string's character
  Next BehindPunctuation(char c);  // after punctuation or white space

  Next next_ = Next::kValue;
  std::vector<bool> levels_;  // open levels; true: an object
  bool in_string_ = false;
  bool escaped_ = false;
  int hex_left_ = 0;    // digits of \u still to come
  std::string scalar_;  // a number or a word so far
};

// Finds the arguments in the JSON of a call as it arrives, byte by byte: the inner object of
// {"name": NAME, "arguments": {...}}, once the name is known; or the object itself.
//
// If the arguments come before the name, or are not an object, none are found: ReadCall reads those
// once the text is complete.
class CallJsonReader {
 public:
  enum class Shape { kCall, kArguments };
  struct Step {
    bool is_argument = false;  // the byte is one of the arguments
    bool ends = false;         // the byte closes the JSON
    bool is_foreign = false;   // the byte is not part of the JSON and was not taken
  };
  explicit CallJsonReader(Shape shape, const std::string& name_key = "name")
      : shape_(shape), name_key_('"' + name_key + '"') {}

  // The first byte must be {.
  Step Add(char c);
  // Empty until known; always empty for kArguments.
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
  bool is_value_ = false;  // in the value of a field of the call
  Tail tail_ = Tail::kNone;
  std::string string_;  // the last string at the call's own level
  std::string key_;
  std::string name_;
};

}  // namespace bulkhead
