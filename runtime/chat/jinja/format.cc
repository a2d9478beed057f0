#include "runtime/chat/jinja/format.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status.h"
#include "runtime/chat/jinja/objects.h"
#include "runtime/chat/jinja/unicode_text.h"

namespace bulkhead::jinja {
namespace {

constexpr int kMaxWriteDepth = 2 * kMaxNesting;

std::string ReprText(absl::string_view text) {
  const bool double_quotes =
      text.find('\'') != absl::string_view::npos && text.find('"') == absl::string_view::npos;
  const char quote = double_quotes ? '"' : '\'';
  std::string out(1, quote);
  while (!text.empty()) {
    const absl::string_view character = text.substr(0, CodePointBytes(text));
    const char32_t code = TakeCodePoint(&text);
    if (code == static_cast<char32_t>(quote) || code == '\\') {
      absl::StrAppend(&out, "\\", character);
    } else if (code == '\n' || code == '\r' || code == '\t') {
      out += code == '\n' ? "\\n" : code == '\r' ? "\\r" : "\\t";
    } else if (IsPrintable(code)) {
      absl::StrAppend(&out, character);
    } else if (code < 0x100) {
      absl::StrAppendFormat(&out, "\\x%02x", static_cast<uint32_t>(code));
    } else if (code < 0x10000) {
      absl::StrAppendFormat(&out, "\\u%04x", static_cast<uint32_t>(code));
    } else {
      absl::StrAppendFormat(&out, "\\U%08x", static_cast<uint32_t>(code));
    }
  }
  out += quote;
  return out;
}

void AppendJsonText(absl::string_view text, bool ensure_ascii, std::string* out) {
  *out += '"';
  while (!text.empty()) {
    const absl::string_view character = text.substr(0, CodePointBytes(text));
    const char32_t code = TakeCodePoint(&text);
    if (code == '"' || code == '\\') {
      absl::StrAppend(out, "\\", character);
    } else if (code < 0x20) {
      static constexpr absl::string_view kNames = "btn?fr";  // from 8
      if (code >= 8 && code <= 13 && code != 11) {
        absl::StrAppend(out, "\\", kNames.substr(code - 8, 1));
      } else {
        absl::StrAppendFormat(out, "\\u%04x", static_cast<uint32_t>(code));
      }
    } else if (!ensure_ascii || code < 0x7F || code == 0x7F) {
      absl::StrAppend(out, character);
    } else if (code < 0x10000) {
      absl::StrAppendFormat(out, "\\u%04x", static_cast<uint32_t>(code));
    } else {
      const uint32_t rest = code - 0x10000;
      absl::StrAppendFormat(out, "\\u%04x\\u%04x", 0xD800 + (rest >> 10), 0xDC00 + (rest & 0x3FF));
    }
  }
  *out += '"';
}

// Writes nested values; shared values may be written many times, so every part is counted.
class Writer {
 public:
  Writer(Meter* meter, const JsonStyle* json) : meter_(meter), json_(json) {}

  absl::Status Write(const Value& value, int depth) {
    BH_RETURN_IF_ERROR(meter_->Step());
    if (depth > kMaxWriteDepth) return ValueError("values are nested in one another without end");
    if (!meter_->Fits(static_cast<int64_t>(out_.size()))) return meter_->Reserve(out_.size());
    if (value.is_sequence()) return WriteSequence(value.sequence(), depth);
    if (value.is_dict()) return WriteDict(value.dict().entries, depth);
    if (json_ != nullptr) return WriteJsonScalar(value);
    if (value.is_object()) return WriteObject(value.object(), depth);
    if (value.is_string()) {
      BH_RETURN_IF_ERROR(meter_->Reserve(static_cast<int64_t>(value.text().size())));
      const std::string text = ReprText(value.text());
      out_ += value.is_markup() ? absl::StrCat("Markup(", text, ")") : text;
      return absl::OkStatus();
    }
    if (value.is_undefined()) {
      out_ += "Undefined";
    } else if (value.is_none()) {
      out_ += "None";
    } else if (value.is_bool()) {
      out_ += value.boolean() ? "True" : "False";
    } else {
      out_ += value.is_int() ? IntText(value.integer()) : FloatText(value.real());
    }
    return absl::OkStatus();
  }

