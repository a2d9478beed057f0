#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "runtime/chat/jinja/evaluator.h"
#include "runtime/chat/jinja/format.h"
#include "runtime/chat/jinja/operators.h"

namespace bulkhead::jinja {

using Kind = Statement::Kind;

// Redirects output to its own text, with its own scope, during its lifetime.
class Evaluator::OutputTo {
 public:
  OutputTo(Evaluator* evaluator, std::shared_ptr<Scope> scope)
      : evaluator_(evaluator), outer_output_(evaluator->output_), outer_scope_(evaluator->scope_) {
    evaluator_->output_ = &text_;
    evaluator_->scope_ = std::move(scope);
  }
  ~OutputTo() {
    evaluator_->meter_->GiveBack(static_cast<int64_t>(text_.size()));
    evaluator_->output_ = outer_output_;
    evaluator_->scope_ = outer_scope_;
  }
  // The text as a value. Called once.
  Value Take() {
    Value value = evaluator_->Text(text_);
    return value;
  }

 private:
  Evaluator* evaluator_;
  std::string* outer_output_;
  std::shared_ptr<Scope> outer_scope_;
  std::string text_;
};

Evaluator::~Evaluator() {
  for (const auto& space : namespaces_) space->attributes->entries.clear();
  for (const auto& scope : scopes_of_macros_) scope->variables.clear();
}

absl::StatusOr<std::string> Evaluator::Run(const Root& root, Value context) {
  context_ = std::move(context);
  scope_ = std::make_shared<Scope>(nullptr);
  std::string text;
  output_ = &text;
  const absl::StatusOr<Flow> flow = RunBlock(root.body);
  meter_->GiveBack(static_cast<int64_t>(text.size()));
  if (!flow.ok()) return flow.status();
  return text;
}

absl::Status Evaluator::Raise(std::string message) {
  located_ = true;
  return absl::InvalidArgumentError(message);
}

absl::Status Evaluator::Located(absl::Status status, int line) {
  if (located_) return status;
  located_ = true;
  return absl::Status(status.code(), absl::StrCat("line ", line, ": ", status.message()));
}

std::shared_ptr<Namespace> Evaluator::NewNamespace() {
  namespaces_.push_back(std::make_shared<Namespace>(meter_));
  meter_->Take(sizeof(Namespace) + sizeof(Dict));
  return namespaces_.back();
}

absl::StatusOr<Evaluator::Flow> Evaluator::RunBlock(const Block& block) {
  BH_RETURN_IF_ERROR(meter_->Enter());
  Flow flow = Flow::kNormal;
  for (const auto& statement : block) {
    const absl::Status step = meter_->Step();
    const absl::StatusOr<Flow> next = step.ok() ? RunStatement(*statement) : step;
    if (!next.ok()) {
      meter_->Leave();
      return Located(next.status(), statement->line);
    }
    flow = *next;
    if (flow != Flow::kNormal) break;
  }
  meter_->Leave();
  return flow;
}

absl::StatusOr<Evaluator::Flow> Evaluator::RunStatement(const Statement& statement) {
  switch (statement.kind) {
    case Kind::kText:
      BH_RETURN_IF_ERROR(Emit(statement.text.text()));
      return Flow::kNormal;
    case Kind::kPrint: {
      BH_ASSIGN_OR_RETURN(Value value, Eval(*statement.expression));
      BH_RETURN_IF_ERROR(Print(value));
      return Flow::kNormal;
    }
    case Kind::kIf:
      return RunIf(statement);
    case Kind::kFor:
      BH_RETURN_IF_ERROR(RunFor(statement));
      return Flow::kNormal;
    case Kind::kSet: {
      BH_ASSIGN_OR_RETURN(Value value, Eval(*statement.expression));
      BH_RETURN_IF_ERROR(Assign(statement.target, value));
      return Flow::kNormal;
    }
    case Kind::kMacro:
      scope_->Set(statement.name, Value(std::shared_ptr<const Object>(NewMacro(statement))));
      return Flow::kNormal;
    case Kind::kCall:
      BH_RETURN_IF_ERROR(RunCallBlock(statement));
      return Flow::kNormal;
    case Kind::kSetBlock:
    case Kind::kFilter:
      return RunSetOrFilterBlock(statement);
    case Kind::kWith:
    case Kind::kGroup:
      return RunScoped(statement);
    case Kind::kBreak:
      return Flow::kBreak;
    case Kind::kContinue:
      return Flow::kContinue;
  }
  return absl::InternalError("a statement of no kind");
}

absl::StatusOr<Evaluator::Flow> Evaluator::RunIf(const Statement& statement) {
  for (size_t i = 0; i < statement.branches.size(); ++i) {
    BH_ASSIGN_OR_RETURN(Value condition, Eval(*statement.values[i]));
    if (Truth(condition)) return RunBlock(statement.branches[i]);
  }
  return RunBlock(statement.otherwise);
}

absl::StatusOr<Evaluator::Flow> Evaluator::RunScoped(const Statement& statement) {
  std::vector<Value> values;
  for (const ExpressionPtr& each : statement.values) {
    BH_ASSIGN_OR_RETURN(Value value, Eval(*each));
    values.push_back(std::move(value));
  }
  const std::shared_ptr<Scope> outer = scope_;
  scope_ = std::make_shared<Scope>(outer);
  absl::StatusOr<Flow> flow = Flow::kNormal;
  for (size_t i = 0; i < values.size() && flow.ok(); ++i) {
    const absl::Status assigned = Assign(statement.targets[i], values[i]);
    if (!assigned.ok()) flow = assigned;
  }
  if (flow.ok()) flow = RunBlock(statement.body);
  scope_ = outer;
  return flow;
}

absl::StatusOr<std::vector<Value>> Evaluator::LoopItems(const Statement& statement,
                                                        const Value& over) {
  BH_ASSIGN_OR_RETURN(std::vector<Value> items, Items(over, meter_));
  if (statement.condition == nullptr) return items;
  std::vector<Value> chosen;
  const std::shared_ptr<Scope> outer = scope_;
  absl::Status status;
  for (Value& item : items) {
    scope_ = std::make_shared<Scope>(outer);
    status = Assign(statement.target, item);
    if (!status.ok()) break;
    const absl::StatusOr<Value> passed = Eval(*statement.condition);
    status = passed.status();
    if (!status.ok()) break;
    if (Truth(*passed)) chosen.push_back(std::move(item));
  }
  scope_ = outer;
  BH_RETURN_IF_ERROR(status);
  return chosen;
}

absl::Status Evaluator::RunFor(const Statement& statement) {
  BH_ASSIGN_OR_RETURN(Value over, Eval(*statement.expression));
  BH_ASSIGN_OR_RETURN(std::vector<Value> items, LoopItems(statement, over));
  return RunLoop(statement, std::move(items), 0);
}

absl::Status Evaluator::RunLoop(const Statement& statement, std::vector<Value> items, int depth) {
  const std::shared_ptr<Scope> outer = scope_;
  const size_t count = items.size();
  const int64_t bytes = static_cast<int64_t>(count * sizeof(Value));
  auto loop = std::make_shared<Loop>();
  loop->statement = &statement;
  loop->scope = outer;
  loop->items = std::move(items);
  loop->length = static_cast<int64_t>(count);
  loop->depth = depth;
  meter_->Take(bytes);
  absl::Status status;
  bool broken = false, any_ran_through = false;
  for (size_t i = 0; i < count && status.ok() && !broken; ++i) {
    loop->index = static_cast<int64_t>(i);
    scope_ = std::make_shared<Scope>(outer);
    scope_->Set("loop", Value(std::shared_ptr<const Object>(loop)));
    status = Assign(statement.target, loop->items[i]);
    if (!status.ok()) break;
    const absl::StatusOr<Flow> flow = RunBlock(statement.body);
    status = flow.status();
    broken = flow.ok() && *flow == Flow::kBreak;
    any_ran_through = any_ran_through || (flow.ok() && *flow == Flow::kNormal);
  }
  scope_ = outer;
  meter_->GiveBack(bytes);
  loop->End();
  BH_RETURN_IF_ERROR(status);
  // As in Jinja2, {% else %} also runs after a loop if every iteration broke or continued.
  if (any_ran_through) return absl::OkStatus();
  scope_ = std::make_shared<Scope>(outer);
  status = RunBlock(statement.otherwise).status();
  scope_ = outer;
  return status;
}

absl::StatusOr<Value> Evaluator::CallLoop(const Loop& loop, const Value& over) {
  if (loop.scope == nullptr) return TypeError("the loop has ended");
  if (!loop.statement->recursive) {
    return TypeError("the loop must have the 'recursive' marker to be called recursively");
  }
  OutputTo output(this, loop.scope);
  BH_ASSIGN_OR_RETURN(std::vector<Value> items, LoopItems(*loop.statement, over));
  BH_RETURN_IF_ERROR(RunLoop(*loop.statement, std::move(items), loop.depth + 1));
  return output.Take();
}

absl::StatusOr<Evaluator::Flow> Evaluator::RunSetOrFilterBlock(const Statement& statement) {
  Value value;
  {
    OutputTo output(this, std::make_shared<Scope>(scope_));
    BH_ASSIGN_OR_RETURN(Flow flow, RunBlock(statement.body));
    if (flow != Flow::kNormal) return flow;
    value = output.Take();
  }
  if (statement.expression != nullptr) {
    BH_ASSIGN_OR_RETURN(value, EvalFilter(*statement.expression, &value));
  }
  const bool sets = statement.kind == Statement::Kind::kSetBlock;
  BH_RETURN_IF_ERROR(sets ? Assign(statement.target, value) : Print(value));
  return Flow::kNormal;
}

absl::Status Evaluator::RunCallBlock(const Statement& statement) {
  const Value caller(std::shared_ptr<const Object>(NewMacro(statement)));
  BH_ASSIGN_OR_RETURN(Value value, EvalCall(*statement.expression, &caller));
  return Print(value);
}

absl::Status Evaluator::Print(const Value& value) {
  if (value.is_string()) return Emit(value.text());
  BH_ASSIGN_OR_RETURN(std::string text, Str(value, meter_));
  return Emit(text);
}

absl::Status Evaluator::Emit(absl::string_view text) {
  const int64_t limit = meter_->limits().max_output_bytes;
  if (static_cast<int64_t>(output_->size() + text.size()) > limit) {
    return meter_->Exceeded("bytes of output", "max_output_bytes", limit);
  }
  BH_RETURN_IF_ERROR(meter_->Reserve(static_cast<int64_t>(text.size())));
  meter_->Take(static_cast<int64_t>(text.size()));
  output_->append(text.data(), text.size());
  return absl::OkStatus();
}

absl::Status Evaluator::Assign(const Target& target, const Value& value, int depth) {
  if (!target.attribute.empty()) {
    const Value space = Lookup(target.name);
    const auto* object =
        space.is_object() ? dynamic_cast<const Namespace*>(&space.object()) : nullptr;
    if (object == nullptr) {
      return absl::InvalidArgumentError("cannot assign attribute on non-namespace object");
    }
    return object->attributes->Set(Text(target.attribute), value);
  }
  if (!target.is_tuple) {
    scope_->Set(target.name, value);
    return absl::OkStatus();
  }
  if (value.is_undefined() || value.is_none() || value.is_number() || value.is_object()) {
    if (!value.is_undefined()) {
      return TypeError(absl::StrCat("cannot unpack non-iterable ", TypeName(value), " object"));
    }
  }
  BH_ASSIGN_OR_RETURN(std::vector<Value> items, Items(value, meter_));
  if (items.size() != target.parts.size()) {
    return ValueError(absl::StrCat(items.size(), " values for ", target.parts.size(), " names"));
  }
  for (size_t i = 0; i < items.size(); ++i) {
    BH_RETURN_IF_ERROR(Assign(target.parts[i], items[i], depth + 1));
  }
  return absl::OkStatus();
}

std::shared_ptr<Macro> Evaluator::NewMacro(const Statement& statement) {
  auto macro = std::make_shared<Macro>();
  macro->statement = &statement;
  macro->scope = scope_;
  meter_->Take(sizeof(Macro) + sizeof(std::shared_ptr<Scope>));
  if (scopes_of_macros_.empty() || scopes_of_macros_.back() != scope_) {
    scopes_of_macros_.push_back(scope_);
  }
  return macro;
}

// Arguments as variables of scope_, in which the body will run.
absl::Status Evaluator::BindMacro(const Macro& macro, Arguments* arguments) {
  const Statement& statement = *macro.statement;
  const absl::string_view name = statement.name;
  std::vector<bool> named_used(arguments->named.size(), false);
  const auto take_named = [&](absl::string_view wanted) -> const Value* {
    for (size_t i = 0; i < named_used.size(); ++i) {
      if (named_used[i] || arguments->named[i].first != wanted) continue;
      named_used[i] = true;
      return &arguments->named[i].second;
    }
    return nullptr;
  };
  const size_t count = statement.parameters.size();
  for (size_t i = 0; i < count; ++i) {
    const Parameter& parameter = statement.parameters[i];
    Value value =
        Value::Missing(absl::StrCat("parameter '", parameter.name, "' was not provided"), meter_);
    if (i < arguments->positional.size()) {
      value = arguments->positional[i];
    } else if (const Value* named = take_named(parameter.name)) {
      value = *named;
    } else if (parameter.standard != nullptr) {
      BH_ASSIGN_OR_RETURN(value, Eval(*parameter.standard));
    }
    scope_->Set(parameter.name, std::move(value));
  }
  if (statement.uses_caller) {
    const Value* caller = take_named("caller");
    scope_->Set("caller", caller != nullptr ? *caller : Value::Missing("No caller defined"));
  }
  auto rest = std::make_shared<Dict>(meter_);
  for (size_t i = 0; i < named_used.size(); ++i) {
    if (named_used[i]) continue;
    if (!statement.uses_kwargs) {
      return TypeError(absl::StrCat("macro '", name, "' takes no keyword argument '",
                                    arguments->named[i].first, "'"));
    }
    BH_RETURN_IF_ERROR(rest->Set(Text(arguments->named[i].first), arguments->named[i].second));
  }
  if (statement.uses_kwargs) scope_->Set("kwargs", Value(std::shared_ptr<const Dict>(rest)));
  std::vector<Value> more;
  for (size_t i = count; i < arguments->positional.size(); ++i) {
    more.push_back(arguments->positional[i]);
  }
  if (statement.uses_varargs) {
    scope_->Set("varargs", List(std::move(more), Sequence::Type::kTuple));
  } else if (!more.empty()) {
    return TypeError(
        absl::StrCat("macro '", name, "' takes not more than ", count, " argument(s)"));
  }
  return absl::OkStatus();
}

absl::StatusOr<Value> Evaluator::CallMacro(const Macro& macro, Arguments arguments) {
  OutputTo output(this, std::make_shared<Scope>(macro.scope));
  BH_RETURN_IF_ERROR(BindMacro(macro, &arguments));
  BH_RETURN_IF_ERROR(RunBlock(macro.statement->body).status());
  return output.Take();
}

}  // namespace bulkhead::jinja
