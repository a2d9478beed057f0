#include "runtime/chat/jinja/value.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/utf8.h"
#include "runtime/chat/jinja/unicode_text.h"

namespace bulkhead::jinja {
namespace {

constexpr int64_t kObjectBytes = 64;  // of a shared value besides its content
constexpr int64_t kEntryBytes = 2 * sizeof(Value);
constexpr size_t kMaxKeyBytes = 1 << 16;  // for a tuple, whose parts may be shared
constexpr size_t kIndexedEntries = 8;     // smaller dicts are searched one by one

int64_t BytesOf(const std::string& text) {
  return kObjectBytes + static_cast<int64_t>(text.size());
}

int64_t BytesOf(const std::vector<Value>& items) {
  return kObjectBytes + static_cast<int64_t>(items.size() * sizeof(Value));
}

bool IsOrderedSequence(const Value& value) {
  return value.is_sequence() && (value.sequence().type == Sequence::Type::kList ||
                                 value.sequence().type == Sequence::Type::kTuple);
}

absl::Status NoOrder(const Value& a, const Value& b, absl::string_view op) {
  return TypeError(absl::StrCat("'", op, "' not supported between instances of '", TypeName(a),
                                "' and '", TypeName(b), "'"));
}

int CompareNumbers(const Value& a, const Value& b) {
  if (!a.is_float() && !b.is_float()) {
    const Int x = a.integer(), y = b.integer();
    return x < y ? -1 : x > y;
  }
  const double x = a.as_double(), y = b.as_double();
  return x < y ? -1 : x > y;
}

}  // namespace

absl::Status TypeError(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("TypeError: ", what));
}

absl::Status ValueError(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("ValueError: ", what));
}

absl::Status UndefinedError(const Value& undefined) {
  return absl::InvalidArgumentError(undefined.why_undefined());
}

String::String(std::string bytes, Meter* meter_or_null, bool markup)
    : text(std::move(bytes)), length(CountChars(text)), is_markup(markup), meter(meter_or_null) {
  if (meter != nullptr) meter->Take(BytesOf(text));
}

String::~String() {
  if (meter != nullptr) meter->GiveBack(BytesOf(text));
}

Sequence::Sequence(Type t, std::vector<Value> values, Meter* meter_or_null)
    : type(t), items(std::move(values)), meter(meter_or_null) {
  for (const Value& item : items) nesting = std::max(nesting, 1 + Nesting(item));
  if (meter != nullptr) meter->Take(BytesOf(items));
}

Sequence::~Sequence() {
  if (meter != nullptr) meter->GiveBack(BytesOf(items));
}

Undefined::Undefined(std::string reason, Meter* meter_or_null)
    : why(std::move(reason)), meter(meter_or_null) {
  if (meter != nullptr) meter->Take(BytesOf(why));
}

Undefined::~Undefined() {
  if (meter != nullptr) meter->GiveBack(BytesOf(why));
}

Dict::Dict(Meter* meter_or_null) : meter(meter_or_null) {}

Dict::~Dict() {
  if (meter != nullptr) meter->GiveBack(static_cast<int64_t>(entries.size()) * kEntryBytes);
}

absl::Status Dict::Set(Value key, Value value) {
  BH_ASSIGN_OR_RETURN(std::string hash, HashKey(key));
  nesting = std::max({nesting, 1 + Nesting(key), 1 + Nesting(value)});
  if (const Value* found = Find(key)) {
    *const_cast<Value*>(found) = std::move(value);
    return absl::OkStatus();
  }
  if (meter != nullptr) meter->Take(kEntryBytes);
  entries.emplace_back(std::move(key), std::move(value));
  if (entries.size() == kIndexedEntries) {
    for (size_t i = 0; i < entries.size(); ++i) {
      BH_ASSIGN_OR_RETURN(std::string each, HashKey(entries[i].first));
      index_.emplace(std::move(each), i);
    }
  } else if (entries.size() > kIndexedEntries) {
    index_.emplace(std::move(hash), entries.size() - 1);
  }
  return absl::OkStatus();
}