  std::string Take() { return std::move(out_); }

 private:
  absl::Status WriteObject(const Object& object, int depth) {
    const auto* space = dynamic_cast<const Namespace*>(&object);
    if (space == nullptr) {
      out_ += object.Repr();
      return absl::OkStatus();
    }
    out_ += "<Namespace ";
    BH_RETURN_IF_ERROR(WriteDict(space->attributes->entries, depth));
    out_ += ">";
    return absl::OkStatus();
  }

  absl::Status WriteSequence(const Sequence& sequence, int depth) {
    using Type = Sequence::Type;
    if (json_ != nullptr && sequence.type != Type::kList && sequence.type != Type::kTuple) {
      return TypeError("Object of this type is not JSON serializable");
    }
    if (sequence.type == Type::kGenerator) {
      out_ += "<generator object>";
      return absl::OkStatus();
    }
    if (sequence.type == Type::kRange) return WriteRange(sequence);
    const char* names[] = {"[", "(", "", "dict_keys([", "dict_values([", "dict_items(["};
    const bool as_list = json_ != nullptr || sequence.type == Type::kList;
    out_ += as_list ? "[" : names[static_cast<int>(sequence.type)];
    for (size_t i = 0; i < sequence.items.size(); ++i) {
      if (i > 0) out_ += json_ != nullptr ? json_->item_separator : ", ";
      NewLine(depth + 1);
      BH_RETURN_IF_ERROR(Write(sequence.items[i], depth + 1));
    }
    if (!sequence.items.empty()) NewLine(depth);
    if (as_list) {
      out_ += "]";
    } else if (sequence.type == Type::kTuple) {
      out_ += sequence.items.size() == 1 ? ",)" : ")";
    } else {
      out_ += "])";
    }
    return absl::OkStatus();
  }

  absl::Status WriteRange(const Sequence& range) {
    const std::vector<Value>& items = range.items;
    if (items.empty()) {
      out_ += "range(0, 0)";
      return absl::OkStatus();
    }
    const Int step = items.size() > 1 ? items[1].integer() - items[0].integer() : Int(1);
    absl::StrAppend(&out_, "range(", IntText(items[0].integer()), ", ",
                    IntText(items.back().integer() + step));
    if (step != 1) absl::StrAppend(&out_, ", ", IntText(step));
    out_ += ")";
    return absl::OkStatus();
  }

  absl::Status WriteDict(const std::vector<std::pair<Value, Value>>& entries, int depth) {
    std::vector<const std::pair<Value, Value>*> sorted;
    for (const auto& entry : entries) sorted.push_back(&entry);
    if (json_ != nullptr && json_->sort_keys) BH_RETURN_IF_ERROR(Sort(&sorted));
    out_ += "{";
    for (size_t i = 0; i < sorted.size(); ++i) {
      if (i > 0) out_ += json_ != nullptr ? json_->item_separator : ", ";
      NewLine(depth + 1);
      if (json_ != nullptr) {
        BH_RETURN_IF_ERROR(WriteJsonKey(sorted[i]->first));
        out_ += json_->key_separator;
      } else {
        BH_RETURN_IF_ERROR(Write(sorted[i]->first, depth + 1));
        out_ += ": ";
      }
      BH_RETURN_IF_ERROR(Write(sorted[i]->second, depth + 1));
    }
    if (!sorted.empty()) NewLine(depth);
    out_ += "}";
    return absl::OkStatus();
  }

  absl::Status Sort(std::vector<const std::pair<Value, Value>*>* entries) {
    absl::Status status;
    std::stable_sort(entries->begin(), entries->end(), [&](const auto* a, const auto* b) {
      if (!status.ok()) return false;
      const absl::StatusOr<int> order = Compare(a->first, b->first, "<", meter_);
      if (!order.ok()) status = order.status();
      return order.ok() && *order < 0;
    });
    return status;
  }

