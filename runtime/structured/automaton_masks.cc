// Masks of an automaton's configurations.
#include <algorithm>
#include <utility>

#include "base/check.h"
#include "runtime/structured/automaton.h"

namespace bulkhead::structured {
namespace {

constexpr int32_t kLeft = 1;
constexpr int32_t kNumEnds = 2;
constexpr int32_t kDead = 0;

}  // namespace

// A token completes at most `max_bytes` iterations. Counts between which it cannot tell a
// difference become one.
int32_t Automaton::SaturatedCount(const Node& node, int max_bytes) const {
  const State& state = grammar_->state(node.state);
  if (state.kind != StateKind::kRepeat) return node.count;
  if (int64_t{node.count} + max_bytes < state.min) return 0;
  const bool far = state.max < 0 || int64_t{node.count} + max_bytes < state.max;
  return node.count >= state.min && far ? state.min : node.count;
}

int32_t Automaton::SaturatedNode(int32_t id, int part) {
  if (id < kNumEnds) return id;
  if (saturated_nodes_[id][part] >= 0) return saturated_nodes_[id][part];
  Node node = nodes_[id];
  node.parent = SaturatedNode(node.parent, part);
  node.count = SaturatedCount(node, trie_->parts()[part].max_bytes);
  const int32_t saturated = InternNode(node);
  saturated_nodes_[id][part] = saturated;
  return saturated;
}

int32_t Automaton::Saturated(int32_t configuration, int part) {
  int32_t saturated = configurations_[configuration].saturated[part];
  if (saturated >= 0) return saturated;
  Threads threads = configurations_[configuration].threads;
  work_done_ += kStepCost * static_cast<int64_t>(threads.size());
  for (int32_t& thread : threads) thread = SaturatedNode(thread, part);
  saturated = InternConfiguration(std::move(threads));
  configurations_[configuration].saturated[part] = saturated;
  return saturated;
}

int32_t Automaton::BottomOf(int32_t thread) const {
  int32_t frame = nodes_[thread].parent;
  while (frame >= kNumEnds && grammar_->state(nodes_[frame].state).kind == StateKind::kRepeat) {
    frame = nodes_[frame].parent;
  }
  return frame;
}

// The stack above `bottom`, with depths counted from `depth`.
int32_t Automaton::WithoutBottom(int32_t thread, int32_t bottom, int32_t depth) {
  if (thread == bottom) return kLeft;
  Node node = nodes_[thread];
  node.parent = WithoutBottom(node.parent, bottom, depth);
  node.depth -= depth;
  return InternNode(node);
}

int32_t Automaton::AfterReturnTo(int32_t bottom) {
  const auto found = after_return_.find(bottom);
  if (found != after_return_.end()) return found->second;
  Threads threads;
  const Node frame = nodes_[bottom];
  seen_.clear();
  Close({grammar_->state(frame.state).next, frame.parent, frame.depth}, &threads);
  const int32_t configuration = InternConfiguration(std::move(threads));
  after_return_[bottom] = configuration;
  return configuration;
}

// -1 if it is too much. The result does not depend on the memory: where that ends, what others have
// left is dropped first, and then masks of rules are not kept either.
int32_t Automaton::MaskAt(int32_t place, int part) {
  for (int attempt = 0; attempt < 2; ++attempt) {
    const int32_t id = MaskOf(Saturated(places_[place], part), part);
    if (id >= 0 || is_too_much()) return id;
    KeepOnly({});
    max_work_ = work_done_ + kMaxWork;
  }
  return DirectMaskAt(place, part);
}

// The same in one walk, which keeps the configurations on its way alone where memory ends.
int32_t Automaton::DirectMaskAt(int32_t place, int part) {
  Mask bits(mask_words_, 0);
  drops_ = true;
  Walk(places_[place], part, 0, static_cast<uint32_t>(trie_->parts()[part].byte.size()), 0,
       bits.data(), nullptr);
  drops_ = false;
  KeepOnly({});
  if (is_too_much()) return -1;
  return KeepMask(Saturated(places_[place], part), part, std::move(bits));
}

int32_t Automaton::KeepMask(int32_t configuration, int part, Mask bits) {
  const int32_t id = static_cast<int32_t>(masks_.size());
  masks_.push_back(std::make_shared<const Mask>(std::move(bits)));
  bytes_ += mask_words_ * sizeof(uint32_t) + sizeof(Mask) + sizeof(masks_[0]);
  configurations_[configuration].mask[part] = id;
  return id;
}

// -1 on overflow.
int32_t Automaton::MaskOf(int32_t configuration, int part) {
  if (configurations_[configuration].mask[part] >= 0)
    return configurations_[configuration].mask[part];
  ++num_masks_made_;
  Mask bits(mask_words_, 0);
  absl::flat_hash_map<int32_t, Threads> groups;  // by bottom
  for (const int32_t thread : configurations_[configuration].threads) {
    if (thread >= kNumEnds) groups[BottomOf(thread)].push_back(thread);
  }
  for (const auto& [bottom, threads] : groups) {
    AddGroup(threads, bottom, part, bits.data());
    if (overflow()) return -1;
  }
  return KeepMask(configuration, part, std::move(bits));
}

// Adds the tokens that threads with the same bottom allow.
void Automaton::AddGroup(const Threads& threads, int32_t bottom, int part, uint32_t* bits) {
  const TokenTrie::Part& trie = trie_->parts()[part];
  work_done_ += kStepCost * static_cast<int64_t>(threads.size() + mask_words_ / 64);
  const uint32_t num_nodes = static_cast<uint32_t>(trie.byte.size());
  int deepest = 0;
  for (const int32_t thread : threads) deepest = std::max(deepest, nodes_[thread].depth);
  // Near the limit of depth what a rule allows depends on the depth.
  if (deepest + trie.max_opens + grammar_->max_height() > kMaxDepth) {
    Walk(InternConfiguration(threads), part, 0, num_nodes, 0, bits, nullptr);
    return;
  }
  Threads local;
  const int32_t depth = bottom < kNumEnds ? 0 : nodes_[bottom].depth;
  for (const int32_t thread : threads) local.push_back(WithoutBottom(thread, bottom, depth));
  const int32_t id = LocalMaskOf(InternConfiguration(std::move(local)), part);
  if (id < 0) return;
  for (size_t i = 0; i < mask_words_; ++i) bits[i] |= local_masks_[id].bits[i];
  if (bottom < kNumEnds) return;  // nothing follows
  const int32_t after = AfterReturnTo(bottom);
  for (const uint32_t node : local_masks_[id].leaving) {
    Walk(after, part, node + 1, trie.skip[node], trie.depth[node], bits, nullptr);
  }
}

// -1 on overflow.
int32_t Automaton::LocalMaskOf(int32_t configuration, int part) {
  if (configurations_[configuration].local[part] >= 0) {
    return configurations_[configuration].local[part];
  }
  LocalMask mask;
  mask.bits.resize(mask_words_);
  Walk(configuration, part, 0, static_cast<uint32_t>(trie_->parts()[part].byte.size()), 0,
       mask.bits.data(), &mask.leaving);
  if (overflow()) return -1;
  const int32_t id = static_cast<int32_t>(local_masks_.size());
  bytes_ += sizeof(LocalMask) + (mask_words_ + mask.leaving.capacity()) * sizeof(uint32_t);
  local_masks_.push_back(std::move(mask));
  configurations_[configuration].local[part] = id;
  return id;
}

void Automaton::SetTokens(const TokenTrie::Part& part, uint32_t node, uint32_t* bits) const {
  for (uint32_t i = part.first_token[node]; i < part.first_token[node + 1]; ++i) {
    const uint32_t id = static_cast<uint32_t>(part.tokens[i]);
    bits[id / 32] |= uint32_t{1} << (id % 32);
  }
}

// Adds the tokens of the nodes [begin, end), which are below one of `depth` bytes after which
// `configuration` holds.
void Automaton::Walk(int32_t configuration, int part_index, uint32_t begin, uint32_t end, int depth,
                     uint32_t* bits, std::vector<uint32_t>* leaving) {
  const TokenTrie::Part& part = trie_->parts()[part_index];
  std::array<int32_t, TokenTrie::kMaxTokenBytes + 1> at;
  std::array<const int32_t*, TokenTrie::kMaxTokenBytes + 1> rows;
  const auto enter = [&](int level, int32_t id) {
    at[level] = id;
    rows[level] = configurations_[id].row == nullptr ? nullptr : configurations_[id].row->data();
  };
  if (overflow()) return;
  enter(depth, configuration);
  for (uint32_t i = begin; i < end;) {
    ++work_done_;
    const int level = part.depth[i] - 1;
    const uint8_t byte = part.byte[i];
    int32_t next = rows[level] == nullptr ? -1 : rows[level][byte];
    if (next < 0) {
      next = StepAndKeep(at[level], byte);
      if (overflow()) return;
      if (is_full()) {
        at[level + 1] = next;
        KeepOnly(absl::MakeSpan(at).subspan(depth, level + 2 - depth));
        next = at[level + 1];
        for (int above = depth; above < level; ++above) enter(above, at[above]);
      }
      enter(level, at[level]);
    }
    if (next == kDead) {
      i = part.skip[i];
      continue;
    }
    SetTokens(part, i, bits);
    const Threads& threads = configurations_[next].threads;
    const bool has_children = part.skip[i] > i + 1;
    if (leaving != nullptr && has_children && threads[0] == kLeft) leaving->push_back(i);
    if (!has_children || threads.back() < kNumEnds) {
      i = part.skip[i];
      continue;
    }
    enter(level + 1, next);
    ++i;
  }
}

}  // namespace bulkhead::structured
