// Masks of an automaton's configurations.
#include <algorithm>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "runtime/structured/automaton.h"

namespace bulkhead::structured {
namespace {

constexpr int32_t kLeft = 1;
constexpr int32_t kNumEnds = 2;
constexpr int32_t kDead = 0;
constexpr int32_t kRefused = -2;  // a mask that needs too much work
constexpr size_t kFewThreads = 64;

absl::Status TooMuchWork(bool for_lack_of_memory) {
  const int64_t millions = Automaton::kMaxMaskWork / 1'000'000;
  if (for_lack_of_memory) {
    return absl::UnavailableError(
        absl::StrCat("one token of the grammar has taken more than ", millions,
                     " million units of work, as memory ended on the way; try again when there are "
                     "fewer other grammars, or simplify its repetitions"));
  }
  return absl::ResourceExhaustedError(
      absl::StrCat("one token of the grammar needs more than ", millions,
                   " million units of work; simplify its repetitions"));
}

}  // namespace

// A token completes at most `max_bytes` iterations. Counts that make no difference to it become
// one.
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
  if (too_many_threads_) return kDead;  // no configuration of only some of them
  const int32_t configuration = InternConfiguration(std::move(threads));
  after_return_[bottom] = configuration;
  return configuration;
}

absl::Status Automaton::TooManyThreads() {
  return absl::ResourceExhaustedError(
      absl::StrCat("the grammar is too ambiguous: more than ", kMaxThreads,
                   " states at once; make alternatives and repetitions differ earlier"));
}

bool Automaton::FindMasks(int32_t place, Masks* masks) {
  const absl::MutexLock lock(&mutex_);
  for (int part = 0; part < 2; ++part) {
    const Configuration& at = configurations_[places_[place]];
    if (at.saturated[part] < 0 && at.threads.size() > kFewThreads) return false;
    const int32_t id = configurations_[Saturated(places_[place], part)].mask[part];
    if (id < 0) return false;
    (*masks)[part] = masks_[id];
  }
  return true;
}

absl::StatusOr<bool> Automaton::MakeMasks(int32_t place, Masks* masks, int64_t* work) {
  const absl::MutexLock lock(&mutex_);
  const absl::Status started = StartWork(kMaxWork);
  const absl::Cleanup end = [&] { EndWork(work); };
  if (!started.ok()) return started;
  if (too_many_threads_) return TooManyThreads();
  std::unique_ptr<Making>& entry = makings_[place];
  if (entry == nullptr) entry = std::make_unique<Making>();
  Making& making = *entry;
  int part = 0;
  while (part < 2 && MakeMask(place, part, making)) ++part;
  making.work += kMaxWork - (max_work_ - work_done_);  // excluding work of dropping
  absl::StatusOr<bool> made = part == 2;
  if (*made) {
    *masks = making.masks;
  } else if (too_many_threads_) {
    made = TooManyThreads();
  } else if (lacks_places_) {
    made = NoPlaces();
  } else if (making.work > kMaxMaskWork || !making.in_work.has_value()) {
    int32_t& mask = configurations_[Saturated(places_[place], part)].mask[part];
    if (!making.dropped) mask = kRefused;
    made = TooMuchWork(mask != kRefused);
  }
  CountBytes(making);
  if (!made.ok() || *made) DropMaking(place);
  return made;
}

// Counts the memory that `making` uses.
void Automaton::CountBytes(Making& making) {
  size_t bytes = sizeof(Making);
  if (making.in_work.has_value()) {
    const InWork& in_work = *making.in_work;
    bytes += (in_work.bits.size() + in_work.groups.capacity() + in_work.way.capacity()) *
             sizeof(int32_t);
    if (in_work.mask != nullptr) {
      bytes += (mask_words_ + in_work.mask->leaving.capacity()) * sizeof(int32_t);
    }
  }
  bytes_ += bytes - making.bytes;
  making_bytes_ += bytes - making.bytes;
  making.bytes = bytes;
}

void Automaton::DropMaking(int32_t place) {
  const auto found = makings_.find(place);
  if (found == makings_.end()) return;
  bytes_ -= found->second->bytes;
  making_bytes_ -= found->second->bytes;
  makings_.erase(found);
}

