// Grammar: the allowed answers, as a pushdown automaton over bytes: rules, which are automata whose
// states call rules. Immutable; thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace bulkhead::structured {

// The allowed answers.
struct GrammarSpec {
  enum class Form : uint8_t { kChoice, kRegex, kJsonObject, kJsonSchema };
  Form form = Form::kJsonObject;
  std::vector<std::string> texts = {};  // choices; else the pattern or the schema, if any
  // Texts before and after the form, and the text up to and including which the answer is free.
  std::string prefix = {}, suffix = {}, free_until = {}, free_from = {};
};

// Limits on compilation. Beyond them: INVALID_ARGUMENT with the limit.
inline constexpr size_t kMaxGrammarBytes = 64 << 10;  // schema, regex, or all choices together
inline constexpr size_t kMaxChoices = 4096;
inline constexpr size_t kMaxStates = 200'000;
inline constexpr int64_t kMaxCompileWork = 50'000'000;  // some tenths of a second
// Maximum nesting of objects and arrays. A schema that needs more allows nothing.
inline constexpr int kMaxDepth = 64;

enum class StateKind : uint8_t {
  kBytes,   // consumes one byte: edges
  kSplit,   // continues in any of its targets
  kCall,    // runs `rule`, then continues at `next`
  kRepeat,  // runs `rule` `min` to `max` times (-1: any number), then `next`
  kReturn,  // the end of the rule
};

struct ByteEdge {
  uint8_t first, last;  // inclusive
  int32_t next;
};

struct State {
  StateKind kind = StateKind::kReturn;
  uint16_t height = 0;         // levels of depth on the shortest path to kReturn
  int32_t begin = 0, end = 0;  // in edges (kBytes) or targets (kSplit)
  int32_t rule = -1, next = -1;
  int32_t min = 0, max = 0;
};

struct Rule {
  int32_t start = -1;
  bool nests = false;  // adds a level of depth: an object or an array
};

class Grammar {
 public:
  // Choices: exactly one of the texts, which must not be empty; syntax in regex.h; keywords in
  // json_schema.h. INVALID_ARGUMENT if it is invalid, exceeds a limit or allows no answer at all;
  // UNIMPLEMENTED names what is not supported, and where.
  static absl::StatusOr<std::shared_ptr<const Grammar>> Of(const GrammarSpec& spec);

  const State& state(int32_t id) const { return states_[id]; }
  const Rule& rule(int32_t id) const { return rules_[id]; }
  absl::Span<const ByteEdge> edges(const State& state) const {
    return {edges_.data() + state.begin, static_cast<size_t>(state.end - state.begin)};
  }
  absl::Span<const int32_t> targets(const State& state) const {
    return {targets_.data() + state.begin, static_cast<size_t>(state.end - state.begin)};
  }
  int32_t root() const { return root_; }          // a rule
  int max_height() const { return max_height_; }  // over the states that can end
  size_t bytes() const;                           // memory used

 private:
  friend class GrammarBuilder;
  std::vector<State> states_;
  std::vector<ByteEdge> edges_;
  std::vector<int32_t> targets_;
  std::vector<Rule> rules_;
  int32_t root_ = -1;
  int max_height_ = 0;
};

// State::height of a state from which no end can be reached.
inline constexpr uint16_t kNoEnd = 0xffff;

}  // namespace bulkhead::structured
