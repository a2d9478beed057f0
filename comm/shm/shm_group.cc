#include "comm/shm/shm_group.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/exit_code.h"
#include "base/status.h"

namespace bulkhead {
namespace {

int64_t DeadlineIn(absl::Duration timeout) {
  if (timeout == absl::InfiniteDuration()) return kNoDeadline;
  return MonotonicNanos() + absl::ToInt64Nanoseconds(timeout);
}

}  // namespace

// A message goes through the rank's mailbox in rounds of one piece each; all ranks take as many
// rounds as the longest message needs. Round k uses the mailboxes and notes of turn k % 2. A rank
// fills its mailbox for round k + 2 after all ranks have arrived in round k + 1 and so have read
// round k: nothing is overwritten unread.
absl::StatusOr<std::vector<std::string>> ShmExchange::AllGather(absl::string_view mine,
                                                                absl::Duration timeout) {
  BH_CHECK(static_cast<int64_t>(mine.size()) <= kMaxExchangeBytes);
  const int64_t deadline_ns = DeadlineIn(timeout);
  std::vector<std::string> all(topology_.size);
  int64_t rounds = 1;
  for (int64_t round = 0; round < rounds; ++round) {
    const int turn = static_cast<int>(++rounds_ % 2);
    const size_t begin = std::min<size_t>(round * kMailboxBytes, mine.size());
    const absl::string_view piece = mine.substr(begin, kMailboxBytes);
    std::memcpy(region_->mailbox(turn, topology_.rank), piece.data(), piece.size());
    Signal& arrival = region_->exchange(topology_.rank);
    arrival.notes[turn] = static_cast<int64_t>(mine.size());
    Raise(arrival, rounds_);
    BH_RETURN_IF_ERROR(AwaitAll(deadline_ns, timeout));
    for (int rank = 0; rank < topology_.size; ++rank) {
      const int64_t total = region_->exchange(rank).notes[turn];
      BH_CHECK(total >= 0 && total <= kMaxExchangeBytes);
      const int64_t left = total - static_cast<int64_t>(all[rank].size());
      all[rank].append(reinterpret_cast<const char*>(region_->mailbox(turn, rank)),
                       std::min(left, kMailboxBytes));
      rounds = std::max(rounds, (total + kMailboxBytes - 1) / kMailboxBytes);
    }
  }
  return all;
}

absl::Status ShmExchange::AwaitAll(int64_t deadline_ns, absl::Duration timeout) {
  std::vector<std::string> missing;
  for (int rank = 0; rank < topology_.size; ++rank) {
    const absl::Status status = region_->Wait(region_->exchange(rank), rounds_, deadline_ns);
    if (absl::IsDeadlineExceeded(status) && status.message().empty()) {
      missing.push_back(RankName(topology_, *region_, rank));
    } else if (!status.ok()) {
      return status;
    }
  }
  if (missing.empty()) return absl::OkStatus();
  return WithExitCode(
      absl::DeadlineExceededError(absl::StrCat(
          absl::StrJoin(missing, ", "), " did not arrive within ", absl::FormatDuration(timeout))),
      ExitCode::kGroupNotUp);
}

// Chunk c (from 0) is in ring slot c % kBusChunks. The writer fills it once every reader has
// consumed chunk c - kBusChunks, and raises its count to c + 1; a reader raises its own count after
// copying the chunk. The counts wrap together, as kBusChunks divides 2^32.
static_assert((kBusChunks & (kBusChunks - 1)) == 0);

absl::Status ShmBus::Publish(absl::string_view message) {
  BH_CHECK(region_->rank() == 0);
  if (region_->size() == 1) return absl::OkStatus();
  size_t sent = 0;
  do {
    for (int reader = 1; reader < region_->size(); ++reader) {
      BH_RETURN_IF_ERROR(region_->Wait(region_->bus(reader), chunks_ + 1 - kBusChunks));
    }
    const absl::string_view piece = message.substr(sent, kBusChunkBytes);
    BusChunk& chunk = region_->bus_chunk(chunks_);
    chunk.message_bytes = static_cast<int64_t>(message.size());
    chunk.piece_bytes = static_cast<int64_t>(piece.size());
    std::memcpy(chunk.piece.data(), piece.data(), piece.size());
    Raise(region_->bus(0), ++chunks_);
    sent += piece.size();
  } while (sent < message.size());
  return absl::OkStatus();
}

absl::Status ShmBus::Receive(std::string* message) {
  BH_CHECK(region_->rank() != 0);
  message->clear();
  int64_t message_bytes = 0;
  do {
    BH_RETURN_IF_ERROR(region_->Wait(region_->bus(0), chunks_ + 1));
    const BusChunk& chunk = region_->bus_chunk(chunks_);
    message_bytes = chunk.message_bytes;
    BH_CHECK(chunk.piece_bytes >= 0 && chunk.piece_bytes <= kBusChunkBytes);
    message->append(chunk.piece.data(), chunk.piece_bytes);
    Raise(region_->bus(region_->rank()), ++chunks_);
  } while (static_cast<int64_t>(message->size()) < message_bytes);
  return absl::OkStatus();
}

ShmGroup::ShmGroup(std::shared_ptr<Region> region, const RankTopology& topology, ShareMemory share)
    : region_(std::move(region)),
      share_(share),
      exchange_(region_, topology),
      bus_(region_),
      liveness_(region_, topology, &MonotonicNanos) {
  region_->set_may_spin(topology.local_size <= topology.local_cores);
}

absl::StatusOr<Buffer> TakeCommunication(const CommunicationLayout& layout, GroupExchange& exchange,
                                         MemoryLedger& ledger) {
  absl::Status taken = ledger.TakeMapped(MemoryCategory::kCommunication, layout.MappedBytes());
  absl::StatusOr<Buffer> result = Buffer();
  if (taken.ok()) {
    result = ledger.Take(MemoryCategory::kCommunication, layout.private_result_bytes);
    taken = result.status();
  }
  taken = WithExitCode(taken, ExitCode::kDoesNotFit);
  BH_RETURN_IF_ERROR(Agree(exchange, kConnectPhase, taken, kConnectTimeout));
  return result;
}

absl::StatusOr<std::unique_ptr<Communicator>> ShmGroup::Connect(const CommLimits& limits,
                                                                MemoryLedger& ledger) {
  const CommunicationLayout layout(limits, region_->size());
  BH_ASSIGN_OR_RETURN(Buffer result, TakeCommunication(layout, exchange_, ledger));
  // One more page, so that the mapping is not empty when the limits are 0.
  BH_ASSIGN_OR_RETURN(
      SharedMemory tensors,
      share_(exchange_, region_->size() * layout.MappedBytes() + kPageBytes, kConnectTimeout));
  return std::make_unique<ShmCommunicator>(region_, limits, std::move(tensors), std::move(result));
}

void ShmGroup::Leave(const absl::Status& status) {
  liveness_.Ending();
  if (!IsAgreed(status)) region_->Abort(status);
}

namespace {

absl::Status RefuseUnlessFew(const RankTopology& topology) {
  if (topology.size <= kMaxLocalRanks) return absl::OkStatus();
  return WithExitCode(absl::UnimplementedError(absl::StrCat(
                          topology.size, " ranks on host ", topology.hosts[0], "; at most ",
                          kMaxLocalRanks, " can share it: spread them over more hosts")),
                      ExitCode::kGroupNotUp);
}

// The parent is the launcher or the shell that wraps this process, and outlives it.
absl::Status WatchProcesses(GroupExchange& bootstrap, Region& region, ShmLiveness& liveness,
                            absl::Duration timeout) {
  constexpr char kPhase[] = "watching the ranks' processes";
  region.liveness(region.rank()).pid.store(getpid());
  BH_RETURN_IF_ERROR(Agree(bootstrap, kPhase, absl::OkStatus(), timeout));
  return Agree(bootstrap, kPhase, liveness.WatchProcesses(getppid()), timeout);
}

}  // namespace

absl::StatusOr<HostPart> NewHostPart(GroupExchange& bootstrap, absl::Duration timeout) {
  const RankTopology& topology = bootstrap.topology();
  BH_RETURN_IF_ERROR(MarkAgreed(RefuseUnlessFew(topology)));
  BH_ASSIGN_OR_RETURN(SharedMemory memory,
                      ShareBetweenProcesses(bootstrap, Region::Bytes(topology.size), timeout));
  HostPart part;
  part.region = std::make_shared<Region>(std::move(memory), topology.rank, topology.size);
  part.group = std::make_unique<ShmGroup>(part.region, topology, &ShareBetweenProcesses);
  BH_RETURN_IF_ERROR(WatchProcesses(bootstrap, *part.region, part.group->liveness(), timeout));
  return part;
}

}  // namespace bulkhead
