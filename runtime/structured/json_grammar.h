// JsonGrammar: rules for the parts of JSON. The JSON is compact, with at most one space after each
// comma and colon, so that no answer can be endless white space. Used by one thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/structured/grammar_builder.h"

namespace bulkhead::structured {

inline constexpr int kMaxIntegerDigits = 18;  // digits of an integer
inline constexpr int kMaxNumberDigits = 15;   // before, and after, the point of other numbers

class JsonGrammar {
 public:
  explicit JsonGrammar(GrammarBuilder& builder) : builder_(builder) {}

  GrammarBuilder& builder() { return builder_; }

  // Rules, made when first asked for.
  int32_t Any();
  int32_t Object();
  int32_t Array();
  int32_t String();
  int32_t Number();
  int32_t Integer();
  // One character of a string, or its escape. A surrogate pair is one character.
  int32_t StringCharacter();

  int32_t Comma(int32_t next);
  int32_t Colon(int32_t next);
  // [item, item, ...] with `min` to `max` items (max -1: any number).
  int32_t ArrayOf(int32_t item_rule, int min, int max, int32_t next);
  // A string of `min` to `max` characters (max -1: any number).
  int32_t StringOf(int min, int max, int32_t next);
  // A key of an object that is not in `names`, which must be UTF-8. Without names any string, else
  // a string without escapes.
  int32_t OtherKey(std::vector<std::string> names, int32_t next);

 private:
  int32_t Space(int32_t next);
  int32_t Digits(int max, int32_t next);
  int32_t Hex(int count, int32_t next);
  int32_t EmitStringCharacter(int32_t next);
  int32_t EmitInteger(int max_digits, int32_t next);

  GrammarBuilder& builder_;
  int32_t any_ = -1, object_ = -1, array_ = -1, string_ = -1, number_ = -1, integer_ = -1;
  int32_t character_ = -1;
};

}  // namespace bulkhead::structured
