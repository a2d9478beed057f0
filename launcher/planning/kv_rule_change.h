// Another value for the KV cache rule: smaller if it asks for too much, larger if it grants less
// than one sequence.
#pragma once

#include "launcher/planning/remedy_changes.h"

namespace bulkhead {

class KvRuleChange final : public Change {
 public:
  // `trials` outlives this.
  KvRuleChange(const Trials& trials, const KvRule& rule) : trials_(trials), rule_(rule) {}

  std::optional<Attempt> Mildest(const FlagList& with) const override;

 private:
  bool Fits(const FlagList& with, const Attempt& attempt) const;
  std::optional<Attempt> MildestUtilization(const FlagList& with) const;
  std::optional<Attempt> MildestShare(const FlagList& with) const;
  std::optional<Attempt> MildestCount(const FlagList& with) const;
  // `blocks` of `block_bytes` each, in the rule's own unit.
  Attempt CountOf(int64_t blocks, int64_t block_bytes) const;

  const Trials& trials_;
  const KvRule rule_;
};

}  // namespace bulkhead
