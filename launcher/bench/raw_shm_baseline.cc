#include "launcher/bench/raw_shm_baseline.h"

#include <sched.h>

#include <cstring>
#include <utility>

#include "base/check.h"

namespace bulkhead {
namespace {

constexpr int64_t kPageBytes = 4096;
constexpr int64_t kFloatBytes = sizeof(float);
constexpr int64_t kFlagBytes = 64;
constexpr int kSpins = 600;  // like our own waits; then yield: the core may be shared

int64_t WholePages(int64_t bytes) { return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes; }
int64_t StrideOf(int64_t max_bytes) { return WholePages(max_bytes) / kFloatBytes; }
int64_t FlagBytes(int64_t ranks) { return WholePages(ranks * ranks * kFlagBytes); }

void Add(const float* a, const float* b, int64_t count, float* __restrict sum) {
  for (int64_t i = 0; i < count; ++i) sum[i] = a[i] + b[i];
}

}  // namespace

int64_t RawShmBaseline::Bytes(int ranks, int64_t max_bytes) {
  return FlagBytes(ranks) + (ranks + 1) * StrideOf(max_bytes) * kFloatBytes;
}

RawShmBaseline::RawShmBaseline(SharedMemory memory, int ranks, int64_t max_bytes)
    : memory_(std::move(memory)),
      stride_(StrideOf(max_bytes)),
      ranks_(ranks),
      flags_(reinterpret_cast<Flag*>(memory_.get())),
      slots_(reinterpret_cast<float*>(memory_.get() + FlagBytes(ranks))),
      result_(slots_ + ranks * stride_) {
  static_assert(sizeof(Flag) == kFlagBytes);
}

const float* RawShmBaseline::Sum(int rank, int peer, const float* part, int64_t count, Split split,
                                 float* whole) {
  BH_CHECK(count <= stride_ && rank != peer);
  std::memcpy(slot(rank), part, count * sizeof(float));
  Barrier(rank, peer);
  if (split == Split::kWhole) {
    Add(slot(rank), slot(peer), count, whole);
    Barrier(rank, peer);  // the slots may be written again
    return whole;
  }
  const int64_t half = count / 2;
  const int64_t begin = rank < peer ? 0 : half;
  const int64_t length = rank < peer ? half : count - half;
  Add(slot(rank) + begin, slot(peer) + begin, length, result_ + begin);
  Barrier(rank, peer);
  return result_;
}

void RawShmBaseline::Barrier(int rank, int peer) {
  std::atomic<uint64_t>& mine = flag(rank, peer).value;
  const uint64_t turn = mine.load(std::memory_order_relaxed) + 1;
  mine.store(turn, std::memory_order_release);
  for (int i = 0; flag(peer, rank).value.load(std::memory_order_acquire) < turn; ++i) {
    if (i < kSpins) {
      __builtin_ia32_pause();
    } else {
      sched_yield();
    }
  }
}

}  // namespace bulkhead
