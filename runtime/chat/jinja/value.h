// Values of templates, with the semantics of Python's. Immutable except namespaces and the
// position of generators; shared by reference. Each counts its bytes in the meter of its render;
// constants of a template have no meter and may be shared by threads.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/numeric/int128.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"
#include "runtime/chat/jinja/meter.h"

namespace bulkhead::jinja {

class Value;
class Evaluator;
struct Object;

// Integers are of 64 bits, signed or not; |value| < 2^64 always.
using Int = absl::int128;
inline const Int kIntLimit = Int(1) << 64;
// Levels of lists and dicts in one another.
inline constexpr int kMaxNesting = 80;

// UTF-8, with its number of code points.
struct String {
  String(std::string bytes, Meter* meter_or_null, bool markup = false);
  ~String();
  String(const String&) = delete;
  String& operator=(const String&) = delete;
  bool ascii() const { return length == static_cast<int64_t>(text.size()); }
  // Counts its bytes as handled.
  void Count() const {
    if (meter != nullptr) meter->CountBytes(static_cast<int64_t>(text.size()));
  }

  const std::string text;
  int64_t length;
  const bool is_markup;  // markup.h
  Meter* const meter;
};

struct Sequence {
  enum class Type { kList, kTuple, kGenerator, kKeys, kValues, kItems, kRange };
  Sequence(Type t, std::vector<Value> values, Meter* meter_or_null);
  ~Sequence();
  Sequence(const Sequence&) = delete;
  Sequence& operator=(const Sequence&) = delete;

  const Type type;
  const std::vector<Value> items;
  int nesting = 1;
  mutable size_t next = 0;  // of a generator: earlier items are spent
  Meter* const meter;
};

struct Dict {
  explicit Dict(Meter* meter_or_null);
  ~Dict();
  Dict(const Dict&) = delete;
  Dict& operator=(const Dict&) = delete;
  // INVALID_ARGUMENT for a key that cannot be one (a list or a dict).
  absl::Status Set(Value key, Value value);
  const Value* Find(const Value& key) const;
  const Value* Find(absl::string_view key) const;

  std::vector<std::pair<Value, Value>> entries;  // in the order of first insertion
  int nesting = 1;
  Meter* const meter;

 private:
  absl::flat_hash_map<std::string, size_t> index_;  // by HashKey
};

struct Undefined {
  Undefined(std::string reason, Meter* meter_or_null);
  ~Undefined();
  Undefined(const Undefined&) = delete;
  Undefined& operator=(const Undefined&) = delete;

  const std::string why;  // "'x' is undefined"
  Meter* const meter;
};

class Value {
 public:
  struct None {};

  Value() : v_(None()) {}
  explicit Value(bool b) : v_(b) {}
  explicit Value(Int i) : v_(i) {}
  explicit Value(double d) : v_(d) {}
  explicit Value(std::shared_ptr<const Object> object) : v_(std::move(object)) {}
  explicit Value(std::shared_ptr<const Sequence> sequence) : v_(std::move(sequence)) {}
  explicit Value(std::shared_ptr<const Dict> dict) : v_(std::move(dict)) {}
  static Value Integer(int64_t i) { return Value(Int(i)); }
  // `meter` may be null where `why` is short.
  static Value Missing(std::string why, Meter* meter = nullptr);
  static Value Text(std::string text, Meter* meter);
  static Value Markup(std::string text, Meter* meter);
  static Value List(std::vector<Value> items, Meter* meter,
                    Sequence::Type type = Sequence::Type::kList);

