// Block: runs the threads of one block of a kernel as fibers on the calling thread, in a chosen
// order, and detects errors that a device would not tolerate. The intrinsics of a kernel
// (tests/support/emulator/intrinsics.h) go through the running lane.
//
// Lanes run until they synchronise: a warp at a collective, the block at a barrier. Lanes at
// different synchronisation points, lanes that wait for others which never arrive, misaligned or
// out-of-range copies, copies that are never waited for, lanes that did not wait for the previous
// kernel, and accesses that shadow_memory.h refuses are faults: the launch ends with a message.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "memory/cuda_kernel.h"
#include "tests/support/emulator/bank_conflicts.h"
#include "tests/support/emulator/fiber.h"
#include "tests/support/emulator/lane_products.h"
#include "tests/support/emulator/peer_memory.h"
#include "tests/support/emulator/shadow_memory.h"

namespace bulkhead::emulator {

// Order of the lanes: a missing barrier gives different results in different orders.
enum class Schedule {
  kAscending,  // every lane in turn: warps nearly in lockstep
  kDescending,
  kShuffled,    // a different order in every round
  kWarpGreedy,  // one warp as far as possible, then the next
  kWarpGreedyDescending,
};
inline constexpr std::array kAllSchedules = {Schedule::kAscending, Schedule::kDescending,
                                             Schedule::kShuffled, Schedule::kWarpGreedy,
                                             Schedule::kWarpGreedyDescending};

inline constexpr int kWarpLanes = 32;

// A synchronisation point of lanes.
struct Meeting {
  int arrived = 0;
  uint64_t generation = 0;
  const char* what = nullptr;
};

struct AsyncCopy {
  std::byte* to = nullptr;
  const std::byte* from = nullptr;
  bool valid = true;
};

class Block;
struct Warp;

// Range of the shared memory that a lane has written since FenceForProducts; `epoch`: the block's
// epoch at the first of these writes.
struct UnfencedWrites {
  int64_t begin = 0;
  int64_t end = 0;  // 0: nothing
  uint16_t epoch = 0;

  void Add(int64_t from, int64_t to, uint16_t now) {
    if (end == 0) *this = {from, to, now};
    begin = std::min(begin, from);
    end = std::max(end, to);
  }
};

// One thread of the block. Members needed by every switch come first, in one cache line.
struct alignas(64) Lane {
  const Meeting* waits_for = nullptr;  // together with waits_until
  uint64_t waits_until = 0;
  bool done = false;
  bool awaited_previous = false;
  int thread = 0;
  Fiber fiber;
  Block* block = nullptr;
  Warp* warp = nullptr;
  const char* at = "its beginning";                // the last intrinsic, for messages
  int meetings = 0;                                // so far, with its warp or block
  int phase = 0;                                   // which of its warp's two exchanges is next
  int count_phase = 0;                             // which of the block's two counts is next
  std::vector<AsyncCopy> open_copies;              // not yet committed
  std::deque<std::vector<AsyncCopy>> copy_groups;  // committed, not yet waited for
  LaneProducts products;
  UnfencedWrites unfenced;

  bool Runnable() const {
    return !done && (waits_for == nullptr || waits_for->generation >= waits_until);
  }
};

// The lane running on this thread; exists while a kernel's code runs.
inline constinit thread_local Lane* current_lane = nullptr;
inline Lane& CurrentLane() { return *current_lane; }

inline constexpr size_t kExchangeBytes = 48;
struct alignas(16) Brought : std::array<std::byte, kExchangeBytes> {};
using Exchange = std::array<Brought, kWarpLanes>;

struct Warp {
  Meeting meeting;
  uint16_t epoch = 0;  // number of SyncWarp
  std::array<Exchange, 2> exchanges;
};

class Block {
 public:
  // Runs all blocks of the launch, one after the other; INTERNAL with the first fault.
  absl::Status Launch(const CudaKernel& kernel, const LaunchShape& shape, const void* parameters,
                      Schedule schedule, uint32_t seed);

  ShadowMemory& memory() { return memory_; }
  PeerClock& peer_clock() { return peer_clock_; }
  // From now on receives the maximum turns of each kernel (bank_conflicts.h), in the first block of
  // its launches; null: none are counted.
  void set_bank_turns(std::map<std::string, int>* turns) { bank_turns_ = turns; }

