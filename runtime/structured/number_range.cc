#include "runtime/structured/number_range.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/structured/json_grammar.h"

namespace bulkhead::structured {
namespace {

constexpr int kMaxBoundDigits = 40;

// Numbers of at least zero, without sign.
class Digits {
 public:
  struct Bound {
    const Decimal* decimal = nullptr;  // null: none
    bool exclusive = false;
  };

  Digits(Bound min, Bound max, bool integer, GrammarBuilder& builder, int32_t next)
      : min_(min), max_(max), integer_(integer), builder_(builder), next_(next) {}

  int32_t Emit() {
    std::vector<int32_t> starts = {builder_.Bytes({})};
    const auto size = [](const Bound& bound) {
      return bound.decimal == nullptr ? 0 : static_cast<int>(bound.decimal->integer.size());
    };
    const int most =
        std::max({integer_ ? kMaxIntegerDigits : kMaxNumberDigits, size(min_), size(max_)});
    for (int length = std::max(1, size(min_)); length <= most; ++length) {
      if (max_.decimal != nullptr && size(max_) < length) break;
      length_ = length;
      fraction_limit_ = integer_ ? 0 : std::max(0, kMaxNumberDigits - length + LeadingZeros());
      integer_states_.clear();
      starts.push_back(Integer(0, {min_.decimal != nullptr && size(min_) == length,
                                   max_.decimal != nullptr && size(max_) == length}));
    }
    return builder_.Split(starts);
  }

 private:
  // Zeros after the point of every number up to the maximum.
  int LeadingZeros() const {
    if (max_.decimal == nullptr || max_.decimal->integer != "0") return 0;
    const std::string& fraction = max_.decimal->fraction;
    return static_cast<int>(std::min(fraction.find_first_not_of('0'), fraction.size()));
  }

  // Whether the digits so far equal those of a bound.
  struct Tight {
    bool min, max;
  };

  int32_t Integer(int position, Tight tight) {
    if (position == length_) return After(0, tight);
    const auto key = std::make_tuple(position, tight.min, tight.max);
    const auto found = integer_states_.find(key);
    if (found != integer_states_.end()) return found->second;
    const int first =
        tight.min ? min_.decimal->integer[position] - '0' : (position == 0 && length_ > 1 ? 1 : 0);
    const int last = tight.max ? max_.decimal->integer[position] - '0' : 9;
    const int32_t state =
        Step(first, last, tight, [&](Tight after) { return Integer(position + 1, after); });
    integer_states_[key] = state;
    return state;
  }

  // One digit of first..last.
  template <typename Next>
  int32_t Step(int first, int last, Tight tight, const Next& next) {
    std::vector<ByteEdge> edges;
    const auto add = [&](int from, int to, Tight after) {
      if (from > to) return;
      edges.push_back(
          {static_cast<uint8_t>('0' + from), static_cast<uint8_t>('0' + to), next(after)});
    };
    if (first > last) return builder_.Bytes({});
    if (first == last) {
      add(first, last, tight);
      return builder_.Bytes(std::move(edges));
    }
    if (tight.min) add(first, first, {true, false});
    add(tight.min ? first + 1 : first, tight.max ? last - 1 : last, {false, false});
    if (tight.max) add(last, last, {false, true});
    return builder_.Bytes(std::move(edges));
  }

  // After the integer part (position 0) or a digit of the fraction.
  int32_t After(int position, Tight tight) {
    const auto key = std::make_tuple(fraction_limit_ - position, position, tight.min, tight.max);
    const auto found = fraction_states_.find(key);
    if (found != fraction_states_.end()) return found->second;
    std::vector<int32_t> ways = {builder_.Bytes({})};
    if (MayEnd(position, tight)) ways.push_back(next_);
    if (position < fraction_limit_) {
      const int32_t digit = Fraction(position, tight);
      ways.push_back(position == 0 ? builder_.Literal(".", digit) : digit);
    }
    const int32_t state = builder_.Split(ways);
    fraction_states_[key] = state;
    return state;
  }

