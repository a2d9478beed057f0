#include "runtime/chat/jinja/parser.h"

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "base/status.h"
#include "runtime/chat/jinja/expression_parser.h"
#include "runtime/chat/jinja/filters.h"

namespace bulkhead::jinja {
namespace {

using Kind = Statement::Kind;
using StatementPtr = std::unique_ptr<Statement>;
using Names = std::vector<absl::string_view>;

class StatementParser : public ExpressionParser {
 public:
  explicit StatementParser(std::vector<Token> tokens) : ExpressionParser(std::move(tokens)) {}

  absl::StatusOr<std::unique_ptr<const Root>> Run() {
    auto root = std::make_unique<Root>();
    BH_RETURN_IF_ERROR(ParseBlock({}, &root->body));
    root->reads_content_parts = reads_content_parts_;
    return root;
  }

 private:
  StatementPtr New(Kind kind) const {
    auto statement = std::make_unique<Statement>();
    statement->kind = kind;
    statement->line = current().line;
    return statement;
  }

  // Statements up to a tag named in `ends`; its name is then the current token.
  absl::Status ParseBlock(const Names& ends, Block* block) {
    BH_RETURN_IF_ERROR(Enter());
    absl::Status status = ParseBlockInside(ends, block);
    Leave();
    return status;
  }

  absl::Status ParseBlockInside(const Names& ends, Block* block) {
    while (current().type != Token::Type::kEnd) {
      StatementPtr statement;
      if (current().type == Token::Type::kData) {
        statement = New(Kind::kText);
        statement->text = Value::Text(Next().text, nullptr);
      } else if (current().type == Token::Type::kVariableBegin) {
        BH_ASSIGN_OR_RETURN(statement, ParsePrint());
      } else {
        Next();  // {%
        for (const absl::string_view end : ends) {
          if (current().IsName(end)) return absl::OkStatus();
        }
        BH_ASSIGN_OR_RETURN(statement, ParseTag());
      }
      block->push_back(std::move(statement));
    }
    if (ends.empty()) return absl::OkStatus();
    return Fail(
        absl::StrCat("the template ends without {% ", absl::StrJoin(ends, " %} or {% "), " %}"));
  }

  // A block up to and including {% end %}.
  absl::Status ParseBody(absl::string_view end, Block* block) {
    BH_RETURN_IF_ERROR(EndTag());
    BH_RETURN_IF_ERROR(ParseBlock({end}, block));
    Next();
    return absl::OkStatus();
  }

  absl::Status EndTag() {
    if (current().type != Token::Type::kBlockEnd) return FailUnexpected();
    Next();
    return absl::OkStatus();
  }

  absl::StatusOr<StatementPtr> ParsePrint() {
    StatementPtr statement = New(Kind::kPrint);
    Next();
    BH_ASSIGN_OR_RETURN(statement->expression, ParseTuple(true, false));
    if (current().type != Token::Type::kVariableEnd) return FailUnexpected();
    Next();
    return statement;
  }

  // A tag, including its end.
  absl::StatusOr<StatementPtr> ParseTag() {
    const int line = current().line;
    BH_ASSIGN_OR_RETURN(std::string tag, ExpectAnyName());
    StatementPtr statement;
    BH_ASSIGN_OR_RETURN(statement, ParseTagNamed(tag));
    statement->line = line;
    BH_RETURN_IF_ERROR(EndTag());
    return statement;
  }

  absl::StatusOr<StatementPtr> ParseTagNamed(const std::string& tag) {
    if (tag == "if") return ParseIf();
    if (tag == "for") return ParseFor();
    if (tag == "set") return ParseSet();
    if (tag == "macro") return ParseMacro();
    if (tag == "call") return ParseCall();
    if (tag == "with") return ParseWith();
    if (tag == "filter") {
      StatementPtr statement = New(Kind::kFilter);
      BH_ASSIGN_OR_RETURN(statement->expression, ParseFilters(nullptr, true));
      BH_RETURN_IF_ERROR(ParseBody("endfilter", &statement->body));
      return statement;
    }
    if (tag == "generation") {
      StatementPtr statement = New(Kind::kGroup);
      BH_RETURN_IF_ERROR(ParseBody("endgeneration", &statement->body));
      return statement;
    }
    if (tag == "break" || tag == "continue") {
      if (loops_ == 0) return Fail(absl::StrCat("{% ", tag, " %} outside of a loop"));
      return New(tag == "break" ? Kind::kBreak : Kind::kContinue);
    }
    static const absl::flat_hash_set<std::string> kLeftOut = {
        "block", "extends", "include", "import", "from", "autoescape", "trans", "do", "debug"};
    if (kLeftOut.contains(tag)) return Unsupported(absl::StrCat("the tag {% ", tag, " %}"));
    return Fail(absl::StrCat("unknown tag {% ", tag, " %}"));
  }

