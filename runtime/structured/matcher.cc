#include "runtime/structured/matcher.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"

namespace bulkhead::structured {

Matcher::Matcher(std::shared_ptr<Automaton> automaton, absl::Span<const int32_t> end_ids)
    : automaton_(std::move(automaton)),
      end_ids_(end_ids.begin(), end_ids.end()),
      place_(automaton_->AddPlace()) {}

Matcher::~Matcher() { automaton_->DropPlace(place_); }

Matcher::Matcher(const Matcher& other, absl::Span<const int32_t> end_ids)
    : automaton_(other.automaton_),
      end_ids_(end_ids.begin(), end_ids.end()),
      place_(automaton_->CopyPlace(other.place_)),
      followed_(other.followed_),
      finished_(other.finished_) {}

Matcher::Matcher(std::shared_ptr<Automaton> automaton, const Matcher& other)
    : automaton_(std::move(automaton)),
      end_ids_(other.end_ids_),
      place_(automaton_->CopyPlace(*other.automaton_, other.place_)),
      followed_(other.followed_),
      finished_(other.finished_) {}

bool Matcher::IsEnd(int32_t token) const {
  return std::find(end_ids_.begin(), end_ids_.end(), token) != end_ids_.end();
}

absl::Status Matcher::FillMask(absl::Span<uint32_t> mask) {
  Automaton::Masks masks;
  int64_t work = 0;
  for (bool made = false; !made;) {
    BH_ASSIGN_OR_RETURN(made, MakeMasks(&masks, &work));
  }
  return FillMask(masks, mask);
}

bool Matcher::FindMasks(Automaton::Masks* masks) {
  return finished_ || automaton_->FindMasks(place_, masks);
}

absl::StatusOr<bool> Matcher::MakeMasks(Automaton::Masks* masks, int64_t* work) {
  if (finished_) return true;
  return automaton_->MakeMasks(place_, masks, work);
}

absl::Status Matcher::FillMask(const Automaton::Masks& masks, absl::Span<uint32_t> mask) const {
  std::fill(mask.begin(), mask.end(), 0);
  for (const std::shared_ptr<const Automaton::Mask>& part : masks) {
    if (part == nullptr) continue;  // after the end
    BH_CHECK(mask.size() >= part->size());
    for (size_t i = 0; i < part->size(); ++i) mask[i] |= (*part)[i];
  }
  const bool may_end = finished_ || is_complete();
  const int vocab_size = automaton_->trie().vocab_size();
  for (const int32_t id : end_ids_) {
    if (id < 0 || id >= vocab_size) continue;
    const uint32_t bit = uint32_t{1} << (id % 32);
    mask[id / 32] = may_end ? mask[id / 32] | bit : mask[id / 32] & ~bit;
  }
  if (std::all_of(mask.begin(), mask.end(), [](uint32_t word) { return word == 0; })) {
    return absl::FailedPreconditionError(
        "no token of the vocabulary continues what the grammar asks for");
  }
  return absl::OkStatus();
}

absl::Status Matcher::Accept(int32_t token) {
  int64_t work = 0;
  for (bool accepted = false; !accepted;) {
    BH_ASSIGN_OR_RETURN(accepted, Accept(token, Automaton::kMaxWork, &work));
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> Matcher::Accept(int32_t token, int64_t max_work, int64_t* work) {
  if (IsEnd(token)) {
    if (!finished_ && !is_complete()) {
      return absl::InvalidArgumentError("the answer ended before the grammar does");
    }
    finished_ = true;
    return true;
  }
  if (finished_ || token < 0 || token >= automaton_->trie().vocab_size() ||
      automaton_->trie().token(token).empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("token ", token, " is not allowed by the grammar"));
  }
  const absl::string_view bytes = automaton_->trie().token(token).substr(followed_);
  BH_ASSIGN_OR_RETURN(const size_t followed, automaton_->Advance(place_, bytes, max_work, work));
  followed_ = followed < bytes.size() ? followed_ + followed : 0;
  return followed_ == 0;
}

}  // namespace bulkhead::structured
