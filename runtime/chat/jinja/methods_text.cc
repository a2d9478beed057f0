// Methods of strings.
#include "absl/container/flat_hash_map.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/status.h"
#include "base/utf8.h"
#include "runtime/chat/jinja/evaluator.h"
#include "runtime/chat/jinja/format.h"
#include "runtime/chat/jinja/objects.h"
#include "runtime/chat/jinja/operators.h"
#include "runtime/chat/jinja/text_operations.h"
#include "runtime/chat/jinja/unicode_text.h"

namespace bulkhead::jinja {
namespace {

template <std::string (*kMapping)(absl::string_view)>
absl::StatusOr<Value> Mapped(Evaluator& evaluator, const Value& self, const Arguments& arguments) {
  BH_RETURN_IF_ERROR(Bind("string method", arguments, {}, 0).status());
  BH_RETURN_IF_ERROR(evaluator.meter()->Reserve(3 * static_cast<int64_t>(self.text().size())));
  return evaluator.Text(kMapping(self.text()));
}

bool IsAscii(char32_t code) { return code < 0x80; }
bool IsAlnum(char32_t code) { return IsAlpha(code) || IsNumeric(code); }

template <bool (*kIs)(char32_t)>
absl::StatusOr<Value> AllAre(Evaluator& evaluator, const Value& self, const Arguments& arguments) {
  BH_RETURN_IF_ERROR(Bind("string method", arguments, {}, 0).status());
  BH_RETURN_IF_ERROR(evaluator.meter()->HandleBytes(self.text().size()));
  absl::string_view text = self.text();
  bool all = !text.empty() || kIs == IsPrintable || kIs == IsAscii;
  while (all && !text.empty()) all = kIs(TakeCodePoint(&text));
  return Value(all);
}

// islower() and isupper(): no letter of the other case, and at least one of this case.
template <bool (*kWanted)(char32_t), bool (*kOther)(char32_t)>
absl::StatusOr<Value> IsCase(Evaluator& evaluator, const Value& self, const Arguments& arguments) {
  BH_RETURN_IF_ERROR(Bind("string method", arguments, {}, 0).status());
  BH_RETURN_IF_ERROR(evaluator.meter()->HandleBytes(self.text().size()));
  bool any = false;
  for (absl::string_view text = self.text(); !text.empty();) {
    const char32_t code = TakeCodePoint(&text);
    if (kOther(code)) return Value(false);
    any = any || kWanted(code);
  }
  return Value(any);
}

template <bool kLeft, bool kRight>
absl::StatusOr<Value> Strip(Evaluator& evaluator, const Value& self, const Arguments& arguments) {
  BH_ASSIGN_OR_RETURN(auto bound, Bind("strip", arguments, {"chars"}, 0));
  BH_RETURN_IF_ERROR(evaluator.meter()->Reserve(self.text().size()));
  absl::string_view text = self.text();
  std::string set;
  const bool with_set = bound[0].has_value() && !bound[0]->is_none();
  if (with_set) {
    BH_ASSIGN_OR_RETURN(set, AsText(*bound[0], "strip"));
    BH_RETURN_IF_ERROR(evaluator.meter()->Step(text.size() * set.size() / 64));
  }
  const absl::string_view characters = set;
  if (kLeft) text = StripLeft(text, with_set ? &characters : nullptr);
  if (kRight) text = StripRight(text, with_set ? &characters : nullptr);
  return evaluator.Text(std::string(text));
}

// The part of the text between the optional `start` and `end`.
absl::StatusOr<std::string> Part(Evaluator& evaluator, const Value& self,
                                 const std::optional<Value>& start,
                                 const std::optional<Value>& end) {
  if (!start.has_value() && !end.has_value()) return self.text();
  BH_ASSIGN_OR_RETURN(Value part, Slice(self, start.value_or(Value()), end.value_or(Value()),
                                        Value(), evaluator.meter()));
  if (part.is_undefined()) return UndefinedError(part);
  return part.text();
}

template <bool kPrefix>
absl::StatusOr<Value> Affix(Evaluator& evaluator, const Value& self, const Arguments& arguments) {
  const absl::string_view name = kPrefix ? "startswith" : "endswith";
  BH_ASSIGN_OR_RETURN(auto bound, Bind(name, arguments, {"prefix", "start", "end"}, 1));
  BH_RETURN_IF_ERROR(evaluator.meter()->HandleBytes(self.text().size()));
  BH_ASSIGN_OR_RETURN(std::string text, Part(evaluator, self, bound[1], bound[2]));
  std::vector<Value> all = {*bound[0]};
  if (bound[0]->is_sequence() && bound[0]->sequence().type == Sequence::Type::kTuple) {
    all = bound[0]->sequence().items;
  }
  for (const Value& each : all) {
    BH_ASSIGN_OR_RETURN(std::string affix, AsText(each, name));
    if (kPrefix ? absl::StartsWith(text, affix) : absl::EndsWith(text, affix)) return Value(true);
  }
  return Value(false);
}

template <bool kFromRight, bool kMustFind>
absl::StatusOr<Value> Find(Evaluator& evaluator, const Value& self, const Arguments& arguments) {
  BH_ASSIGN_OR_RETURN(auto bound, Bind("find", arguments, {"sub", "start", "end"}, 1));
  BH_ASSIGN_OR_RETURN(std::string wanted, AsText(*bound[0], "find"));
  BH_RETURN_IF_ERROR(evaluator.meter()->HandleBytes(self.text().size()));
  BH_ASSIGN_OR_RETURN(std::string text, Part(evaluator, self, bound[1], bound[2]));
  BH_ASSIGN_OR_RETURN(std::string behind, Part(evaluator, self, bound[1], std::nullopt));
  const size_t at = kFromRight ? text.rfind(wanted) : text.find(wanted);
  if (at != std::string::npos) {
    return Value::Integer(self.string().length - CountChars(behind) +
                          CountChars(absl::string_view(text).substr(0, at)));
  }
  if (kMustFind) return ValueError("substring not found");
  return Value::Integer(-1);
}

absl::StatusOr<Value> Count(Evaluator& evaluator, const Value& self, const Arguments& arguments) {
  BH_ASSIGN_OR_RETURN(auto bound, Bind("count", arguments, {"sub", "start", "end"}, 1));
  BH_ASSIGN_OR_RETURN(std::string wanted, AsText(*bound[0], "count"));
  BH_RETURN_IF_ERROR(evaluator.meter()->HandleBytes(self.text().size()));
  BH_ASSIGN_OR_RETURN(std::string text, Part(evaluator, self, bound[1], bound[2]));
  if (wanted.empty()) return Value::Integer(CountChars(text) + 1);
  int64_t count = 0;
  for (size_t at = text.find(wanted); at != std::string::npos;
       at = text.find(wanted, at + wanted.size())) {
    ++count;
  }
  return Value::Integer(count);
}

template <bool kFromRight>
absl::StatusOr<Value> SplitMethod(Evaluator& evaluator, const Value& self,
                                  const Arguments& arguments) {
  BH_ASSIGN_OR_RETURN(auto bound, Bind("split", arguments, {"sep", "maxsplit"}, 0));
  int64_t most = -1;
  if (bound[1].has_value()) {
    BH_ASSIGN_OR_RETURN(most, AsIndex(*bound[1], "split"));
  }
  BH_RETURN_IF_ERROR(evaluator.meter()->Reserve(self.text().size()));
  Parts parts;
  if (bound[0].has_value() && !bound[0]->is_none()) {
    BH_ASSIGN_OR_RETURN(std::string separator, AsText(*bound[0], "split"));
    if (separator.empty()) return ValueError("empty separator");
    BH_ASSIGN_OR_RETURN(parts, Split(self.text(), separator, most, kFromRight, evaluator.meter()));
  } else {
    BH_ASSIGN_OR_RETURN(parts, SplitSpace(self.text(), most, kFromRight, evaluator.meter()));
  }
  return TextList(evaluator, parts);
}

absl::StatusOr<Value> SplitLinesMethod(Evaluator& evaluator, const Value& self,
                                       const Arguments& arguments) {
  BH_ASSIGN_OR_RETURN(auto bound, Bind("splitlines", arguments, {"keepends"}, 0));
  BH_RETURN_IF_ERROR(evaluator.meter()->Reserve(self.text().size()));
  const bool keep = bound[0].has_value() && Truth(*bound[0]);
  BH_ASSIGN_OR_RETURN(const Parts lines, SplitLines(self.text(), keep, evaluator.meter()));
  return TextList(evaluator, lines);
}

absl::StatusOr<Value> ReplaceMethod(Evaluator& evaluator, const Value& self,
                                    const Arguments& arguments) {
  BH_ASSIGN_OR_RETURN(auto bound, Bind("replace", arguments, {"old", "new", "count"}, 2));
  BH_ASSIGN_OR_RETURN(std::string from, AsText(*bound[0], "replace"));
  BH_ASSIGN_OR_RETURN(std::string to, AsText(*bound[1], "replace"));
  int64_t most = -1;
  if (bound[2].has_value()) {
    BH_ASSIGN_OR_RETURN(most, AsIndex(*bound[2], "replace"));
  }
  BH_ASSIGN_OR_RETURN(std::string text, Replace(self.text(), from, to, most, evaluator.meter()));
  return evaluator.Text(std::move(text));
}

absl::StatusOr<Value> JoinMethod(Evaluator& evaluator, const Value& self,
                                 const Arguments& arguments) {
  BH_ASSIGN_OR_RETURN(auto bound, Bind("join", arguments, {"iterable"}, 1));
  BH_ASSIGN_OR_RETURN(std::vector<Value> items, Items(*bound[0], evaluator.meter()));
  std::string out;
  for (size_t i = 0; i < items.size(); ++i) {
    if (!items[i].is_string()) {
      return TypeError(absl::StrCat("sequence item ", i, ": expected str instance, ",
                                    TypeName(items[i]), " found"));
    }
    BH_RETURN_IF_ERROR(evaluator.meter()->HandleBytes(items[i].text().size()));
    absl::StrAppend(&out, i > 0 ? self.text() : "", items[i].text());
    if (!evaluator.meter()->Fits(out.size())) return evaluator.meter()->Reserve(out.size());
  }
  return evaluator.Text(std::move(out));
}

template <bool kPrefix>
absl::StatusOr<Value> RemoveAffix(Evaluator& evaluator, const Value& self,
                                  const Arguments& arguments) {
  BH_ASSIGN_OR_RETURN(auto bound, Bind("removeprefix", arguments, {"affix"}, 1));
  BH_ASSIGN_OR_RETURN(std::string affix, AsText(*bound[0], "removeprefix"));
  absl::string_view text = self.text();
  kPrefix ? absl::ConsumePrefix(&text, affix) : absl::ConsumeSuffix(&text, affix);
  return evaluator.Text(std::string(text));
}

template <bool kFromRight>
absl::StatusOr<Value> Partition(Evaluator& evaluator, const Value& self,
                                const Arguments& arguments) {
  BH_ASSIGN_OR_RETURN(auto bound, Bind("partition", arguments, {"sep"}, 1));
  BH_ASSIGN_OR_RETURN(std::string separator, AsText(*bound[0], "partition"));
  if (separator.empty()) return ValueError("empty separator");
  const std::string& text = self.text();
  const size_t at = kFromRight ? text.rfind(separator) : text.find(separator);
  Parts parts = kFromRight ? Parts{"", "", text} : Parts{text, "", ""};
  if (at != std::string::npos) {
    parts = {text.substr(0, at), separator, text.substr(at + separator.size())};
  }
  BH_ASSIGN_OR_RETURN(Value list, TextList(evaluator, parts));
  return evaluator.List(list.sequence().items, Sequence::Type::kTuple);
}

enum class Side { kLeft, kRight, kBoth };

template <Side kSide>
absl::StatusOr<Value> Pad(Evaluator& evaluator, const Value& self, const Arguments& arguments) {
  BH_ASSIGN_OR_RETURN(auto bound, Bind("just", arguments, {"width", "fillchar"}, 1));
  BH_ASSIGN_OR_RETURN(int64_t width, AsIndex(*bound[0], "just"));
  std::string fill = " ";
  if (bound[1].has_value()) {
    BH_ASSIGN_OR_RETURN(fill, AsText(*bound[1], "just"));
    if (CountChars(fill) != 1) return TypeError("the fill character must be one character");
  }
  const int64_t missing = width - self.string().length;
  if (missing <= 0) return self;
  BH_RETURN_IF_ERROR(evaluator.meter()->Reserve(width));
  // As in Python's center(): the odd character goes left if the width is odd.
  const int64_t left = kSide == Side::kRight  ? missing
                       : kSide == Side::kLeft ? 0
                                              : missing / 2 + (missing & width & 1);
  std::string out;
  for (int64_t i = 0; i < left; ++i) out += fill;
  out += self.text();
  for (int64_t i = left; i < missing; ++i) out += fill;
  return evaluator.Text(std::move(out));
}

absl::StatusOr<Value> ZeroFill(Evaluator& evaluator, const Value& self,
                               const Arguments& arguments) {
  BH_ASSIGN_OR_RETURN(auto bound, Bind("zfill", arguments, {"width"}, 1));
  BH_ASSIGN_OR_RETURN(int64_t width, AsIndex(*bound[0], "zfill"));
  const int64_t missing = width - self.string().length;
  if (missing <= 0) return self;
  BH_RETURN_IF_ERROR(evaluator.meter()->Reserve(width));
  const std::string& text = self.text();
  const size_t sign = !text.empty() && (text[0] == '+' || text[0] == '-') ? 1 : 0;
  return evaluator.Text(
      absl::StrCat(text.substr(0, sign), std::string(missing, '0'), text.substr(sign)));
}

constexpr char kFormat[] = "format", kFormatMap[] = "format_map", kEncode[] = "encode",
               kExpandTabs[] = "expandtabs", kTranslate[] = "translate",
               kIsIdentifier[] = "isidentifier", kIsTitle[] = "istitle";

template <const char* kName>
absl::StatusOr<Value> LeftOut(Evaluator& /*evaluator*/, const Value& /*self*/,
                              const Arguments& /*arguments*/) {
  return absl::UnimplementedError(
      absl::StrCat("the method '", kName, "' of 'str' is not supported in chat templates"));
}

}  // namespace

Method::Body StringMethod(absl::string_view name) {
  static const auto* const kTable = new absl::flat_hash_map<absl::string_view, Method::Body>{
      {"capitalize", Mapped<Capitalize>},
      {"casefold", Mapped<CaseFold>},
      {"lower", Mapped<ToLower>},
      {"swapcase", Mapped<SwapCase>},
      {"title", Mapped<Title>},
      {"upper", Mapped<ToUpper>},
      {"isalnum", AllAre<IsAlnum>},
      {"isalpha", AllAre<IsAlpha>},
      {"isdecimal", AllAre<IsDecimal>},
      {"isdigit", AllAre<IsDigit>},
      {"isnumeric", AllAre<IsNumeric>},
      {"isprintable", AllAre<IsPrintable>},
      {"isspace", AllAre<IsSpace>},
      {"islower", IsCase<IsLower, IsUpper>},
      {"isupper", IsCase<IsUpper, IsLower>},
      {"strip", Strip<true, true>},
      {"lstrip", Strip<true, false>},
      {"rstrip", Strip<false, true>},
      {"startswith", Affix<true>},
      {"endswith", Affix<false>},
      {"find", Find<false, false>},
      {"rfind", Find<true, false>},
      {"index", Find<false, true>},
      {"rindex", Find<true, true>},
      {"count", Count},
      {"split", SplitMethod<false>},
      {"rsplit", SplitMethod<true>},
      {"splitlines", SplitLinesMethod},
      {"replace", ReplaceMethod},
      {"join", JoinMethod},
      {"removeprefix", RemoveAffix<true>},
      {"removesuffix", RemoveAffix<false>},
      {"partition", Partition<false>},
      {"rpartition", Partition<true>},
      {"ljust", Pad<Side::kLeft>},
      {"rjust", Pad<Side::kRight>},
      {"center", Pad<Side::kBoth>},
      {"zfill", ZeroFill},
      {"format", LeftOut<kFormat>},
      {"format_map", LeftOut<kFormatMap>},
      {"encode", LeftOut<kEncode>},
      {"expandtabs", LeftOut<kExpandTabs>},
      {"translate", LeftOut<kTranslate>},
      {"isascii", AllAre<IsAscii>},
      {"isidentifier", LeftOut<kIsIdentifier>},
      {"istitle", LeftOut<kIsTitle>},
  };
  const auto found = kTable->find(name);
  return found == kTable->end() ? nullptr : found->second;
}

}  // namespace bulkhead::jinja
