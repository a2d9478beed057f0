// Matcher: follows one answer along its grammar. Used by one thread at a time; matchers of one
// automaton may be in several threads. Small, copyable: a copy continues from the same place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "runtime/structured/automaton.h"

namespace bulkhead::structured {

class Matcher {
 public:
  // `end_ids`: the tokens that end an answer; ids outside the vocabulary are never allowed.
  Matcher(std::shared_ptr<Automaton> automaton, absl::Span<const int32_t> end_ids);
  ~Matcher();
  Matcher(const Matcher& other) : Matcher(other, other.end_ids_) {}
  Matcher(const Matcher& other, absl::Span<const int32_t> end_ids);
  // Continues from the place of `other`, which follows another automaton of the same grammar.
  Matcher(std::shared_ptr<Automaton> automaton, const Matcher& other);
  Matcher& operator=(const Matcher&) = delete;

  // The tokens that may follow: bit i of mask[i / 32], for the trie's vocab_size() ids. An end
  // token is allowed exactly where the grammar may end; where it must end, only an end token.
  // FAILED_PRECONDITION if no token is allowed because the vocabulary lacks bytes; errors of the
  // automaton. An error ends only this request.
  absl::Status FillMask(absl::Span<uint32_t> mask);
  // The same in two steps, for a caller that bounds the work (Automaton::kMaxWork): the automaton's
  // masks, cached or made in several calls until true; then the mask from them.
  bool FindMasks(Automaton::Masks* masks);
  absl::StatusOr<bool> MakeMasks(Automaton::Masks* masks, int64_t* work);
  absl::Status FillMask(const Automaton::Masks& masks, absl::Span<uint32_t> mask) const;
  // INVALID_ARGUMENT, and no change, for a token that the mask does not allow; RESOURCE_EXHAUSTED
  // from the automaton. Adds the work to `work`; false: it exceeds `max_work`; call again with the
  // same token before anything else.
  absl::StatusOr<bool> Accept(int32_t token, int64_t max_work, int64_t* work);
  absl::Status Accept(int32_t token);

  // Whether the accepted tokens are a complete answer.
  bool is_complete() const { return automaton_->is_complete(place_); }
  // Whether the answer was ended, or only its end may follow.
  bool is_finished() const { return finished_ || !automaton_->may_go_on(place_); }

 private:
  bool IsEnd(int32_t token) const;

  const std::shared_ptr<Automaton> automaton_;
  const std::vector<int32_t> end_ids_;
  const int32_t place_;
  size_t followed_ = 0;  // bytes of a token that Accept has followed so far
  bool finished_ = false;
};

}  // namespace bulkhead::structured
