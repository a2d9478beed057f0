// Group: everything a rank shares with the others once it is up: the tensor communicator, the control
// bus and the liveness of its ranks. One factory per way to be a group; launcher/wire.cc chooses.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "comm/communicator.h"
#include "comm/control_bus.h"
#include "comm/exchange.h"
#include "memory/ledger.h"

namespace bulkhead {

// What the group's watchdogs know. Thread-safe; nothing here calls MPI.
class GroupLiveness {
 public:
  virtual ~GroupLiveness() = default;
  // Called by the watchdog thread of every rank, at least every second: "this process lives".
  virtual void Beat() = 0;
  // Ok, or UNAVAILABLE naming the rank, its host and what is wrong with it (it ended, or it was silent
  // for `silence`). Once not ok, never ok again.
  virtual absl::Status Check(absl::Duration silence) = 0;
  // A file descriptor that becomes readable when a rank's process ends (poll it), or -1.
  virtual int fd() const = 0;
  // Makes every wait of every rank in this group (sums, gathers, bus) end with `why`. Idempotent.
  virtual void Abort(const absl::Status& why) = 0;
  // A clean end is coming: a rank that ends from now on is no loss.
  virtual void Ending() = 0;
};

class Group {
 public:
  virtual ~Group() = default;
  virtual GroupExchange& exchange() = 0;
  virtual ControlBus& bus() = 0;
  virtual GroupLiveness& liveness() = 0;
  // Device-visible bytes that Connect will want for these limits: the same formula in plan and serve.
  virtual int64_t CommunicationBytes(const CommLimits& limits) const = 0;
  // Collective: every rank calls it with equal limits. Takes exactly CommunicationBytes from the ledger's
  // communication term (memory that several ranks map is accounted with TakeMapped by its owner).
  virtual absl::StatusOr<std::unique_ptr<Communicator>> Connect(const CommLimits& limits,
                                                                MemoryLedger& ledger) = 0;
};

}  // namespace bulkhead