const Value* Dict::Find(const Value& key) const {
  if (key.is_string()) {
    key.string().Count();
    return Find(key.text());
  }
  const absl::StatusOr<std::string> hash = HashKey(key);
  if (!hash.ok()) return nullptr;
  if (!index_.empty()) {
    const auto found = index_.find(*hash);
    return found == index_.end() ? nullptr : &entries[found->second].second;
  }
  for (const auto& [each, value] : entries) {
    const absl::StatusOr<std::string> its = HashKey(each);
    if (its.ok() && *its == *hash) return &value;
  }
  return nullptr;
}

const Value* Dict::Find(absl::string_view key) const {
  if (!index_.empty()) {
    const auto found = index_.find(absl::StrCat("s", key));
    return found == index_.end() ? nullptr : &entries[found->second].second;
  }
  for (const auto& [each, value] : entries) {
    if (each.is_string() && each.text() == key) return &value;
  }
  return nullptr;
}

absl::StatusOr<Value> Object::Call(Evaluator& /*evaluator*/, Arguments /*arguments*/) const {
  return TypeError(absl::StrCat("'", type_name(), "' object is not callable"));
}

Value Value::Missing(std::string why, Meter* meter) {
  Value value;
  value.v_ = std::make_shared<const Undefined>(std::move(why), meter);
  return value;
}

Value Value::Text(std::string text, Meter* meter) {
  Value value;
  value.v_ = std::make_shared<const String>(std::move(text), meter);
  return value;
}

Value Value::Markup(std::string text, Meter* meter) {
  Value value;
  value.v_ = std::make_shared<const String>(std::move(text), meter, /*markup=*/true);
  return value;
}

Value Value::List(std::vector<Value> items, Meter* meter, Sequence::Type type) {
  return Value(std::make_shared<const Sequence>(type, std::move(items), meter));
}

double Value::as_double() const { return is_float() ? real() : static_cast<double>(integer()); }

bool Value::SameAs(const Value& other) const {
  if (v_.index() != other.v_.index()) return false;
  if (is_none() || is_undefined()) return is_none();
  if (is_bool()) return boolean() == other.boolean();
  if (is_int()) return integer() == other.integer();
  if (is_float()) return false;
  if (is_string()) return text() == other.text();
  if (is_sequence()) return &sequence() == &other.sequence();
  if (is_dict()) return &dict() == &other.dict();
  return &object() == &other.object();
}

std::string TypeName(const Value& value) {
  if (value.is_none()) return "NoneType";
  if (value.is_bool()) return "bool";
  if (value.is_int()) return "int";
  if (value.is_float()) return "float";
  if (value.is_string()) return "str";
  if (value.is_dict()) return "dict";
  if (value.is_undefined()) return "Undefined";
  if (value.is_object()) return value.object().type_name();
  switch (value.sequence().type) {
    case Sequence::Type::kList:
      return "list";
    case Sequence::Type::kTuple:
      return "tuple";
    case Sequence::Type::kGenerator:
      return "generator";
    case Sequence::Type::kKeys:
      return "dict_keys";
    case Sequence::Type::kValues:
      return "dict_values";
    case Sequence::Type::kItems:
      return "dict_items";
    case Sequence::Type::kRange:
      return "range";
  }
  return "object";
}

std::string ObjectName(const Value& value) {
  return value.is_none() ? "None" : absl::StrCat("'", TypeName(value), " object'");
}

bool Truth(const Value& value) {
  if (value.is_none() || value.is_undefined()) return false;
  if (value.is_bool()) return value.boolean();
  if (value.is_int()) return value.integer() != 0;
  if (value.is_float()) return value.real() != 0;
  if (value.is_string()) return !value.text().empty();
  if (value.is_dict()) return !value.dict().entries.empty();
  if (value.is_generator() || value.is_object()) return true;
  return !value.sequence().items.empty();
}

