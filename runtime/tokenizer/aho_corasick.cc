#include "runtime/tokenizer/aho_corasick.h"

namespace bulkhead {
namespace {

uint64_t Edge(uint32_t state, uint8_t byte) { return uint64_t{state} << 8 | byte; }

}  // namespace

AhoCorasick::AhoCorasick(const std::vector<std::string>& patterns) : nodes_(1) {
  struct Made {
    State parent;
    uint8_t byte;
  };
  std::vector<Made> made = {{kStart, 0}};  // by state
  for (size_t i = 0; i < patterns.size(); ++i) {
    sizes_.push_back(patterns[i].size());
    State state = kStart;
    for (const char c : patterns[i]) {
      const uint8_t byte = static_cast<uint8_t>(c);
      State next = Child(state, byte);
      if (next == kStart) {
        next = static_cast<State>(nodes_.size());
        nodes_.push_back({nodes_[state].depth + 1, kStart, kNone});
        made.push_back({state, byte});
        if (state == kStart) {
          first_[byte] = next;
        } else {
          children_[Edge(state, byte)] = next;
        }
      }
      state = next;
    }
    if (state != kStart) nodes_[state].match = static_cast<int32_t>(i);
  }
  // Breadth-first: a node's failure link points to a shallower node.
  std::vector<std::vector<State>> by_depth;
  for (State state = 1; state < nodes_.size(); ++state) {
    if (by_depth.size() <= nodes_[state].depth) by_depth.resize(nodes_[state].depth + 1);
    by_depth[nodes_[state].depth].push_back(state);
  }
  for (const std::vector<State>& level : by_depth) {
    for (const State state : level) {
      Node& node = nodes_[state];
      const Made& edge = made[state];
      node.failure = edge.parent == kStart ? kStart : Next(nodes_[edge.parent].failure, edge.byte);
      if (node.match == kNone) node.match = nodes_[node.failure].match;
    }
  }
}

AhoCorasick::State AhoCorasick::Child(State state, uint8_t byte) const {
  if (state == kStart) return first_[byte];
  const auto child = children_.find(Edge(state, byte));
  return child == children_.end() ? kStart : child->second;
}

AhoCorasick::State AhoCorasick::Next(State state, uint8_t byte) const {
  while (true) {
    const State next = Child(state, byte);
    if (next != kStart || state == kStart) return next;
    state = nodes_[state].failure;
  }
}

bool AhoCorasick::FindLeftmostLongest(absl::string_view text, size_t from, Found* found) const {
  State state = kStart;
  bool any = false;
  for (size_t i = from; i < text.size(); ++i) {
    state = Next(state, static_cast<uint8_t>(text[i]));
    const Node& node = nodes_[state];
    // The current partial match starts after the best match, so it cannot be better.
    if (any && i + 1 - node.depth > found->begin) return true;
    if (node.match == kNone) continue;
    const size_t begin = i + 1 - sizes_[node.match];
    if (!any || begin <= found->begin) *found = {begin, i + 1, node.match};
    any = true;
  }
  return any;
}

}  // namespace bulkhead
