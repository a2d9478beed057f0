#include "tests/gpu/shared_memory.h"

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <new>

#include "base/check.h"
#include "memory/cuda_driver.h"

namespace {

constexpr size_t kArenaBytes = size_t{2} << 30;
constexpr size_t kHeaderBytes =
    256;  // before each block, so that blocks are aligned as cudaMalloc's

// Blocks of powers of two; those that were given back are kept for their like.
class Arena {
 public:
  explicit Arena(std::byte* base) : base_(base) {}

  bool Contains(const void* at) const { return at >= base_ && at < base_ + kArenaBytes; }

  void* Take(size_t bytes) {
    const size_t payload = std::bit_ceil(bytes < kHeaderBytes ? kHeaderBytes : bytes);
    const auto kind = static_cast<size_t>(std::countr_zero(payload));
    const std::lock_guard lock(mutex_);
    if (Header* const block = free_.at(kind); block != nullptr) {
      free_[kind] = block->next;
      return reinterpret_cast<std::byte*>(block) + kHeaderBytes;
    }
    if (payload + kHeaderBytes > kArenaBytes - used_) {
      std::fputs("the memory that tests share with the GPU is too small\n", stderr);
      std::abort();  // memory from elsewhere is there for some GPUs and not for others
    }
    auto* const block = new (base_ + used_) Header{.kind = kind};
    used_ += kHeaderBytes + payload;
    return reinterpret_cast<std::byte*>(block) + kHeaderBytes;
  }

  void GiveBack(void* at) {
    auto* const block = reinterpret_cast<Header*>(static_cast<std::byte*>(at) - kHeaderBytes);
    const std::lock_guard lock(mutex_);
    block->next = free_.at(block->kind);
    free_[block->kind] = block;
  }

 private:
  struct Header {
    size_t kind = 0;  // the payload's power of two
    Header* next = nullptr;
  };

  std::byte* const base_;
  std::mutex mutex_;
  size_t used_ = 0;                    // guarded by mutex_
  std::array<Header*, 64> free_ = {};  // by kind; guarded by mutex_
};

std::atomic<Arena*> arena = nullptr;

}  // namespace

void* operator new(size_t bytes) {
  if (Arena* const shared = arena.load(); shared != nullptr) {
    return shared->Take(bytes);
  }
  void* const block = std::malloc(bytes > 0 ? bytes : 1);
  if (block == nullptr) std::abort();
  return block;
}
void operator delete(void* at) noexcept {
  Arena* const shared = arena.load();
  if (shared != nullptr && shared->Contains(at)) return shared->GiveBack(at);
  std::free(at);
}
void operator delete(void* at, size_t) noexcept { operator delete(at); }

namespace bulkhead {

void ShareNewMemory() {
  if (arena.load() != nullptr) return;
  CudaDriver* const driver = NewCudaRuntimeDriver(0).value().release();  // for the process's life
  std::byte* const memory = driver->AllocateHost(kArenaBytes).value();
  arena = new Arena(memory);
}

}  // namespace bulkhead
