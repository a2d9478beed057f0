#include "runtime/tokenizer/byte_level.h"

#include <array>

#include "base/utf8.h"

namespace bulkhead {
namespace {

// Printable Latin-1 bytes map to themselves, the others to U+0100 and up, in order.
constexpr bool IsPrintableByte(int byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}
constexpr int kAlphabetEnd = 0x144;

struct Alphabet {
  Alphabet() {
    bytes.fill(-1);
    int next = 0x100;
    for (int byte = 0; byte < 256; ++byte) {
      const int c = IsPrintableByte(byte) ? byte : next++;
      chars[byte] = static_cast<char32_t>(c);
      bytes[c] = static_cast<int16_t>(byte);
      AppendUtf8(chars[byte], &utf8[byte]);
    }
  }
  std::array<char32_t, 256> chars;
  std::array<std::string, 256> utf8;
  std::array<int16_t, kAlphabetEnd> bytes;  // -1: none
};

const Alphabet& TheAlphabet() {
  static const Alphabet* const alphabet = new Alphabet();
  return *alphabet;
}

}  // namespace

absl::string_view ByteLevelChar(uint8_t byte) { return TheAlphabet().utf8[byte]; }

bool ByteLevelToBytes(absl::string_view text, std::string* bytes) {
  const Alphabet& alphabet = TheAlphabet();
  bytes->clear();
  for (size_t position = 0; position < text.size();) {
    const char32_t c = NextChar(text, &position);
    if (c >= kAlphabetEnd || alphabet.bytes[c] < 0) return false;
    bytes->push_back(static_cast<char>(alphabet.bytes[c]));
  }
  return true;
}

}  // namespace bulkhead