int Nesting(const Value& value) {
  if (value.is_sequence()) return value.sequence().nesting;
  if (value.is_dict()) return value.dict().nesting;
  return value.is_object() ? value.object().nesting() : 0;
}

absl::Status CheckNesting(const Value& value) {
  if (Nesting(value) <= kMaxNesting) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("the template nests lists and dicts deeper than ", kMaxNesting, " levels"));
}

absl::StatusOr<bool> Equal(const Value& a, const Value& b, Meter* meter, int depth) {
  BH_RETURN_IF_ERROR(meter->Step());
  if (a.is_number() && b.is_number()) {
    const bool nan = std::isnan(a.as_double()) || std::isnan(b.as_double());
    return !nan && CompareNumbers(a, b) == 0;
  }
  if (a.is_string() && b.is_string()) {
    if (a.text().size() == b.text().size()) a.string().Count();
    return a.text() == b.text();
  }
  if (a.is_none() || b.is_none()) return a.is_none() && b.is_none();
  if (a.is_undefined() || b.is_undefined()) return a.is_undefined() && b.is_undefined();
  if (a.is_sequence() && b.is_sequence() && IsOrderedSequence(a) && IsOrderedSequence(b)) {
    const Sequence &x = a.sequence(), &y = b.sequence();
    if (x.type != y.type || x.items.size() != y.items.size()) return false;
    for (size_t i = 0; i < x.items.size(); ++i) {
      BH_ASSIGN_OR_RETURN(bool same, Equal(x.items[i], y.items[i], meter, depth + 1));
      if (!same) return false;
    }
    return true;
  }
  if (a.is_dict() && b.is_dict()) {
    if (a.dict().entries.size() != b.dict().entries.size()) return false;
    for (const auto& [key, value] : a.dict().entries) {
      const Value* other = b.dict().Find(key);
      if (other == nullptr) return false;
      BH_ASSIGN_OR_RETURN(bool same, Equal(value, *other, meter, depth + 1));
      if (!same) return false;
    }
    return true;
  }
  return a.SameAs(b);
}

absl::StatusOr<int> Compare(const Value& a, const Value& b, absl::string_view op, Meter* meter,
                            int depth) {
  BH_RETURN_IF_ERROR(meter->Step());
  if (a.is_undefined()) return UndefinedError(a);
  if (b.is_undefined()) return UndefinedError(b);
  if (a.is_number() && b.is_number()) return CompareNumbers(a, b);
  // Bytes of UTF-8 have the order of code points.
  if (a.is_string() && b.is_string()) {
    meter->CountBytes(std::min(a.text().size(), b.text().size()));
    return a.text().compare(b.text());
  }
  if (!IsOrderedSequence(a) || !IsOrderedSequence(b) || a.sequence().type != b.sequence().type) {
    return NoOrder(a, b, op);
  }
  const std::vector<Value>&x = a.sequence().items, &y = b.sequence().items;
  for (size_t i = 0; i < x.size() && i < y.size(); ++i) {
    BH_ASSIGN_OR_RETURN(bool same, Equal(x[i], y[i], meter, depth + 1));
    if (!same) return Compare(x[i], y[i], op, meter, depth + 1);
  }
  return x.size() < y.size() ? -1 : x.size() > y.size();
}

absl::StatusOr<std::string> HashKey(const Value& value) {
  if (value.is_string()) {
    value.string().Count();
    return absl::StrCat("s", value.text());
  }
  if (value.is_none()) return std::string("n");
  if (value.is_undefined()) return std::string("u");
  if (value.is_number()) {
    const double real = value.as_double();
    if (!value.is_float() || (std::abs(real) < 1e18 && std::floor(real) == real)) {
      const Int integer = value.is_float() ? Int(real) : value.integer();
      const absl::uint128 bits(integer);
      return absl::StrCat("i", absl::Uint128High64(bits), ":", absl::Uint128Low64(bits));
    }
    return absl::StrCat("f", absl::Hex(absl::bit_cast<uint64_t>(real)));
  }
  if (value.is_sequence() && value.sequence().type == Sequence::Type::kTuple) {
    std::string key = "t";
    for (const Value& item : value.sequence().items) {
      BH_ASSIGN_OR_RETURN(std::string part, HashKey(item));
      absl::StrAppend(&key, part.size(), ":", part);
      if (key.size() > kMaxKeyBytes) return ValueError("a tuple is too large for a key");
    }
    return key;
  }
  if (value.is_object()) return absl::StrCat("o", absl::Hex(&value.object()));
  return TypeError(absl::StrCat("unhashable type: '", TypeName(value), "'"));
}

