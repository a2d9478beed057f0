// AhoCorasick: finds any of a set of strings in one pass over the bytes. Immutable once built;
// thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"

namespace bulkhead {

class AhoCorasick {
 public:
  // Empty patterns are ignored; of equal patterns the last is used.
  explicit AhoCorasick(const std::vector<std::string>& patterns);

  bool empty() const { return nodes_.size() == 1; }

  struct Found {
    size_t begin, end;
    int32_t pattern;
  };
  // The leftmost longest match that starts at `from` or later; false if there is none.
  bool FindLeftmostLongest(absl::string_view text, size_t from, Found* found) const;

 private:
  using State = uint32_t;
  static constexpr State kStart = 0;
  static constexpr int32_t kNone = -1;

  struct Node {
    // The longest suffix of the input so far that is a prefix of a pattern, in bytes.
    uint32_t depth = 0;
    State failure = kStart;
    int32_t match = kNone;  // the longest pattern that ends here
  };
  State Next(State state, uint8_t byte) const;
  State Child(State state, uint8_t byte) const;  // kStart: none

  std::vector<Node> nodes_;
  std::vector<size_t> sizes_;
  std::array<State, 256> first_{};  // children of the start state
  absl::flat_hash_map<uint64_t, State> children_;
};

}  // namespace bulkhead
