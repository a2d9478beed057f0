#include "runtime/tokenizer/unicode.h"

#include <unicode/bytestream.h>
#include <unicode/normalizer2.h>
#include <unicode/stringpiece.h>
#include <unicode/uchar.h>
#include <unicode/uniset.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/utf8.h"

namespace bulkhead {
namespace {

bool AgeAtMost(char32_t c, int major) {
  UVersionInfo age;
  u_charAge(static_cast<UChar32>(c), age);
  return age[0] != 0 && age[0] <= major;
}

// The reference's normalisation tables are Unicode 11: newer characters are unchanged.
const icu::Normalizer2* FormOf(NormalForm form) {
  struct Forms {
    Forms() {
      UErrorCode error = U_ZERO_ERROR;
      const icu::UnicodeSet set(icu::UnicodeString("[:age=11.0:]"), error);
      if (U_FAILURE(error)) return;
      known = std::make_unique<icu::UnicodeSet>(set);
      known->freeze();
      const icu::Normalizer2* plain[4] = {
          icu::Normalizer2::getNFCInstance(error), icu::Normalizer2::getNFDInstance(error),
          icu::Normalizer2::getNFKCInstance(error), icu::Normalizer2::getNFKDInstance(error)};
      if (U_FAILURE(error)) return;
      for (int i = 0; i < 4; ++i) {
        filtered[i] = std::make_unique<icu::FilteredNormalizer2>(*plain[i], *known);
      }
    }
    std::unique_ptr<icu::UnicodeSet> known;
    std::unique_ptr<icu::FilteredNormalizer2> filtered[4];
  };
  static const Forms* const forms = new Forms();
  return forms->filtered[static_cast<int>(form)].get();
}

// Four Tibetan vowel signs are starters that decompose to non-starters.
absl::string_view HiddenMarks(char32_t c) {
  switch (c) {
    case 0x0F73:
      return "\xE0\xBD\xB1\xE0\xBD\xB2";
    case 0x0F75:
      return "\xE0\xBD\xB1\xE0\xBD\xB4";
    case 0x0F81:
      return "\xE0\xBD\xB1\xE0\xBE\x80";
    default:
      return {};
  }
}

// ICU sorts runs of combining marks by insertion, in quadratic time. Sorting long runs here first
// (canonically equivalent text has the same normal forms) leaves it nothing to move.
void SortLongMarkRuns(absl::string_view text, std::string* out) {
  constexpr size_t kLongRun = 64;
  std::vector<std::pair<uint8_t, char32_t>> run;
  size_t run_begin = 0;
  const auto end_run = [&](size_t end) {
    if (run.size() > kLongRun) {
      std::stable_sort(run.begin(), run.end(),
                       [](const auto& a, const auto& b) { return a.first < b.first; });
      for (const auto& [order, c] : run) AppendUtf8(c, out);
    } else {
      absl::StrAppend(out, text.substr(run_begin, end - run_begin));
    }
    run.clear();
  };
  for (size_t position = 0; position < text.size();) {
    const size_t begin = position;
    const char32_t c = NextChar(text, &position);
    const uint8_t order = c < 0x300 ? 0 : u_getCombiningClass(static_cast<UChar32>(c));
    const absl::string_view marks = order == 0 ? HiddenMarks(c) : absl::string_view();
    if (run.empty()) run_begin = begin;
    if (order != 0) {
      run.emplace_back(order, c);
    } else if (!marks.empty()) {
      for (size_t i = 0; i < marks.size();) {
        const char32_t mark = NextChar(marks, &i);
        run.emplace_back(u_getCombiningClass(static_cast<UChar32>(mark)), mark);
      }
    } else {
      if (!run.empty()) end_run(begin);
      absl::StrAppend(out, text.substr(begin, position - begin));
    }
  }
  if (!run.empty()) end_run(text.size());
}

class FunctionSink : public icu::ByteSink {
 public:
  explicit FunctionSink(const std::function<void(absl::string_view)>& append) : append_(append) {}
  void Append(const char* bytes, int32_t size) override {
    append_(absl::string_view(bytes, static_cast<size_t>(size)));
  }

