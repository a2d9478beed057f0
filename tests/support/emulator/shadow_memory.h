// ShadowMemory: the emulator's state of every byte that a kernel reads or writes: whether anything
// has written it, whether a kernel has, and which threads accessed it since the last barriers. Each
// access is checked against it; the first undefined one is a fault.
//
// Accesses come from the compiler (instrumentation.cc) and from the intrinsics. Times are counted
// by synchronisation: two threads of a block are ordered by __syncthreads, two of a warp also by
// __syncwarp; two blocks of a launch, by nothing. Shuffles do not order memory.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

namespace bulkhead::emulator {

// A thread's position in time at an access.
struct AccessTime {
  int thread = 0;
  uint16_t block_epoch = 0;  // number of __syncthreads of its block
  uint16_t warp_epoch = 0;   // number of __syncwarp of its warp
  bool awaited_previous = false;
};

enum class AccessKind {
  kRead,
  kReadTile,  // tile elements may be unwritten padding
  kWrite,
  kAtomic,     // a read and write; concurrent atomics are allowed
  kCopyBegin,  // an asynchronous copy that writes at some later time
  kCopyEnd,
};
constexpr bool Writes(AccessKind kind) {
  return kind == AccessKind::kWrite || kind == AccessKind::kAtomic || kind == AccessKind::kCopyEnd;
}

class ShadowMemory {
 public:
  // Whether kernels may also use host memory, of which only the accessing threads are tracked.
  void set_host_memory_too(bool value) { host_memory_too_ = value; }

  // ---- device memory: initially unwritten
  void Map(const std::byte* at, int64_t bytes);
  void Unmap(const std::byte* at, int64_t bytes);
  // Written by a copy or fill, whose end the next kernel waits for, or by a library's kernel.
  void WriteFromOutside(const std::byte* at, int64_t bytes, bool by_kernel = false);
  // A copy from the host: it waits for earlier kernels, and later kernels wait for it.
  void EndKernels() { ended_run_ = run_; }
  // Bytes of `to` count as written if those of `from` are.
  void CopyState(const std::byte* from, const std::byte* to, int64_t bytes);

  // ---- a launch, and one of its blocks, with unwritten shared memory
  void BeginLaunch() { first_run_ = run_ + 1; }
  void BeginBlock(const std::byte* shared, int64_t shared_bytes);

  // Returns the access's error text; null if none.
  const char* Access(const void* address, size_t bytes, AccessKind kind, const AccessTime& time);

 private:
  static constexpr uintptr_t kCellBytes = 4;
  static constexpr uintptr_t kPageBytes = 4096;

  // State of 4 bytes. A run is a block of a launch; run numbers increase.
  struct Cell {
    uint32_t write_run = 0;
    uint32_t read_run = 0;
    uint16_t write_thread = 0;
    uint16_t write_block_epoch = 0;
    uint16_t write_warp_epoch = 0;
    uint16_t read_thread = 0;
    uint16_t read_block_epoch = 0;
    uint16_t read_warp_epoch = 0;
    uint8_t write_bytes = 0;  // one bit per byte
    uint8_t read_bytes = 0;
    uint8_t written = 0;  // bytes written by anything
    bool by_kernel = false;
    bool by_atomic = false;
    bool copy_pending = false;
    uint8_t readers = 0;         // Readers in read_run at read_block_epoch
    uint8_t read_by_others = 0;  // bytes read by other blocks of this launch
  };
  enum Readers : uint8_t { kOneThread, kOneWarp, kManyWarps };

  struct Page {
    bool is_device = false;
    std::array<Cell, kPageBytes / kCellBytes> cells;
  };

  Page& PageOf(uintptr_t address);
  bool IsInProgram(uintptr_t address) const;
  const char* AccessGlobal(uintptr_t address, size_t bytes, AccessKind kind,
                           const AccessTime& time);
  [[gnu::always_inline]] const char* AccessCell(Cell& cell, uint8_t mask, AccessKind kind,
                                                const AccessTime& time);
  [[gnu::always_inline]] const char* Conflict(const Cell& cell, uint8_t mask, AccessKind kind,
                                              const AccessTime& time) const;
  [[gnu::always_inline]] void NoteRead(Cell& cell, uint8_t mask, const AccessTime& time) const;
  [[gnu::always_inline]] void NoteWrite(Cell& cell, uint8_t mask, AccessKind kind,
                                        const AccessTime& time) const;
  template <typename Visit>
  void ForEachCell(uintptr_t address, size_t bytes, const Visit& visit);

  bool host_memory_too_ = true;
  std::unordered_map<uintptr_t, std::unique_ptr<Page>> pages_;
  struct Recent {
    uintptr_t number = ~uintptr_t{0};
    Page* page = nullptr;
  };
  std::array<Recent, 64> recent_;  // recently used entries of pages_
  uint32_t run_ = 0;
  uint32_t first_run_ = 0;  // first run of the launch
  uint32_t ended_run_ = 0;  // last run sure to have ended when the next kernel begins
  uintptr_t shared_begin_ = 0;
  uintptr_t shared_end_ = 0;
  std::vector<Cell> shared_;
};

}  // namespace bulkhead::emulator
