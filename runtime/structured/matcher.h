// Matcher: follows one answer along its grammar. Used by one thread at a time, matchers of one
// automaton by several; small, copyable: a copy goes on from where the other is.
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
  // From where `other` is, which follows another automaton of the same grammar.
  Matcher(std::shared_ptr<Automaton> automaton, const Matcher& other);
  Matcher& operator=(const Matcher&) = delete;

  // The tokens that may follow: bit i of mask[i / 32], for the trie's vocab_size() ids. An end
  // token is allowed exactly where the grammar may end; at its end nothing else is.
  // FAILED_PRECONDITION if no token is allowed, as the vocabulary lacks bytes; errors of the
  // automaton. Any ends this request only.
  absl::Status FillMask(absl::Span<uint32_t> mask);
  // The same in two steps, for a caller that bounds the work (Automaton::kMaxWork): the automaton's
  // part, which may be there, or be made in several calls until it is true; and from it the mask.
  bool FindMasks(Automaton::Masks* masks);
  absl::StatusOr<bool> MakeMasks(Automaton::Masks* masks, int64_t* work);
  absl::Status FillMask(const Automaton::Masks& masks, absl::Span<uint32_t> mask) const;
  // INVALID_ARGUMENT, and no change, for a token that the mask does not allow; RESOURCE_EXHAUSTED
  // from the automaton. Adds the work to `work`; false: it is more than `max_work`, and a call with
  // the same token, before anything else, goes on.
  absl::StatusOr<bool> Accept(int32_t token, int64_t max_work, int64_t* work);
  absl::Status Accept(int32_t token);

  // What was accepted is a whole answer.
  bool is_complete() const { return automaton_->is_complete(place_); }
  // It was ended, or nothing but the end may follow.
  bool is_finished() const { return finished_ || !automaton_->may_go_on(place_); }

 private:
  bool IsEnd(int32_t token) const;

  const std::shared_ptr<Automaton> automaton_;
  const std::vector<int32_t> end_ids_;
  const int32_t place_;
  size_t followed_ = 0;  // bytes of a token that Accept goes on with
  bool finished_ = false;
};

}  // namespace bulkhead::structured