// Makes the mask of one part; false with nothing in work: it was refused before.
bool Automaton::MakeMask(int32_t place, int part, Making& making) {
  if (making.masks[part] != nullptr) return true;
  const int32_t configuration = Saturated(places_[place], part);
  int32_t mask = configurations_[configuration].mask[part];
  if (mask == kRefused) {
    making.in_work.reset();
    return false;
  }
  if (mask < 0) {
    if (!making.in_work.has_value()) {
      making.in_work = InWork();  // clang knows no constructor of it for emplace()
      making.in_work->part = part;
      BeginMask(configuration, *making.in_work);
    }
    InWork& in_work = *making.in_work;
    while (!in_work.groups.empty()) {
      if (!AddGroup(in_work)) return false;
      if (is_too_much() && !in_work.groups.empty()) return false;
    }
    mask = KeepMask(Saturated(places_[place], part), part, std::move(in_work.bits));
  }
  making.in_work.reset();  // also if it was made for another place
  making.masks[part] = masks_[mask];
  return true;
}

void Automaton::BeginMask(int32_t configuration, InWork& in_work) {
  ++num_masks_made_;
  in_work.bits.resize(mask_words_);
  absl::flat_hash_map<int32_t, Threads> groups;  // by bottom
  for (const int32_t thread : configurations_[configuration].threads) {
    if (thread >= kNumEnds) groups[BottomOf(thread)].push_back(thread);
  }
  for (auto& [bottom, threads] : groups) {
    work_done_ += kStepCost * static_cast<int64_t>(threads.size());
    in_work.groups.push_back(InternConfiguration(std::move(threads)));
  }
}

int32_t Automaton::KeepMask(int32_t configuration, int part, Mask bits) {
  const int32_t id = static_cast<int32_t>(masks_.size());
  masks_.push_back(std::make_shared<const Mask>(std::move(bits)));
  bytes_ += mask_words_ * sizeof(uint32_t) + sizeof(Mask) + sizeof(masks_[0]);
  configurations_[configuration].mask[part] = id;
  return id;
}

// Begins the last group.
void Automaton::BeginGroup(InWork& in_work) {
  in_work.has_group = true;
  const Threads threads = configurations_[in_work.groups.back()].threads;
  work_done_ += kStepCost * static_cast<int64_t>(threads.size() + mask_words_ / 64);
  int deepest = 0;
  for (const int32_t thread : threads) deepest = std::max(deepest, nodes_[thread].depth);
  // Near the depth limit, what a rule allows depends on the depth.
  const int max_opens = trie_->parts()[in_work.part].max_opens;
  if (deepest + max_opens + grammar_->max_height() > kMaxDepth) return;
  const int32_t bottom = BottomOf(threads[0]);
  const int32_t depth = bottom < kNumEnds ? 0 : nodes_[bottom].depth;
  Threads local;
  for (const int32_t thread : threads) local.push_back(WithoutBottom(thread, bottom, depth));
  in_work.local = InternConfiguration(std::move(local));
  if (bottom >= kNumEnds) in_work.after = AfterReturnTo(bottom);
}

// Adds the tokens that the last group allows, and drops it.
bool Automaton::AddGroup(InWork& in_work) {
  if (!in_work.has_group) BeginGroup(in_work);
  if (too_many_threads_) return false;
  const TokenTrie::Part& trie = trie_->parts()[in_work.part];
  const auto num_nodes = static_cast<uint32_t>(trie.byte.size());
  uint32_t* const bits = in_work.bits.data();
  if (in_work.local < 0) {
    if (!Walk(in_work, in_work.groups.back(), 0, num_nodes, 0, bits, nullptr)) return false;
  } else {
    if (!MakeLocalMask(in_work)) return false;
    const std::vector<uint32_t>& leaving = in_work.mask->leaving;
    for (uint32_t& node = in_work.next_leaving; in_work.after >= 0 && node < num_nodes; ++node) {
      const uint32_t rest = leaving[node / 32] >> (node % 32);
      if (rest == 0) node |= 31;  // the last one of the word
      if ((rest & 1) == 0) continue;
      if (!Walk(in_work, in_work.after, node + 1, trie.skip[node], trie.depth[node], bits, nullptr))
        return false;
    }
  }
  in_work.groups.pop_back();
  in_work.has_group = in_work.has_mask = false;
  in_work.local = in_work.after = -1;
  in_work.mask = nullptr;
  in_work.next_leaving = 0;
  return true;
}

