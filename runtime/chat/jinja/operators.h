// Operators on values.
#pragma once

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/chat/jinja/value.h"

namespace bulkhead::jinja {

// +, -, *, /, //, %, **.
absl::StatusOr<Value> Binary(absl::string_view op, const Value& a, const Value& b, Meter* meter);
// ==, !=, <, <=, >, >=, in, not in.
absl::StatusOr<bool> Relation(absl::string_view op, const Value& a, const Value& b, Meter* meter);
absl::StatusOr<bool> Contains(const Value& container, const Value& item, Meter* meter);
// value[begin:end:step]; absent parts are None.
absl::StatusOr<Value> Slice(const Value& value, const Value& begin, const Value& end,
                            const Value& step, Meter* meter);
// OUT_OF_RANGE for an integer beyond 64 bits.
absl::StatusOr<Value> CheckedInt(Int value);

}  // namespace bulkhead::jinja
