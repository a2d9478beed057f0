// Group: everything a rank shares with the others once it is up: the tensor communicator, the
// control bus and the liveness of its ranks. One factory per way to be a group (single_group.h,
// local_group.h, mpi_group.h); launcher/wire.cc chooses.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "comm/communicator.h"
#include "comm/control_bus.h"
#include "comm/exchange.h"
#include "memory/ledger.h"

namespace bulkhead {

struct Stragglers {
  std::string names;       // "rank 1 (host a, pid 4711)", or "" when there are none
  bool elsewhere = false;  // on another host: its own ranks can tell which of them it is
  // How long they have stood still (StoodStill), the least of them.
  absl::Duration still = absl::ZeroDuration();
};

// What the group's watchdogs know. Thread-safe; nothing here calls MPI.
class GroupLiveness {
 public:
  virtual ~GroupLiveness() = default;
  // Called by the watchdog thread of every rank, at least every second: "this process lives". A
  // rank that has never beaten is not judged for silence.
  virtual void Beat() = 0;
  // Ok, or UNAVAILABLE naming the rank, its host and what is wrong with it (it ended, or it was
  // silent for `silence`), or what the group was aborted with. Once not ok, never ok again.
  virtual absl::Status Check(absl::Duration silence) = 0;
  // Takes every rank as heard just now: for a watchdog that was itself stalled, and so knows
  // nothing.
  virtual void Rearm() = 0;
  // Tells the others of this host for how long this rank's threads have used no CPU time: 0 unless
  // it is in a step.
  virtual void StoodStill(absl::Duration still) = 0;
  // The ranks that others wait for in a sum, gather or message.
  virtual Stragglers FindStragglers() = 0;
  // A file descriptor that becomes readable when a rank's process or the launcher ends (poll it;
  // Check clears it where that is no loss), or -1.
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
  // Whether waits may spin before they yield and sleep. At first, whether the ranks of this host
  // have a core each; say local ranks x threads <= topology.local_cores once the threads are known.
  virtual void AllowSpinning(bool allowed) = 0;
  // Collective: every rank calls it with equal limits; once per group, ends in agreement. Takes
  // exactly CommunicationBytes (communicator.h) from the ledger's communication category (what
  // several ranks map is accounted with TakeMapped by its owner). RESOURCE_EXHAUSTED when a rank
  // lacks the memory; DEADLINE_EXCEEDED when one does not come within a minute.
  virtual absl::StatusOr<std::unique_ptr<Communicator>> Connect(const CommLimits& limits,
                                                                MemoryLedger& ledger) = 0;
  // The last call. With a status that all ranks agree on (ok, or IsAgreed) all ranks leave
  // together, in good order, and it returns. With any other the whole group is ended at once; where
  // the ranks are processes it does not return, and the process's exit code is the status's.
  virtual void Leave(const absl::Status& status) = 0;
};

}  // namespace bulkhead
