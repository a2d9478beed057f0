#include "runtime/chat/jinja/filters.h"

#include "absl/container/flat_hash_set.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status.h"
#include "runtime/chat/jinja/evaluator.h"
#include "runtime/chat/jinja/markup.h"

namespace bulkhead::jinja {
namespace {

const FilterTable& Filters() {
  static const auto* const kTable = [] {
    auto* table = new FilterTable();
    AddTextFilters(table);
    AddNumberFilters(table);
    AddSequenceFilters(table);
    AddSelectFilters(table);
    return table;
  }();
  return *kTable;
}

}  // namespace

absl::Status CheckFilterName(absl::string_view name, int line) {
  static const absl::flat_hash_set<absl::string_view> kLeftOut = {
      "filesizeformat", "groupby", "pprint",   "random", "striptags",
      "urlencode",      "urlize",  "wordwrap", "xmlattr"};
  if (Filters().contains(name)) return absl::OkStatus();
  if (kLeftOut.contains(name)) {
    return absl::UnimplementedError(absl::StrCat("line ", line, ": the filter '", name,
                                                 "' is not supported in chat templates"));
  }
  return absl::InvalidArgumentError(absl::StrCat("line ", line, ": no filter named '", name, "'"));
}

absl::StatusOr<Value> CallFilter(Evaluator& evaluator, absl::string_view name, const Value& value,
                                 const Arguments& arguments) {
  BH_RETURN_IF_ERROR(evaluator.meter()->Step());
  const auto found = Filters().find(name);
  if (found == Filters().end()) {
    return absl::InvalidArgumentError(absl::StrCat("no filter named '", name, "'"));
  }
  BH_ASSIGN_OR_RETURN(Value result, found->second(evaluator, value, arguments));
  return value.is_markup() && KeepsMarkup(name) ? AsMarkup(result, evaluator.meter()) : result;
}

absl::StatusOr<Value> AtPath(Evaluator& evaluator, const Value& value, const Value& path,
                             const Value& standard) {
  const auto or_standard = [&](const Value& part) {
    return part.is_undefined() && !standard.is_none() ? standard : part;
  };
  if (!path.is_string()) {
    BH_ASSIGN_OR_RETURN(const Value part, evaluator.GetItem(value, path));
    return or_standard(part);
  }
  Value at = value;
  for (const absl::string_view part : absl::StrSplit(path.text(), '.')) {
    BH_RETURN_IF_ERROR(evaluator.meter()->Step());
    int64_t index = 0;
    const bool number =
        !part.empty() && part[0] >= '0' && part[0] <= '9' && absl::SimpleAtoi(part, &index);
    BH_ASSIGN_OR_RETURN(at, evaluator.GetItem(at, number ? Value::Integer(index)
                                                         : evaluator.Text(std::string(part))));
    at = or_standard(at);
  }
  return at;
}

}  // namespace bulkhead::jinja
