#include "tests/support/emulator/shadow_memory.h"

#include <algorithm>

#include "base/check.h"

// Defined by the linker: begin and end of this program's own code and data.
extern "C" const char __executable_start[];  // NOLINT(bugprone-reserved-identifier)
extern "C" const char end[];

namespace bulkhead::emulator {
namespace {

uintptr_t AddressOf(const void* at) { return reinterpret_cast<uintptr_t>(at); }

bool IsWrite(AccessKind kind) { return kind != AccessKind::kRead && kind != AccessKind::kReadTile; }

bool SameWarp(int a, int b) { return a / 32 == b / 32; }

}  // namespace

ShadowMemory::Page& ShadowMemory::PageOf(uintptr_t address) {
  const uintptr_t number = address / kPageBytes;
  Recent& recent = recent_[number % recent_.size()];
  if (recent.number == number) return *recent.page;
  std::unique_ptr<Page>& page = pages_[number];
  if (page == nullptr) {
    page = std::make_unique<Page>();
    for (Cell& cell : page->cells) cell.written = 0xF;
  }
  recent = {number, page.get()};
  return *page;
}

void ShadowMemory::Map(const std::byte* at, int64_t bytes) {
  BH_CHECK(AddressOf(at) % kPageBytes == 0 && bytes % kPageBytes == 0);
  Unmap(at, bytes);
  for (int64_t i = 0; i < bytes; i += kPageBytes) {
    std::unique_ptr<Page>& page = pages_[(AddressOf(at) + i) / kPageBytes];
    page = std::make_unique<Page>();
    page->is_device = true;
  }
}

void ShadowMemory::Unmap(const std::byte* at, int64_t bytes) {
  for (int64_t i = 0; i < bytes; i += kPageBytes) pages_.erase((AddressOf(at) + i) / kPageBytes);
  recent_ = {};
}

template <typename Visit>
void ShadowMemory::ForEachCell(uintptr_t address, size_t bytes, const Visit& visit) {
  const uintptr_t last = address + bytes;
  if (address % kCellBytes == 0 && bytes % kCellBytes == 0) {  // most often
    for (; address < last; address += kCellBytes) visit(address, 0xF);
    return;
  }
  while (address < last) {
    const uintptr_t cell_begin = address / kCellBytes * kCellBytes;
    const uintptr_t part_end = std::min(last, cell_begin + kCellBytes);
    const auto mask =
        static_cast<uint8_t>(((1U << (part_end - address)) - 1) << (address - cell_begin));
    visit(cell_begin, mask);
    address = part_end;
  }
}

void ShadowMemory::WriteFromOutside(const std::byte* at, int64_t bytes, bool by_kernel) {
  if (by_kernel) ++run_;
  ForEachCell(AddressOf(at), bytes, [&](uintptr_t address, uint8_t mask) {
    Cell& cell = PageOf(address).cells[address % kPageBytes / kCellBytes];
    cell.written |= mask;
    cell.by_kernel = by_kernel;
    if (by_kernel) cell.write_run = run_;
  });
}

void ShadowMemory::CopyState(const std::byte* from, const std::byte* to, int64_t bytes) {
  if ((AddressOf(from) - AddressOf(to)) % kCellBytes != 0) return WriteFromOutside(to, bytes);
  ForEachCell(AddressOf(from), bytes, [&](uintptr_t address, uint8_t mask) {
    const Cell source = PageOf(address).cells[address % kPageBytes / kCellBytes];
    const uintptr_t target = address - AddressOf(from) + AddressOf(to);
    Cell& cell = PageOf(target).cells[target % kPageBytes / kCellBytes];
    cell.written = static_cast<uint8_t>((cell.written & ~mask) | (source.written & mask));
    cell.by_kernel = false;
  });
}

inline const char* ShadowMemory::Conflict(const Cell& cell, uint8_t mask, AccessKind kind,
                                          const AccessTime& time) const {
  if (kind == AccessKind::kCopyEnd) return nullptr;
  const bool was_written = cell.write_run >= first_run_ && (cell.write_bytes & mask) != 0;
  if (was_written && cell.write_run != run_) return "it races with a write of another block";
  if (was_written && cell.write_thread != time.thread &&
      !(cell.by_atomic && kind == AccessKind::kAtomic) &&
      (SameWarp(cell.write_thread, time.thread)
           ? cell.write_warp_epoch == time.warp_epoch && cell.write_block_epoch == time.block_epoch
           : cell.write_block_epoch == time.block_epoch)) {
    return "it races with a write of another thread";
  }
  if (!IsWrite(kind) || cell.read_run < first_run_) return nullptr;
  const bool was_read = (cell.read_bytes & mask) != 0;
  if ((cell.read_by_others & mask) != 0 || (was_read && cell.read_run != run_)) {
    return "it races with a read of another block";
  }
  if (!was_read) return nullptr;
  if (cell.read_block_epoch != time.block_epoch) return nullptr;
  const bool ordered = (cell.readers == kOneThread && cell.read_thread == time.thread) ||
                       (cell.readers != kManyWarps && SameWarp(cell.read_thread, time.thread) &&
                        cell.read_warp_epoch != time.warp_epoch);
  return ordered ? nullptr : "it races with a read of another thread";
}

// With several readers only bytes read by all are kept; a warp's older reads are dropped after its
// __syncwarp, and so are reads of other bytes: a race may be missed, but none is invented.
inline void ShadowMemory::NoteRead(Cell& cell, uint8_t mask, const AccessTime& time) const {
  if (cell.read_run < first_run_) {
    cell.read_by_others = 0;
  } else if (cell.read_run != run_) {
    cell.read_by_others |= cell.read_bytes;
  }
  const auto thread = static_cast<uint16_t>(time.thread);
  const bool same_epoch = cell.read_run == run_ && cell.read_block_epoch == time.block_epoch;
  if (same_epoch && cell.readers == kOneThread && cell.read_thread == thread) {
    cell.read_bytes |= mask;
  } else if (!same_epoch || (cell.read_bytes & mask) == 0 ||
             (SameWarp(cell.read_thread, thread) && cell.readers != kManyWarps &&
              cell.read_warp_epoch != time.warp_epoch)) {
    cell.readers = kOneThread;
    cell.read_bytes = mask;
  } else {
    if (!SameWarp(cell.read_thread, thread)) {
      cell.readers = kManyWarps;
    } else if (cell.readers == kOneThread) {
      cell.readers = kOneWarp;
    }
    cell.read_bytes &= mask;
  }
  cell.read_run = run_;
  cell.read_thread = thread;
  cell.read_block_epoch = time.block_epoch;
  cell.read_warp_epoch = time.warp_epoch;
}

inline void ShadowMemory::NoteWrite(Cell& cell, uint8_t mask, AccessKind kind,
                                    const AccessTime& time) const {
  const bool same = cell.write_run == run_ && cell.write_thread == time.thread &&
                    cell.write_block_epoch == time.block_epoch &&
                    cell.write_warp_epoch == time.warp_epoch;
  cell.write_run = run_;
  cell.write_thread = static_cast<uint16_t>(time.thread);
  cell.write_block_epoch = time.block_epoch;
  cell.write_warp_epoch = time.warp_epoch;
  cell.write_bytes = static_cast<uint8_t>(same ? cell.write_bytes | mask : mask);
  cell.by_kernel = true;
  cell.by_atomic = kind == AccessKind::kAtomic;
  cell.copy_pending = kind == AccessKind::kCopyBegin;
  if (kind != AccessKind::kCopyBegin) cell.written |= mask;
}

inline const char* ShadowMemory::AccessCell(Cell& cell, uint8_t mask, AccessKind kind,
                                            const AccessTime& time) {
  if (cell.copy_pending && kind != AccessKind::kCopyEnd) {
    return "at what a copy that was not waited for may be writing";
  }
  if (const char* wrong = Conflict(cell, mask, kind, time); wrong != nullptr) return wrong;
  if (!IsWrite(kind)) {
    if (kind == AccessKind::kRead && (cell.written & mask) != mask)
      return "a read of what nothing has written";
    NoteRead(cell, mask, time);
  } else {
    NoteWrite(cell, mask, kind, time);
  }
  return nullptr;
}

void ShadowMemory::BeginBlock(const std::byte* shared, int64_t shared_bytes) {
  ++run_;
  shared_begin_ = AddressOf(shared);
  shared_end_ = shared_begin_ + shared_bytes;
  shared_.resize(std::max(shared_.size(), static_cast<size_t>(shared_bytes / kCellBytes + 1)));
}

const char* ShadowMemory::Access(const void* address, size_t bytes, AccessKind kind,
                                 const AccessTime& time) {
  const uintptr_t at = AddressOf(address);
  if (at < shared_begin_ || at >= shared_end_) return AccessGlobal(at, bytes, kind, time);
  if (at + bytes > shared_end_) return "beyond the end of shared memory";
  const char* wrong = nullptr;
  ForEachCell(
      at, bytes, [&](uintptr_t cell_at, uint8_t mask) __attribute__((always_inline)) {
        Cell& cell = shared_[(cell_at - shared_begin_) / kCellBytes];
        if (cell.write_run != run_) cell = {.write_run = run_, .write_thread = UINT16_MAX};
        if (wrong == nullptr) wrong = AccessCell(cell, mask, kind, time);
      });
  return wrong;
}

bool ShadowMemory::IsInProgram(uintptr_t address) const {
  return address >= AddressOf(__executable_start) && address < AddressOf(end);
}

const char* ShadowMemory::AccessGlobal(uintptr_t address, size_t bytes, AccessKind kind,
                                       const AccessTime& time) {
  const char* wrong = nullptr;
  ForEachCell(
      address, bytes, [&](uintptr_t cell_at, uint8_t mask) __attribute__((always_inline)) {
        if (wrong != nullptr) return;
        Page& page = PageOf(cell_at);
        Cell& cell = page.cells[cell_at % kPageBytes / kCellBytes];
        if (!page.is_device && !host_memory_too_) {
          if (IsWrite(kind)) wrong = "a write to what is neither shared nor device memory";
          if (!IsWrite(kind) && !IsInProgram(cell_at)) {
            wrong = "a read of what is neither shared nor device memory";
          }
          return;
        }
        if (!time.awaited_previous) {
          if (IsWrite(kind)) {
            wrong = "a write before it has waited for the kernel before";
          } else if (page.is_device && cell.by_kernel && cell.write_run > ended_run_) {
            wrong =
                "a read of what a kernel has written, before it has waited for the kernel before";
          }
        }
        if (wrong == nullptr) wrong = AccessCell(cell, mask, kind, time);
      });
  return wrong;
}

}  // namespace bulkhead::emulator
