// Objects that are called or have attributes: namespaces, macros, loops, methods of values, and the
// functions of the environment.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "runtime/chat/jinja/ast.h"
#include "runtime/chat/jinja/value.h"

namespace bulkhead::jinja {

// The variables of a block, and the scope around it.
struct Scope {
  explicit Scope(std::shared_ptr<Scope> outer) : parent(std::move(outer)) {}
  const Value* Find(absl::string_view name) const {  // only in this scope
    for (const auto& [each, value] : variables) {
      if (each == name) return &value;
    }
    return nullptr;
  }
  void Set(absl::string_view name, Value value) {
    if (const Value* found = Find(name)) {
      *const_cast<Value*>(found) = std::move(value);
    } else {
      variables.emplace_back(std::string(name), std::move(value));
    }
  }

  std::vector<std::pair<std::string, Value>> variables;
  std::shared_ptr<Scope> parent;
};

// The evaluator keeps all of a render and empties them at its end: they may refer to each other.
struct Namespace : Object {
  explicit Namespace(Meter* meter) : attributes(std::make_shared<Dict>(meter)) {}
  std::string type_name() const override { return "Namespace"; }
  std::optional<Value> Attribute(absl::string_view name, Meter* meter) const override;

  std::shared_ptr<Dict> attributes;
};

struct Macro : Object {
  std::string type_name() const override { return "Macro"; }
  std::string Repr() const override;
  bool callable() const override { return true; }
  absl::StatusOr<Value> Call(Evaluator& evaluator, Arguments arguments) const override;
  std::optional<Value> Attribute(absl::string_view name, Meter* meter) const override;

  const Statement* statement = nullptr;  // a macro or a {% call %}
  std::shared_ptr<Scope> scope;          // where it was defined
};

// `loop` inside a for.
struct Loop : Object {
  std::string type_name() const override { return "LoopContext"; }
  std::string Repr() const override;
  bool callable() const override { return true; }  // {% for ... recursive %}
  absl::StatusOr<Value> Call(Evaluator& evaluator, Arguments arguments) const override;
  std::optional<Value> Attribute(absl::string_view name, Meter* meter) const override;

  const Statement* statement = nullptr;
  std::shared_ptr<Scope> scope;  // around the loop
  // Releases what could refer back to it: a chain of ended loops has any length.
  void End() {
    scope.reset();
    items.clear();
    last_changed.reset();
  }

  std::vector<Value> items;
  int64_t length = 0;
  int64_t index = 0;
  int depth = 0;
  mutable std::optional<Value> last_changed;
};

using MethodBody = absl::StatusOr<Value> (*)(Evaluator& evaluator, const Value& self,
                                             const Arguments& arguments);
// self.name(arguments), implemented by `body`.
absl::StatusOr<Value> CallMethod(Evaluator& evaluator, absl::string_view name, MethodBody body,
                                 const Value& self, Arguments arguments);

// A function of the environment, of a loop or of a value: x.strip.
struct Method : Object {
  using Body = MethodBody;
  Method(std::string method_name, Body function, Value value)
      : name(std::move(method_name)), body(function), self(std::move(value)) {}
  std::string type_name() const override { return "builtin_function_or_method"; }
  std::string Repr() const override { return "<built-in method " + name + ">"; }
  int nesting() const override { return 1 + Nesting(self); }
  bool callable() const override { return true; }
  absl::StatusOr<Value> Call(Evaluator& evaluator, Arguments arguments) const override {
    return CallMethod(evaluator, name, body, self, std::move(arguments));
  }

  std::string name;
  Body body;
  Value self;
};

// cycler(...) and joiner(...).
struct Cycler : Object {
  std::string type_name() const override { return "Cycler"; }
  int nesting() const override;
  std::optional<Value> Attribute(absl::string_view name, Meter* meter) const override;
  std::vector<Value> items;
  mutable size_t position = 0;
};

struct Joiner : Object {
  std::string type_name() const override { return "Joiner"; }
  int nesting() const override { return 1 + Nesting(separator); }
  bool callable() const override { return true; }
  absl::StatusOr<Value> Call(Evaluator& evaluator, Arguments arguments) const override;
  Value separator;
  mutable bool used = false;
};

// The function of that name that every template has, or null.
const Value* GlobalFunction(absl::string_view name);
// The method of that name for values of that type; null if there is none.
Method::Body StringMethod(absl::string_view name);
Method::Body DictMethod(absl::string_view name);
Method::Body SequenceMethod(absl::string_view name);
Method::Body ObjectMethod(const Object& object, absl::string_view name);

// Arguments by parameter: `names` of the function `callee`, of which the first `required` must be
// given. TypeError otherwise.
absl::StatusOr<std::vector<std::optional<Value>>> Bind(absl::string_view callee,
                                                       const Arguments& arguments,
                                                       absl::Span<const absl::string_view> names,
                                                       size_t required);
// An argument as a number or a text; TypeError names the callee.
absl::StatusOr<int64_t> AsIndex(const Value& value, absl::string_view callee);
absl::StatusOr<std::string> AsText(const Value& value, absl::string_view callee);

}  // namespace bulkhead::jinja
