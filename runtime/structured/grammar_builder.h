// GrammarBuilder: makes states from the end of a text to its beginning: each function takes the
// state that follows and returns the one before. Used by one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "runtime/structured/code_points.h"
#include "runtime/structured/grammar.h"

namespace bulkhead::structured {

// How characters are written: as they are, or inside a JSON string.
enum class Writing { kPlain, kJsonString };

class GrammarBuilder {
 public:
  using Body = std::function<int32_t(int32_t next)>;

  // Declares a rule whose body is set later, for rules that call themselves.
  int32_t DeclareRule(bool nests);
  // The end of every rule.
  int32_t ReturnState();
  void DefineRule(int32_t rule, const Body& body);
  int32_t AddRule(bool nests, const Body& body);

  int32_t Bytes(std::vector<ByteEdge> edges);
  int32_t Split(absl::Span<const int32_t> targets);
  int32_t Call(int32_t rule, int32_t next);
  int32_t Repeat(int32_t rule, int min, int max, int32_t next);
  int32_t Literal(absl::string_view bytes, int32_t next);
  // Any bytes up to and including the first `bytes`, which is not empty.
  int32_t Until(absl::string_view bytes, int32_t next);
  // Any of `texts`, as a trie.
  int32_t AnyOf(std::vector<std::string> texts, int32_t next);
  int32_t Optional(const Body& body, int32_t next);
  int32_t Star(const Body& body, int32_t next);
  int32_t Plus(const Body& body, int32_t next);
  // One character. In a JSON string `"`, `\` and control characters are written as escapes, each
  // in its shortest way.
  int32_t Character(const CodePoints& set, Writing writing, int32_t next);

  // True once there are too many states; everything still works, and Finish fails.
  bool full() const { return grammar_->states_.size() > kMaxStates; }
  // Counts work that makes no states, in units of a few ns.
  void Count(size_t work) const { work_ += static_cast<int64_t>(work); }
  // INVALID_ARGUMENT if there are too many states, or too much work.
  absl::Status Check() const;
  // Errors of Check, and INVALID_ARGUMENT if `root` has no end, or a rule calls itself before
  // consuming a byte.
  absl::StatusOr<std::shared_ptr<const Grammar>> Finish(int32_t root);

 private:
  int32_t AddState(const State& state);
  // Code points whose UTF-8 has each byte in a range.
  struct Utf8Part {
    std::string first, last;  // of equal size
  };
  void AppendUtf8(absl::Span<const Utf8Part> parts, size_t level, int32_t next,
                  std::vector<ByteEdge>* edges);
  // The states after the first byte of the UTF-8 of `set` are appended to `edges`.
  void AppendUtf8(const CodePoints& set, int32_t next, std::vector<ByteEdge>* edges);
  int32_t SharedBytes(uint8_t first, uint8_t last, int32_t next);
  int32_t Trie(absl::Span<const std::string> texts, size_t position, int32_t next);
  int StateHeight(const State& state) const;
  absl::Status ComputeHeights();
  absl::Status CheckLeftRecursion() const;
  absl::StatusOr<std::vector<char>> NullableRules() const;

  std::shared_ptr<Grammar> grammar_ = std::make_shared<Grammar>();
  int32_t return_state_ = -1;
  mutable int64_t work_ = 0;
  absl::flat_hash_map<std::pair<uint32_t, int32_t>, int32_t> shared_bytes_;
};

}  // namespace bulkhead::structured
