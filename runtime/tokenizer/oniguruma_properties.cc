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

// Symbols (So) and punctuation (Po) of Unicode 15 to 16, emoji among them: Oniguruma has them, and
// PCRE2 before 10.45 takes them for unassigned. Newer letters, marks and digits belong to rarely
// used scripts and are left as in PCRE2.
constexpr char kNewerSymbols[] =
    "\\x{2427}-\\x{2429}\\x{2FFC}-\\x{2FFF}\\x{31E4}-\\x{31E5}\\x{31EF}"
    "\\x{1CC00}-\\x{1CCEF}\\x{1CD00}-\\x{1CEB3}\\x{1F6DC}\\x{1F774}-\\x{1F776}"
    "\\x{1F77B}-\\x{1F77F}\\x{1F7D9}\\x{1F8B2}-\\x{1F8BB}\\x{1F8C0}-\\x{1F8C1}"
    "\\x{1FA75}-\\x{1FA77}\\x{1FA87}-\\x{1FA89}\\x{1FA8F}\\x{1FAAD}-\\x{1FAAF}"
    "\\x{1FABB}-\\x{1FABF}\\x{1FAC6}\\x{1FACE}-\\x{1FACF}\\x{1FADA}-\\x{1FADC}\\x{1FADF}"
    "\\x{1FAE8}-\\x{1FAE9}\\x{1FAF7}-\\x{1FAF8}\\x{1FBCB}-\\x{1FBEF}";
constexpr char kNewerPunctuation[] =
    "\\x{1B4E}-\\x{1B4F}\\x{1B7F}\\x{113D4}-\\x{113D5}\\x{113D7}-\\x{113D8}"
    "\\x{11B00}-\\x{11B09}\\x{11BE1}\\x{11F43}-\\x{11F4F}\\x{16D6D}-\\x{16D6F}\\x{1E5FF}";

// The characters that the PCRE2 property of that name lacks, for the inside of brackets.
std::string NewerCharacters(absl::string_view property) {
  const std::string name = absl::AsciiStrToLower(property);
  if (name == "s" || name == "so") return kNewerSymbols;
  if (name == "p" || name == "po") return kNewerPunctuation;
  return "";
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
  const auto simple = SimpleProperties().find(plain);
  const std::string& known = simple == SimpleProperties().end() ? plain : simple->second;
  const std::string newer = NewerCharacters(known);
  if (negated && !newer.empty()) return std::nullopt;
  if (simple != SimpleProperties().end() || !newer.empty()) {
    return absl::StrCat(p, known, "}", newer);
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
      {"punct", absl::StrCat("\\p{P}\\p{S}", kNewerPunctuation, kNewerSymbols)},
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