// Makes the local mask of the last group's rule, and adds its tokens.
bool Automaton::MakeLocalMask(InWork& in_work) {
  if (in_work.has_mask) return true;
  const int part = in_work.part;
  if (const int32_t known = configurations_[in_work.local].local[part]; known >= 0) {
    in_work.way.clear();  // left from a walk that another place finished
    in_work.mask = local_masks_[known];
  } else {
    if (in_work.mask == nullptr) {
      in_work.mask = std::make_shared<LocalMask>();
      in_work.mask->bits.resize(mask_words_);
      in_work.mask->leaving.resize(trie_->parts()[part].byte.size() / 32 + 1);
    }
    LocalMask& mask = *in_work.mask;
    const auto num_nodes = static_cast<uint32_t>(trie_->parts()[part].byte.size());
    if (!Walk(in_work, in_work.local, 0, num_nodes, 0, mask.bits.data(), mask.leaving.data()))
      return false;
    configurations_[in_work.local].local[part] = static_cast<int32_t>(local_masks_.size());
    bytes_ += sizeof(LocalMask) + (mask_words_ + mask.leaving.capacity()) * sizeof(uint32_t);
    local_masks_.push_back(in_work.mask);
  }
  for (size_t i = 0; i < mask_words_; ++i) in_work.bits[i] |= in_work.mask->bits[i];
  return in_work.has_mask = true;
}

void Automaton::SetTokens(const TokenTrie::Part& part, uint32_t node, uint32_t* bits) const {
  for (uint32_t i = part.first_token[node]; i < part.first_token[node + 1]; ++i) {
    const uint32_t id = static_cast<uint32_t>(part.tokens[i]);
    bits[id / 32] |= uint32_t{1} << (id % 32);
  }
}

// Adds the tokens of the nodes [begin, end), which are below a node of `depth` bytes, after which
// `configuration` holds; continues a walk if `way` is not empty.
bool Automaton::Walk(InWork& in_work, int32_t configuration, uint32_t begin, uint32_t end,
                     int depth, uint32_t* bits, uint32_t* leaving) {
  const TokenTrie::Part& part = trie_->parts()[in_work.part];
  std::array<int32_t, TokenTrie::kMaxTokenBytes + 1> at;
  std::array<const int32_t*, TokenTrie::kMaxTokenBytes + 1> rows;
  const auto enter = [&](int level, int32_t id) {
    at[level] = id;
    rows[level] = configurations_[id].row == nullptr ? nullptr : configurations_[id].row->data();
  };
  const auto keep_way = [&](int level) {
    in_work.way.assign(at.begin() + depth, at.begin() + level + 1);
  };
  const auto take_way = [&] {
    for (size_t i = 0; i < in_work.way.size(); ++i) {
      enter(depth + static_cast<int>(i), in_work.way[i]);
    }
  };
  if (in_work.way.empty()) {
    in_work.way = {configuration};
    in_work.node = begin;
  }
  take_way();
  for (uint32_t i = in_work.node; i < end;) {
    ++work_done_;
    const int level = part.depth[i] - 1;
    const uint8_t byte = part.byte[i];
    int32_t next = rows[level] == nullptr ? -1 : rows[level][byte];
    if (next < 0) {
      next = StepAndKeep(at[level], byte);
      if (too_many_threads_) return false;
      enter(level, at[level]);
      if (is_full()) {
        at[level + 1] = next;
        keep_way(level + 1);
        KeepOnly({});
        if (lacks_places_) return false;
        take_way();
        next = at[level + 1];
      }
    }
    const bool has_children = part.skip[i] > i + 1;
    bool enters = false;
    if (next != kDead) {
      SetTokens(part, i, bits);
      const Threads& threads = configurations_[next].threads;
      if (leaving != nullptr && has_children && threads[0] == kLeft)
        leaving[i / 32] |= uint32_t{1} << (i % 32);
      enters = has_children && threads.back() >= kNumEnds;
    }
    if (enters) enter(level + 1, next);
    i = enters ? i + 1 : part.skip[i];
    if (is_too_much() && i < end) {
      in_work.node = i;
      keep_way(part.depth[i] - 1);
      return false;
    }
  }
  in_work.way.clear();
  return true;
}

}  // namespace bulkhead::structured
