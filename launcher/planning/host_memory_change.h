// A larger --host-memory, if the given one is too small for the clients' maximum.
#pragma once

#include "launcher/planning/remedy_changes.h"

namespace bulkhead {

class HostMemoryChange final : public Change {
 public:
  // `trials` outlives this.
  explicit HostMemoryChange(const Trials& trials) : trials_(trials) {}

  // The minimum.
  std::optional<Attempt> Mildest(const FlagList& with) const override;
  // One, with which no plan lacks any.
  std::vector<Attempt> Steps() const override;

 private:
  const Trials& trials_;
};

}  // namespace bulkhead
