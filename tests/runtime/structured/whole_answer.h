// Whether a text is a whole answer of a grammar, byte by byte.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "runtime/structured/matcher.h"

namespace bulkhead::structured {

inline bool IsWholeAnswer(const absl::StatusOr<std::shared_ptr<const Grammar>>& grammar,
                          const std::string& text) {
  EXPECT_TRUE(grammar.ok()) << grammar.status();
  if (!grammar.ok()) return false;
  constexpr int32_t kEnd = 256;
  std::vector<std::string> tokens;
  for (int byte = 0; byte < kEnd; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  tokens.emplace_back();
  const TokenTrie trie(tokens);
  Matcher matcher(std::make_shared<Automaton>(*grammar, &trie, size_t{1} << 20), {kEnd});
  for (const char byte : text) {
    if (!matcher.Accept(static_cast<uint8_t>(byte)).ok()) return false;
  }
  return matcher.Accept(kEnd).ok();
}

}  // namespace bulkhead::structured
