// Calls, filters and tests.
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "runtime/chat/jinja/expression_parser.h"
#include "runtime/chat/jinja/filters.h"

namespace bulkhead::jinja {

using Kind = Expression::Kind;

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseCall(ExpressionPtr node) {
  ExpressionPtr call = New(Kind::kCall);
  BH_RETURN_IF_ERROR(Give(call.get(), std::move(node)));
  BH_RETURN_IF_ERROR(ParseArguments(call.get()));
  return call;
}

absl::Status ExpressionParser::ParseArguments(Expression* node) {
  CallArguments& arguments = node->arguments;
  BH_RETURN_IF_ERROR(ExpectOperator("("));
  bool first = true;
  while (!current().IsOperator(")")) {
    if (!first) BH_RETURN_IF_ERROR(ExpectOperator(","));
    if (current().IsOperator(")")) break;
    first = false;
    ExpressionPtr* slot = nullptr;
    if (SkipOperator("*")) {
      if (arguments.star != nullptr || arguments.double_star != nullptr) return FailUnexpected();
      slot = &arguments.star;
    } else if (SkipOperator("**")) {
      if (arguments.double_star != nullptr) return FailUnexpected();
      slot = &arguments.double_star;
    } else if (current().type == Token::Type::kName && ahead().IsOperator("=")) {
      if (arguments.double_star != nullptr) return FailUnexpected();
      arguments.named.emplace_back(Next().text, nullptr);
      Next();
      slot = &arguments.named.back().second;
    } else {
      if (arguments.star != nullptr || arguments.double_star != nullptr ||
          !arguments.named.empty()) {
        return Fail("a positional argument behind a named one");
      }
      slot = &arguments.positional.emplace_back();
    }
    BH_ASSIGN_OR_RETURN(*slot, ParseExpression());
    BH_RETURN_IF_ERROR(Deepen(node, *slot));
  }
  return ExpectOperator(")");
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseFilters(ExpressionPtr node,
                                                             bool inline_start) {
  while (inline_start || SkipOperator("|")) {
    inline_start = false;
    BH_ASSIGN_OR_RETURN(std::string name, ExpectAnyName());
    BH_RETURN_IF_ERROR(CheckFilterName(name, current().line));
    ExpressionPtr filter = New(Kind::kFilter, name);
    BH_RETURN_IF_ERROR(Give(filter.get(), std::move(node)));
    if (current().IsOperator("(")) BH_RETURN_IF_ERROR(ParseArguments(filter.get()));
    node = std::move(filter);
  }
  return node;
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseTest(ExpressionPtr node) {
  Next();  // is
  const bool negated = SkipName("not");
  BH_ASSIGN_OR_RETURN(std::string name, ExpectAnyName());
  BH_RETURN_IF_ERROR(CheckTestName(name, current().line));
  ExpressionPtr test = New(Kind::kTest, name);
  BH_RETURN_IF_ERROR(Give(test.get(), std::move(node)));
  const Token& token = current();
  if (token.IsOperator("(")) {
    BH_RETURN_IF_ERROR(ParseArguments(test.get()));
  } else if ((token.type == Token::Type::kName || token.type == Token::Type::kString ||
              token.type == Token::Type::kInteger || token.type == Token::Type::kFloat ||
              token.IsOperator("[") || token.IsOperator("{")) &&
             !token.IsName("else") && !token.IsName("or") && !token.IsName("and")) {
    if (token.IsName("is")) return Fail("tests cannot be chained with 'is'");
    BH_ASSIGN_OR_RETURN(ExpressionPtr argument, ParsePrimary());
    BH_ASSIGN_OR_RETURN(argument, ParsePostfix(std::move(argument)));
    BH_RETURN_IF_ERROR(Deepen(test.get(), argument));
    test->arguments.positional.push_back(std::move(argument));
  }
  if (!negated) return test;
  ExpressionPtr inverse = New(Kind::kNot);
  BH_RETURN_IF_ERROR(Give(inverse.get(), std::move(test)));
  return inverse;
}

}  // namespace bulkhead::jinja
