// map, select, reject, selectattr and rejectattr. Jinja2's are lazy; these compute at once.
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "runtime/chat/jinja/evaluator.h"
#include "runtime/chat/jinja/filters.h"

namespace bulkhead::jinja {
namespace {

// The arguments after the first `count`.
Arguments Rest(const Arguments& arguments, size_t count) {
  Arguments rest = arguments;
  rest.positional.erase(rest.positional.begin(), rest.positional.begin() + count);
  return rest;
}

absl::StatusOr<Value> Map(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  if (!Truth(value)) return evaluator.List({}, Sequence::Type::kGenerator);
  std::optional<Value> attribute, standard;
  if (arguments.positional.empty()) {
    BH_ASSIGN_OR_RETURN(auto bound, Bind("map", arguments, {"attribute", "default"}, 1));
    attribute = bound[0];
    standard = bound[1];
  }
  BH_ASSIGN_OR_RETURN(std::vector<Value> items, Items(value, evaluator.meter()));
  std::vector<Value> result;
  for (const Value& item : items) {
    Value mapped;
    if (attribute.has_value()) {
      BH_ASSIGN_OR_RETURN(mapped, AtPath(evaluator, item, *attribute, standard.value_or(Value())));
    } else {
      BH_ASSIGN_OR_RETURN(std::string name, AsText(arguments.positional[0], "map"));
      BH_ASSIGN_OR_RETURN(mapped, CallFilter(evaluator, name, item, Rest(arguments, 1)));
    }
    result.push_back(std::move(mapped));
  }
  return evaluator.List(std::move(result), Sequence::Type::kGenerator);
}

template <bool kByAttribute, bool kKeep>
absl::StatusOr<Value> Select(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  if (!Truth(value)) return evaluator.List({}, Sequence::Type::kGenerator);
  constexpr size_t kFirst = kByAttribute ? 1 : 0;
  if (arguments.positional.size() < kFirst) return TypeError("missing the name of an attribute");
  std::string test;
  Arguments rest;
  if (arguments.positional.size() > kFirst) {
    BH_ASSIGN_OR_RETURN(test, AsText(arguments.positional[kFirst], "select"));
    rest = Rest(arguments, kFirst + 1);
  }
  BH_ASSIGN_OR_RETURN(std::vector<Value> items, Items(value, evaluator.meter()));
  std::vector<Value> result;
  for (Value& item : items) {
    Value tested = item;
    if (kByAttribute) {
      BH_ASSIGN_OR_RETURN(tested, AtPath(evaluator, item, arguments.positional[0]));
    }
    bool passed = false;
    if (test.empty()) {
      passed = Truth(tested);
    } else {
      BH_ASSIGN_OR_RETURN(passed, CallTest(evaluator, test, tested, rest));
    }
    if (passed == kKeep) result.push_back(std::move(item));
  }
  return evaluator.List(std::move(result), Sequence::Type::kGenerator);
}

}  // namespace

void AddSelectFilters(FilterTable* table) {
  const std::pair<absl::string_view, Filter> all[] = {{"map", Map},
                                                      {"select", Select<false, true>},
                                                      {"reject", Select<false, false>},
                                                      {"selectattr", Select<true, true>},
                                                      {"rejectattr", Select<true, false>}};
  for (const auto& [name, filter] : all) table->emplace(name, filter);
}

}  // namespace bulkhead::jinja
