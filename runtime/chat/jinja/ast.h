// The parsed template.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/chat/jinja/value.h"

namespace bulkhead::jinja {

struct Expression;
using ExpressionPtr = std::unique_ptr<Expression>;

// Arguments of a call, a filter or a test.
struct CallArguments {
  std::vector<ExpressionPtr> positional;
  std::vector<std::pair<std::string, ExpressionPtr>> named;
  ExpressionPtr star;         // *list
  ExpressionPtr double_star;  // **dict
};

struct Expression {
  enum class Kind {
    kConstant,   // value
    kName,       // name
    kList,       // operands
    kTuple,      // operands
    kDict,       // operands: key, value, key, value ...
    kAttribute,  // operands[0].name
    kSubscript,  // operands[0][operands[1]]
    kSlice,      // operands[0][operands[1]:operands[2]:operands[3]], null where left out
    kCall,       // operands[0](arguments)
    kFilter,     // operands[0] | name(arguments); operands[0] is null in a filter block
    kTest,       // operands[0] is name(arguments)
    kNot,
    kNegative,
    kPositive,
    kAnd,
    kOr,
    kBinary,   // operands[0] name operands[1]
    kConcat,   // ~ of operands
    kCompare,  // operands[0] names[0] operands[1] names[1] ...
    kIf,       // operands[1] if operands[0] else operands[2], which may be null
  };
  Kind kind;
  int line;
  int depth = 1;  // nesting depth of expressions
  std::string name;
  std::vector<std::string> names;
  Value value;
  std::vector<ExpressionPtr> operands;
  CallArguments arguments;
};

// The target of an assignment: a name, ns.attribute, or a tuple of targets.
struct Target {
  int line = 0;
  std::string name;
  std::string attribute;  // attribute of the namespace `name`
  std::vector<Target> parts;
  bool is_tuple = false;
};

struct Parameter {
  std::string name;
  ExpressionPtr standard;  // its default, or null
};

struct Statement;
using Block = std::vector<std::unique_ptr<Statement>>;

struct Statement {
  enum class Kind {
    kText,      // text
    kPrint,     // expression
    kIf,        // values[i]: branches[i], otherwise
    kFor,       // target in expression if condition, body, otherwise
    kSet,       // target = expression
    kSetBlock,  // target = body | expression, which may be null
    kMacro,     // text(parameters), body
    kCall,      // expression with a caller of parameters and body
    kFilter,    // expression over body
    kWith,      // targets = values, body
    kGroup,     // body ({% generation %})
    kBreak,
    kContinue,
  };
  Kind kind;
  int line;
  Value text;  // text of kText
  std::string name;
  ExpressionPtr expression;
  ExpressionPtr condition;
  bool recursive = false;
  Target target;
  std::vector<Target> targets;
  std::vector<ExpressionPtr> values;
  std::vector<Parameter> parameters;
  bool uses_varargs = false, uses_kwargs = false, uses_caller = false;  // of macros
  Block body;
  std::vector<Block> branches;
  Block otherwise;
};

struct Root {
  Block body;
  bool reads_content_parts = false;
};

}  // namespace bulkhead::jinja
