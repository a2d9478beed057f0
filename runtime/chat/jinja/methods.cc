// Methods of dicts and lists.
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "runtime/chat/jinja/evaluator.h"
#include "runtime/chat/jinja/objects.h"
#include "runtime/chat/jinja/operators.h"

namespace bulkhead::jinja {
namespace {

using Table = absl::flat_hash_map<absl::string_view, Method::Body>;

absl::StatusOr<Value> Changes(Evaluator& /*evaluator*/, const Value& self,
                              const Arguments& /*arguments*/) {
  return absl::InvalidArgumentError(absl::StrCat(
      "a '", TypeName(self), "' cannot be changed in place in a chat template; make a new one"));
}

template <Sequence::Type kType>
absl::StatusOr<Value> DictView(Evaluator& evaluator, const Value& self,
                               const Arguments& arguments) {
  BH_RETURN_IF_ERROR(Bind("dict method", arguments, {}, 0).status());
  const auto& entries = self.dict().entries;
  BH_RETURN_IF_ERROR(evaluator.meter()->Reserve(entries.size() * 4 * sizeof(Value)));
  std::vector<Value> items;
  for (const auto& [key, value] : entries) {
    items.push_back(kType == Sequence::Type::kKeys ? key
                    : kType == Sequence::Type::kValues
                        ? value
                        : evaluator.List({key, value}, Sequence::Type::kTuple));
  }
  return evaluator.List(std::move(items), kType);
}

absl::StatusOr<Value> DictGet(Evaluator& /*evaluator*/, const Value& self,
                              const Arguments& arguments) {
  BH_ASSIGN_OR_RETURN(auto bound, Bind("get", arguments, {"key", "default"}, 1));
  BH_RETURN_IF_ERROR(HashKey(*bound[0]).status());
  const Value* found = self.dict().Find(*bound[0]);
  return found != nullptr ? *found : bound[1].value_or(Value());
}

absl::StatusOr<Value> Itself(Evaluator& /*evaluator*/, const Value& self,
                             const Arguments& arguments) {
  BH_RETURN_IF_ERROR(Bind("copy", arguments, {}, 0).status());
  return self;  // values do not change
}

template <bool kCount>
absl::StatusOr<Value> FindItem(Evaluator& evaluator, const Value& self,
                               const Arguments& arguments) {
  BH_ASSIGN_OR_RETURN(auto bound, Bind("index", arguments, {"value"}, 1));
  int64_t count = 0;
  const std::vector<Value>& items = self.sequence().items;
  for (size_t i = 0; i < items.size(); ++i) {
    BH_ASSIGN_OR_RETURN(bool same, Equal(items[i], *bound[0], evaluator.meter()));
    if (same && !kCount) return Value::Integer(static_cast<int64_t>(i));
    count += same;
  }
  if (!kCount) return ValueError("the value is not in the list");
  return Value::Integer(count);
}

Method::Body Look(const Table& table, absl::string_view name) {
  const auto found = table.find(name);
  return found == table.end() ? nullptr : found->second;
}

}  // namespace

Method::Body DictMethod(absl::string_view name) {
  static const auto* const kTable = new Table{
      {"items", DictView<Sequence::Type::kItems>},
      {"keys", DictView<Sequence::Type::kKeys>},
      {"values", DictView<Sequence::Type::kValues>},
      {"get", DictGet},
      {"copy", Itself},
      {"clear", Changes},
      {"pop", Changes},
      {"popitem", Changes},
      {"setdefault", Changes},
      {"update", Changes},
  };
  return Look(*kTable, name);
}

Method::Body SequenceMethod(absl::string_view name) {
  static const auto* const kTable = new Table{
      {"index", FindItem<false>}, {"count", FindItem<true>}, {"copy", Itself},
      {"append", Changes},        {"clear", Changes},        {"extend", Changes},
      {"insert", Changes},        {"pop", Changes},          {"remove", Changes},
      {"reverse", Changes},       {"sort", Changes},
  };
  return Look(*kTable, name);
}

}  // namespace bulkhead::jinja
