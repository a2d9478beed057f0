// Filters and tests of templates.
#pragma once

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/chat/jinja/value.h"

namespace bulkhead::jinja {

// UNIMPLEMENTED for one that Jinja2 has and this interpreter lacks, INVALID_ARGUMENT for one that
// neither has.
absl::Status CheckFilterName(absl::string_view name, int line);
absl::Status CheckTestName(absl::string_view name, int line);

absl::StatusOr<Value> CallFilter(Evaluator& evaluator, absl::string_view name, const Value& value,
                                 const Arguments& arguments);
absl::StatusOr<bool> CallTest(Evaluator& evaluator, absl::string_view name, const Value& value,
                              const Arguments& arguments);

using Filter = absl::StatusOr<Value> (*)(Evaluator& evaluator, const Value& value,
                                         const Arguments& arguments);
using FilterTable = absl::flat_hash_map<absl::string_view, Filter>;
// Each adds the filters of its file.
void AddTextFilters(FilterTable* table);      // filters_text.cc
void AddNumberFilters(FilterTable* table);    // filters_number.cc
void AddSequenceFilters(FilterTable* table);  // filters_sequence.cc
void AddSelectFilters(FilterTable* table);    // filters_select.cc

// value.a.b.0 for "a.b.0", items before attributes, as in the attribute= of filters. `standard`,
// which may be None, replaces each part that is undefined.
absl::StatusOr<Value> AtPath(Evaluator& evaluator, const Value& value, const Value& path,
                             const Value& standard = Value());

}  // namespace bulkhead::jinja
