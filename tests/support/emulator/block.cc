#include "tests/support/emulator/block.h"

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"

// Defined by the linker.
extern "C" const char __executable_start[];  // NOLINT(bugprone-reserved-identifier)

namespace bulkhead::emulator {
namespace {

constexpr size_t kSharedAlignBytes = 1024;
constexpr int kSharedPoison = 0xFB;  // -2.6e36 as bf16 or f32, -65376 as f16
constexpr int kMaxThreads = 1024;
constexpr int kMaxGridYz = 65535;

}  // namespace

absl::Status Block::CheckLaunch() const {
  const auto refuse = [&](const std::string& why) {
    return absl::InternalError(absl::StrCat("kernel ", kernel_->name, ": ", why));
  };
  if (kernel_->run_thread == nullptr) return refuse("compiled for a device");
  if (shape_.block[1] != 1 || shape_.block[2] != 1 || threads_ < kWarpLanes ||
      threads_ > kMaxThreads || threads_ % kWarpLanes != 0) {
    return refuse(absl::StrCat("blocks of ", threads_, " x ", shape_.block[1], " x ",
                               shape_.block[2], " threads"));
  }
  if (threads_ > kernel_->max_threads) {
    return refuse(absl::StrCat("blocks of ", threads_, " threads; its launch bounds are ",
                               kernel_->max_threads));
  }
  if (shape_.grid[0] < 0 || shape_.grid[1] < 0 || shape_.grid[2] < 0 ||
      shape_.grid[1] > kMaxGridYz || shape_.grid[2] > kMaxGridYz) {
    return refuse(absl::StrCat("a grid of ", shape_.grid[0], " x ", shape_.grid[1], " x ",
                               shape_.grid[2], " blocks"));
  }
  return absl::OkStatus();
}

absl::Status Block::Launch(const CudaKernel& kernel, const LaunchShape& shape,
                           const void* parameters, Schedule schedule, uint32_t seed) {
  kernel_ = &kernel;
  shape_ = shape;
  parameters_ = parameters;
  schedule_ = schedule;
  random_ = seed * 2654435761U + 1;
  threads_ = shape.block[0];
  if (absl::Status status = CheckLaunch(); !status.ok()) return status;
  while (static_cast<int>(lanes_.size()) < threads_) lanes_.emplace_back();
  while (static_cast<int>(warps_.size()) * kWarpLanes < threads_) warps_.emplace_back();
  BeginOrder();
  // Exact size, so that AddressSanitizer detects overruns.
  void* shared = nullptr;
  BH_CHECK(posix_memalign(&shared, kSharedAlignBytes, std::max<size_t>(shape.shared_bytes, 1)) ==
           0);
  const std::unique_ptr<void, void (*)(void*)> owner(shared, std::free);
  shared_ = static_cast<std::byte*>(shared);
  fault_.clear();
  memory_.BeginLaunch();
  peer_clock_.BeginLaunch();
  const bool backwards = !shape.in_order && (schedule == Schedule::kDescending ||
                                             schedule == Schedule::kWarpGreedyDescending);
  const int64_t blocks = int64_t{shape.grid[0]} * shape.grid[1] * shape.grid[2];
  for (int64_t i = 0; i < blocks && fault_.empty(); ++i) {
    const int64_t block = backwards ? blocks - 1 - i : i;
    index_[0] = static_cast<int>(block % shape.grid[0]);
    index_[1] = static_cast<int>(block / shape.grid[0] % shape.grid[1]);
    index_[2] = static_cast<int>(block / shape.grid[0] / shape.grid[1]);
    RunOne();
  }
  shared_ = nullptr;
  return fault_.empty() ? absl::OkStatus() : absl::InternalError(fault_);
}

void Block::RunOne() {
  std::memset(shared_, kSharedPoison, shape_.shared_bytes);
  memory_.BeginBlock(shared_, shape_.shared_bytes);
  counts_conflicts_ = bank_turns_ != nullptr && index_[0] + index_[1] + index_[2] == 0;
  conflicts_.Begin();
  meeting_ = {};
  counts_ = {};
  epoch_ = 0;
  for (Warp& warp : warps_) {
    warp.meeting = {};
    warp.epoch = 0;
  }
  for (int i = 0; i < threads_; ++i) {
    Lane& lane = lanes_[i];
    lane.block = this;
    lane.warp = &warps_[i / kWarpLanes];
    lane.thread = i;
    lane.done = false;
    lane.awaited_previous = false;
    lane.at = "its beginning";
    lane.waits_for = nullptr;
    lane.open_copies.clear();
    lane.copy_groups.clear();
    lane.products.Reset();
    lane.unfenced = {};
    lane.meetings = 0;
    lane.phase = 0;
    lane.count_phase = 0;
    lane.fiber.Begin(&RunLane, &lane, i);
  }
  while (fault_.empty() && !AllDone()) RunTurn();
  if (fault_.empty()) FindLeftovers();
  if (counts_conflicts_) {
    int& turns = (*bank_turns_)[kernel_->name];
    turns = std::max(turns, conflicts_.Turns());
  }
}

bool Block::IsGreedy() const {
  return schedule_ == Schedule::kWarpGreedy || schedule_ == Schedule::kWarpGreedyDescending;
}

void Block::BeginOrder() {
  order_.resize(threads_);
  for (int i = 0; i < threads_; ++i) {
    int at = i;
    if (schedule_ == Schedule::kDescending) at = threads_ - 1 - i;
    if (schedule_ == Schedule::kWarpGreedyDescending)
      at = threads_ - kWarpLanes - i + i % kWarpLanes * 2;
    order_[at] = &lanes_[i];
  }
}

// Gives every runnable lane a turn in the schedule's order; greedy warps all they can use.
void Block::RunTurn() {
  if (schedule_ == Schedule::kShuffled) {
    for (int i = threads_ - 1; i > 0; --i) std::swap(order_[i], order_[NextRandom() % (i + 1)]);
  }
  if (std::exchange(any_waits_, false)) {
    ++turns_.generation;
    std::this_thread::yield();
  }
  next_ = 0;
  stretch_end_ = IsGreedy() ? kWarpLanes : threads_;
  ran_ = any_ran_ = false;
  if (Lane* const first = NextLane(); first != nullptr) Enter(*first, scheduler_);
  if (any_ran_ || !fault_.empty()) return;
  for (int i = 0; i < threads_; ++i) {
    if (lanes_[i].done) continue;
    running_ = &lanes_[i];
    fault_ = Describe("deadlock: it waits for threads that never come");
    return;
  }
}

// The turn's next lane; null at its end.
Lane* Block::NextLane() {
  if (!fault_.empty()) return nullptr;
  while (true) {
    for (; next_ < stretch_end_; ++next_) {
      Lane& lane = *order_[next_];
      if (!lane.Runnable()) continue;
      ++next_;
      ran_ = any_ran_ = true;
      return &lane;
    }
    if (IsGreedy() && ran_) {
      next_ = stretch_end_ - kWarpLanes;
    } else if (stretch_end_ < threads_) {
      stretch_end_ += kWarpLanes;
    } else {
      return nullptr;
    }
    ran_ = false;
  }
}

void Block::Enter(Lane& lane, Fiber& from) {
  lane.waits_for = nullptr;
  running_ = current_lane = &lane;
  from.SwitchTo(lane.fiber);
}

// The running lane's turn is over.
void Block::Yield() {
  Fiber& fiber = running_->fiber;
  if (Lane* const next = NextLane(); next != nullptr) return Enter(*next, fiber);
  current_lane = nullptr;
  fiber.SwitchTo(scheduler_);
}

void Block::RunLane(void* argument) {
  Lane& lane = *static_cast<Lane*>(argument);
  Block& block = *lane.block;
  block.kernel_->run_thread(block.kernel_->function, block.parameters_);
  lane.done = true;
  lane.at = "its end";
  while (true) block.Yield();
}

bool Block::AllDone() const {
  return std::all_of(lanes_.begin(), lanes_.begin() + threads_,
                     [](const Lane& lane) { return lane.done; });
}

void Block::FindLeftovers() {
  for (int i = 0; i < threads_; ++i) {
    const Lane& lane = lanes_[i];
    const bool copies_left = !lane.open_copies.empty() || !lane.copy_groups.empty();
    if (!copies_left && lane.products.empty() && lane.awaited_previous) continue;
    running_ = &lanes_[i];
    fault_ =
        Describe(copies_left              ? "it ended with copies that it did not wait for"
                 : !lane.products.empty() ? "it ended with products that it did not wait for"
                                          : "it ended and had not waited for the kernel before");
    return;
  }
}

uint32_t Block::NextRandom() {
  random_ = random_ * 1664525U + 1013904223U;
  return random_ >> 8;
}

void Block::Meet(Meeting& meeting, int lanes, const char* what) {
  Lane& lane = *running_;
  lane.at = what;
  ++lane.meetings;
  if (meeting.arrived > 0 && meeting.what != what && std::strcmp(meeting.what, what) != 0) {
    Fault(absl::StrCat("others of its warp or block are at ", meeting.what));
  }
  meeting.what = what;
  if (++meeting.arrived == lanes) {
    meeting.arrived = 0;
    ++meeting.generation;
    return;
  }
  lane.waits_for = &meeting;
  lane.waits_until = meeting.generation + 1;
  Yield();
}

void Block::MeetBlock(const char* what) { Meet(meeting_, threads_, what); }

int Block::CountInBlock(const char* what, bool value) {
  int& count = counts_[running_->count_phase ^= 1];
  count += value ? 1 : 0;
  // When the last lane arrives all have read the previous count.
  if (meeting_.arrived == threads_ - 1) {
    counts_[running_->count_phase ^ 1] = 0;
    ++epoch_;
  }
  MeetBlock(what);
  return count;
}

void Block::MeetWarp(const char* what) { Meet(running_->warp->meeting, kWarpLanes, what); }

// The last lane to arrive counts: all others still wait.
void Block::SyncWarp() {
  Warp& warp = *running_->warp;
  if (warp.meeting.arrived == kWarpLanes - 1) ++warp.epoch;
  MeetWarp("__syncwarp");
}

void Block::SyncBlock() {
  if (meeting_.arrived == threads_ - 1) ++epoch_;
  MeetBlock("__syncthreads");
}

const Exchange& Block::ExchangeInWarp(const char* what, const void* value, size_t bytes) {
  BH_CHECK(bytes <= kExchangeBytes);
  Lane& lane = *running_;
  Exchange& exchange = lane.warp->exchanges[lane.phase ^= 1];
  std::memcpy(exchange[lane.thread % kWarpLanes].data(), value, bytes);
  MeetWarp(what);
  return exchange;
}

void Block::BeginCopy(void* to, const void* from, bool valid, const void* code) {
  constexpr size_t kBytes = 16;
  CheckShared(to, kBytes, "CpAsync16");
  CheckAligned(from, kBytes, "CpAsync16");
  if (valid) Access(from, kBytes, AccessKind::kRead, code);
  Access(to, kBytes, AccessKind::kCopyBegin, code);
  running_->open_copies.push_back(
      {static_cast<std::byte*>(to), static_cast<const std::byte*>(from), valid});
}

void Block::CpAsyncCommit() {
  running_->copy_groups.push_back(std::exchange(running_->open_copies, {}));
}

void Block::CpAsyncWait(size_t left) {
  auto& groups = running_->copy_groups;
  for (; groups.size() > left; groups.pop_front()) {
    for (const AsyncCopy& copy : groups.front()) {
      if (copy.valid) {
        std::memcpy(copy.to, copy.from, 16);
      } else {
        std::memset(copy.to, 0, 16);
      }
      Access(copy.to, 16, AccessKind::kCopyEnd, nullptr);
    }
  }
}

void Block::OnPlainAccess(const void* at, size_t bytes, bool aligned, AccessKind kind,
                          const void* code) {
  const Lane* const lane = current_lane;
  if (lane == nullptr || lane->fiber.Owns(at)) return;
  if (aligned) lane->block->CheckAligned(at, bytes, "an access");
  lane->block->Access(at, bytes, kind, code);
}

void Block::Access(const void* at, size_t bytes, AccessKind kind, const void* code) {
  Lane& lane = *running_;
  const char* const wrong = memory_.Access(at, bytes, kind,
                                           {.thread = lane.thread,
                                            .block_epoch = epoch_,
                                            .warp_epoch = lane.warp->epoch,
                                            .awaited_previous = lane.awaited_previous});
  const auto* const byte = static_cast<const std::byte*>(at);
  const bool is_shared = byte >= shared_ && byte < shared_ + shape_.shared_bytes;
  if (counts_conflicts_ && code != nullptr && is_shared) {
    conflicts_.Note(lane.thread, lane.meetings, code, byte - shared_, bytes);
  }
  if (Writes(kind) && is_shared) {
    lane.unfenced.Add(byte - shared_, byte + bytes - shared_, epoch_);
  }
  if (wrong == nullptr) return;
  const std::string where =
      is_shared ? absl::StrCat(" (", byte - shared_, " bytes into shared memory)") : "";
  // For addr2line.
  Fault(absl::StrCat(wrong, where, ", in code at 0x",
                     absl::Hex(static_cast<const char*>(code) - __executable_start)));
}

void Block::CheckFenced(int64_t begin, int64_t end) {
  for (int i = 0; i < threads_; ++i) {
    const UnfencedWrites& unfenced = lanes_[i].unfenced;
    if (unfenced.begin < end && begin < unfenced.end && unfenced.epoch != epoch_) {
      Fault(absl::StrCat("thread ", i, " wrote shared memory and did not call FenceForProducts"));
    }
  }
}

void Block::WaitTurn() {
  any_waits_ = true;
  running_->at = "WaitTurn";
  running_->waits_for = &turns_;
  running_->waits_until = turns_.generation + 1;
  Yield();
}

void Block::CheckPeerAccess(const char* what, const char* wrong) {
  running_->at = what;
  if (!running_->awaited_previous) wrong = "it has not waited for the kernel before";
  if (wrong != nullptr) Fault(wrong);
}

void Block::SendWords(uint32_t* to, const uint32_t (&words)[4]) {
  CheckPeerAccess("SendWords", PeerMemory::Get().Send(to, words, peer_clock_));
}

void Block::ReadWords(const uint32_t* at, uint32_t (&words)[4]) {
  CheckPeerAccess("ReceivedWords", PeerMemory::Get().Read(at, words, peer_clock_));
}

void Block::ClearWords(uint32_t* at, uint32_t nothing) {
  CheckPeerAccess("ClearWords", PeerMemory::Get().Clear(at, nothing, peer_clock_));
}

void Block::CheckShared(const void* address, size_t bytes, const char* what) {
  CheckAligned(address, bytes, what);
  const auto* at = static_cast<const std::byte*>(address);
  if (at < shared_ || at + bytes > shared_ + shape_.shared_bytes) {
    Fault(absl::StrCat(what, " ", at - shared_, " bytes into ", shape_.shared_bytes,
                       " bytes of shared memory"));
  }
}

void Block::CheckAligned(const void* address, size_t bytes, const char* what) {
  if ((reinterpret_cast<uintptr_t>(address) & (bytes - 1)) != 0) {
    Fault(absl::StrCat(what, " of an address that is no multiple of ", bytes));
  }
}

std::string Block::Describe(const std::string& what) const {
  return absl::StrCat("kernel ", kernel_->name, ", block ", index_[0], ",", index_[1], ",",
                      index_[2], ", thread ", running_->thread, " at ", running_->at, ": ", what);
}

void Block::Fault(const std::string& what) {
  fault_ = Describe(what);
  while (!fault_.empty()) Yield();
}

}  // namespace bulkhead::emulator