 private:
  const std::function<void(absl::string_view)>& append_;
};

}  // namespace

bool IsWhitespace(char32_t c) {
  if (c < 0x80) return c == ' ' || (c >= '\t' && c <= '\r');
  return u_isUWhiteSpace(static_cast<UChar32>(c));
}

bool IsNumeric(char32_t c) {
  if (c < 0x80) return c >= '0' && c <= '9';
  return (U_GET_GC_MASK(static_cast<UChar32>(c)) & U_GC_N_MASK) != 0;
}

bool IsPunctuation(char32_t c) {
  if (c < 0x80) {
    return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') ||
           (c >= '{' && c <= '~');
  }
  // The reference's table is Unicode 8; two characters have left the category since.
  if (c == 0x166D || c == 0x111C9) return true;
  return (U_GET_GC_MASK(static_cast<UChar32>(c)) & U_GC_P_MASK) != 0 && AgeAtMost(c, 8);
}

bool IsWordChar(char32_t c) {
  if (c < 0x80) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  }
  constexpr uint32_t kWordCategories = U_GC_M_MASK | U_GC_ND_MASK | U_GC_PC_MASK;
  const UChar32 u = static_cast<UChar32>(c);
  return u_isUAlphabetic(u) || (U_GET_GC_MASK(u) & kWordCategories) != 0 ||
         u_hasBinaryProperty(u, UCHAR_JOIN_CONTROL);
}

bool IsCombiningMark(char32_t c) {
  if (c < 0x300 || c == 0x111C9) return false;  // the latter joined with Unicode 11
  if (c == 0x1CF2 || c == 0x1CF3) return true;  // marks until Unicode 12
  return (U_GET_GC_MASK(static_cast<UChar32>(c)) & U_GC_M_MASK) != 0 && AgeAtMost(c, 9);
}

void AppendLowercase(char32_t c, std::string* out) {
  if (c == 0x130) {  // the only character with a two-character lower case
    out->append("i\xCC\x87");
  } else {
    AppendUtf8(static_cast<char32_t>(u_tolower(static_cast<UChar32>(c))), out);
  }
}

absl::Status NormalizeUnicode(NormalForm form, absl::string_view text,
                              const std::function<void(absl::string_view)>& append) {
  if (AsciiPrefix(text) == text.size()) {
    append(text);
    return absl::OkStatus();
  }
  const icu::Normalizer2* const normalizer = FormOf(form);
  if (normalizer == nullptr) {
    return absl::InternalError("the ICU library has no normalisation data");
  }
  std::string sorted;
  sorted.reserve(text.size());
  SortLongMarkRuns(text, &sorted);
  // ICU uses int32 sizes, and a character can grow to 33 bytes.
  if (sorted.size() > (uint32_t{1} << 30) / 18) {
    return absl::ResourceExhaustedError(
        absl::StrCat("a text of ", text.size(), " bytes is too long to be normalised"));
  }
  FunctionSink sink(append);
  UErrorCode error = U_ZERO_ERROR;
  normalizer->normalizeUTF8(0, icu::StringPiece(sorted.data(), static_cast<int32_t>(sorted.size())),
                            sink, nullptr, error);
  if (U_FAILURE(error)) {
    return absl::InternalError(absl::StrCat("ICU normalisation: ", u_errorName(error)));
  }
  return absl::OkStatus();
}

void Utf8Repair::Append(absl::string_view bytes, std::string* out) {
  std::string joined;
  if (!held_.empty()) {
    joined = std::exchange(held_, std::string());
    absl::StrAppend(&joined, bytes);
    bytes = joined;
  }
  const auto* const data = reinterpret_cast<const uint8_t*>(bytes.data());
  auto whole = static_cast<int64_t>(bytes.size());
  U8_TRUNCATE_IF_INCOMPLETE(data, 0, whole);
  held_ = std::string(bytes.substr(whole));
  bytes = bytes.substr(0, whole);
  while (!bytes.empty()) {
    const size_t ascii = AsciiPrefix(bytes);
    absl::StrAppend(out, bytes.substr(0, ascii));
    bytes.remove_prefix(ascii);
    if (bytes.empty()) return;
    size_t size = 0;
    const char32_t c = NextChar(bytes, &size);
    absl::StrAppend(out, c == 0xFFFD ? kReplacementChar : bytes.substr(0, size));
    bytes.remove_prefix(size);
  }
}

void Utf8Repair::Flush(std::string* out) {
  if (!held_.empty()) absl::StrAppend(out, kReplacementChar);
  held_.clear();
}

}  // namespace bulkhead
