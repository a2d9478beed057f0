// The tokens of a template, with trim_blocks and lstrip_blocks.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/chat/jinja/value.h"

namespace bulkhead::jinja {

struct Token {
  enum class Type {
    kData,           // text outside of tags
    kVariableBegin,  // {{
    kVariableEnd,
    kBlockBegin,  // {%
    kBlockEnd,
    kName,
    kString,
    kInteger,
    kFloat,
    kOperator,
    kEnd,
  };
  Type type = Type::kEnd;
  std::string text;  // data, name, value of the string, or operator
  Value number;
  int line = 0;

  bool IsOperator(absl::string_view op) const { return type == Type::kOperator && text == op; }
  bool IsName(absl::string_view name) const { return type == Type::kName && text == name; }
};

// INVALID_ARGUMENT "line 3: ..." for text that is not a template. Ends with a kEnd.
absl::StatusOr<std::vector<Token>> Tokenize(absl::string_view source);

}  // namespace bulkhead::jinja