  // ---- for the compiler's instrumentation: no effect if no lane runs
  // `aligned`: the address must be a multiple of the size, as on a device.
  static void OnPlainAccess(const void* at, size_t bytes, bool aligned, AccessKind kind,
                            const void* code);

  // ---- for the intrinsics, on the running lane
  const int* index() const { return index_; }
  const LaunchShape& shape() const { return shape_; }
  std::byte* shared() const { return shared_; }
  // Waits until all lanes of the warp, or of the block, have reached `what`.
  void MeetWarp(const char* what);
  void MeetBlock(const char* what);
  // Both order the lanes' memory accesses before and after it.
  void SyncWarp();
  void SyncBlock();
  // Synchronises the block and returns how many of its lanes passed true.
  int CountInBlock(const char* what, bool value);
  // Synchronises the warp and returns its lanes' values. Two exchanges alternate, so that a fast
  // lane's next value never overwrites one that a slow lane still has to read.
  const Exchange& ExchangeInWarp(const char* what, const void* value, size_t bytes);
  // A fault unless shadow_memory.h allows it; `code`: the instruction's address.
  void Access(const void* at, size_t bytes, AccessKind kind, const void* code);
  void BeginCopy(void* to, const void* from, bool valid, const void* code);
  void CpAsyncCommit();
  void CpAsyncWait(size_t left);
  // 16 bytes of shared memory that a product may read at any time until it is waited for.
  void ReadForProduct(const std::byte* at) {
    CheckShared(at, 16, "a product");
    Access(at, 16, AccessKind::kRead, nullptr);
  }
  // A fault if products do not yet see a lane's writes to these bytes before the last barrier.
  void CheckFenced(int64_t begin, int64_t end);
  // A fault unless [address, address + bytes) is aligned and in shared memory.
  void CheckShared(const void* address, size_t bytes, const char* what);
  // `bytes`: a power of two.
  void CheckAligned(const void* address, size_t bytes, const char* what);
  // Waits until the next turn: the lane waits for another device, whose thread also gets the core.
  void WaitTurn();
  // A fault unless the lane has waited for the previous kernel, and peer_memory.h allows it.
  void SendWords(uint32_t* to, const uint32_t (&words)[4]);
  void ReadWords(const uint32_t* at, uint32_t (&words)[4]);
  void ClearWords(uint32_t* at, uint32_t nothing);
  // Ends the launch; does not return. Not marked noreturn: a sanitizer would look at the wrong
  // stack.
  void Fault(const std::string& what);

 private:
  absl::Status CheckLaunch() const;
  void RunOne();
  bool IsGreedy() const;
  void BeginOrder();
  void RunTurn();
  Lane* NextLane();
  void Enter(Lane& lane, Fiber& from);
  void Yield();
  void Meet(Meeting& meeting, int lanes, const char* what);
  void CheckPeerAccess(const char* what, const char* wrong);
  bool AllDone() const;
  void FindLeftovers();
  std::string Describe(const std::string& what) const;
  uint32_t NextRandom();
  static void RunLane(void* lane);

  const CudaKernel* kernel_ = nullptr;
  LaunchShape shape_;
  const void* parameters_ = nullptr;
  Schedule schedule_ = Schedule::kAscending;
  uint32_t random_ = 1;
  int index_[3] = {0, 0, 0};
  int threads_ = 0;
  std::byte* shared_ = nullptr;
  std::deque<Lane> lanes_;    // stacks are reused between launches
  std::vector<Lane*> order_;  // order of lanes in a turn
  int next_ = 0;              // index in order_, below stretch_end_
  int stretch_end_ = 0;
  bool ran_ = false;      // whether any lane ran in the stretch
  bool any_ran_ = false;  // whether any lane ran in the turn
  Fiber scheduler_;       // runs the turns
  std::deque<Warp> warps_;
  Meeting meeting_;
  Meeting turns_;                   // lanes that wait for the next turn
  bool any_waits_ = false;          // for the next turn
  std::array<int, 2> counts_ = {};  // alternating, like a warp's exchanges
  uint16_t epoch_ = 0;              // number of SyncBlock
  Lane* running_ = nullptr;
  ShadowMemory memory_;
  PeerClock peer_clock_;
  std::map<std::string, int>* bank_turns_ = nullptr;
  bool counts_conflicts_ = false;  // for this block
  BankConflicts conflicts_;
  std::string fault_;
};

}  // namespace bulkhead::emulator