absl::StatusOr<std::vector<Value>> Items(const Value& value, Meter* meter) {
  std::vector<Value> items;
  if (value.is_undefined()) return items;
  if (value.is_sequence()) {
    const Sequence& sequence = value.sequence();
    BH_RETURN_IF_ERROR(meter->Reserve(BytesOf(sequence.items)));
    items.assign(sequence.items.begin() + sequence.next, sequence.items.end());
    if (value.is_generator()) sequence.next = sequence.items.size();
    return items;
  }
  if (value.is_dict()) {
    BH_RETURN_IF_ERROR(meter->Reserve(value.dict().entries.size() * sizeof(Value)));
    for (const auto& entry : value.dict().entries) items.push_back(entry.first);
    return items;
  }
  if (value.is_string()) {
    BH_RETURN_IF_ERROR(meter->Reserve(value.string().length * (BytesOf("") + sizeof(Value))));
    for (absl::string_view text = value.text(); !text.empty();) {
      const size_t bytes = CodePointBytes(text);
      items.push_back(Value::Text(std::string(text.substr(0, bytes)), meter));
      text.remove_prefix(bytes);
    }
    return items;
  }
  return TypeError(absl::StrCat("'", TypeName(value), "' object is not iterable"));
}

absl::StatusOr<int64_t> Length(const Value& value) {
  if (value.is_undefined()) return 0;
  if (value.is_string()) return value.string().length;
  if (value.is_dict()) return static_cast<int64_t>(value.dict().entries.size());
  if (value.is_sequence() && !value.is_generator()) {
    return static_cast<int64_t>(value.sequence().items.size());
  }
  return TypeError(absl::StrCat("object of type '", TypeName(value), "' has no len()"));
}

absl::StatusOr<Value> FromJson(const nlohmann::ordered_json& json, Meter* meter, int depth) {
  BH_RETURN_IF_ERROR(meter->Step());
  if (depth >= kMaxNesting) {
    return absl::ResourceExhaustedError(
        absl::StrCat("a variable of the template is nested deeper than ", kMaxNesting, " levels"));
  }
  if (json.is_null()) return Value();
  if (json.is_boolean()) return Value(json.get<bool>());
  if (json.is_number_unsigned()) return Value(Int(json.get<uint64_t>()));
  if (json.is_number_integer()) return Value(Int(json.get<int64_t>()));
  if (json.is_number_float()) return Value(json.get<double>());
  if (json.is_string()) return Value::Text(json.get_ref<const std::string&>(), meter);
  if (json.is_array()) {
    std::vector<Value> items;
    items.reserve(json.size());
    for (const nlohmann::ordered_json& each : json) {
      BH_ASSIGN_OR_RETURN(Value item, FromJson(each, meter, depth + 1));
      items.push_back(std::move(item));
    }
    return Value::List(std::move(items), meter);
  }
  if (!json.is_object()) return absl::InvalidArgumentError("a variable is binary data");
  auto dict = std::make_shared<Dict>(meter);
  for (const auto& [key, each] : json.items()) {
    BH_ASSIGN_OR_RETURN(Value value, FromJson(each, meter, depth + 1));
    BH_RETURN_IF_ERROR(dict->Set(Value::Text(key, meter), std::move(value)));
  }
  return Value(std::shared_ptr<const Dict>(std::move(dict)));
}

}  // namespace bulkhead::jinja
