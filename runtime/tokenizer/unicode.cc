#include "runtime/tokenizer/unicode.h"

#include <unicode/bytestream.h>
#include <unicode/normalizer2.h>
#include <unicode/stringpiece.h>
#include <unicode/uchar.h>
#include <unicode/uniset.h>
#include <unicode/unistr.h>
#include <unicode/utf8.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace bulkhead {
namespace {

const uint8_t* Bytes(absl::string_view text) {
  return reinterpret_cast<const uint8_t*>(text.data());
}

bool AgeAtMost(char32_t c, int major) {
  UVersionInfo age;
  u_charAge(static_cast<UChar32>(c), age);
  return age[0] != 0 && age[0] <= major;
}

// The reference's normalisation tables are of Unicode 11: what came later is left as it is.
struct Forms {
  Forms() : known(icu::UnicodeString("[:age=11.0:]"), error) {
    known.freeze();
    const icu::Normalizer2* plain[4] = {
        icu::Normalizer2::getNFCInstance(error), icu::Normalizer2::getNFDInstance(error),
        icu::Normalizer2::getNFKCInstance(error), icu::Normalizer2::getNFKDInstance(error)};
    BH_CHECK(U_SUCCESS(error));  // the library holds these tables
    for (int i = 0; i < 4; ++i) {
      filtered[i] = std::make_unique<icu::FilteredNormalizer2>(*plain[i], known);
    }
  }
  const icu::Normalizer2& of(NormalForm form) const { return *filtered[static_cast<int>(form)]; }

  UErrorCode error = U_ZERO_ERROR;
  icu::UnicodeSet known;
  std::unique_ptr<icu::FilteredNormalizer2> filtered[4];
};

// ICU sorts each run of combining marks by insertion, quadratic in the run. Decomposing and sorting
// the runs here first (canonically equivalent text has the same normal forms) leaves it nothing to
// move.
std::string SortMarks(const Forms& forms, absl::string_view text) {
  const icu::Normalizer2& nfd = forms.of(NormalForm::kNfd);
  std::string out;
  out.reserve(text.size());
  std::vector<std::pair<uint8_t, char32_t>> run;
  const auto end_run = [&] {
    std::stable_sort(run.begin(), run.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    for (const auto& [order, c] : run) AppendUtf8(c, &out);
    run.clear();
  };
  for (size_t position = 0; position < text.size();) {
    const char32_t c = NextChar(text, &position);
    const UChar32 u = static_cast<UChar32>(c);
    // Some starters decompose to marks alone.
    const bool is_mark = c >= 0x300 &&
                         u_getIntPropertyValue(u, UCHAR_LEAD_CANONICAL_COMBINING_CLASS) != 0 &&
                         forms.known.contains(u);
    if (!is_mark) {
      if (!run.empty()) end_run();
      AppendUtf8(c, &out);
      continue;
    }
    icu::UnicodeString marks;
    if (!nfd.getDecomposition(u, marks)) marks = u;
    for (int32_t i = 0; i < marks.length(); i = marks.moveIndex32(i, 1)) {
      const UChar32 mark = marks.char32At(i);
      run.emplace_back(u_getCombiningClass(mark), static_cast<char32_t>(mark));
    }
  }
  end_run();
  return out;
}

}  // namespace

bool IsValidUtf8(absl::string_view bytes) {
  const int32_t size = static_cast<int32_t>(bytes.size());
  for (int32_t i = 0; i < size;) {
    UChar32 c;
    U8_NEXT(Bytes(bytes), i, size, c);
    if (c < 0) return false;
  }
  return true;
}

std::string RepairUtf8(absl::string_view bytes) {
  const int32_t size = static_cast<int32_t>(bytes.size());
  std::string out;
  out.reserve(bytes.size());
  for (int32_t i = 0; i < size;) {
    UChar32 c;
    U8_NEXT_OR_FFFD(Bytes(bytes), i, size, c);
    AppendUtf8(static_cast<char32_t>(c), &out);
  }
  return out;
}

size_t CharBytes(char lead) { return 1 + U8_COUNT_TRAIL_BYTES_UNSAFE(static_cast<uint8_t>(lead)); }

char32_t NextChar(absl::string_view text, size_t* position) {
  char32_t c;
  U8_NEXT_UNSAFE(Bytes(text), *position, c);
  return c;
}

char32_t PreviousChar(absl::string_view text, size_t end, size_t* begin) {
  char32_t c;
  U8_PREV_UNSAFE(Bytes(text), end, c);
  *begin = end;
  return c;
}

void AppendUtf8(char32_t c, std::string* out) {
  char bytes[U8_MAX_LENGTH];
  size_t size = 0;
  U8_APPEND_UNSAFE(bytes, size, c);
  out->append(bytes, size);
}

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
  // The reference's table is of Unicode 8; two characters left the category since.
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
  if (c < 0x300 || c == 0x111C9) return false;  // the latter became one with Unicode 11
  if (c == 0x1CF2 || c == 0x1CF3) return true;  // marks until Unicode 12
  return (U_GET_GC_MASK(static_cast<UChar32>(c)) & U_GC_M_MASK) != 0 && AgeAtMost(c, 9);
}

void AppendLowercase(char32_t c, std::string* out) {
  if (c == 0x130) {  // the one character whose lower case is two
    out->append("i\xCC\x87");
  } else {
    AppendUtf8(static_cast<char32_t>(u_tolower(static_cast<UChar32>(c))), out);
  }
}

absl::StatusOr<std::string> NormalizeUnicode(NormalForm form, absl::string_view text) {
  static const Forms* const forms = new Forms();
  const std::string sorted = SortMarks(*forms, text);
  std::string out;
  icu::StringByteSink<std::string> sink(&out);
  UErrorCode error = U_ZERO_ERROR;
  forms->of(form).normalizeUTF8(
      0, icu::StringPiece(sorted.data(), static_cast<int32_t>(sorted.size())), sink, nullptr,
      error);
  if (U_FAILURE(error)) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "a text of ", text.size(), " bytes cannot be normalised: ", u_errorName(error)));
  }
  return out;
}

}  // namespace bulkhead
