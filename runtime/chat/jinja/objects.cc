#include "runtime/chat/jinja/objects.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "base/status.h"
#include "runtime/chat/jinja/evaluator.h"
#include "runtime/chat/jinja/format.h"
#include "runtime/chat/jinja/markup.h"

namespace bulkhead::jinja {
namespace {

constexpr int64_t kMaxRange = 100'000;  // as in Jinja2's sandbox

Value AsValue(std::shared_ptr<const Object> object) { return Value(std::move(object)); }

absl::StatusOr<Value> LoopCycle(Evaluator& /*evaluator*/, const Value& self,
                                const Arguments& arguments) {
  const auto& loop = static_cast<const Loop&>(self.object());
  if (arguments.positional.empty()) return TypeError("no items for cycling given");
  return arguments.positional[loop.index % arguments.positional.size()];
}

absl::StatusOr<Value> LoopChanged(Evaluator& evaluator, const Value& self,
                                  const Arguments& arguments) {
  const auto& loop = static_cast<const Loop&>(self.object());
  Value now = evaluator.List(arguments.positional, Sequence::Type::kTuple);
  BH_RETURN_IF_ERROR(CheckNesting(now));
  bool changed = true;
  if (loop.last_changed.has_value()) {
    BH_ASSIGN_OR_RETURN(bool same, Equal(*loop.last_changed, now, evaluator.meter()));
    changed = !same;
  }
  loop.last_changed = std::move(now);
  return Value(changed);
}

absl::StatusOr<Value> CyclerNext(Evaluator& /*evaluator*/, const Value& self,
                                 const Arguments& /*arguments*/) {
  const auto& cycler = static_cast<const Cycler&>(self.object());
  const Value item = cycler.items[cycler.position];
  cycler.position = (cycler.position + 1) % cycler.items.size();
  return item;
}

absl::StatusOr<Value> CyclerReset(Evaluator& /*evaluator*/, const Value& self,
                                  const Arguments& /*arguments*/) {
  static_cast<const Cycler&>(self.object()).position = 0;
  return Value();
}

absl::StatusOr<Value> Range(Evaluator& evaluator, const Value& /*self*/,
                            const Arguments& arguments) {
  const size_t count = arguments.positional.size();
  if (count < 1 || count > 3 || !arguments.named.empty()) {
    return TypeError("range expected 1 to 3 arguments");
  }
  int64_t parts[3] = {0, 0, 1};
  for (size_t i = 0; i < count; ++i) {
    BH_ASSIGN_OR_RETURN(parts[count == 1 ? 1 : i], AsIndex(arguments.positional[i], "range"));
  }
  if (parts[2] == 0) return ValueError("range() arg 3 must not be zero");
  const Int first = parts[0], end = parts[1], step = parts[2];
  const Int span = step > 0 ? end - first : first - end;
  const Int stride = step > 0 ? step : -step;
  const Int length = span <= 0 ? Int(0) : (span + stride - 1) / stride;
  if (length > kMaxRange) {
    return absl::OutOfRangeError(absl::StrCat("a range of more than ", kMaxRange, " numbers"));
  }
  BH_RETURN_IF_ERROR(evaluator.meter()->Reserve(static_cast<int64_t>(length) * sizeof(Value)));
  std::vector<Value> items;
  for (Int i = 0; i < length; ++i) items.push_back(Value(first + i * step));
  return evaluator.List(std::move(items), Sequence::Type::kRange);
}

// dict(...) and namespace(...): from a dict or a list of pairs, and named arguments.
absl::Status FillDict(Evaluator& evaluator, absl::string_view callee, const Arguments& arguments,
                      Dict* dict) {
  if (arguments.positional.size() > 1) {
    return TypeError(absl::StrCat(callee, " expected at most 1 argument"));
  }
  for (const Value& from : arguments.positional) {
    if (from.is_dict()) {
      for (const auto& [key, value] : from.dict().entries)
        BH_RETURN_IF_ERROR(dict->Set(key, value));
      continue;
    }
    BH_ASSIGN_OR_RETURN(std::vector<Value> pairs, Items(from, evaluator.meter()));
    for (const Value& pair : pairs) {
      BH_ASSIGN_OR_RETURN(std::vector<Value> parts, Items(pair, evaluator.meter()));
      if (parts.size() != 2) return ValueError(absl::StrCat(callee, " needs pairs"));
      BH_RETURN_IF_ERROR(dict->Set(parts[0], parts[1]));
    }
  }
  for (const auto& [name, value] : arguments.named) {
    BH_RETURN_IF_ERROR(dict->Set(evaluator.Text(name), value));
  }
  return absl::OkStatus();
}

absl::StatusOr<Value> NewDict(Evaluator& evaluator, const Value& /*self*/,
                              const Arguments& arguments) {
  auto dict = std::make_shared<Dict>(evaluator.meter());
  BH_RETURN_IF_ERROR(FillDict(evaluator, "dict", arguments, dict.get()));
  return Value(std::shared_ptr<const Dict>(std::move(dict)));
}

absl::StatusOr<Value> NewNamespaceValue(Evaluator& evaluator, const Value& /*self*/,
                                        const Arguments& arguments) {
  const std::shared_ptr<Namespace> space = evaluator.NewNamespace();
  BH_RETURN_IF_ERROR(FillDict(evaluator, "namespace", arguments, space->attributes.get()));
  return AsValue(space);
}

absl::StatusOr<Value> NewCycler(Evaluator& /*evaluator*/, const Value& /*self*/,
                                const Arguments& arguments) {
  if (arguments.positional.empty()) return TypeError("at least one item has to be provided");
  auto cycler = std::make_shared<Cycler>();
  cycler->items = arguments.positional;
  return AsValue(std::move(cycler));
}

absl::StatusOr<Value> NewJoiner(Evaluator& evaluator, const Value& /*self*/,
                                const Arguments& arguments) {
  BH_ASSIGN_OR_RETURN(auto bound, Bind("joiner", arguments, {"sep"}, 0));
  auto joiner = std::make_shared<Joiner>();
  joiner->separator = bound[0].has_value() ? *bound[0] : evaluator.Text(", ");
  return AsValue(std::move(joiner));
}

absl::StatusOr<Value> RaiseException(Evaluator& evaluator, const Value& /*self*/,
                                     const Arguments& arguments) {
  BH_ASSIGN_OR_RETURN(auto bound, Bind("raise_exception", arguments, {"message"}, 1));
  BH_ASSIGN_OR_RETURN(std::string message, Str(*bound[0], evaluator.meter()));
  return evaluator.Raise(std::move(message));
}

absl::StatusOr<Value> StrftimeNow(Evaluator& evaluator, const Value& /*self*/,
                                  const Arguments& arguments) {
  BH_ASSIGN_OR_RETURN(auto bound, Bind("strftime_now", arguments, {"format"}, 1));
  BH_ASSIGN_OR_RETURN(std::string format, AsText(*bound[0], "strftime_now"));
  constexpr size_t kMaxFormat = 1000;
  if (format.size() > kMaxFormat) {
    return ValueError(
        absl::StrCat("a format of more than ", kMaxFormat, " bytes for strftime_now"));
  }
  return evaluator.Text(absl::FormatTime(format, evaluator.now(), absl::LocalTimeZone()));
}

}  // namespace

std::optional<Value> Namespace::Attribute(absl::string_view name, Meter* /*meter*/) const {
  const Value* found = attributes->Find(name);
  return found == nullptr ? std::nullopt : std::optional<Value>(*found);
}

std::string Macro::Repr() const {
  return statement->name.empty() ? "<Macro anonymous>"
                                 : absl::StrCat("<Macro '", statement->name, "'>");
}

absl::StatusOr<Value> Macro::Call(Evaluator& evaluator, Arguments arguments) const {
  return evaluator.CallMacro(*this, std::move(arguments));
}

std::optional<Value> Macro::Attribute(absl::string_view name, Meter* meter) const {
  if (name == "name") {
    return statement->name.empty() ? Value() : Value::Text(statement->name, meter);
  }
  if (name == "catch_kwargs") return Value(statement->uses_kwargs);
  if (name == "catch_varargs") return Value(statement->uses_varargs);
  if (name == "caller") return Value(statement->uses_caller);
  if (name != "arguments") return std::nullopt;
  std::vector<Value> names;
  for (const Parameter& each : statement->parameters)
    names.push_back(Value::Text(each.name, meter));
  return Value::List(std::move(names), meter, Sequence::Type::kTuple);
}

std::string Loop::Repr() const {
  return absl::StrCat("<LoopContext ", index + 1, "/", length, ">");
}

absl::StatusOr<Value> Loop::Call(Evaluator& evaluator, Arguments arguments) const {
  BH_ASSIGN_OR_RETURN(auto bound, Bind("loop", arguments, {"iterable"}, 1));
  return evaluator.CallLoop(*this, *bound[0]);
}

std::optional<Value> Loop::Attribute(absl::string_view name, Meter* /*meter*/) const {
  if (name == "index") return Value::Integer(index + 1);
  if (name == "index0") return Value::Integer(index);
  if (name == "revindex") return Value::Integer(length - index);
  if (name == "revindex0") return Value::Integer(length - index - 1);
  if (name == "first") return Value(index == 0);
  if (name == "last") return Value(index + 1 == length);
  if (name == "length") return Value::Integer(length);
  if (name == "depth") return Value::Integer(depth + 1);
  if (name == "depth0") return Value::Integer(depth);
  const size_t at = static_cast<size_t>(index);
  if (name == "previtem") {
    if (at == 0 || at > items.size()) return Value::Missing("there is no previous item");
    return items[at - 1];
  }
  if (name == "nextitem") {
    return at + 1 < items.size() ? items[at + 1] : Value::Missing("there is no next item");
  }
  return std::nullopt;
}

int Cycler::nesting() const {
  int most = 0;
  for (const Value& item : items) most = std::max(most, Nesting(item));
  return most + 1;
}

std::optional<Value> Cycler::Attribute(absl::string_view name, Meter* /*meter*/) const {
  if (name == "current") return items[position];
  return std::nullopt;
}

absl::StatusOr<Value> Joiner::Call(Evaluator& evaluator, Arguments /*arguments*/) const {
  if (used) return separator;
  used = true;
  return evaluator.Text("");
}

Method::Body ObjectMethod(const Object& object, absl::string_view name) {
  if (dynamic_cast<const Loop*>(&object) != nullptr) {
    return name == "cycle" ? LoopCycle : name == "changed" ? LoopChanged : nullptr;
  }
  if (dynamic_cast<const Cycler*>(&object) != nullptr) {
    return name == "next" ? CyclerNext : name == "reset" ? CyclerReset : nullptr;
  }
  return nullptr;
}

const Value* GlobalFunction(absl::string_view name) {
  static const auto* const kFunctions = [] {
    auto* functions = new absl::flat_hash_map<std::string, Value>();
    const std::pair<const char*, Method::Body> all[] = {{"range", Range},
                                                        {"dict", NewDict},
                                                        {"cycler", NewCycler},
                                                        {"joiner", NewJoiner},
                                                        {"namespace", NewNamespaceValue},
                                                        {"raise_exception", RaiseException},
                                                        {"strftime_now", StrftimeNow}};
    for (const auto& [each, body] : all) {
      functions->emplace(each, Value(std::make_shared<const Method>(each, body, Value())));
    }
    return functions;
  }();
  const auto found = kFunctions->find(name);
  return found == kFunctions->end() ? nullptr : &found->second;
}

absl::StatusOr<std::vector<std::optional<Value>>> Bind(absl::string_view callee,
                                                       const Arguments& arguments,
                                                       absl::Span<const absl::string_view> names,
                                                       size_t required) {
  std::vector<std::optional<Value>> bound(names.size());
  if (arguments.positional.size() > names.size()) {
    return TypeError(absl::StrCat(callee, "() takes at most ", names.size(), " arguments, ",
                                  arguments.positional.size(), " were given"));
  }
  for (size_t i = 0; i < arguments.positional.size(); ++i) bound[i] = arguments.positional[i];
  for (const auto& [name, value] : arguments.named) {
    size_t at = 0;
    while (at < names.size() && names[at] != name) ++at;
    if (at == names.size()) {
      return TypeError(absl::StrCat(callee, "() got an unexpected keyword argument '", name, "'"));
    }
    if (bound[at].has_value()) {
      return TypeError(absl::StrCat(callee, "() got multiple values for argument '", name, "'"));
    }
    bound[at] = value;
  }
  for (size_t i = 0; i < required; ++i) {
    if (!bound[i].has_value()) {
      return TypeError(absl::StrCat(callee, "() missing the argument '", names[i], "'"));
    }
  }
  return bound;
}

absl::StatusOr<int64_t> AsIndex(const Value& value, absl::string_view callee) {
  if (value.is_undefined()) return UndefinedError(value);
  if (!value.is_int() && !value.is_bool()) {
    return TypeError(absl::StrCat(callee, "() needs an integer, not ", TypeName(value)));
  }
  const Int number = value.integer();
  if (number > Int(INT64_MAX) || number < Int(INT64_MIN)) {
    return absl::OutOfRangeError(absl::StrCat(callee, "() with a number beyond 64 bits"));
  }
  return static_cast<int64_t>(number);
}

absl::StatusOr<std::string> AsText(const Value& value, absl::string_view callee) {
  if (value.is_undefined()) return UndefinedError(value);
  if (!value.is_string()) {
    return TypeError(absl::StrCat(callee, "() needs a string, not ", TypeName(value)));
  }
  value.string().Count();
  return value.text();
}

absl::StatusOr<Value> CallMethod(Evaluator& evaluator, absl::string_view name, MethodBody body,
                                 const Value& self, Arguments arguments) {
  Meter* const meter = evaluator.meter();
  if (self.is_markup()) {
    BH_ASSIGN_OR_RETURN(arguments, EscapedArguments(name, std::move(arguments), meter));
  }
  const absl::StatusOr<Value> result = body(evaluator, self, arguments);
  return result.ok() && self.is_markup() ? AsMarkup(*result, meter) : result;
}

}  // namespace bulkhead::jinja
