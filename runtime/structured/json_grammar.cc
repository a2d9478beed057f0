#include "runtime/structured/json_grammar.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/check.h"
#include "base/utf8.h"

namespace bulkhead::structured {

int32_t JsonGrammar::Space(int32_t next) {
  return builder_.Split({builder_.Literal(" ", next), next});
}

int32_t JsonGrammar::Comma(int32_t next) { return builder_.Literal(",", Space(next)); }
int32_t JsonGrammar::Colon(int32_t next) { return builder_.Literal(":", Space(next)); }

int32_t JsonGrammar::Digits(int max, int32_t next) {
  int32_t state = next;
  for (int i = 0; i < max; ++i) {
    state = builder_.Split({builder_.Bytes({{'0', '9', state}}), next});
  }
  return state;
}

int32_t JsonGrammar::EmitInteger(int max_digits, int32_t next) {
  const int32_t digits =
      builder_.Bytes({{'0', '0', next}, {'1', '9', Digits(max_digits - 1, next)}});
  return builder_.Split({builder_.Literal("-", digits), digits});
}

int32_t JsonGrammar::Integer() {
  if (integer_ < 0) {
    integer_ = builder_.AddRule(
        false, [this](int32_t next) { return EmitInteger(kMaxIntegerDigits, next); });
  }
  return integer_;
}

int32_t JsonGrammar::Number() {
  if (number_ >= 0) return number_;
  return number_ = builder_.AddRule(false, [this](int32_t next) {
    const int32_t exponent = builder_.Bytes({{'0', '9', Digits(1, next)}});
    const int32_t sign =
        builder_.Split({exponent, builder_.Bytes({{'+', '+', exponent}, {'-', '-', exponent}})});
    const int32_t before_exponent =
        builder_.Split({next, builder_.Bytes({{'E', 'E', sign}, {'e', 'e', sign}})});
    const int32_t fraction =
        builder_.Bytes({{'0', '9', Digits(kMaxNumberDigits - 1, before_exponent)}});
    return EmitInteger(kMaxNumberDigits,
                       builder_.Split({before_exponent, builder_.Literal(".", fraction)}));
  });
}

int32_t JsonGrammar::Hex(int count, int32_t next) {
  for (int i = 0; i < count; ++i) {
    next = builder_.Bytes({{'0', '9', next}, {'A', 'F', next}, {'a', 'f', next}});
  }
  return next;
}

int32_t JsonGrammar::EmitStringCharacter(int32_t next) {
  const int32_t two = Hex(2, next);
  const int32_t low_surrogate = builder_.Literal(
      "\\u", builder_.Bytes({{'D', 'D', builder_.Bytes({{'C', 'F', two}, {'c', 'f', two}})},
                             {'d', 'd', builder_.Bytes({{'C', 'F', two}, {'c', 'f', two}})}}));
  const int32_t high = Hex(2, low_surrogate);
  const int32_t after_d =
      builder_.Bytes({{'0', '7', two}, {'8', '9', high}, {'A', 'B', high}, {'a', 'b', high}});
  const int32_t three = Hex(3, next);
  const int32_t code = builder_.Bytes({{'0', '9', three},
                                       {'A', 'C', three},
                                       {'a', 'c', three},
                                       {'E', 'F', three},
                                       {'e', 'f', three},
                                       {'D', 'D', after_d},
                                       {'d', 'd', after_d}});
  std::vector<ByteEdge> escapes = {{'u', 'u', code}};
  for (const char c : {'"', '\\', '/', 'b', 'f', 'n', 'r', 't'}) {
    escapes.push_back({static_cast<uint8_t>(c), static_cast<uint8_t>(c), next});
  }
  const CodePoints escaped({{0, 0x1f}, {'"', '"'}, {'\\', '\\'}});
  return builder_.Split({builder_.Character(escaped.Complement(), Writing::kPlain, next),
                         builder_.Literal("\\", builder_.Bytes(std::move(escapes)))});
}

int32_t JsonGrammar::StringCharacter() {
  if (character_ < 0) {
    character_ =
        builder_.AddRule(false, [this](int32_t next) { return EmitStringCharacter(next); });
  }
  return character_;
}

int32_t JsonGrammar::StringOf(int min, int max, int32_t next) {
  const int32_t end = builder_.Literal("\"", next);
  if (min == 0 && max < 0) {
    const auto character = [this](int32_t after) { return EmitStringCharacter(after); };
    return builder_.Literal("\"", builder_.Star(character, end));
  }
  return builder_.Literal("\"", builder_.Repeat(StringCharacter(), min, max, end));
}

int32_t JsonGrammar::String() {
  if (string_ < 0) {
    string_ = builder_.AddRule(false, [this](int32_t next) { return StringOf(0, -1, next); });
  }
  return string_;
}

int32_t JsonGrammar::ArrayOf(int32_t item_rule, int min, int max, int32_t next) {
  const int32_t end = builder_.Literal("]", next);
  if (max == 0) return builder_.Literal("[", end);
  const auto another = [&](int32_t after) { return Comma(builder_.Call(item_rule, after)); };
  int32_t more = end;
  if (min <= 1 && max < 0) {
    more = builder_.Star(another, end);
  } else if (max != 1) {
    more = builder_.Repeat(builder_.AddRule(false, another), std::max(min - 1, 0),
                           max < 0 ? -1 : max - 1, end);
  }
  const int32_t first = builder_.Call(item_rule, more);
  return builder_.Literal("[", min == 0 ? builder_.Split({first, end}) : first);
}

int32_t JsonGrammar::Array() {
  if (array_ >= 0) return array_;
  array_ = builder_.DeclareRule(true);
  const int32_t any = Any();
  builder_.DefineRule(array_, [&](int32_t next) { return ArrayOf(any, 0, -1, next); });
  return array_;
}

int32_t JsonGrammar::Object() {
  if (object_ >= 0) return object_;
  object_ = builder_.DeclareRule(true);
  const int32_t any = Any();
  builder_.DefineRule(object_, [&](int32_t next) {
    const int32_t end = builder_.Literal("}", next);
    const auto member = [&](int32_t after) {
      return builder_.Call(String(), Colon(builder_.Call(any, after)));
    };
    const int32_t more = builder_.Star([&](int32_t after) { return Comma(member(after)); }, end);
    return builder_.Literal("{", builder_.Split({member(more), end}));
  });
  return object_;
}

int32_t JsonGrammar::Any() {
  if (any_ >= 0) return any_;
  any_ = builder_.DeclareRule(false);
  const std::vector<int32_t> rules = {Object(), Array(), String(), Number()};
  builder_.DefineRule(any_, [&](int32_t next) {
    std::vector<int32_t> starts = {builder_.AnyOf({"true", "false", "null"}, next)};
    for (const int32_t rule : rules) starts.push_back(builder_.Call(rule, next));
    return builder_.Split(starts);
  });
  return any_;
}

namespace {

struct KeyTrie {
  std::map<char32_t, int> children;  // indices of nodes
  bool is_name = false;
};

}  // namespace

int32_t JsonGrammar::OtherKey(std::vector<std::string> names, int32_t next) {
  if (names.empty()) return builder_.Call(String(), next);
  std::vector<KeyTrie> nodes(1);
  for (const std::string& name : names) {
    int at = 0;
    for (size_t position = 0; position < name.size();) {
      const char32_t c = NextChar(name, &position);
      const auto [child, added] = nodes[at].children.try_emplace(c, static_cast<int>(nodes.size()));
      at = child->second;
      if (added) nodes.emplace_back();
    }
    nodes[at].is_name = true;
  }
  const CodePoints plain = CodePoints({{0, 0x1f}, {'"', '"'}, {'\\', '\\'}}).Complement();
  const int32_t end = builder_.Literal("\"", next);
  const int32_t other = builder_.Star(
      [&](int32_t after) { return builder_.Character(plain, Writing::kPlain, after); }, end);
  // Children come after their parents.
  std::vector<int32_t> states(nodes.size());
  for (size_t i = nodes.size(); i > 0; --i) {
    const KeyTrie& node = nodes[i - 1];
    std::vector<CodePointRange> known;
    std::vector<int32_t> ways;
    for (const auto& [c, child] : node.children) {
      known.push_back({c, c});
      if (!plain.Contains(c)) continue;
      ways.push_back(builder_.Character(CodePoints({{c, c}}), Writing::kPlain, states[child]));
    }
    ways.push_back(builder_.Character(plain.Minus(CodePoints(known)), Writing::kPlain, other));
    if (!node.is_name) ways.push_back(end);
    states[i - 1] = builder_.Split(ways);
  }
  return builder_.Literal("\"", states[0]);
}

}  // namespace bulkhead::structured
