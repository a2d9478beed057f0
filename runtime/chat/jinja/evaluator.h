// Evaluator: one render of a template. Used by one thread.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "runtime/chat/jinja/ast.h"
#include "runtime/chat/jinja/objects.h"
#include "runtime/chat/jinja/value.h"

namespace bulkhead::jinja {

class Evaluator {
 public:
  // `meter` outlives the values that the render makes.
  Evaluator(Meter* meter, absl::Time now) : meter_(meter), now_(now) {}
  ~Evaluator();
  Evaluator(const Evaluator&) = delete;
  Evaluator& operator=(const Evaluator&) = delete;

  // Errors begin with "line 3: ", except errors of raise_exception.
  absl::StatusOr<std::string> Run(const Root& root, Value context);

  Meter* meter() { return meter_; }
  absl::Time now() const { return now_; }
  Value Text(std::string text) { return Value::Text(std::move(text), meter_); }
  Value List(std::vector<Value> items, Sequence::Type type = Sequence::Type::kList) {
    return Value::List(std::move(items), meter_, type);
  }
  std::shared_ptr<Namespace> NewNamespace();

  absl::StatusOr<Value> Call(const Value& callee, Arguments arguments);
  // value.name and value[key], with Python's and Jinja2's order of attributes and items.
  absl::StatusOr<Value> GetAttribute(const Value& value, absl::string_view name);
  absl::StatusOr<Value> GetItem(const Value& value, const Value& key);
  absl::StatusOr<Value> CallMacro(const Macro& macro, Arguments arguments);
  // The output of a loop that calls itself recursively.
  absl::StatusOr<Value> CallLoop(const Loop& loop, const Value& items);
  // raise_exception: the message reaches the caller of the render unchanged.
  absl::Status Raise(std::string message);

 private:
  enum class Flow { kNormal, kBreak, kContinue };
  class OutputTo;

  // evaluator_statements.cc
  absl::StatusOr<Flow> RunBlock(const Block& block);
  absl::StatusOr<Flow> RunStatement(const Statement& statement);
  absl::StatusOr<Flow> RunIf(const Statement& statement);
  absl::StatusOr<Flow> RunScoped(const Statement& statement);
  absl::Status RunFor(const Statement& statement);
  absl::Status RunLoop(const Statement& statement, std::vector<Value> items, int depth);
  absl::StatusOr<std::vector<Value>> LoopItems(const Statement& statement, const Value& over);
  absl::StatusOr<Flow> RunSetOrFilterBlock(const Statement& statement);
  absl::Status RunCallBlock(const Statement& statement);
  absl::Status Print(const Value& value);
  absl::Status Emit(absl::string_view text);
  absl::Status Assign(const Target& target, const Value& value, int depth = 0);
  std::shared_ptr<Macro> NewMacro(const Statement& statement);
  absl::Status BindMacro(const Macro& macro, Arguments* arguments);
  absl::Status Located(absl::Status status, int line);

  // evaluator.cc
  absl::StatusOr<Value> Eval(const Expression& expression);
  absl::StatusOr<Value> EvalInside(const Expression& expression);
  absl::StatusOr<Value> EvalSequence(const Expression& expression);
  absl::StatusOr<Value> EvalSlice(const Expression& expression);
  absl::StatusOr<Value> EvalCall(const Expression& expression, const Value* caller = nullptr);
  absl::StatusOr<Value> EvalFilter(const Expression& expression, const Value* input);
  absl::StatusOr<Value> EvalCompare(const Expression& expression);
  absl::StatusOr<Value> EvalConcat(const Expression& expression);
  absl::StatusOr<Arguments> EvalArguments(const CallArguments& arguments);
  Value Lookup(absl::string_view name) const;
  std::optional<Method::Body> MethodOf(const Value& value, absl::string_view name) const;

  Meter* const meter_;
  const absl::Time now_;
  std::shared_ptr<Scope> scope_;
  Value context_;
  std::string* output_ = nullptr;
  bool located_ = false;  // the current error already has its line
  // Objects that may refer to themselves; emptied at the end.
  std::vector<std::shared_ptr<Namespace>> namespaces_;
  std::vector<std::shared_ptr<Scope>> scopes_of_macros_;
};

}  // namespace bulkhead::jinja