  absl::StatusOr<StatementPtr> ParseIf() {
    StatementPtr statement = New(Kind::kIf);
    while (true) {
      BH_ASSIGN_OR_RETURN(ExpressionPtr condition, ParseTuple(false, false));
      statement->values.push_back(std::move(condition));
      BH_RETURN_IF_ERROR(EndTag());
      BH_RETURN_IF_ERROR(
          ParseBlock({"elif", "else", "endif"}, &statement->branches.emplace_back()));
      const std::string end = Next().text;
      if (end == "endif") return statement;
      if (end == "else") break;
    }
    BH_RETURN_IF_ERROR(ParseBody("endif", &statement->otherwise));
    return statement;
  }

  absl::StatusOr<Target> ParseTarget(absl::string_view end_name, bool with_namespace) {
    Target target;
    target.line = current().line;
    if (with_namespace && ahead().IsOperator(".")) {
      BH_ASSIGN_OR_RETURN(target.name, ExpectAnyName());
      Next();
      BH_ASSIGN_OR_RETURN(target.attribute, ExpectAnyName());
      return target;
    }
    while (true) {
      BH_ASSIGN_OR_RETURN(Target part, ParseTargetPart());
      target.parts.push_back(std::move(part));
      if (!SkipOperator(",")) break;
      target.is_tuple = true;
      if (current().IsName(end_name) || current().IsOperator("=") || current().IsOperator(")"))
        break;
    }
    if (target.is_tuple) return target;
    Target only = std::move(target.parts[0]);
    return only;
  }

  absl::StatusOr<Target> ParseTargetPart() {
    if (SkipOperator("(")) {
      BH_RETURN_IF_ERROR(Enter());
      absl::StatusOr<Target> inner = ParseTarget("", false);
      Leave();
      BH_RETURN_IF_ERROR(inner.status());
      BH_RETURN_IF_ERROR(ExpectOperator(")"));
      return inner;
    }
    Target target;
    target.line = current().line;
    static const absl::flat_hash_set<std::string> kConstants = {"true",  "True", "false",
                                                                "False", "none", "None"};
    if (kConstants.contains(current().text)) return Fail("a constant cannot be assigned to");
    BH_ASSIGN_OR_RETURN(target.name, ExpectAnyName());
    return target;
  }

  absl::StatusOr<StatementPtr> ParseFor() {
    StatementPtr statement = New(Kind::kFor);
    BH_ASSIGN_OR_RETURN(statement->target, ParseTarget("in", false));
    if (statement->target.name == "loop") return Fail("a loop cannot assign to 'loop'");
    if (!SkipName("in")) return Fail("expected 'in' in {% for %}");
    BH_ASSIGN_OR_RETURN(statement->expression, ParseTuple(false, false, "recursive"));
    if (SkipName("if")) {
      BH_ASSIGN_OR_RETURN(statement->condition, ParseExpression());
    }
    statement->recursive = SkipName("recursive");
    NoteIteration(*statement->expression);
    BH_RETURN_IF_ERROR(EndTag());
    ++loops_;
    BH_RETURN_IF_ERROR(ParseBlock({"endfor", "else"}, &statement->body));
    --loops_;
    if (Next().text == "else") BH_RETURN_IF_ERROR(ParseBody("endfor", &statement->otherwise));
    return statement;
  }

  static bool IsContent(const Expression& expression) {
    const Expression* node = &expression;
    while (node->kind == Expression::Kind::kFilter && node->operands[0] != nullptr) {
      node = node->operands[0].get();
    }
    if (node->kind == Expression::Kind::kSubscript) {
      const Value& key = node->operands[1]->value;
      return node->operands[1]->kind == Expression::Kind::kConstant && key.is_string() &&
             key.text() == "content";
    }
    return (node->kind == Expression::Kind::kAttribute || node->kind == Expression::Kind::kName) &&
           node->name == "content";
  }

  void NoteIteration(const Expression& over) {
    const bool alias =
        over.kind == Expression::Kind::kName && names_of_content_.contains(over.name);
    if (alias || IsContent(over)) reads_content_parts_ = true;
  }