  int32_t Fraction(int position, Tight tight) {
    const int first = tight.min ? FractionDigit(min_, position) : 0;
    const int last = tight.max ? FractionDigit(max_, position) : 9;
    return Step(first, last, tight, [&](Tight after) { return After(position + 1, after); });
  }

  static int FractionDigit(const Bound& bound, int position) {
    const std::string& digits = bound.decimal->fraction;
    return position < static_cast<int>(digits.size()) ? digits[position] - '0' : 0;
  }

  bool MayEnd(int position, Tight tight) const {
    const auto equal = [position](const Bound& bound) {
      return position >= static_cast<int>(bound.decimal->fraction.size());
    };
    if (tight.min && (!equal(min_) || min_.exclusive)) return false;
    return !tight.max || !equal(max_) || !max_.exclusive;
  }

  const Bound min_, max_;
  const bool integer_;
  GrammarBuilder& builder_;
  const int32_t next_;
  int length_ = 0, fraction_limit_ = 0;
  std::map<std::tuple<int, bool, bool>, int32_t> integer_states_;
  std::map<std::tuple<int, int, bool, bool>, int32_t> fraction_states_;
};

}  // namespace

absl::StatusOr<Decimal> ToDecimal(const nlohmann::ordered_json& value) {
  if (!value.is_number()) return absl::InvalidArgumentError("is not a number");
  std::string text = value.dump();
  Decimal decimal;
  if (text[0] == '-') {
    decimal.negative = true;
    text.erase(0, 1);
  }
  long exponent = 0;
  if (const size_t e = text.find('e'); e != std::string::npos) {
    exponent = std::strtol(text.c_str() + e + 1, nullptr, 10);
    text.erase(e);
  }
  size_t point = text.find('.');
  if (point == std::string::npos) {
    point = text.size();
  } else {
    text.erase(point, 1);
  }
  if (exponent > kMaxBoundDigits || exponent < -kMaxBoundDigits) {
    return absl::InvalidArgumentError(
        absl::StrCat(value.dump(), " has more than ", kMaxBoundDigits, " digits"));
  }
  long integer_digits = static_cast<long>(point) + exponent;
  if (integer_digits < 1) {
    text.insert(0, static_cast<size_t>(1 - integer_digits), '0');
    integer_digits = 1;
  }
  if (integer_digits > static_cast<long>(text.size())) text.resize(integer_digits, '0');
  decimal.integer = text.substr(0, integer_digits);
  decimal.fraction = text.substr(integer_digits);
  decimal.integer.erase(0, decimal.integer.find_first_not_of('0'));
  if (decimal.integer.empty()) decimal.integer = "0";
  while (!decimal.fraction.empty() && decimal.fraction.back() == '0') decimal.fraction.pop_back();
  if (decimal.is_zero()) decimal.negative = false;
  return decimal;
}

int32_t EmitNumberRange(const NumberRange& range, GrammarBuilder& builder, int32_t next) {
  std::vector<int32_t> ways = {builder.Bytes({})};
  if (!range.max.has_value() || !range.max->negative) {
    Digits::Bound min, max;
    if (range.min.has_value() && !range.min->negative) min = {&*range.min, range.exclusive_min};
    if (range.max.has_value()) max = {&*range.max, range.exclusive_max};
    ways.push_back(Digits(min, max, range.integer, builder, next).Emit());
  }
  if (!range.min.has_value() || range.min->negative) {
    // The bounds of -x. Zero has no sign.
    const Decimal zero;
    Digits::Bound min = {&zero, true}, max;
    if (range.max.has_value() && range.max->negative) min = {&*range.max, range.exclusive_max};
    if (range.min.has_value()) max = {&*range.min, range.exclusive_min};
    ways.push_back(builder.Literal("-", Digits(min, max, range.integer, builder, next).Emit()));
  }
  return builder.Split(ways);
}

}  // namespace bulkhead::structured
