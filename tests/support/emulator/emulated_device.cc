#include "tests/support/emulator/emulated_device.h"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace bulkhead::emulator {
namespace {

constexpr int kUnwritten = 0xFF;  // a NaN in every format

}  // namespace

EmulatedCudaDriver::EmulatedCudaDriver(const DeviceOptions& options) : options_(options) {
  properties_.name = "emulated device";
  static std::atomic<int> made = 0;
  properties_.uuid = absl::StrCat("GPU-emulated-", made++);
  properties_.capability_major = options.capability_major;
  properties_.num_sms = options.num_sms;
  properties_.total_bytes = options.total_bytes;
  properties_.max_shared_bytes = options.max_shared_bytes;
  properties_.map_granule_bytes = options.map_granule_bytes;
  block_.memory().set_host_memory_too(options.host_memory_too);
  block_.set_bank_turns(options.bank_turns);
}

EmulatedCudaDriver::~EmulatedCudaDriver() {
  BH_CHECK(mapped_.empty() && reserved_.empty() && pinned_.empty());
  BH_CHECK(shared_.empty() && opened_.empty());
}

absl::StatusOr<CudaMemory> EmulatedCudaDriver::Memory() {
  return CudaMemory{options_.total_bytes - mapped_bytes_ - others_bytes_, options_.total_bytes};
}

