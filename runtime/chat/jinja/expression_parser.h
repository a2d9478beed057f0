// ExpressionParser: holds the tokens of a template and parses expressions from them.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/chat/jinja/ast.h"
#include "runtime/chat/jinja/lexer.h"

namespace bulkhead::jinja {

class ExpressionParser {
 protected:
  explicit ExpressionParser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  const Token& current() const { return tokens_[at_]; }
  const Token& ahead() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  // Takes the token; the last one stays.
  Token Next();
  bool SkipOperator(absl::string_view op);
  bool SkipName(absl::string_view name);
  absl::Status ExpectOperator(absl::string_view op);
  absl::StatusOr<std::string> ExpectAnyName();
  absl::Status Fail(absl::string_view why) const;
  absl::Status FailUnexpected() const;
  // UNIMPLEMENTED, for features of Jinja2 that this interpreter lacks.
  absl::Status Unsupported(absl::string_view what) const;
  // Recursion of the parser; every successful Enter needs a Leave.
  absl::Status Enter();
  void Leave() { --depth_; }

  absl::StatusOr<ExpressionPtr> ParseExpression();
  absl::StatusOr<ExpressionPtr> ParseOr();
  // An expression or, if there are commas, a tuple. `with_if` false: `if` ends it.
  absl::StatusOr<ExpressionPtr> ParseTuple(bool with_if, bool in_parentheses,
                                           absl::string_view end_name = "");
  // The filters after `node`, which is null in a filter block; `inline_start`: the first has no |.
  absl::StatusOr<ExpressionPtr> ParseFilters(ExpressionPtr node, bool inline_start);

  // The names used in each macro, which must know of caller, kwargs and varargs.
  std::vector<absl::flat_hash_set<std::string>> names_in_macros_;

 private:
  ExpressionPtr New(Expression::Kind kind, std::string name = "") const;
  // Adds an operand and its depth.
  absl::Status Give(Expression* node, ExpressionPtr operand) const;
  absl::Status Deepen(Expression* node, const ExpressionPtr& part) const;
  using Parse = absl::StatusOr<ExpressionPtr> (ExpressionParser::*)();
  absl::StatusOr<ExpressionPtr> ParseChain(Parse part, absl::string_view ops,
                                           Expression::Kind kind);
  absl::StatusOr<ExpressionPtr> ParseIf();
  absl::StatusOr<ExpressionPtr> ParseAnd();
  absl::StatusOr<ExpressionPtr> ParseNot();
  absl::StatusOr<ExpressionPtr> ParseCompare();
  absl::StatusOr<ExpressionPtr> ParseSum();
  absl::StatusOr<ExpressionPtr> ParseConcat();
  absl::StatusOr<ExpressionPtr> ParseProduct();
  absl::StatusOr<ExpressionPtr> ParsePower();
  absl::StatusOr<ExpressionPtr> ParseFiltered();
  absl::StatusOr<ExpressionPtr> ParseUnary(bool with_filters);
  absl::StatusOr<ExpressionPtr> ParseUnaryInside(bool with_filters);
  absl::StatusOr<ExpressionPtr> ParsePrimary();
  absl::StatusOr<ExpressionPtr> ParseList();
  absl::StatusOr<ExpressionPtr> ParseDict();
  absl::StatusOr<ExpressionPtr> ParsePostfix(ExpressionPtr node);
  absl::StatusOr<ExpressionPtr> ParseSubscript(ExpressionPtr node);
  absl::StatusOr<ExpressionPtr> ParseCall(ExpressionPtr node);
  absl::Status ParseArguments(Expression* node);
  absl::StatusOr<ExpressionPtr> ParseTest(ExpressionPtr node);
  bool EndsTuple(absl::string_view end_name) const;

  std::vector<Token> tokens_;
  size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace bulkhead::jinja
