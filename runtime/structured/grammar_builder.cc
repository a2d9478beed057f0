#include "runtime/structured/grammar_builder.h"

#include <algorithm>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/check.h"
#include "base/status.h"
#include "base/utf8.h"

namespace bulkhead::structured {
namespace {

constexpr size_t kVisitWork = 10;  // per visited state, with its entry in a hash table

std::string EncodeUtf8(char32_t c) {
  std::string bytes;
  bulkhead::AppendUtf8(c, &bytes);
  return bytes;
}

// Splits a range so that each part is a product of ranges of bytes.
void SplitUtf8(char32_t first, char32_t last, std::vector<CodePointRange>* parts) {
  for (const char32_t limit : {char32_t{0x7f}, char32_t{0x7ff}, char32_t{0xffff}}) {
    if (first <= limit && last > limit) {
      SplitUtf8(first, limit, parts);
      SplitUtf8(limit + 1, last, parts);
      return;
    }
  }
  const int more = last <= 0x7f ? 0 : last <= 0x7ff ? 1 : last <= 0xffff ? 2 : 3;
  for (int i = 1; i <= more; ++i) {
    const char32_t mask = (char32_t{1} << (6 * i)) - 1;
    if ((first & ~mask) == (last & ~mask)) continue;
    char32_t cut = 0;  // the first code point of the second part
    if ((first & mask) != 0) {
      cut = (first | mask) + 1;
    } else if ((last & mask) != mask) {
      cut = last & ~mask;
    } else {
      continue;
    }
    SplitUtf8(first, cut - 1, parts);
    SplitUtf8(cut, last, parts);
    return;
  }
  parts->push_back({first, last});
}

// The escape, without its backslash, of a character not allowed in a JSON string.
std::string ShortestEscape(char32_t c) {
  constexpr absl::string_view kCharacters = "\"\\\b\f\n\r\t";
  constexpr absl::string_view kEscapes = "\"\\bfnrt";
  const size_t at = c < 0x80 ? kCharacters.find(static_cast<char>(c)) : absl::string_view::npos;
  if (at != absl::string_view::npos) return std::string(1, kEscapes[at]);
  return absl::StrFormat("u%04x", static_cast<uint32_t>(c));
}

}  // namespace

int32_t GrammarBuilder::AddState(const State& state) {
  // Beyond the limit every new state replaces the last: Finish fails.
  if (!full()) grammar_->states_.push_back(state);
  return static_cast<int32_t>(grammar_->states_.size()) - 1;
}

absl::Status GrammarBuilder::Check() const {
  if (full()) {
    return absl::InvalidArgumentError(
        absl::StrCat("needs more than ", kMaxStates, " states; make it smaller"));
  }
  if (work_ > kMaxCompileWork) {
    return absl::InvalidArgumentError("takes too much work to compile; make it smaller");
  }
  return absl::OkStatus();
}

int32_t GrammarBuilder::ReturnState() {
  if (return_state_ < 0) return_state_ = AddState({.kind = StateKind::kReturn});
  return return_state_;
}

int32_t GrammarBuilder::DeclareRule(bool nests) {
  grammar_->rules_.push_back({.nests = nests});
  return static_cast<int32_t>(grammar_->rules_.size()) - 1;
}

void GrammarBuilder::DefineRule(int32_t rule, const Body& body) {
  const int32_t start = body(ReturnState());  // may add rules
  grammar_->rules_[rule].start = start;
}

int32_t GrammarBuilder::AddRule(bool nests, const Body& body) {
  const int32_t rule = DeclareRule(nests);
  DefineRule(rule, body);
  return rule;
}

int32_t GrammarBuilder::Bytes(std::vector<ByteEdge> edges) {
  State state = {.kind = StateKind::kBytes};
  state.begin = static_cast<int32_t>(grammar_->edges_.size());
  if (!full()) grammar_->edges_.insert(grammar_->edges_.end(), edges.begin(), edges.end());
  state.end = static_cast<int32_t>(grammar_->edges_.size());
  return AddState(state);
}

int32_t GrammarBuilder::Split(absl::Span<const int32_t> targets) {
  if (targets.size() == 1) return targets[0];
  State state = {.kind = StateKind::kSplit};
  state.begin = static_cast<int32_t>(grammar_->targets_.size());
  if (!full()) grammar_->targets_.insert(grammar_->targets_.end(), targets.begin(), targets.end());
  state.end = static_cast<int32_t>(grammar_->targets_.size());
  return AddState(state);
}

int32_t GrammarBuilder::Call(int32_t rule, int32_t next) {
  return AddState({.kind = StateKind::kCall, .rule = rule, .next = next});
}

int32_t GrammarBuilder::Repeat(int32_t rule, int min, int max, int32_t next) {
  if (max == 0) return next;
  return AddState({.kind = StateKind::kRepeat, .rule = rule, .next = next, .min = min, .max = max});
}

int32_t GrammarBuilder::Literal(absl::string_view bytes, int32_t next) {
  for (; !bytes.empty() && !full(); bytes.remove_suffix(1)) {
    const uint8_t byte = static_cast<uint8_t>(bytes.back());
    next = Bytes({{byte, byte, next}});
  }
  return next;
}

int32_t GrammarBuilder::AnyOf(std::vector<std::string> texts, int32_t next) {
  std::sort(texts.begin(), texts.end());
  texts.erase(std::unique(texts.begin(), texts.end()), texts.end());
  return texts.empty() ? Bytes({}) : Trie(texts, 0, next);
}

// `texts` are sorted and equal before `position`.
int32_t GrammarBuilder::Trie(absl::Span<const std::string> texts, size_t position, int32_t next) {
  const std::string& first = texts.front();
  if (texts.size() == 1) return Literal(absl::string_view(first).substr(position), next);
  size_t branch = position;
  while (branch < first.size() && first[branch] == texts.back()[branch]) ++branch;
  const bool ends = first.size() == branch;
  std::vector<ByteEdge> edges;
  for (size_t i = ends ? 1 : 0; i < texts.size() && !full();) {
    size_t end = i;
    while (end < texts.size() && texts[end][branch] == texts[i][branch]) ++end;
    const uint8_t byte = static_cast<uint8_t>(texts[i][branch]);
    edges.push_back({byte, byte, Trie(texts.subspan(i, end - i), branch + 1, next)});
    i = end;
  }
  int32_t state = Bytes(std::move(edges));
  if (ends) state = Split({state, next});
  return Literal(absl::string_view(first).substr(position, branch - position), state);
}

int32_t GrammarBuilder::Optional(const Body& body, int32_t next) {
  return Split({body(next), next});
}

int32_t GrammarBuilder::Star(const Body& body, int32_t next) {
  const int32_t loop = Split({next, next});
  const int32_t start = body(loop);
  if (!full()) grammar_->targets_[grammar_->states_[loop].begin] = start;
  return loop;
}

int32_t GrammarBuilder::Plus(const Body& body, int32_t next) {
  const int32_t loop = Split({next, next});
  const int32_t start = body(loop);
  if (!full()) grammar_->targets_[grammar_->states_[loop].begin] = start;
  return start;
}

int32_t GrammarBuilder::SharedBytes(uint8_t first, uint8_t last, int32_t next) {
  const std::pair<uint32_t, int32_t> key = {uint32_t{first} << 8 | last, next};
  const auto found = shared_bytes_.find(key);
  if (found != shared_bytes_.end()) return found->second;
  const int32_t state = Bytes({{first, last, next}});
  shared_bytes_[key] = state;
  return state;
}

// `parts` are sorted and equal before `level`, so that ranges there do not overlap.
void GrammarBuilder::AppendUtf8(absl::Span<const Utf8Part> parts, size_t level, int32_t next,
                                std::vector<ByteEdge>* edges) {
  for (size_t i = 0; i < parts.size() && !full();) {
    const Utf8Part& part = parts[i];
    const char first = part.first[level], last = part.last[level];
    size_t end = i + 1;
    while (first == last && end < parts.size() && parts[end].first[level] == first) ++end;
    int32_t state = next;
    if (end == i + 1) {
      for (size_t k = part.first.size() - 1; k > level; --k) {
        state = SharedBytes(static_cast<uint8_t>(part.first[k]), static_cast<uint8_t>(part.last[k]),
                            state);
      }
    } else {
      std::vector<ByteEdge> following;
      AppendUtf8(parts.subspan(i, end - i), level + 1, next, &following);
      state = Bytes(std::move(following));
    }
    edges->push_back({static_cast<uint8_t>(first), static_cast<uint8_t>(last), state});
    i = end;
  }
}

void GrammarBuilder::AppendUtf8(const CodePoints& set, int32_t next, std::vector<ByteEdge>* edges) {
  std::vector<CodePointRange> ranges;
  for (const CodePointRange& range : set.ranges()) SplitUtf8(range.first, range.last, &ranges);
  std::vector<Utf8Part> parts;
  for (const CodePointRange& range : ranges) {
    parts.push_back({EncodeUtf8(range.first), EncodeUtf8(range.last)});
    BH_CHECK(parts.back().first.size() == parts.back().last.size());
  }
  AppendUtf8(parts, 0, next, edges);
}

int32_t GrammarBuilder::Character(const CodePoints& set, Writing writing, int32_t next) {
  std::vector<ByteEdge> edges;
  if (writing == Writing::kPlain) {
    AppendUtf8(set, next, &edges);
    return Bytes(std::move(edges));
  }
  const CodePoints escaped({{0, 0x1f}, {'"', '"'}, {'\\', '\\'}});
  AppendUtf8(set.Minus(escaped), next, &edges);
  std::vector<std::string> escapes;
  const CodePoints to_escape = set.Intersect(escaped);
  for (const CodePointRange& range : to_escape.ranges()) {
    for (char32_t c = range.first; c <= range.last; ++c) escapes.push_back(ShortestEscape(c));
  }
  if (!escapes.empty()) edges.push_back({'\\', '\\', AnyOf(std::move(escapes), next)});
  return Bytes(std::move(edges));
}

int GrammarBuilder::StateHeight(const State& state) const {
  const auto height = [this](int32_t id) { return int{grammar_->states_[id].height}; };
  const auto called = [&] {
    const Rule& rule = grammar_->rules_[state.rule];
    return rule.start < 0 ? kNoEnd : std::min<int>(height(rule.start) + rule.nests, kNoEnd);
  };
  int best = kNoEnd;
  switch (state.kind) {
    case StateKind::kReturn:
      return 0;
    case StateKind::kBytes:
      for (const ByteEdge& edge : grammar_->edges(state)) best = std::min(best, height(edge.next));
      return best;
    case StateKind::kSplit:
      for (const int32_t target : grammar_->targets(state)) best = std::min(best, height(target));
      return best;
    case StateKind::kCall:
      return std::max(called(), height(state.next));
    case StateKind::kRepeat:
      return state.min == 0 ? height(state.next) : std::max(called(), height(state.next));
  }
  return best;
}

absl::Status GrammarBuilder::ComputeHeights() {
  for (State& state : grammar_->states_) state.height = kNoEnd;
  for (bool changed = true; changed;) {
    changed = false;
    BH_RETURN_IF_ERROR(Check());
    Count(grammar_->states_.size() + grammar_->edges_.size() + grammar_->targets_.size());
    for (State& state : grammar_->states_) {
      const int height = StateHeight(state);
      if (height == state.height) continue;
      state.height = static_cast<uint16_t>(height);
      changed = true;
    }
  }
  for (const State& state : grammar_->states_) {
    if (state.height != kNoEnd) {
      grammar_->max_height_ = std::max<int>(grammar_->max_height_, state.height);
    }
  }
  return absl::OkStatus();
}

namespace {

// Calls `visit` for every state that is reached from `start` before any byte, skipping the rules in
// `nullable`.
template <typename Visit>
void VisitBeforeBytes(const Grammar& grammar, int32_t start, const std::vector<char>& nullable,
                      const Visit& visit) {
  std::vector<int32_t> open = {start};
  absl::flat_hash_set<int32_t> seen = {start};
  const auto add = [&](int32_t id) {
    if (seen.insert(id).second) open.push_back(id);
  };
  while (!open.empty()) {
    const State& state = grammar.state(open.back());
    open.pop_back();
    visit(state);
    if (state.kind == StateKind::kSplit) {
      for (const int32_t target : grammar.targets(state)) add(target);
    } else if (state.kind == StateKind::kCall && nullable[state.rule]) {
      add(state.next);
    } else if (state.kind == StateKind::kRepeat && (state.min == 0 || nullable[state.rule])) {
      add(state.next);
    }
  }
}

}  // namespace

// Rules that may be empty. In nested repetitions the inner rule is made first.
absl::StatusOr<std::vector<char>> GrammarBuilder::NullableRules() const {
  std::vector<char> nullable(grammar_->rules_.size(), 0);
  for (bool changed = true; changed;) {
    changed = false;
    for (size_t rule = 0; rule < nullable.size(); ++rule) {
      if (nullable[rule] || grammar_->rules_[rule].start < 0) continue;
      BH_RETURN_IF_ERROR(Check());
      VisitBeforeBytes(*grammar_, grammar_->rules_[rule].start, nullable, [&](const State& state) {
        Count(kVisitWork);
        if (state.kind == StateKind::kReturn) nullable[rule] = changed = true;
      });
    }
  }
  return nullable;
}

absl::Status GrammarBuilder::CheckLeftRecursion() const {
  BH_ASSIGN_OR_RETURN(const std::vector<char> nullable, NullableRules());
  std::vector<std::vector<int32_t>> calls(grammar_->rules_.size());
  for (size_t rule = 0; rule < calls.size(); ++rule) {
    if (grammar_->rules_[rule].start < 0) continue;
    BH_RETURN_IF_ERROR(Check());
    VisitBeforeBytes(*grammar_, grammar_->rules_[rule].start, nullable, [&](const State& state) {
      Count(kVisitWork);
      if (state.kind == StateKind::kCall || state.kind == StateKind::kRepeat) {
        calls[rule].push_back(state.rule);
      }
    });
  }
  // Removes rules that no remaining rule calls; a cycle remains.
  std::vector<int> open_calls(calls.size(), 0);
  for (const std::vector<int32_t>& called : calls) {
    for (const int32_t rule : called) ++open_calls[rule];
  }
  std::vector<int32_t> ready;
  for (size_t rule = 0; rule < calls.size(); ++rule) {
    if (open_calls[rule] == 0) ready.push_back(static_cast<int32_t>(rule));
  }
  size_t num_removed = 0;
  for (; !ready.empty(); ++num_removed) {
    const int32_t rule = ready.back();
    ready.pop_back();
    for (const int32_t called : calls[rule]) {
      if (--open_calls[called] == 0) ready.push_back(called);
    }
  }
  if (num_removed == calls.size()) return absl::OkStatus();
  return absl::InvalidArgumentError("a $ref leads to itself without an object or array between");
}

absl::StatusOr<std::shared_ptr<const Grammar>> GrammarBuilder::Finish(int32_t root) {
  BH_RETURN_IF_ERROR(Check());
  BH_RETURN_IF_ERROR(ComputeHeights());
  const Rule& rule = grammar_->rules_[root];
  const int height = grammar_->states_[rule.start].height;
  if (height == kNoEnd) return absl::InvalidArgumentError("allows no answer");
  if (height + rule.nests > kMaxDepth) {
    return absl::InvalidArgumentError(
        absl::StrCat("allows no answer of at most ", kMaxDepth, " levels"));
  }
  BH_RETURN_IF_ERROR(CheckLeftRecursion());
  grammar_->root_ = root;
  return std::shared_ptr<const Grammar>(std::move(grammar_));
}

}  // namespace bulkhead::structured
