#define PCRE2_CODE_UNIT_WIDTH 8
#include "runtime/tokenizer/oniguruma_properties.h"

#include <pcre2.h>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace bulkhead {
namespace {

using Names = absl::flat_hash_map<std::string, std::string>;

// Long names of general categories (PCRE2 only knows the short ones) and of POSIX classes.
const Names& SimpleProperties() {
  static const Names* const names = new Names{
      {"letter", "L"},
      {"uppercaseletter", "Lu"},
      {"lowercaseletter", "Ll"},
      {"titlecaseletter", "Lt"},
      {"modifierletter", "Lm"},
      {"otherletter", "Lo"},
      {"mark", "M"},
      {"combiningmark", "M"},
      {"nonspacingmark", "Mn"},
      {"spacingmark", "Mc"},
      {"enclosingmark", "Me"},
      {"number", "N"},
      {"decimalnumber", "Nd"},
      {"letternumber", "Nl"},
      {"othernumber", "No"},
      {"punctuation", "P"},
      {"connectorpunctuation", "Pc"},
      {"dashpunctuation", "Pd"},
      {"openpunctuation", "Ps"},
      {"closepunctuation", "Pe"},
      {"initialpunctuation", "Pi"},
      {"finalpunctuation", "Pf"},
      {"otherpunctuation", "Po"},
      {"symbol", "S"},
      {"mathsymbol", "Sm"},
      {"currencysymbol", "Sc"},
      {"modifiersymbol", "Sk"},
      {"othersymbol", "So"},
      {"separator", "Z"},
      {"spaceseparator", "Zs"},
      {"lineseparator", "Zl"},
      {"paragraphseparator", "Zp"},
      {"other", "C"},
      {"control", "Cc"},
      {"format", "Cf"},
      {"unassigned", "Cn"},
      {"privateuse", "Co"},
      {"surrogate", "Cs"},
      {"alpha", "Alphabetic"},
      {"upper", "Uppercase"},
      {"lower", "Lowercase"},
      {"digit", "Nd"},
      {"cntrl", "Cc"},
      {"punct", "P"},
      {"space", "wspace"},
      {"whitespace", "wspace"},
  };
  return *names;
}

// Names for a combination of several properties.
const Names& CompoundProperties() {
  static const Names* const names = new Names{
      {"alnum", "\\p{Alphabetic}\\p{Nd}"},
      {"blank", "\\p{Zs}\\t"},
      {"xdigit", "0-9a-fA-F"},
      {"word", kOnigurumaWord},
      {"ascii", "\\x{0}-\\x{7f}"},
      {"any", "\\x{0}-\\x{10ffff}"},
      {"assigned", "\\P{Cn}"},
  };
  return *names;
}

bool Compiles(const std::string& pattern) {
  int error = 0;
  PCRE2_SIZE position = 0;
  pcre2_code* const code =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                    PCRE2_UTF | PCRE2_UCP, &error, &position, nullptr);
  pcre2_code_free(code);
  return code != nullptr;
}

std::string Normalized(absl::string_view name) {
  std::string plain;
  for (const char c : name) {
    if (c != ' ' && c != '_' && c != '-') plain += absl::ascii_tolower(c);
  }
  return plain;
}

}  // namespace

std::optional<std::string> OnigurumaProperty(absl::string_view name, bool negated) {
  const std::string plain = Normalized(name);
  const std::string p = negated ? "\\P{" : "\\p{";
  if (const auto simple = SimpleProperties().find(plain); simple != SimpleProperties().end()) {
    return absl::StrCat(p, simple->second, "}");
  }
  if (const auto several = CompoundProperties().find(plain);
      several != CompoundProperties().end()) {
    if (negated) return std::nullopt;
    return several->second;
  }
  if (plain.empty()) return std::nullopt;
  for (const char c : plain) {
    if (!absl::ascii_isalnum(c)) return std::nullopt;
  }
  // A bare script name means script extensions in PCRE2, and the script in Oniguruma.
  if (const std::string script = absl::StrCat("\\p{sc:", plain, "}"); Compiles(script)) {
    return absl::StrCat(p, "sc:", plain, "}");
  }
  const bool pcre_only = plain.size() == 3 && plain[0] == 'x';
  if (!pcre_only && Compiles(absl::StrCat("\\p{", plain, "}"))) return absl::StrCat(p, plain, "}");
  return std::nullopt;
}

std::optional<std::string> OnigurumaPosixBracket(absl::string_view name) {
  static const Names* const names = new Names{
      {"alnum", "\\p{Alphabetic}\\p{Nd}"},
      {"alpha", "\\p{Alphabetic}"},
      {"ascii", "\\x{0}-\\x{7f}"},
      {"blank", "\\p{Zs}\\t"},
      {"cntrl", "\\p{Cc}"},
      {"digit", "\\p{Nd}"},
      {"lower", "\\p{Lowercase}"},
      {"punct", "\\p{P}\\p{S}"},
      {"space", "\\p{wspace}"},
      {"upper", "\\p{Uppercase}"},
      {"xdigit", "0-9a-fA-F"},
      {"word", kOnigurumaWord},
  };
  const auto found = names->find(name);
  if (found == names->end()) return std::nullopt;
  return found->second;
}

}  // namespace bulkhead
