// Filters of lists and dicts.
#include <algorithm>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status.h"
#include "runtime/chat/jinja/evaluator.h"
#include "runtime/chat/jinja/filters.h"
#include "runtime/chat/jinja/operators.h"
#include "runtime/chat/jinja/unicode_text.h"

namespace bulkhead::jinja {
namespace {

bool Given(const std::optional<Value>& value) { return value.has_value() && !value->is_none(); }
bool IsTrue(const std::optional<Value>& value) { return value.has_value() && Truth(*value); }

absl::StatusOr<Value> LengthFilter(Evaluator& /*evaluator*/, const Value& value,
                                   const Arguments& arguments) {
  BH_RETURN_IF_ERROR(Bind("length", arguments, {}, 0).status());
  BH_ASSIGN_OR_RETURN(int64_t length, Length(value));
  return Value::Integer(length);
}

absl::StatusOr<Value> First(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  BH_RETURN_IF_ERROR(Bind("first", arguments, {}, 0).status());
  if (value.is_sequence()) {
    const Sequence& sequence = value.sequence();
    if (sequence.next == sequence.items.size()) {
      return Value::Missing("No first item, sequence was empty.");
    }
    const Value item = sequence.items[sequence.next];
    if (value.is_generator()) ++sequence.next;
    return item;
  }
  BH_ASSIGN_OR_RETURN(std::vector<Value> items, Items(value, evaluator.meter()));
  return items.empty() ? Value::Missing("No first item, sequence was empty.") : items.front();
}

absl::StatusOr<Value> Last(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  BH_RETURN_IF_ERROR(Bind("last", arguments, {}, 0).status());
  if (value.is_generator()) return TypeError("'generator' object is not reversible");
  BH_ASSIGN_OR_RETURN(std::vector<Value> items, Items(value, evaluator.meter()));
  return items.empty() ? Value::Missing("No last item, sequence was empty.") : items.back();
}

absl::StatusOr<Value> ListFilter(Evaluator& evaluator, const Value& value,
                                 const Arguments& arguments) {
  BH_RETURN_IF_ERROR(Bind("list", arguments, {}, 0).status());
  BH_ASSIGN_OR_RETURN(std::vector<Value> items, Items(value, evaluator.meter()));
  return evaluator.List(std::move(items));
}

absl::StatusOr<Value> ReverseFilter(Evaluator& evaluator, const Value& value,
                                    const Arguments& arguments) {
  BH_RETURN_IF_ERROR(Bind("reverse", arguments, {}, 0).status());
  BH_ASSIGN_OR_RETURN(std::vector<Value> items, Items(value, evaluator.meter()));
  std::reverse(items.begin(), items.end());
  if (!value.is_string()) return evaluator.List(std::move(items), Sequence::Type::kGenerator);
  std::string text;
  for (const Value& item : items) text += item.text();
  return evaluator.Text(std::move(text));
}

absl::StatusOr<Value> ItemsFilter(Evaluator& evaluator, const Value& value,
                                  const Arguments& arguments) {
  BH_RETURN_IF_ERROR(Bind("items", arguments, {}, 0).status());
  std::vector<Value> items;
  if (!value.is_undefined()) {
    if (!value.is_dict()) return TypeError("can only get item pairs from a mapping");
    BH_RETURN_IF_ERROR(evaluator.meter()->Reserve(value.dict().entries.size() * 4 * sizeof(Value)));
    for (const auto& [key, each] : value.dict().entries) {
      items.push_back(evaluator.List({key, each}, Sequence::Type::kTuple));
    }
  }
  return evaluator.List(std::move(items), Sequence::Type::kGenerator);
}

// Keys of sort(): the value at each path of `attribute`, texts in lower case unless told otherwise.
struct Keyed {
  std::vector<Value> keys;
  Value value;
};

absl::StatusOr<std::vector<Keyed>> WithKeys(Evaluator& evaluator, std::vector<Value> items,
                                            const std::optional<Value>& attribute,
                                            bool case_sensitive, bool several) {
  std::vector<Value> paths;
  if (Given(attribute) && attribute->is_string() && several) {
    for (const absl::string_view path : absl::StrSplit(attribute->text(), ',')) {
      paths.push_back(evaluator.Text(std::string(path)));
    }
  } else if (Given(attribute)) {
    paths.push_back(*attribute);
  }
  std::vector<Keyed> keyed;
  for (Value& item : items) {
    Keyed each;
    if (paths.empty()) each.keys.push_back(item);
    for (const Value& path : paths) {
      BH_ASSIGN_OR_RETURN(Value key, AtPath(evaluator, item, path));
      each.keys.push_back(std::move(key));
    }
    for (Value& key : each.keys) {
      if (!key.is_string() || case_sensitive) continue;
      BH_RETURN_IF_ERROR(evaluator.meter()->HandleBytes(key.text().size()));
      key = evaluator.Text(ToLower(key.text()));
    }
    each.value = std::move(item);
    keyed.push_back(std::move(each));
  }
  return keyed;
}

absl::Status SortKeyed(Evaluator& evaluator, bool reverse, std::vector<Keyed>* keyed) {
  absl::Status status;
  const auto before = [&](const Keyed& a, const Keyed& b) {
    for (size_t i = 0; i < a.keys.size() && status.ok(); ++i) {
      const absl::StatusOr<bool> same = Equal(a.keys[i], b.keys[i], evaluator.meter());
      if (!same.ok()) status = same.status();
      if (!same.ok() || *same) continue;
      const absl::StatusOr<int> order = Compare(a.keys[i], b.keys[i], "<", evaluator.meter());
      if (!order.ok()) status = order.status();
      return order.ok() && *order < 0;
    }
    return false;
  };
  std::stable_sort(keyed->begin(), keyed->end(), [&](const Keyed& a, const Keyed& b) {
    return reverse ? before(b, a) : before(a, b);
  });
  return status;
}

absl::StatusOr<Value> Sort(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  BH_ASSIGN_OR_RETURN(auto bound,
                      Bind("sort", arguments, {"reverse", "case_sensitive", "attribute"}, 0));
  BH_ASSIGN_OR_RETURN(std::vector<Value> items, Items(value, evaluator.meter()));
  BH_ASSIGN_OR_RETURN(std::vector<Keyed> keyed,
                      WithKeys(evaluator, std::move(items), bound[2], IsTrue(bound[1]), true));
  BH_RETURN_IF_ERROR(SortKeyed(evaluator, IsTrue(bound[0]), &keyed));
  std::vector<Value> sorted;
  for (Keyed& each : keyed) sorted.push_back(std::move(each.value));
  return evaluator.List(std::move(sorted));
}

absl::StatusOr<Value> DictSort(Evaluator& evaluator, const Value& value,
                               const Arguments& arguments) {
  BH_ASSIGN_OR_RETURN(auto bound,
                      Bind("dictsort", arguments, {"case_sensitive", "by", "reverse"}, 0));
  if (value.is_undefined()) return UndefinedError(value);
  if (!value.is_dict()) return TypeError("dictsort needs a dict");
  std::string by = "key";
  if (bound[1].has_value()) {
    BH_ASSIGN_OR_RETURN(by, AsText(*bound[1], "dictsort"));
  }
  if (by != "key" && by != "value") return ValueError("dictsort is by \"key\" or \"value\"");
  std::vector<Value> items;
  for (const auto& [key, each] : value.dict().entries) {
    items.push_back(evaluator.List({key, each}, Sequence::Type::kTuple));
  }
  BH_ASSIGN_OR_RETURN(std::vector<Keyed> keyed,
                      WithKeys(evaluator, std::move(items), Value::Integer(by == "key" ? 0 : 1),
                               IsTrue(bound[0]), false));
  BH_RETURN_IF_ERROR(SortKeyed(evaluator, IsTrue(bound[2]), &keyed));
  std::vector<Value> sorted;
  for (Keyed& each : keyed) sorted.push_back(std::move(each.value));
  return evaluator.List(std::move(sorted));
}

absl::StatusOr<Value> Unique(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  BH_ASSIGN_OR_RETURN(auto bound, Bind("unique", arguments, {"case_sensitive", "attribute"}, 0));
  BH_ASSIGN_OR_RETURN(std::vector<Value> items, Items(value, evaluator.meter()));
  BH_ASSIGN_OR_RETURN(std::vector<Keyed> keyed,
                      WithKeys(evaluator, std::move(items), bound[1], IsTrue(bound[0]), false));
  absl::flat_hash_set<std::string> seen;
  std::vector<Value> result;
  for (Keyed& each : keyed) {
    BH_ASSIGN_OR_RETURN(std::string key, HashKey(each.keys[0]));
    if (seen.insert(std::move(key)).second) result.push_back(std::move(each.value));
  }
  return evaluator.List(std::move(result), Sequence::Type::kGenerator);
}

template <bool kLargest>
absl::StatusOr<Value> Extreme(Evaluator& evaluator, const Value& value,
                              const Arguments& arguments) {
  BH_ASSIGN_OR_RETURN(auto bound, Bind("min", arguments, {"case_sensitive", "attribute"}, 0));
  BH_ASSIGN_OR_RETURN(std::vector<Value> items, Items(value, evaluator.meter()));
  if (items.empty()) return Value::Missing("No aggregated item, sequence was empty.");
  BH_ASSIGN_OR_RETURN(std::vector<Keyed> keyed,
                      WithKeys(evaluator, std::move(items), bound[1], IsTrue(bound[0]), false));
  size_t best = 0;
  for (size_t i = 1; i < keyed.size(); ++i) {
    BH_ASSIGN_OR_RETURN(bool better, Relation(kLargest ? ">" : "<", keyed[i].keys[0],
                                              keyed[best].keys[0], evaluator.meter()));
    if (better) best = i;
  }
  return keyed[best].value;
}

absl::StatusOr<Value> Sum(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  BH_ASSIGN_OR_RETURN(auto bound, Bind("sum", arguments, {"attribute", "start"}, 0));
  BH_ASSIGN_OR_RETURN(std::vector<Value> items, Items(value, evaluator.meter()));
  Value sum = bound[1].value_or(Value::Integer(0));
  if (sum.is_string()) return TypeError("sum() can't sum strings");
  for (const Value& item : items) {
    Value each = item;
    if (Given(bound[0])) {
      BH_ASSIGN_OR_RETURN(each, AtPath(evaluator, item, *bound[0]));
    }
    BH_ASSIGN_OR_RETURN(sum, Binary("+", sum, each, evaluator.meter()));
  }
  return sum;
}

// batch and slice: the lists of a generator.
absl::StatusOr<Value> Batch(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  BH_ASSIGN_OR_RETURN(auto bound, Bind("batch", arguments, {"linecount", "fill_with"}, 1));
  BH_ASSIGN_OR_RETURN(int64_t size, AsIndex(*bound[0], "batch"));
  BH_ASSIGN_OR_RETURN(std::vector<Value> items, Items(value, evaluator.meter()));
  std::vector<Value> lists, row;
  for (Value& item : items) {
    if (static_cast<int64_t>(row.size()) == size) {
      lists.push_back(evaluator.List(std::move(row)));
      row.clear();
    }
    row.push_back(std::move(item));
  }
  if (!row.empty()) {
    if (Given(bound[1]) && size > static_cast<int64_t>(row.size())) {
      BH_RETURN_IF_ERROR(
          evaluator.meter()->Reserve(std::min<int64_t>(size, 1 << 30) * sizeof(Value)));
      row.resize(size, *bound[1]);
    }
    lists.push_back(evaluator.List(std::move(row)));
  }
  return evaluator.List(std::move(lists), Sequence::Type::kGenerator);
}

absl::StatusOr<Value> SliceFilter(Evaluator& evaluator, const Value& value,
                                  const Arguments& arguments) {
  BH_ASSIGN_OR_RETURN(auto bound, Bind("slice", arguments, {"slices", "fill_with"}, 1));
  BH_ASSIGN_OR_RETURN(int64_t slices, AsIndex(*bound[0], "slice"));
  BH_ASSIGN_OR_RETURN(std::vector<Value> items, Items(value, evaluator.meter()));
  if (slices == 0) return ValueError("division by zero");
  if (slices > 0)
    BH_RETURN_IF_ERROR(evaluator.meter()->Reserve(std::min<int64_t>(slices, 1 << 30) * 128));
  const int64_t count = static_cast<int64_t>(items.size());
  const int64_t each = slices > 0 ? count / slices : 0, more = slices > 0 ? count % slices : 0;
  std::vector<Value> lists;
  for (int64_t i = 0, at = 0; i < slices; ++i) {
    const int64_t size = each + (i < more ? 1 : 0);
    std::vector<Value> part(items.begin() + at, items.begin() + at + size);
    at += size;
    if (Given(bound[1]) && i >= more) part.push_back(*bound[1]);
    lists.push_back(evaluator.List(std::move(part)));
  }
  return evaluator.List(std::move(lists), Sequence::Type::kGenerator);
}

}  // namespace

void AddSequenceFilters(FilterTable* table) {
  const std::pair<absl::string_view, Filter> all[] = {{"batch", Batch},
                                                      {"count", LengthFilter},
                                                      {"dictsort", DictSort},
                                                      {"first", First},
                                                      {"items", ItemsFilter},
                                                      {"last", Last},
                                                      {"length", LengthFilter},
                                                      {"list", ListFilter},
                                                      {"max", Extreme<true>},
                                                      {"min", Extreme<false>},
                                                      {"reverse", ReverseFilter},
                                                      {"slice", SliceFilter},
                                                      {"sort", Sort},
                                                      {"sum", Sum},
                                                      {"unique", Unique}};
  for (const auto& [name, filter] : all) table->emplace(name, filter);
}

}  // namespace bulkhead::jinja
