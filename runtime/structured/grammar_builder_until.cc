// Text up to a marker.
#include <utility>
#include <vector>

#include "runtime/structured/grammar_builder.h"

namespace bulkhead::structured {

int32_t GrammarBuilder::Until(absl::string_view bytes, int32_t next) {
  // Knuth-Morris-Pratt: state i has seen the first i bytes.
  std::vector<size_t> border(bytes.size() + 1, 0);
  for (size_t i = 1, k = 0; i < bytes.size(); ++i) {
    while (k > 0 && bytes[i] != bytes[k]) k = border[k];
    if (bytes[i] == bytes[k]) ++k;
    border[i + 1] = k;
  }
  std::vector<int32_t> seen;
  for (size_t i = 0; i < bytes.size(); ++i) seen.push_back(Split({next, next}));
  seen.push_back(next);
  for (size_t i = 0; i < bytes.size() && !full(); ++i) {
    std::vector<ByteEdge> edges;
    for (int byte = 0; byte < 256; ++byte) {
      size_t to = i;
      while (to > 0 && static_cast<uint8_t>(bytes[to]) != byte) to = border[to];
      if (static_cast<uint8_t>(bytes[to]) == byte) ++to;
      const bool widens = !edges.empty() && edges.back().next == seen[to];
      if (widens) edges.back().last = static_cast<uint8_t>(byte);
      if (!widens) {
        edges.push_back({static_cast<uint8_t>(byte), static_cast<uint8_t>(byte), seen[to]});
      }
    }
    const int32_t state = Bytes(std::move(edges));
    int32_t* const targets = &grammar_->targets_[grammar_->states_[seen[i]].begin];
    targets[0] = targets[1] = state;
  }
  return seen[0];
}

}  // namespace bulkhead::structured
