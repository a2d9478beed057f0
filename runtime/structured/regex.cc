#include "runtime/structured/regex.h"

#include <utility>

#include "base/status.h"
#include "runtime/structured/regex_parser.h"

namespace bulkhead::structured {
namespace {

int32_t EmitNode(const RegexNode& node, GrammarBuilder& builder, Writing writing, int32_t next);

int32_t EmitRepeat(const RegexNode& node, GrammarBuilder& builder, Writing writing, int32_t next) {
  const auto body = [&](int32_t after) { return EmitNode(node.parts[0], builder, writing, after); };
  if (node.max == 0) return next;
  if (node.max == 1) return node.min == 1 ? body(next) : builder.Optional(body, next);
  if (node.max < 0 && node.min == 0) return builder.Star(body, next);
  if (node.max < 0 && node.min == 1) return builder.Plus(body, next);
  return builder.Repeat(builder.AddRule(false, body), node.min, node.max, next);
}

int32_t EmitNode(const RegexNode& node, GrammarBuilder& builder, Writing writing, int32_t next) {
  switch (node.kind) {
    case RegexNode::Kind::kCharacter:
      return builder.Character(node.set, writing, next);
    case RegexNode::Kind::kConcat:
      for (size_t i = node.parts.size(); i > 0; --i) {
        next = EmitNode(node.parts[i - 1], builder, writing, next);
      }
      return next;
    case RegexNode::Kind::kAlternate: {
      std::vector<int32_t> starts;
      for (const RegexNode& part : node.parts) {
        starts.push_back(EmitNode(part, builder, writing, next));
      }
      return builder.Split(starts);
    }
    case RegexNode::Kind::kRepeat:
      return EmitRepeat(node, builder, writing, next);
  }
  return next;
}

}  // namespace

absl::StatusOr<Regex> Regex::Parse(absl::string_view pattern) {
  Regex regex;
  BH_ASSIGN_OR_RETURN(regex.alternatives_, RegexParser(pattern).Parse());
  return regex;
}

int32_t Regex::Emit(GrammarBuilder& builder, Writing writing, bool search, int32_t next) const {
  const auto any = [&](int32_t after) {
    return builder.Character(CodePoints::All(), writing, after);
  };
  std::vector<int32_t> starts;
  for (const Alternative& alternative : alternatives_) {
    int32_t state = search && !alternative.end ? builder.Star(any, next) : next;
    state = EmitNode(alternative.node, builder, writing, state);
    if (search && !alternative.begin) state = builder.Star(any, state);
    starts.push_back(state);
  }
  return builder.Split(starts);
}

}  // namespace bulkhead::structured
