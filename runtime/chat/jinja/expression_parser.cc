#include "runtime/chat/jinja/expression_parser.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status.h"

namespace bulkhead::jinja {
namespace {

using Kind = Expression::Kind;

std::string Described(const Token& token) {
  switch (token.type) {
    case Token::Type::kVariableEnd:
      return "the end of {{ }}";
    case Token::Type::kBlockEnd:
      return "the end of the tag";
    case Token::Type::kEnd:
      return "the end of the template";
    default:
      return absl::StrCat("'", absl::string_view(token.text).substr(0, 40), "'");
  }
}

}  // namespace

Token ExpressionParser::Next() {
  Token token = tokens_[at_];
  if (at_ + 1 < tokens_.size()) ++at_;
  return token;
}

bool ExpressionParser::SkipOperator(absl::string_view op) {
  if (!current().IsOperator(op)) return false;
  Next();
  return true;
}

bool ExpressionParser::SkipName(absl::string_view name) {
  if (!current().IsName(name)) return false;
  Next();
  return true;
}

absl::Status ExpressionParser::ExpectOperator(absl::string_view op) {
  if (SkipOperator(op)) return absl::OkStatus();
  return Fail(absl::StrCat("expected '", op, "', found ", Described(current())));
}

absl::StatusOr<std::string> ExpressionParser::ExpectAnyName() {
  if (current().type != Token::Type::kName) {
    return Fail(absl::StrCat("expected a name, found ", Described(current())));
  }
  return Next().text;
}

absl::Status ExpressionParser::Fail(absl::string_view why) const {
  return absl::InvalidArgumentError(absl::StrCat("line ", current().line, ": ", why));
}

absl::Status ExpressionParser::FailUnexpected() const {
  return Fail(absl::StrCat("unexpected ", Described(current())));
}

absl::Status ExpressionParser::Unsupported(absl::string_view what) const {
  return absl::UnimplementedError(
      absl::StrCat("line ", current().line, ": ", what,
                   " is not supported in chat templates; pass --chat-template FILE with a template "
                   "without it"));
}

absl::Status ExpressionParser::Enter() {
  if (++depth_ > kMaxParseDepth) {
    return Fail(absl::StrCat("nested deeper than ", kMaxParseDepth, " levels"));
  }
  return absl::OkStatus();
}

ExpressionPtr ExpressionParser::New(Kind kind, std::string name) const {
  auto node = std::make_unique<Expression>();
  node->kind = kind;
  node->line = current().line;
  node->name = std::move(name);
  return node;
}

absl::Status ExpressionParser::Deepen(Expression* node, const ExpressionPtr& part) const {
  if (part == nullptr) return absl::OkStatus();
  node->depth = std::max(node->depth, part->depth + 1);
  if (node->depth <= kMaxParseDepth) return absl::OkStatus();
  return Fail(absl::StrCat("an expression of more than ", kMaxParseDepth, " levels"));
}

absl::Status ExpressionParser::Give(Expression* node, ExpressionPtr operand) const {
  BH_RETURN_IF_ERROR(Deepen(node, operand));
  node->operands.push_back(std::move(operand));
  return absl::OkStatus();
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseExpression() {
  BH_RETURN_IF_ERROR(Enter());
  absl::StatusOr<ExpressionPtr> parsed = ParseIf();
  Leave();
  return parsed;
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseIf() {
  BH_ASSIGN_OR_RETURN(ExpressionPtr then, ParseOr());
  while (SkipName("if")) {
    ExpressionPtr node = New(Kind::kIf);
    BH_ASSIGN_OR_RETURN(ExpressionPtr condition, ParseOr());
    ExpressionPtr otherwise;
    if (SkipName("else")) {
      BH_ASSIGN_OR_RETURN(otherwise, ParseExpression());
    }
    BH_RETURN_IF_ERROR(Give(node.get(), std::move(condition)));
    BH_RETURN_IF_ERROR(Give(node.get(), std::move(then)));
    BH_RETURN_IF_ERROR(Give(node.get(), std::move(otherwise)));
    then = std::move(node);
  }
  return then;
}

// Left-associative: part (op part)*, where `ops` lists operators or names, separated by spaces.
absl::StatusOr<ExpressionPtr> ExpressionParser::ParseChain(Parse part, absl::string_view ops,
                                                           Kind kind) {
  const std::vector<absl::string_view> all = absl::StrSplit(ops, ' ');
  BH_ASSIGN_OR_RETURN(ExpressionPtr left, (this->*part)());
  while (true) {
    absl::string_view found;
    for (const absl::string_view op : all) {
      if (current().IsOperator(op) || current().IsName(op)) found = op;
    }
    if (found.empty()) return left;
    ExpressionPtr node = New(kind, std::string(found));
    Next();
    BH_RETURN_IF_ERROR(Give(node.get(), std::move(left)));
    BH_ASSIGN_OR_RETURN(ExpressionPtr right, (this->*part)());
    BH_RETURN_IF_ERROR(Give(node.get(), std::move(right)));
    left = std::move(node);
  }
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseOr() {
  return ParseChain(&ExpressionParser::ParseAnd, "or", Kind::kOr);
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseAnd() {
  return ParseChain(&ExpressionParser::ParseNot, "and", Kind::kAnd);
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseNot() {
  if (!current().IsName("not")) return ParseCompare();
  ExpressionPtr node = New(Kind::kNot);
  Next();
  BH_RETURN_IF_ERROR(Enter());
  absl::StatusOr<ExpressionPtr> operand = ParseNot();
  Leave();
  BH_RETURN_IF_ERROR(operand.status());
  BH_RETURN_IF_ERROR(Give(node.get(), *std::move(operand)));
  return node;
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseCompare() {
  BH_ASSIGN_OR_RETURN(ExpressionPtr first, ParseSum());
  ExpressionPtr node = New(Kind::kCompare);
  while (true) {
    std::string op;
    for (const absl::string_view each : {"==", "!=", "<", "<=", ">", ">="}) {
      if (current().IsOperator(each)) op = std::string(each);
    }
    if (current().IsName("in")) op = "in";
    if (current().IsName("not") && ahead().IsName("in")) {
      Next();
      op = "not in";
    }
    if (op.empty()) break;
    Next();
    if (node->operands.empty()) BH_RETURN_IF_ERROR(Give(node.get(), std::move(first)));
    BH_ASSIGN_OR_RETURN(ExpressionPtr operand, ParseSum());
    BH_RETURN_IF_ERROR(Give(node.get(), std::move(operand)));
    node->names.push_back(std::move(op));
  }
  return node->operands.empty() ? std::move(first) : std::move(node);
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseSum() {
  return ParseChain(&ExpressionParser::ParseConcat, "+ -", Kind::kBinary);
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseConcat() {
  BH_ASSIGN_OR_RETURN(ExpressionPtr first, ParseProduct());
  if (!current().IsOperator("~")) return first;
  ExpressionPtr node = New(Kind::kConcat);
  BH_RETURN_IF_ERROR(Give(node.get(), std::move(first)));
  while (SkipOperator("~")) {
    BH_ASSIGN_OR_RETURN(ExpressionPtr operand, ParseProduct());
    BH_RETURN_IF_ERROR(Give(node.get(), std::move(operand)));
  }
  return node;
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseProduct() {
  return ParseChain(&ExpressionParser::ParsePower, "* / // %", Kind::kBinary);
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParsePower() {
  return ParseChain(&ExpressionParser::ParseFiltered, "**", Kind::kBinary);
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseFiltered() { return ParseUnary(true); }

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseUnary(bool with_filters) {
  BH_RETURN_IF_ERROR(Enter());
  absl::StatusOr<ExpressionPtr> parsed = ParseUnaryInside(with_filters);
  Leave();
  return parsed;
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseUnaryInside(bool with_filters) {
  ExpressionPtr node;
  if (current().IsOperator("-") || current().IsOperator("+")) {
    node = New(current().text == "-" ? Kind::kNegative : Kind::kPositive);
    Next();
    BH_ASSIGN_OR_RETURN(ExpressionPtr operand, ParseUnary(false));
    BH_RETURN_IF_ERROR(Give(node.get(), std::move(operand)));
  } else {
    BH_ASSIGN_OR_RETURN(node, ParsePrimary());
  }
  BH_ASSIGN_OR_RETURN(node, ParsePostfix(std::move(node)));
  if (!with_filters) return node;
  while (true) {
    if (current().IsOperator("|")) {
      BH_ASSIGN_OR_RETURN(node, ParseFilters(std::move(node), false));
    } else if (current().IsName("is")) {
      BH_ASSIGN_OR_RETURN(node, ParseTest(std::move(node)));
    } else if (current().IsOperator("(")) {
      BH_ASSIGN_OR_RETURN(node, ParseCall(std::move(node)));
    } else {
      return node;
    }
  }
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParsePrimary() {
  const Token& token = current();
  ExpressionPtr node;
  switch (token.type) {
    case Token::Type::kName: {
      const std::string& name = token.text;
      const bool boolean = name == "true" || name == "True" || name == "false" || name == "False";
      node = New(boolean || name == "none" || name == "None" ? Kind::kConstant : Kind::kName, name);
      if (boolean) node->value = Value(name == "true" || name == "True");
      if (name == "caller" || name == "kwargs" || name == "varargs") {
        for (auto& names : names_in_macros_) names.insert(name);
      }
      Next();
      return node;
    }
    case Token::Type::kString: {
      node = New(Kind::kConstant);
      std::string text;
      while (current().type == Token::Type::kString) text += Next().text;
      node->value = Value::Text(std::move(text), nullptr);
      return node;
    }
    case Token::Type::kInteger:
    case Token::Type::kFloat:
      node = New(Kind::kConstant);
      node->value = Next().number;
      return node;
    default:
      break;
  }
  if (SkipOperator("(")) {
    BH_ASSIGN_OR_RETURN(node, ParseTuple(true, true));
    BH_RETURN_IF_ERROR(ExpectOperator(")"));
    return node;
  }
  if (token.IsOperator("[")) return ParseList();
  if (token.IsOperator("{")) return ParseDict();
  return FailUnexpected();
}

bool ExpressionParser::EndsTuple(absl::string_view end_name) const {
  return current().type == Token::Type::kVariableEnd || current().type == Token::Type::kBlockEnd ||
         current().IsOperator(")") || (!end_name.empty() && current().IsName(end_name));
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseTuple(bool with_if, bool in_parentheses,
                                                           absl::string_view end_name) {
  ExpressionPtr tuple = New(Kind::kTuple);
  bool is_tuple = false;
  while (true) {
    if (!tuple->operands.empty()) BH_RETURN_IF_ERROR(ExpectOperator(","));
    if (EndsTuple(end_name)) break;
    BH_ASSIGN_OR_RETURN(ExpressionPtr item, with_if ? ParseExpression() : ParseOr());
    BH_RETURN_IF_ERROR(Give(tuple.get(), std::move(item)));
    if (!current().IsOperator(",")) break;
    is_tuple = true;
  }
  if (is_tuple) return tuple;
  if (!tuple->operands.empty()) return std::move(tuple->operands[0]);
  if (!in_parentheses)
    return Fail(absl::StrCat("expected an expression, found ", Described(current())));
  return tuple;
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseList() {
  ExpressionPtr node = New(Kind::kList);
  Next();
  while (!current().IsOperator("]")) {
    if (!node->operands.empty()) BH_RETURN_IF_ERROR(ExpectOperator(","));
    if (current().IsOperator("]")) break;
    BH_ASSIGN_OR_RETURN(ExpressionPtr item, ParseExpression());
    BH_RETURN_IF_ERROR(Give(node.get(), std::move(item)));
  }
  BH_RETURN_IF_ERROR(ExpectOperator("]"));
  return node;
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseDict() {
  ExpressionPtr node = New(Kind::kDict);
  Next();
  while (!current().IsOperator("}")) {
    if (!node->operands.empty()) BH_RETURN_IF_ERROR(ExpectOperator(","));
    if (current().IsOperator("}")) break;
    BH_ASSIGN_OR_RETURN(ExpressionPtr key, ParseExpression());
    BH_RETURN_IF_ERROR(Give(node.get(), std::move(key)));
    BH_RETURN_IF_ERROR(ExpectOperator(":"));
    BH_ASSIGN_OR_RETURN(ExpressionPtr value, ParseExpression());
    BH_RETURN_IF_ERROR(Give(node.get(), std::move(value)));
  }
  BH_RETURN_IF_ERROR(ExpectOperator("}"));
  return node;
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParsePostfix(ExpressionPtr node) {
  while (true) {
    if (current().IsOperator(".") || current().IsOperator("[")) {
      BH_ASSIGN_OR_RETURN(node, ParseSubscript(std::move(node)));
    } else if (current().IsOperator("(")) {
      BH_ASSIGN_OR_RETURN(node, ParseCall(std::move(node)));
    } else {
      return node;
    }
  }
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseSubscript(ExpressionPtr node) {
  ExpressionPtr result = New(Kind::kSubscript);
  BH_RETURN_IF_ERROR(Give(result.get(), std::move(node)));
  if (SkipOperator(".")) {
    if (current().type == Token::Type::kName) {
      result->kind = Kind::kAttribute;
      result->name = Next().text;
      return result;
    }
    if (current().type != Token::Type::kInteger)
      return Fail("expected a name or a number behind '.'");
    ExpressionPtr index = New(Kind::kConstant);
    index->value = Next().number;
    BH_RETURN_IF_ERROR(Give(result.get(), std::move(index)));
    return result;
  }
  Next();  // [
  std::vector<ExpressionPtr> parts;
  bool slice = false;
  while (true) {
    if (current().IsOperator(":")) {
      parts.push_back(nullptr);
    } else if (current().IsOperator("]")) {
      break;
    } else {
      BH_ASSIGN_OR_RETURN(ExpressionPtr part, ParseExpression());
      parts.push_back(std::move(part));
    }
    if (!SkipOperator(":")) break;
    slice = true;
  }
  if (current().IsOperator(",")) return Unsupported("a tuple in [ ]");
  BH_RETURN_IF_ERROR(ExpectOperator("]"));
  if (parts.empty() || parts.size() > 3) return Fail("expected an index or a slice in [ ]");
  if (slice) {
    result->kind = Kind::kSlice;
    parts.resize(3);
  }
  for (ExpressionPtr& part : parts) BH_RETURN_IF_ERROR(Give(result.get(), std::move(part)));
  return result;
}

}  // namespace bulkhead::jinja
