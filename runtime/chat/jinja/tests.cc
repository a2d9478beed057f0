// The tests of templates: x is defined.
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "runtime/chat/jinja/evaluator.h"
#include "runtime/chat/jinja/filters.h"
#include "runtime/chat/jinja/format.h"
#include "runtime/chat/jinja/operators.h"

namespace bulkhead::jinja {
namespace {

using Test = bool (*)(const Value& value);

bool IsIterable(const Value& value) {
  return value.is_undefined() || value.is_string() || value.is_sequence() || value.is_dict() ||
         (value.is_object() && dynamic_cast<const Loop*>(&value.object()) != nullptr);
}

bool IsSequence(const Value& value) {
  if (value.is_undefined() || value.is_string() || value.is_dict()) return true;
  return value.is_sequence() && (value.sequence().type == Sequence::Type::kList ||
                                 value.sequence().type == Sequence::Type::kTuple ||
                                 value.sequence().type == Sequence::Type::kRange);
}

// Tests of a single value.
const absl::flat_hash_map<absl::string_view, Test>& PlainTests() {
  static const auto* const kTable = new absl::flat_hash_map<absl::string_view, Test>{
      {"boolean", [](const Value& v) { return v.is_bool(); }},
      {"callable",
       [](const Value& v) { return v.is_undefined() || (v.is_object() && v.object().callable()); }},
      {"defined", [](const Value& v) { return !v.is_undefined(); }},
      {"escaped", [](const Value& v) { return v.is_markup(); }},
      {"false", [](const Value& v) { return v.is_bool() && !v.boolean(); }},
      {"float", [](const Value& v) { return v.is_float(); }},
      {"integer", [](const Value& v) { return v.is_int(); }},
      {"iterable", IsIterable},
      {"mapping", [](const Value& v) { return v.is_dict(); }},
      {"none", [](const Value& v) { return v.is_none(); }},
      {"number", [](const Value& v) { return v.is_number(); }},
      {"sequence", IsSequence},
      {"string", [](const Value& v) { return v.is_string(); }},
      {"true", [](const Value& v) { return v.is_bool() && v.boolean(); }},
      {"undefined", [](const Value& v) { return v.is_undefined(); }},
  };
  return *kTable;
}

// Tests that compare, by the operator they stand for.
absl::string_view Relation(absl::string_view test) {
  static const auto* const kTable = new absl::flat_hash_map<absl::string_view, absl::string_view>{
      {"eq", "=="},      {"equalto", "=="}, {"ne", "!="}, {"lt", "<"},
      {"lessthan", "<"}, {"le", "<="},      {"gt", ">"},  {"greaterthan", ">"},
      {"ge", ">="},      {"in", "in"},      {"==", "=="}, {"!=", "!="},
      {"<", "<"},        {"<=", "<="},      {">", ">"},   {">=", ">="}};
  const auto found = kTable->find(test);
  return found == kTable->end() ? "" : found->second;
}

bool IsOther(absl::string_view name) {
  return name == "divisibleby" || name == "even" || name == "odd" || name == "lower" ||
         name == "upper" || name == "sameas" || name == "filter" || name == "test";
}

absl::StatusOr<bool> Divides(const Value& value, const Value& by, Int rest, Meter* meter) {
  BH_ASSIGN_OR_RETURN(Value left, Binary("%", value, by, meter));
  return Equal(left, Value(rest), meter);
}

absl::StatusOr<bool> CallOther(Evaluator& evaluator, absl::string_view name, const Value& value,
                               const Arguments& arguments) {
  Meter* meter = evaluator.meter();
  if (name == "even" || name == "odd") {
    BH_RETURN_IF_ERROR(Bind(name, arguments, {}, 0).status());
    return Divides(value, Value::Integer(2), name == "odd" ? 1 : 0, meter);
  }
  if (name == "lower" || name == "upper") {
    BH_ASSIGN_OR_RETURN(std::string text, Str(value, meter));
    BH_ASSIGN_OR_RETURN(Value is, StringMethod(name == "lower" ? "islower" : "isupper")(
                                      evaluator, evaluator.Text(std::move(text)), arguments));
    return is.boolean();
  }
  if (name == "filter" || name == "test") {
    if (!value.is_string()) return false;
    return (name == "filter" ? CheckFilterName(value.text(), 0) : CheckTestName(value.text(), 0))
        .ok();
  }
  BH_ASSIGN_OR_RETURN(auto bound, Bind(name, arguments, {"other"}, 1));
  if (name == "sameas") return value.SameAs(*bound[0]);
  return Divides(value, *bound[0], 0, meter);
}

}  // namespace

absl::Status CheckTestName(absl::string_view name, int line) {
  if (PlainTests().contains(name) || !Relation(name).empty() || IsOther(name)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat("line ", line, ": no test named '", name, "'"));
}

absl::StatusOr<bool> CallTest(Evaluator& evaluator, absl::string_view name, const Value& value,
                              const Arguments& arguments) {
  BH_RETURN_IF_ERROR(evaluator.meter()->Step());
  if (const auto plain = PlainTests().find(name); plain != PlainTests().end()) {
    BH_RETURN_IF_ERROR(Bind(name, arguments, {}, 0).status());
    return plain->second(value);
  }
  if (const absl::string_view op = Relation(name); !op.empty()) {
    BH_ASSIGN_OR_RETURN(auto bound, Bind(name, arguments, {"other"}, 1));
    return jinja::Relation(op, value, *bound[0], evaluator.meter());
  }
  if (!IsOther(name)) return absl::InvalidArgumentError(absl::StrCat("no test named '", name, "'"));
  return CallOther(evaluator, name, value, arguments);
}

}  // namespace bulkhead::jinja
