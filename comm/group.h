// Group: what a rank shares with the others once it is up: the tensor communicator, the control bus
// and the liveness of its ranks. One factory per kind of group (NewSingleGroup, NewMpiGroup,
// NewLocalGroups: README.md); launcher/wire.cc chooses.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/lost_rank.h"
#include "comm/communicator.h"
#include "comm/control_bus.h"
#include "comm/exchange.h"
#include "memory/ledger.h"

namespace bulkhead {

struct Stragglers {
  std::string names = {};  // "rank 1 (host a, pid 4711)", or "" if there are none
  // The ranks are on another host, where only its own ranks can tell which one it is. Without
  // names: no rank of this host waits for another one, and another host may know more.
  bool elsewhere = false;
  LostRank lost = {};  // if it is a single rank
  // Minimum of their idle times (ReportIdle).
  absl::Duration still = absl::ZeroDuration();
};

// Rank liveness for the watchdogs. Thread-safe; never calls MPI.
class GroupLiveness {
 public:
  virtual ~GroupLiveness() = default;
  // Heartbeat, sent by every rank's watchdog thread at least once per second. A rank that has never
  // sent one is not checked for silence.
  virtual void Beat() = 0;
  // Ok, or UNAVAILABLE with the rank, its host and the cause (it ended, or was silent for
  // `silence`), or the status the group was aborted with. Once not ok, it stays not ok.
  virtual absl::Status Check(absl::Duration silence) = 0;
  // Resets the time since every rank's last heartbeat: for a watchdog that was itself stalled.
  virtual void Rearm() = 0;
  // Reports to the other ranks of this host how long this rank's threads have used no CPU time; 0
  // outside a step.
  virtual void ReportIdle(absl::Duration still) = 0;
  // The ranks that others wait for in a collective, on the bus or in the exchange.
  virtual Stragglers FindStragglers() = 0;
  // A file descriptor that becomes readable when a rank's process or the launcher ends (poll it;
  // Check clears it if that is no loss), or -1.
  virtual int fd() const = 0;
  // Ends every wait of every rank in this group (sums, gathers, bus) with `why`. Idempotent.
  virtual void Abort(const absl::Status& why) = 0;
  // Announces that this rank leaves in order: its end is no loss to the others, nor theirs to it.
  virtual void Ending() = 0;
  // Whether rank 0's process has ended, or its connection to this host; false on rank 0.
  virtual bool CoordinatorEnded() = 0;
};

class Group {
 public:
  virtual ~Group() = default;
  virtual GroupExchange& exchange() = 0;
  virtual ControlBus& bus() = 0;
  virtual GroupLiveness& liveness() = 0;
  // Whether waits may spin before they yield and sleep. Initially true if every rank of this host
  // has its own core; call with local ranks x threads <= topology.local_cores once the number of
  // threads is known.
  virtual void AllowSpinning(bool allowed) = 0;
  // Collective: every rank calls it once with equal limits; ends in agreement. Takes exactly
  // CommunicationBytes (communicator.h) from the ledger's communication category (memory mapped by
  // several ranks is accounted with TakeMapped by its owner). RESOURCE_EXHAUSTED when a rank lacks
  // the memory; DEADLINE_EXCEEDED when a rank does not call within a minute.
  virtual absl::StatusOr<std::unique_ptr<Communicator>> Connect(const CommLimits& limits,
                                                                MemoryLedger& ledger) = 0;
  // The last call. With an agreed status (ok, or IsAgreed) all ranks shut down in order, and it
  // returns; until then the liveness watches them. Any other status ends the whole group at once;
  // if the ranks are processes, it does not return, and the process exits with the status's exit
  // code.
  virtual void Leave(const absl::Status& status) = 0;
};

// Agree, for a phase in which ranks wait for one another outside the exchange: a rank that fails
// aborts the group, since no other rank may come to agree. The status is then not an agreed one.
absl::Status AgreeOrAbort(Group& group, absl::string_view phase, const absl::Status& mine,
                          absl::Duration timeout);

}  // namespace bulkhead
