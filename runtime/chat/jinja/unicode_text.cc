#include "runtime/chat/jinja/unicode_text.h"

#include <unicode/bytestream.h>
#include <unicode/casemap.h>
#include <unicode/uchar.h>

#include "base/utf8.h"

namespace bulkhead::jinja {
namespace {

bool Contains(absl::string_view set, absl::string_view character) {
  for (size_t at = set.find(character); at != absl::string_view::npos;
       at = set.find(character, at + 1)) {
    if (IsCharBoundary(set, at)) return true;
  }
  return false;
}

bool Strips(absl::string_view character, const absl::string_view* set) {
  return set == nullptr ? IsSpace(TakeCodePoint(&character)) : Contains(*set, character);
}

using CaseMapping = void (*)(absl::string_view, icu::ByteSink&, UErrorCode&);

std::string Mapped(absl::string_view text, CaseMapping mapping) {
  std::string out;
  icu::StringByteSink<std::string> sink(&out, static_cast<int32_t>(text.size()));
  UErrorCode error = U_ZERO_ERROR;
  mapping(text, sink, error);
  return U_SUCCESS(error) ? out : std::string(text);
}

icu::StringPiece Piece(absl::string_view text) {
  return icu::StringPiece(text.data(), static_cast<int32_t>(text.size()));
}

bool IsCased(char32_t code) { return u_hasBinaryProperty(code, UCHAR_CASED); }

// Title case of a character on its own.
std::string TitleOf(char32_t code) {
  std::string out;
  AppendCodePoint(&out, code);
  const std::string upper = ToUpper(out);
  // The title case of a ligature is not its upper case.
  if (CountChars(upper) > 1) {
    const size_t first = CodePointBytes(upper);
    return upper.substr(0, first) + ToLower(absl::string_view(upper).substr(first));
  }
  out.clear();
  AppendCodePoint(&out, u_totitle(code));
  return out;
}

}  // namespace

size_t CodePointBytes(absl::string_view text) {
  size_t size = 0;
  NextChar(text, &size);
  return size;
}

char32_t TakeCodePoint(absl::string_view* text) {
  size_t size = 0;
  const char32_t code = NextChar(*text, &size);
  text->remove_prefix(size);
  return code;
}

void AppendCodePoint(std::string* text, char32_t code) {
  AppendUtf8(U_IS_SURROGATE(code) || code > 0x10FFFF ? 0xFFFD : code, text);
}

bool IsSpace(char32_t code) {
  if (code < 0x80) return (code >= 9 && code <= 13) || (code >= 28 && code <= 32);
  return code == 0x85 || u_charType(code) == U_SPACE_SEPARATOR || code == 0x2028 || code == 0x2029;
}

bool IsAlpha(char32_t code) { return u_isalpha(code); }
bool IsDecimal(char32_t code) { return u_charType(code) == U_DECIMAL_DIGIT_NUMBER; }

bool IsDigit(char32_t code) {
  const int type = u_getIntPropertyValue(code, UCHAR_NUMERIC_TYPE);
  return type == U_NT_DECIMAL || type == U_NT_DIGIT;
}

bool IsNumeric(char32_t code) {
  return u_getIntPropertyValue(code, UCHAR_NUMERIC_TYPE) != U_NT_NONE;
}

bool IsPrintable(char32_t code) {
  if (code == ' ') return true;
  const int8_t type = u_charType(code);
  return type != U_CONTROL_CHAR && type != U_FORMAT_CHAR && type != U_SURROGATE &&
         type != U_PRIVATE_USE_CHAR && type != U_UNASSIGNED && type != U_LINE_SEPARATOR &&
         type != U_PARAGRAPH_SEPARATOR && type != U_SPACE_SEPARATOR;
}

bool IsUpper(char32_t code) { return u_hasBinaryProperty(code, UCHAR_UPPERCASE); }
bool IsLower(char32_t code) { return u_hasBinaryProperty(code, UCHAR_LOWERCASE); }
bool IsNameCharacter(char32_t code) {
  return code == '_' || IsAlpha(code) || u_isalnum(code) ||
         u_hasBinaryProperty(code, UCHAR_ID_CONTINUE);
}

std::string ToUpper(absl::string_view text) {
  return Mapped(text, [](absl::string_view from, icu::ByteSink& sink, UErrorCode& error) {
    icu::CaseMap::utf8ToUpper("", 0, Piece(from), sink, nullptr, error);
  });
}

std::string ToLower(absl::string_view text) {
  return Mapped(text, [](absl::string_view from, icu::ByteSink& sink, UErrorCode& error) {
    icu::CaseMap::utf8ToLower("", 0, Piece(from), sink, nullptr, error);
  });
}

std::string CaseFold(absl::string_view text) {
  return Mapped(text, [](absl::string_view from, icu::ByteSink& sink, UErrorCode& error) {
    icu::CaseMap::utf8Fold(0, Piece(from), sink, nullptr, error);
  });
}

std::string Capitalize(absl::string_view text) {
  if (text.empty()) return "";
  const char32_t first = TakeCodePoint(&text);
  return TitleOf(first) + ToLower(text);
}

std::string Title(absl::string_view text) {
  std::string out;
  std::string run;  // the rest of a run of letters
  const auto flush = [&] {
    out += ToLower(run);
    run.clear();
  };
  bool in_run = false;
  while (!text.empty()) {
    const char32_t code = TakeCodePoint(&text);
    if (in_run && IsCased(code)) {
      AppendCodePoint(&run, code);
    } else {
      flush();
      in_run = IsCased(code);
      if (in_run) {
        out += TitleOf(code);
      } else {
        AppendCodePoint(&out, code);
      }
    }
  }
  flush();
  return out;
}

std::string SwapCase(absl::string_view text) {
  std::string out;
  while (!text.empty()) {
    const absl::string_view character = text.substr(0, CodePointBytes(text));
    const char32_t code = TakeCodePoint(&text);
    if (IsUpper(code)) {
      out += ToLower(character);
    } else if (IsLower(code)) {
      out += ToUpper(character);
    } else {
      out.append(character.data(), character.size());
    }
  }
  return out;
}

absl::string_view StripLeft(absl::string_view text, const absl::string_view* set) {
  while (!text.empty()) {
    const size_t bytes = CodePointBytes(text);
    if (!Strips(text.substr(0, bytes), set)) break;
    text.remove_prefix(bytes);
  }
  return text;
}

absl::string_view StripRight(absl::string_view text, const absl::string_view* set) {
  while (!text.empty()) {
    const size_t at = CharStart(text, text.size() - 1);
    if (!Strips(text.substr(at), set)) break;
    text.remove_suffix(text.size() - at);
  }
  return text;
}

}  // namespace bulkhead::jinja
