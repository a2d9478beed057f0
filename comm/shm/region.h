// Region: the memory shared by the ranks of a host besides tensors: counters to wait on, mailboxes,
// the bus's ring, heartbeats and the abort word. One Region object per rank over the same memory.
//
// Layout: head | per rank: three signals and a liveness record | mailboxes [2][size] | bus ring.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "base/clock.h"
#include "comm/shm/shared_memory.h"
#include "comm/topology.h"
#include "comm/wait.h"

namespace bulkhead {

inline constexpr int kMaxLocalRanks = 64;
inline constexpr int64_t kMailboxBytes = 4096;
inline constexpr int64_t kBusChunkBytes = 32 * 1024;
inline constexpr int kBusChunks = 4;

// A rank's liveness, read by the others; a cache line of its own.
struct alignas(64) RankLiveness {
  std::atomic<uint64_t> beats;  // heartbeats; 0 until its watchdog runs
  std::atomic<int64_t> pid;
  std::atomic<uint32_t> ending;  // 1: orderly shutdown
  std::atomic<int64_t> idle_ns;  // GroupLiveness::ReportIdle
};

struct BusChunk {
  int64_t message_bytes;  // of the whole message
  int64_t piece_bytes;    // in this chunk
  std::array<char, kBusChunkBytes> piece;
};

class Region {
 public:
  static int64_t Bytes(int size);
  // `memory`: Bytes(size), initially zero, shared by all ranks.
  Region(SharedMemory memory, int rank, int size);
  int rank() const { return rank_; }
  int size() const { return size_; }

  Signal& exchange(int rank) { return ranks_[rank].exchange; }  // arrivals in the exchange
  Signal& sums(int rank) { return ranks_[rank].sums; }          // arrivals in the communicator
  Signal& bus(int rank) { return ranks_[rank].bus; }            // chunks published or consumed
  RankLiveness& liveness(int rank) { return ranks_[rank].liveness; }
  std::byte* mailbox(int turn, int rank) {
    return mailboxes_ + (int64_t{turn} * size_ + rank) * kMailboxBytes;
  }
  BusChunk& bus_chunk(uint32_t index) { return chunks_[index % kBusChunks]; }

  // The node that this node's leader waits for, or -1, and when the leader last polled
  // (MonotonicNanos). Set by the leader at every poll; read by any thread.
  void set_awaited_node(int node, int64_t now_ns) {
    head_->polled_ns.store(now_ns, std::memory_order_relaxed);
    head_->awaited.store(node + 1, std::memory_order_relaxed);
  }
  int awaited_node() const { return head_->awaited.load(std::memory_order_relaxed) - 1; }
  int64_t polled_ns() const { return head_->polled_ns.load(std::memory_order_relaxed); }

  // Whether waits may spin before they yield. Main thread only.
  void set_may_spin(bool may_spin) { may_spin_ = may_spin; }

  // Waits until `signal` has reached `count`. DEADLINE_EXCEEDED with an empty message, or the
  // status given to Abort.
  absl::Status Wait(Signal& signal, uint32_t count, int64_t deadline_ns = kNoDeadline);
  // Ends every current and future wait of every rank with `why`; the first call wins. Any thread.
  void Abort(const absl::Status& why);
  // Ok, or the status given to Abort. Any thread.
  absl::Status abort_status() const;

 private:
  struct Head {
    std::atomic<uint32_t> abort;  // 0 no, 1 being written, 2 text complete
    uint32_t abort_bytes;
    std::atomic<int> awaited;  // node + 1
    std::atomic<int64_t> polled_ns;
    std::array<char, 2024> abort_text;  // EncodeStatus
  };
  struct PerRank {
    Signal exchange;
    Signal sums;
    Signal bus;
    RankLiveness liveness;
  };

  SharedMemory memory_;
  int rank_;
  int size_;
  bool may_spin_ = false;
  Head* head_;
  PerRank* ranks_;        // [size]
  std::byte* mailboxes_;  // [2][size][kMailboxBytes]
  BusChunk* chunks_;      // [kBusChunks]
};

// A rank of this host with its process: "rank 2 (host a, pid 4711)".
std::string RankName(const RankTopology& topology, Region& region, int rank);

}  // namespace bulkhead
