// A larger --host-memory, where the given one does not hold what clients may come to.
#pragma once

#include "launcher/planning/remedy_changes.h"

namespace bulkhead {

class HostMemoryChange final : public Change {
 public:
  // `trials` outlives this.
  explicit HostMemoryChange(const Trials& trials) : trials_(trials) {}

  // The least.
  std::optional<Attempt> Mildest(const FlagList& with) const override;
  // One, with which no plan lacks any.
  std::vector<Attempt> Steps() const override;

 private:
  const Trials& trials_;
};

}  // namespace bulkhead