  absl::StatusOr<StatementPtr> ParseSet() {
    StatementPtr statement = New(Kind::kSet);
    BH_ASSIGN_OR_RETURN(statement->target, ParseTarget("", true));
    if (SkipOperator("=")) {
      BH_ASSIGN_OR_RETURN(statement->expression, ParseTuple(true, false));
      if (IsContent(*statement->expression)) names_of_content_.insert(statement->target.name);
      return statement;
    }
    statement->kind = Kind::kSetBlock;
    if (statement->target.is_tuple) return FailUnexpected();
    BH_ASSIGN_OR_RETURN(statement->expression, ParseFilters(nullptr, false));
    BH_RETURN_IF_ERROR(ParseBody("endset", &statement->body));
    return statement;
  }

  absl::Status ParseParameters(std::vector<Parameter>* parameters) {
    BH_RETURN_IF_ERROR(ExpectOperator("("));
    while (!current().IsOperator(")")) {
      if (!parameters->empty()) BH_RETURN_IF_ERROR(ExpectOperator(","));
      Parameter parameter;
      BH_ASSIGN_OR_RETURN(parameter.name, ExpectAnyName());
      for (const Parameter& other : *parameters) {
        if (other.name == parameter.name) {
          return Fail(absl::StrCat("the parameter '", other.name, "' twice"));
        }
      }
      if (SkipOperator("=")) {
        BH_ASSIGN_OR_RETURN(parameter.standard, ParseExpression());
      } else if (!parameters->empty() && parameters->back().standard != nullptr) {
        return Fail("a parameter without a default behind one with");
      }
      parameters->push_back(std::move(parameter));
    }
    Next();
    return absl::OkStatus();
  }

  // The body of a macro or of a {% call %}; notes its use of caller, kwargs and varargs.
  absl::Status ParseMacroBody(absl::string_view end, Statement* statement) {
    const int loops = loops_;
    loops_ = 0;
    names_in_macros_.emplace_back();
    BH_RETURN_IF_ERROR(ParseBody(end, &statement->body));
    absl::flat_hash_set<std::string> names = std::move(names_in_macros_.back());
    names_in_macros_.pop_back();
    loops_ = loops;
    for (const Parameter& parameter : statement->parameters) names.erase(parameter.name);
    statement->uses_caller = names.contains("caller");
    statement->uses_kwargs = names.contains("kwargs");
    statement->uses_varargs = names.contains("varargs");
    return absl::OkStatus();
  }

  absl::StatusOr<StatementPtr> ParseMacro() {
    StatementPtr statement = New(Kind::kMacro);
    BH_ASSIGN_OR_RETURN(statement->name, ExpectAnyName());
    BH_RETURN_IF_ERROR(ParseParameters(&statement->parameters));
    BH_RETURN_IF_ERROR(ParseMacroBody("endmacro", statement.get()));
    return statement;
  }

  absl::StatusOr<StatementPtr> ParseCall() {
    StatementPtr statement = New(Kind::kCall);
    if (current().IsOperator("(")) BH_RETURN_IF_ERROR(ParseParameters(&statement->parameters));
    BH_ASSIGN_OR_RETURN(statement->expression, ParseExpression());
    if (statement->expression->kind != Expression::Kind::kCall)
      return Fail("{% call %} needs a call");
    BH_RETURN_IF_ERROR(ParseMacroBody("endcall", statement.get()));
    return statement;
  }

  absl::StatusOr<StatementPtr> ParseWith() {
    StatementPtr statement = New(Kind::kWith);
    while (current().type != Token::Type::kBlockEnd) {
      if (!statement->targets.empty()) BH_RETURN_IF_ERROR(ExpectOperator(","));
      BH_ASSIGN_OR_RETURN(Target target, ParseTarget("", false));
      statement->targets.push_back(std::move(target));
      BH_RETURN_IF_ERROR(ExpectOperator("="));
      BH_ASSIGN_OR_RETURN(ExpressionPtr value, ParseExpression());
      statement->values.push_back(std::move(value));
    }
    BH_RETURN_IF_ERROR(ParseBody("endwith", &statement->body));
    return statement;
  }

  int loops_ = 0;
  bool reads_content_parts_ = false;
  absl::flat_hash_set<std::string> names_of_content_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<const Root>> ParseTemplate(absl::string_view source) {
  BH_ASSIGN_OR_RETURN(std::vector<Token> tokens, Tokenize(source));
  return StatementParser(std::move(tokens)).Run();
}

}  // namespace bulkhead::jinja
