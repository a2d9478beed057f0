#include "runtime/chat/jinja/evaluator.h"

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/utf8.h"
#include "runtime/chat/jinja/filters.h"
#include "runtime/chat/jinja/format.h"
#include "runtime/chat/jinja/markup.h"
#include "runtime/chat/jinja/operators.h"
#include "runtime/chat/jinja/unicode_text.h"

namespace bulkhead::jinja {
namespace {

using Kind = Expression::Kind;

absl::StatusOr<Value> Negated(const Value& value, bool negate) {
  if (value.is_undefined()) return UndefinedError(value);
  if (!value.is_number()) {
    return TypeError(absl::StrCat("bad operand type for unary ", negate ? "-" : "+", ": '",
                                  TypeName(value), "'"));
  }
  if (value.is_float()) return Value(negate ? -value.real() : value.real());
  return Value(negate ? -value.integer() : value.integer());
}

}  // namespace

absl::StatusOr<Value> Evaluator::Eval(const Expression& expression) {
  BH_RETURN_IF_ERROR(meter_->Step());
  BH_RETURN_IF_ERROR(meter_->Enter());
  absl::StatusOr<Value> value = EvalInside(expression);
  meter_->Leave();
  if (!value.ok()) return Located(value.status(), expression.line);
  return value;
}

absl::StatusOr<Value> Evaluator::EvalInside(const Expression& expression) {
  const std::vector<ExpressionPtr>& operands = expression.operands;
  switch (expression.kind) {
    case Kind::kConstant:
      return expression.value;
    case Kind::kName:
      return Lookup(expression.name);
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kDict:
      return EvalSequence(expression);
    case Kind::kAttribute: {
      BH_ASSIGN_OR_RETURN(Value value, Eval(*operands[0]));
      return GetAttribute(value, expression.name);
    }
    case Kind::kSubscript: {
      BH_ASSIGN_OR_RETURN(Value value, Eval(*operands[0]));
      BH_ASSIGN_OR_RETURN(Value key, Eval(*operands[1]));
      return GetItem(value, key);
    }
    case Kind::kSlice:
      return EvalSlice(expression);
    case Kind::kCall:
      return EvalCall(expression);
    case Kind::kFilter:
      return EvalFilter(expression, nullptr);
    case Kind::kTest: {
      BH_ASSIGN_OR_RETURN(Value value, Eval(*operands[0]));
      BH_ASSIGN_OR_RETURN(Arguments arguments, EvalArguments(expression.arguments));
      BH_ASSIGN_OR_RETURN(bool passed, CallTest(*this, expression.name, value, arguments));
      return Value(passed);
    }
    case Kind::kNot: {
      BH_ASSIGN_OR_RETURN(Value value, Eval(*operands[0]));
      return Value(!Truth(value));
    }
    case Kind::kNegative:
    case Kind::kPositive: {
      BH_ASSIGN_OR_RETURN(Value value, Eval(*operands[0]));
      return Negated(value, expression.kind == Kind::kNegative);
    }
    case Kind::kAnd:
    case Kind::kOr: {
      BH_ASSIGN_OR_RETURN(Value left, Eval(*operands[0]));
      if (Truth(left) == (expression.kind == Kind::kOr)) return left;
      return Eval(*operands[1]);
    }
    case Kind::kBinary: {
      BH_ASSIGN_OR_RETURN(Value left, Eval(*operands[0]));
      BH_ASSIGN_OR_RETURN(Value right, Eval(*operands[1]));
      return Binary(expression.name, left, right, meter_);
    }
    case Kind::kConcat:
      return EvalConcat(expression);
    case Kind::kCompare:
      return EvalCompare(expression);
    case Kind::kIf: {
      BH_ASSIGN_OR_RETURN(Value condition, Eval(*operands[0]));
      if (Truth(condition)) return Eval(*operands[1]);
      if (operands[2] != nullptr) return Eval(*operands[2]);
      return Value::Missing(
          "the inline if-expression evaluated to false and no else section was defined");
    }
  }
  return absl::InternalError("an expression of no kind");
}

absl::StatusOr<Value> Evaluator::EvalSequence(const Expression& expression) {
  std::vector<Value> items;
  for (const ExpressionPtr& operand : expression.operands) {
    BH_ASSIGN_OR_RETURN(Value item, Eval(*operand));
    items.push_back(std::move(item));
  }
  Value result;
  if (expression.kind == Kind::kDict) {
    auto dict = std::make_shared<Dict>(meter_);
    for (size_t i = 0; i < items.size(); i += 2) {
      BH_RETURN_IF_ERROR(dict->Set(std::move(items[i]), std::move(items[i + 1])));
    }
    result = Value(std::shared_ptr<const Dict>(std::move(dict)));
  } else {
    result = List(std::move(items),
                  expression.kind == Kind::kList ? Sequence::Type::kList : Sequence::Type::kTuple);
  }
  BH_RETURN_IF_ERROR(CheckNesting(result));
  return result;
}

absl::StatusOr<Value> Evaluator::EvalSlice(const Expression& expression) {
  Value parts[4];
  for (int i = 0; i < 4; ++i) {
    if (expression.operands[i] == nullptr) continue;
    BH_ASSIGN_OR_RETURN(parts[i], Eval(*expression.operands[i]));
  }
  BH_ASSIGN_OR_RETURN(Value part, Slice(parts[0], parts[1], parts[2], parts[3], meter_));
  return parts[0].is_markup() ? AsMarkup(part, meter_) : part;
}

absl::StatusOr<Value> Evaluator::EvalCall(const Expression& expression, const Value* caller) {
  const Expression& callee = *expression.operands[0];
  std::optional<Method::Body> method;
  Value target;
  if (callee.kind == Kind::kAttribute) {
    BH_RETURN_IF_ERROR(meter_->Step());
    BH_ASSIGN_OR_RETURN(target, Eval(*callee.operands[0]));
    method = MethodOf(target, callee.name);
    if (!method.has_value()) {
      BH_ASSIGN_OR_RETURN(target, GetAttribute(target, callee.name));
    }
  } else {
    BH_ASSIGN_OR_RETURN(target, Eval(callee));
  }
  BH_ASSIGN_OR_RETURN(Arguments arguments, EvalArguments(expression.arguments));
  if (caller != nullptr) arguments.named.emplace_back("caller", *caller);
  absl::StatusOr<Value> result =
      method.has_value() ? CallMethod(*this, callee.name, *method, target, std::move(arguments))
                         : Call(target, std::move(arguments));
  if (result.ok()) BH_RETURN_IF_ERROR(CheckNesting(*result));
  return result;
}

absl::StatusOr<Value> Evaluator::Call(const Value& callee, Arguments arguments) {
  if (callee.is_undefined()) return UndefinedError(callee);
  if (!callee.is_object()) {
    return TypeError(absl::StrCat("'", TypeName(callee), "' object is not callable"));
  }
  BH_RETURN_IF_ERROR(meter_->Step());
  BH_RETURN_IF_ERROR(meter_->Enter());
  absl::StatusOr<Value> result = callee.object().Call(*this, std::move(arguments));
  meter_->Leave();
  return result;
}

absl::StatusOr<Value> Evaluator::EvalFilter(const Expression& expression, const Value* input) {
  Value value;
  const Expression* inner = expression.operands[0].get();
  if (inner == nullptr) {
    if (input != nullptr) value = *input;
  } else if (input != nullptr && inner->kind == Kind::kFilter) {
    BH_ASSIGN_OR_RETURN(value, EvalFilter(*inner, input));
  } else {
    BH_ASSIGN_OR_RETURN(value, Eval(*inner));
  }
  BH_ASSIGN_OR_RETURN(Arguments arguments, EvalArguments(expression.arguments));
  absl::StatusOr<Value> result = CallFilter(*this, expression.name, value, arguments);
  if (!result.ok()) return Located(result.status(), expression.line);
  BH_RETURN_IF_ERROR(CheckNesting(*result));
  return result;
}

absl::StatusOr<Value> Evaluator::EvalCompare(const Expression& expression) {
  BH_ASSIGN_OR_RETURN(Value left, Eval(*expression.operands[0]));
  for (size_t i = 0; i < expression.names.size(); ++i) {
    BH_ASSIGN_OR_RETURN(Value right, Eval(*expression.operands[i + 1]));
    BH_ASSIGN_OR_RETURN(bool holds, Relation(expression.names[i], left, right, meter_));
    if (!holds) return Value(false);
    left = std::move(right);
  }
  return Value(true);
}

absl::StatusOr<Value> Evaluator::EvalConcat(const Expression& expression) {
  std::string text;
  for (const ExpressionPtr& operand : expression.operands) {
    BH_ASSIGN_OR_RETURN(Value value, Eval(*operand));
    BH_ASSIGN_OR_RETURN(std::string part, Str(value, meter_));
    text += part;
    if (!meter_->Fits(static_cast<int64_t>(text.size()))) return meter_->Reserve(text.size());
  }
  return Text(std::move(text));
}

absl::StatusOr<Arguments> Evaluator::EvalArguments(const CallArguments& arguments) {
  Arguments result;
  for (const ExpressionPtr& each : arguments.positional) {
    BH_ASSIGN_OR_RETURN(Value value, Eval(*each));
    result.positional.push_back(std::move(value));
  }
  if (arguments.star != nullptr) {
    BH_ASSIGN_OR_RETURN(Value list, Eval(*arguments.star));
    BH_ASSIGN_OR_RETURN(std::vector<Value> items, Items(list, meter_));
    for (Value& item : items) result.positional.push_back(std::move(item));
  }
  for (const auto& [name, each] : arguments.named) {
    BH_ASSIGN_OR_RETURN(Value value, Eval(*each));
    result.named.emplace_back(name, std::move(value));
  }
  if (arguments.double_star != nullptr) {
    BH_ASSIGN_OR_RETURN(Value map, Eval(*arguments.double_star));
    if (!map.is_dict()) return TypeError("argument after ** must be a mapping");
    for (const auto& [key, value] : map.dict().entries) {
      if (!key.is_string()) return TypeError("keywords must be strings");
      result.named.emplace_back(key.text(), value);
    }
  }
  for (size_t i = 0; i < result.named.size(); ++i) {
    BH_RETURN_IF_ERROR(meter_->Step(static_cast<int64_t>(i) / 8));
    for (size_t j = 0; j < i; ++j) {
      if (result.named[i].first == result.named[j].first) {
        return TypeError(absl::StrCat("two values for the argument '", result.named[i].first, "'"));
      }
    }
  }
  return result;
}

Value Evaluator::Lookup(absl::string_view name) const {
  for (const Scope* scope = scope_.get(); scope != nullptr; scope = scope->parent.get()) {
    if (const Value* found = scope->Find(name)) return *found;
  }
  if (const Value* found = context_.dict().Find(name)) return *found;
  if (const Value* found = GlobalFunction(name)) return *found;
  return Value::Missing(absl::StrCat("'", name, "' is undefined"), meter_);
}

std::optional<Method::Body> Evaluator::MethodOf(const Value& value, absl::string_view name) const {
  const Method::Body body = value.is_string()     ? StringMethod(name)
                            : value.is_dict()     ? DictMethod(name)
                            : value.is_sequence() ? SequenceMethod(name)
                            : value.is_object()   ? ObjectMethod(value.object(), name)
                                                  : nullptr;
  if (body == nullptr) return std::nullopt;
  return body;
}

absl::StatusOr<Value> Evaluator::GetAttribute(const Value& value, absl::string_view name) {
  if (value.is_undefined()) return UndefinedError(value);
  if (const std::optional<Method::Body> method = MethodOf(value, name)) {
    return Value(std::make_shared<const Method>(std::string(name), *method, value));
  }
  if (value.is_dict()) {
    if (const Value* found = value.dict().Find(name)) return *found;
  }
  if (value.is_object()) {
    if (std::optional<Value> found = value.object().Attribute(name, meter_)) return *found;
  }
  return Value::Missing(absl::StrCat(ObjectName(value), " has no attribute '", name, "'"), meter_);
}

absl::StatusOr<Value> Evaluator::GetItem(const Value& value, const Value& key) {
  if (value.is_undefined()) return UndefinedError(value);
  if (value.is_dict()) {
    if (const Value* found = value.dict().Find(key)) return *found;
  }
  const bool indexed = value.is_string() ||
                       (value.is_sequence() && (value.sequence().type == Sequence::Type::kList ||
                                                value.sequence().type == Sequence::Type::kTuple ||
                                                value.sequence().type == Sequence::Type::kRange));
  if (indexed && (key.is_int() || key.is_bool())) {
    const Int length = value.is_string() ? Int(value.string().length)
                                         : Int(static_cast<int64_t>(value.sequence().items.size()));
    Int index = key.integer();
    if (index < 0) index += length;
    if (index >= 0 && index < length) {
      const int64_t at = static_cast<int64_t>(index);
      if (!value.is_string()) return value.sequence().items[at];
      const std::string& text = value.text();
      if (!value.string().ascii()) BH_RETURN_IF_ERROR(meter_->HandleBytes(text.size()));
      const size_t begin = value.string().ascii() ? at : ByteOfChar(text, at);
      std::string part = text.substr(begin, CodePointBytes(absl::string_view(text).substr(begin)));
      return value.is_markup() ? Value::Markup(std::move(part), meter_) : Text(std::move(part));
    }
  }
  if (key.is_string()) {
    if (const std::optional<Method::Body> method = MethodOf(value, key.text())) {
      return Value(std::make_shared<const Method>(key.text(), *method, value));
    }
    if (value.is_object()) {
      if (std::optional<Value> found = value.object().Attribute(key.text(), meter_)) return *found;
    }
    return Value::Missing(absl::StrCat(ObjectName(value), " has no attribute '", key.text(), "'"),
                          meter_);
  }
  BH_ASSIGN_OR_RETURN(std::string name, Repr(key, meter_));
  return Value::Missing(absl::StrCat(ObjectName(value), " has no element ", name.substr(0, 80)),
                        meter_);
}

}  // namespace bulkhead::jinja
