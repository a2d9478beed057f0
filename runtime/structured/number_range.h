// Numbers between two bounds, as an automaton over their decimal digits.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"
#include "runtime/structured/grammar_builder.h"

namespace bulkhead::structured {

struct Decimal {
  bool negative = false;
  std::string integer = "0";  // no leading zeros
  std::string fraction;       // no trailing zeros

  bool is_zero() const { return integer == "0" && fraction.empty(); }
};

// The shortest decimal of the number. INVALID_ARGUMENT if `value` is not a number, or has more than
// 40 digits.
absl::StatusOr<Decimal> ToDecimal(const nlohmann::ordered_json& value);

struct NumberRange {
  std::optional<Decimal> min = std::nullopt, max = std::nullopt;
  bool exclusive_min = false, exclusive_max = false;
  bool integer = false;
};

// No exponents. Integers have up to kMaxIntegerDigits; other numbers up to kMaxNumberDigits before
// and after the point together, which a double can distinguish, except leading zeros of numbers
// below the maximum; both may have as many digits before the point as a bound. Numbers outside the
// bounds reach no end.
int32_t EmitNumberRange(const NumberRange& range, GrammarBuilder& builder, int32_t next);

}  // namespace bulkhead::structured