  bool is_undefined() const { return holds<std::shared_ptr<const Undefined>>(); }
  bool is_none() const { return holds<None>(); }
  bool is_bool() const { return holds<bool>(); }
  bool is_int() const { return holds<Int>(); }  // not bool
  bool is_float() const { return holds<double>(); }
  bool is_number() const { return is_bool() || is_int() || is_float(); }
  bool is_string() const { return holds<std::shared_ptr<const String>>(); }
  bool is_markup() const { return is_string() && string().is_markup; }
  bool is_sequence() const { return holds<std::shared_ptr<const Sequence>>(); }
  bool is_dict() const { return holds<std::shared_ptr<const Dict>>(); }
  bool is_object() const { return holds<std::shared_ptr<const Object>>(); }
  bool is_generator() const {
    return is_sequence() && sequence().type == Sequence::Type::kGenerator;
  }

  // Each requires a value of that kind.
  bool boolean() const { return std::get<bool>(v_); }
  double real() const { return std::get<double>(v_); }
  const std::string& text() const { return string().text; }
  const String& string() const { return *std::get<std::shared_ptr<const String>>(v_); }
  const Sequence& sequence() const { return *std::get<std::shared_ptr<const Sequence>>(v_); }
  const Dict& dict() const { return *std::get<std::shared_ptr<const Dict>>(v_); }
  const Object& object() const { return *std::get<std::shared_ptr<const Object>>(v_); }
  const std::string& why_undefined() const {
    return std::get<std::shared_ptr<const Undefined>>(v_)->why;
  }
  Int integer() const { return is_bool() ? Int(boolean()) : std::get<Int>(v_); }  // also of bools
  double as_double() const;                                                       // of any number
  // Whether both are the same object (`is sameas`).
  bool SameAs(const Value& other) const;

 private:
  template <typename T>
  bool holds() const {
    return std::holds_alternative<T>(v_);
  }

  std::variant<None, bool, Int, double, std::shared_ptr<const Undefined>,
               std::shared_ptr<const String>, std::shared_ptr<const Sequence>,
               std::shared_ptr<const Dict>, std::shared_ptr<const Object>>
      v_;
};

// Arguments of a call.
struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

// Has attributes or can be called: macros, namespaces, loops, bound methods, functions.
struct Object {
  virtual ~Object() = default;
  virtual std::string type_name() const = 0;
  virtual std::string Repr() const { return "<" + type_name() + ">"; }
  virtual bool callable() const { return false; }
  // Levels of values that it holds; 0 if the evaluator empties it at the end.
  virtual int nesting() const { return 0; }
  virtual absl::StatusOr<Value> Call(Evaluator& evaluator, Arguments arguments) const;
  virtual std::optional<Value> Attribute(absl::string_view /*name*/, Meter* /*meter*/) const {
    return std::nullopt;
  }
};

// The name of its Python type: "str", "list", ...
std::string TypeName(const Value& value);
// Jinja2's name of a value in messages: "'dict object'".
std::string ObjectName(const Value& value);
bool Truth(const Value& value);
// ==. Counts what it compares.
absl::StatusOr<bool> Equal(const Value& a, const Value& b, Meter* meter, int depth = 0);
// <0, 0, >0; INVALID_ARGUMENT for values that have no order.
absl::StatusOr<int> Compare(const Value& a, const Value& b, absl::string_view op, Meter* meter,
                            int depth = 0);
// The same text for equal keys of dicts; INVALID_ARGUMENT for a value that cannot be a key.
absl::StatusOr<std::string> HashKey(const Value& value);
// Levels of lists and dicts in `value`.
int Nesting(const Value& value);
// Fails if `value` nests deeper than kMaxNesting.
absl::Status CheckNesting(const Value& value);
// The items of what can be iterated over; spends a generator.
absl::StatusOr<std::vector<Value>> Items(const Value& value, Meter* meter);
absl::StatusOr<int64_t> Length(const Value& value);
absl::StatusOr<Value> FromJson(const nlohmann::ordered_json& json, Meter* meter, int depth = 0);

// A Python error: "TypeError: ...".
absl::Status TypeError(absl::string_view what);
absl::Status ValueError(absl::string_view what);
absl::Status UndefinedError(const Value& undefined);

}  // namespace bulkhead::jinja