absl::StatusOr<std::byte*> EmulatedCudaDriver::Reserve(int64_t bytes) {
  const int64_t granule = options_.map_granule_bytes;
  BH_CHECK(bytes > 0 && bytes % granule == 0);
  void* const all =
      mmap(nullptr, bytes + granule, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (all == MAP_FAILED) return absl::ResourceExhaustedError("no addresses left");
  // Aligned to a granule: unmaps the ranges before and after.
  auto* const base = static_cast<std::byte*>(all);
  const int64_t before = (granule - reinterpret_cast<intptr_t>(base) % granule) % granule;
  if (before > 0) munmap(base, before);
  if (granule > before) munmap(base + before + bytes, granule - before);
  reserved_[base + before] = bytes;
  return base + before;
}

absl::Status EmulatedCudaDriver::Map(std::byte* at, int64_t bytes) {
  const int64_t granule = options_.map_granule_bytes;
  BH_CHECK(bytes > 0 && bytes % granule == 0 && reinterpret_cast<intptr_t>(at) % granule == 0);
  auto range = reserved_.upper_bound(at);
  BH_CHECK(range != reserved_.begin());
  --range;
  BH_CHECK(at + bytes <= range->first + range->second);
  const auto next = mapped_.lower_bound(at);
  BH_CHECK(next == mapped_.end() || at + bytes <= next->first);
  if (next != mapped_.begin()) {
    const auto before = std::prev(next);
    BH_CHECK(before->first + before->second <= at);
  }
  const int64_t left = options_.total_bytes - mapped_bytes_ - others_bytes_;
  if (bytes > left) {
    return absl::ResourceExhaustedError(
        absl::StrCat(bytes, " bytes requested, ", left, " left on the device"));
  }
  if (mprotect(at, bytes, PROT_READ | PROT_WRITE) != 0) {
    return absl::ResourceExhaustedError("the host has no memory left");
  }
  std::memset(at, kUnwritten, bytes);
  if (options_.guarded) BH_CHECK(mprotect(at, bytes, PROT_NONE) == 0);
  block_.memory().Map(at, bytes);
  mapped_[at] = bytes;
  mapped_bytes_ += bytes;
  return absl::OkStatus();
}

void EmulatedCudaDriver::Unmap(std::byte* at, int64_t bytes) {
  const auto mapping = mapped_.find(at);
  BH_CHECK(mapping != mapped_.end() && mapping->second == bytes);
  madvise(at, bytes, MADV_DONTNEED);
  BH_CHECK(mprotect(at, bytes, PROT_NONE) == 0);
  block_.memory().Unmap(at, bytes);
  mapped_.erase(mapping);
  mapped_bytes_ -= bytes;
}

void EmulatedCudaDriver::ReleaseRange(std::byte* at, int64_t bytes) {
  const auto range = reserved_.find(at);
  BH_CHECK(range != reserved_.end() && range->second == bytes);
  const auto mapping = mapped_.lower_bound(at);
  BH_CHECK(mapping == mapped_.end() || mapping->first >= at + bytes);
  munmap(at, bytes);
  reserved_.erase(range);
}

absl::StatusOr<std::byte*> EmulatedCudaDriver::AllocateHost(int64_t bytes) {
  auto* const memory = static_cast<std::byte*>(std::calloc(bytes, 1));
  if (memory == nullptr) return absl::ResourceExhaustedError("the host has no memory left");
  pinned_[memory] = bytes;
  return memory;
}

int64_t EmulatedCudaDriver::pinned_bytes() const {
  int64_t sum = 0;
  for (const auto& [memory, bytes] : pinned_) sum += bytes;
  return sum;
}

void EmulatedCudaDriver::FreeHost(std::byte* memory) {
  BH_CHECK(pinned_.erase(memory) == 1);
  std::free(memory);
}

absl::StatusOr<std::byte*> EmulatedCudaDriver::AllocateShared(int64_t bytes) {
  BH_CHECK(bytes > 0 && bytes % (int64_t{1} << 20) == 0);
  const int64_t left = options_.total_bytes - mapped_bytes_ - others_bytes_;
  void* memory = nullptr;
  if (bytes > left || posix_memalign(&memory, 4096, bytes) != 0) {
    return absl::ResourceExhaustedError(
        absl::StrCat(bytes, " bytes requested, ", left, " left on the device"));
  }
  auto* const at = static_cast<std::byte*>(memory);
  std::memset(at, kUnwritten, bytes);
  block_.memory().Map(at, bytes);
  PeerMemory::Get().Add(at, bytes, block_.peer_clock());
  shared_[at] = bytes;
  mapped_bytes_ += bytes;
  return at;
}

void EmulatedCudaDriver::FreeShared(std::byte* memory) {
  const auto shared = shared_.find(memory);
  BH_CHECK(shared != shared_.end());
  PeerMemory::Get().Remove(memory);
  block_.memory().Unmap(memory, shared->second);
  mapped_bytes_ -= shared->second;
  shared_.erase(shared);
  std::free(memory);
}

// All devices are in one process: the handle is an address.
absl::StatusOr<std::string> EmulatedCudaDriver::HandleOf(std::byte* memory) {
  BH_CHECK(shared_.contains(memory));
  return std::string(reinterpret_cast<const char*>(&memory), sizeof(memory));
}

absl::StatusOr<std::byte*> EmulatedCudaDriver::OpenShared(absl::string_view handle) {
  std::byte* memory = nullptr;
  BH_CHECK(handle.size() == sizeof(memory));
  std::memcpy(&memory, handle.data(), sizeof(memory));
  if (!options_.peer_access) return absl::UnavailableError("no access from device to device");
  BH_CHECK(PeerMemory::Get().Has(memory) && opened_.insert(memory).second);
  return memory;
}

void EmulatedCudaDriver::CloseShared(std::byte* memory) { BH_CHECK(opened_.erase(memory) == 1); }

bool EmulatedCudaDriver::IsMapped(const std::byte* at, int64_t bytes) const {
  for (const auto& [begin, size] : shared_) {
    if (at >= begin && at + bytes <= begin + size) return true;
  }
  // Adjacent mappings are one piece of memory.
  for (const std::byte* const end = at + bytes; at < end;) {
    auto mapping = mapped_.upper_bound(const_cast<std::byte*>(at));
    if (mapping == mapped_.begin()) return false;
    --mapping;
    if (at >= mapping->first + mapping->second) return false;
    at = mapping->first + mapping->second;
  }
  return true;
}

bool EmulatedCudaDriver::IsPinned(const void* at, int64_t bytes) const {
  const auto* const begin = static_cast<const std::byte*>(at);
  auto range = pinned_.upper_bound(const_cast<std::byte*>(begin));
  if (range == pinned_.begin()) return false;
  --range;
  return begin + bytes <= range->first + range->second;
}

void EmulatedCudaDriver::CheckPinned(const void* host, int64_t bytes, const char* what) {
  if (IsPinned(host, bytes)) return;
  ++pageable_copies_;
  if (capturing_) Fail(what);
}

void EmulatedCudaDriver::Fail(const std::string& why) {
  if (fault_.ok()) fault_ = absl::InternalError(why);
}

void EmulatedCudaDriver::Enqueue(Work work, bool lets_next_begin) {
  if (capturing_) {
    captured_.push_back({0, std::move(work), lets_next_begin});
    return;
  }
  queue_.push_back({++enqueued_, std::move(work), lets_next_begin});
  if (!options_.late) RunUpTo(enqueued_);
}

void EmulatedCudaDriver::WaitUpTo(int64_t place) {
  if (place >= endless_) Fail("a call waits for work that never ends");
  RunUpTo(place);
}

void EmulatedCudaDriver::RunUpTo(int64_t place) {
  place = std::min(place, endless_ - 1);
  if (queue_.empty() || queue_.front().place > place) return;
  if (options_.guarded) Guard(false);
  size_t done = 0;
  for (; done < queue_.size() && queue_[done].place <= place; ++done) {
    if (!fault_.ok()) continue;  // the device is lost
    if (absl::Status status = queue_[done].work(); !status.ok()) fault_ = status;
  }
  if (options_.guarded) Guard(true);
  queue_.erase(queue_.begin(), queue_.begin() + static_cast<std::ptrdiff_t>(done));
}

void EmulatedCudaDriver::Guard(bool closed) {
  for (const auto& [at, bytes] : mapped_) {
    BH_CHECK(mprotect(at, bytes, closed ? PROT_NONE : PROT_READ | PROT_WRITE) == 0);
  }
}

void EmulatedCudaDriver::CheckMapped(const std::byte* at, int64_t bytes, const char* what) {
  if (!options_.host_memory_too && !IsMapped(at, bytes))
    Fail(absl::StrCat(what, " of addresses without device memory"));
}

void EmulatedCudaDriver::Launch(const CudaKernel& kernel, const LaunchShape& shape,
                                const void* parameters) {
  BH_CHECK(!shape.empty());
  if (shape.shared_bytes > options_.max_shared_bytes) {
    return Fail(absl::StrCat("kernel ", kernel.name, ": ", shape.shared_bytes,
                             " bytes of shared memory; a block may have ",
                             options_.max_shared_bytes));
  }
  if (!loaded_.empty() && !loaded_.contains(kernel.function)) {
    return Fail(absl::StrCat("kernel ", kernel.name, " is launched and was not loaded before"));
  }
  if (kernel.only_capability != 0 && kernel.only_capability != properties_.capability()) {
    return Fail(absl::StrCat("kernel ", kernel.name, ": for devices of another capability"));
  }
  if (absl::StartsWith(kernel.name, options_.idle_kernels)) return;
  const auto* const bytes = static_cast<const std::byte*>(parameters);
  Enqueue(
      [this, kernel, shape, copy = std::vector<std::byte>(bytes, bytes + kernel.parameter_bytes)] {
        ++launches_;
        return block_.Launch(kernel, shape, copy.data(), options_.schedule,
                             static_cast<uint32_t>(launches_));
      },
      /*lets_next_begin=*/true);
}

void EmulatedCudaDriver::CopyToDevice(const void* host, std::byte* device, int64_t bytes) {
  CheckMapped(device, bytes, "CopyToDevice");
  ++copies_to_device_;
  CheckPinned(host, bytes, "a graph copies from memory that is not pinned");
  Enqueue([=, this] {
    block_.memory().WriteFromOutside(device, bytes);
    if (bytes > 0) block_.memory().EndKernels();
    return std::memcpy(device, host, bytes), absl::OkStatus();
  });
}

void EmulatedCudaDriver::CopyToHost(const std::byte* device, void* host, int64_t bytes) {
  CheckMapped(device, bytes, "CopyToHost");
  CheckPinned(host, bytes, "a graph copies to memory that is not pinned");
  if (!capturing_ && !IsPinned(host, bytes)) WaitUpTo(enqueued_);
  Enqueue([=] { return std::memcpy(host, device, bytes), absl::OkStatus(); });
}

void EmulatedCudaDriver::Copy(const std::byte* from, std::byte* to, int64_t bytes) {
  CheckMapped(from, bytes, "Copy");
  CheckMapped(to, bytes, "Copy");
  ++copies_to_device_;
  if (from < to + bytes && to < from + bytes && bytes > 0) Fail("Copy of ranges that overlap");
  Enqueue([=, this] {
    block_.memory().CopyState(from, to, bytes);
    return std::memmove(to, from, bytes), absl::OkStatus();
  });
}

void EmulatedCudaDriver::CopyRows(const std::byte* from, int64_t from_stride_bytes, std::byte* to,
                                  int64_t to_stride_bytes, int64_t bytes, int64_t rows) {
  if (bytes > std::min(from_stride_bytes, to_stride_bytes)) Fail("CopyRows of rows that overlap");
  const int64_t before = copies_to_device_;
  CudaDriver::CopyRows(from, from_stride_bytes, to, to_stride_bytes, bytes, rows);
  copies_to_device_ = before + 1;
}

void EmulatedCudaDriver::Fill(std::byte* device, std::byte value, int64_t bytes) {
  CheckMapped(device, bytes, "Fill");
  Enqueue([=, this] {
    block_.memory().WriteFromOutside(device, bytes);
    std::memset(device, std::to_integer<int>(value), bytes);
    return absl::OkStatus();
  });
}

void EmulatedCudaDriver::EnqueueForLibrary(const std::vector<Range>& uses, Work work, bool early) {
  for (const Range& range : uses) {
    CheckMapped(static_cast<const std::byte*>(range.begin), range.bytes, "use by a library");
  }
  std::vector<Item>& before = capturing_ ? captured_ : queue_;
  const bool overtakes = early && !before.empty() && before.back().lets_next_begin;
  work = [this, uses, run = std::move(work)] {
    for (const Range& range : uses) {
      if (!range.written) continue;
      block_.memory().WriteFromOutside(static_cast<const std::byte*>(range.begin), range.bytes,
                                       /*by_kernel=*/true);
    }
    return run();
  };
  if (overtakes) std::swap(work, before.back().work);
  Enqueue(std::move(work), overtakes);
}

absl::Status EmulatedCudaDriver::Synchronize() {
  BH_CHECK(!capturing_);
  WaitUpTo(enqueued_);
  return fault_;
}

CudaEvent EmulatedCudaDriver::NewEvent() {
  events_.push_back(0);
  return static_cast<CudaEvent>(events_.size() - 1);
}

void EmulatedCudaDriver::Record(CudaEvent event) {
  BH_CHECK(!capturing_);
  events_[static_cast<int>(event)] = enqueued_;
}

// Every query advances a late queue by one item, so that polling terminates. True if lost.
bool EmulatedCudaDriver::Query(CudaEvent event) {
  BH_CHECK(!capturing_);
  const int64_t place = events_[static_cast<int>(event)];
  if (!fault_.ok()) return true;
  const bool passed = place < endless_ && (queue_.empty() || queue_.front().place > place);
  if (!passed && !queue_.empty()) RunUpTo(queue_.front().place);
  return passed;
}

absl::Status EmulatedCudaDriver::HostWait(CudaEvent event) {
  BH_CHECK(!capturing_);
  WaitUpTo(events_[static_cast<int>(event)]);
  return fault_;
}

void EmulatedCudaDriver::BeginCapture() {
  BH_CHECK(!capturing_);
  capturing_ = true;
}

absl::StatusOr<CudaGraph> EmulatedCudaDriver::EndCapture() {
  BH_CHECK(capturing_);
  capturing_ = false;
  graphs_.push_back(std::make_shared<const std::vector<Item>>(std::exchange(captured_, {})));
  if (!fault_.ok()) return fault_;
  ++live_graphs_;
  return static_cast<CudaGraph>(graphs_.size() - 1);
}

void EmulatedCudaDriver::FreeGraph(CudaGraph graph) {
  std::shared_ptr<const std::vector<Item>>& works = graphs_[static_cast<int>(graph)];
  BH_CHECK(works.use_count() == 1);  // otherwise it was freed before, or is still to run
  works.reset();
  --live_graphs_;
}

void EmulatedCudaDriver::LaunchGraph(CudaGraph graph) {
  BH_CHECK(graphs_[static_cast<int>(graph)] != nullptr);
  ++graph_launches_;
  Enqueue([works = graphs_[static_cast<int>(graph)]] {
    for (const Item& item : *works) {
      if (absl::Status status = item.work(); !status.ok()) return status;
    }
    return absl::OkStatus();
  });
}

}  // namespace bulkhead::emulator