  void NewLine(int depth) {
    if (json_ == nullptr || !json_->indent.has_value()) return;
    out_ += '\n';
    for (int i = 0; i < depth; ++i) out_ += *json_->indent;
  }

  absl::Status WriteJsonKey(const Value& key) {
    if (key.is_string()) return WriteJsonScalar(key);
    if (!key.is_none() && !key.is_number()) {
      return TypeError(
          absl::StrCat("keys must be str, int, float, bool or None, not ", TypeName(key)));
    }
    out_ += '"';
    BH_RETURN_IF_ERROR(WriteJsonScalar(key));
    out_ += '"';
    return absl::OkStatus();
  }

  absl::Status WriteJsonScalar(const Value& value) {
    if (value.is_string()) {
      BH_RETURN_IF_ERROR(meter_->Reserve(static_cast<int64_t>(value.text().size())));
      AppendJsonText(value.text(), json_->ensure_ascii, &out_);
    } else if (value.is_none()) {
      out_ += "null";
    } else if (value.is_bool()) {
      out_ += value.boolean() ? "true" : "false";
    } else if (value.is_int()) {
      out_ += IntText(value.integer());
    } else if (value.is_float()) {
      const double real = value.real();
      out_ += std::isnan(real)   ? "NaN"
              : std::isinf(real) ? (real > 0 ? "Infinity" : "-Infinity")
                                 : FloatText(real);
    } else {
      return TypeError(
          absl::StrCat("Object of type ", TypeName(value), " is not JSON serializable"));
    }
    return absl::OkStatus();
  }

  Meter* meter_;
  const JsonStyle* json_;  // null: repr()
  std::string out_;
};

}  // namespace

std::string IntText(Int value) {
  const bool negative = value < 0;
  const absl::uint128 magnitude(negative ? -value : value);
  return absl::StrCat(negative ? "-" : "", absl::Uint128Low64(magnitude));
}

std::string FloatText(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  char buffer[64];
  const auto end =
      std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::scientific);
  std::string digits(buffer, end.ptr);
  const std::string sign = digits[0] == '-' ? "-" : "";
  digits.erase(0, sign.size());
  const size_t e = digits.find('e');
  const int exponent = std::atoi(digits.c_str() + e + 1);
  digits.resize(e);
  if (digits.size() > 1) digits.erase(1, 1);  // the decimal point
  const int count = static_cast<int>(digits.size());
  if (exponent < -4 || exponent >= 16) {
    return absl::StrCat(sign, digits.substr(0, 1), count > 1 ? "." : "", digits.substr(1), "e",
                        exponent < 0 ? "-" : "+", absl::Dec(std::abs(exponent), absl::kZeroPad2));
  }
  if (exponent < 0) return absl::StrCat(sign, "0.", std::string(-exponent - 1, '0'), digits);
  if (count <= exponent + 1) {
    return absl::StrCat(sign, digits, std::string(exponent + 1 - count, '0'), ".0");
  }
  return absl::StrCat(sign, digits.substr(0, exponent + 1), ".", digits.substr(exponent + 1));
}

absl::StatusOr<std::string> Str(const Value& value, Meter* meter) {
  if (value.is_undefined()) return std::string();
  if (!value.is_string()) return Repr(value, meter);
  BH_RETURN_IF_ERROR(meter->Reserve(static_cast<int64_t>(value.text().size())));
  return value.text();
}

absl::StatusOr<std::string> Repr(const Value& value, Meter* meter) {
  Writer writer(meter, nullptr);
  BH_RETURN_IF_ERROR(writer.Write(value, 0));
  return writer.Take();
}

absl::StatusOr<std::string> Json(const Value& value, const JsonStyle& style, Meter* meter) {
  Writer writer(meter, &style);
  BH_RETURN_IF_ERROR(writer.Write(value, 0));
  return writer.Take();
}

}  // namespace bulkhead::jinja
