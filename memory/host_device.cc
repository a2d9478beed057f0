#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <new>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/bytes.h"
#include "base/check.h"
#include "base/host_cores.h"
#include "base/log.h"
#include "base/status.h"
#include "memory/device.h"

namespace bulkhead {
namespace {

constexpr int64_t kHugePageBytes = int64_t{2} << 20;
// The kernel zeroes new pages at a few GB/s per thread.
constexpr int64_t kCommitBytesPerThread = int64_t{64} << 20;
constexpr int64_t kMaxCommitThreads = 16;
constexpr int64_t kCommitStepBytes = 16 * kHugePageBytes;
constexpr absl::Duration kCommitReportInterval = absl::Seconds(2);

// Progress of backing a buffer with memory. One thread reports.
struct CommitProgress {
  const int64_t total_bytes;
  std::atomic<int64_t> done_bytes = 0;
  std::atomic<bool> failed = false;
  absl::Time reported = absl::Now();

  void Report() {
    if (absl::Now() - reported < kCommitReportInterval) return;
    reported = absl::Now();
    BH_LOG(kInfo) << "allocating memory: " << FormatBytes(done_bytes) << " of "
                  << FormatBytes(total_bytes);
  }
};

class HostDevice final : public Device {
 public:
  using Device::Device;
  const char* name() const override { return "cpu"; }
  bool host_memory() const override { return true; }

  absl::StatusOr<Buffer> Allocate(int64_t bytes) override {
    BH_CHECK(bytes >= 0);
    if (bytes == 0) return Buffer();
    BH_RETURN_IF_ERROR(Charge(bytes));
    void* data = mmap(nullptr, MappedBytes(bytes), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) {
      Release(bytes);
      return absl::ResourceExhaustedError(
          absl::StrCat("the system refused ", FormatBytes(bytes),
                       " of memory; ulimit -v or vm.overcommit_memory may say why"));
    }
    if (bytes >= kHugePageBytes) madvise(data, MappedBytes(bytes), MADV_HUGEPAGE);
    return Buffer(this, static_cast<std::byte*>(data), bytes);
  }

  absl::Status Commit(const Buffer& buffer) override {
    const auto bytes = static_cast<int64_t>(MappedBytes(buffer.bytes()));
    const auto cores = std::min(kMaxCommitThreads, static_cast<int64_t>(AllowedCores().size()));
    const int64_t parts = std::clamp<int64_t>(bytes / kCommitBytesPerThread, 1, cores);
    const int64_t part_bytes = (bytes / parts / kHugePageBytes + 1) * kHugePageBytes;
    CommitProgress progress{bytes};
    std::vector<std::thread> threads;
    for (int64_t at = part_bytes; at < bytes; at += part_bytes) {
      threads.emplace_back([&, at] {
        BackInSteps(buffer.data() + at, std::min(part_bytes, bytes - at), progress, [] {});
      });
    }
    BackInSteps(buffer.data(), std::min(part_bytes, bytes), progress, [&] { progress.Report(); });
    for (std::thread& thread : threads) thread.join();
    if (!progress.failed) return absl::OkStatus();
    return absl::ResourceExhaustedError(
        absl::StrCat("the system could not back ", FormatBytes(buffer.bytes()), " with memory"));
  }

  void CopyFromHost(const void* host, std::byte* device, int64_t bytes) override {
    std::memcpy(device, host, bytes);
  }
  void CopyToHost(const std::byte* device, void* host, int64_t bytes) override {
    std::memcpy(host, device, bytes);
  }
  void Copy(const std::byte* from, std::byte* to, int64_t bytes) override {
    std::memcpy(to, from, bytes);
  }
  absl::Status Synchronize() override { return absl::OkStatus(); }

 protected:
  void Free(std::byte* data, int64_t bytes) override {
    munmap(data, MappedBytes(bytes));
    Release(bytes);
  }

 private:
  static size_t MappedBytes(int64_t bytes) {
    return (static_cast<size_t>(bytes) + 4095) & ~size_t{4095};
  }
  template <typename AfterStep>
  static void BackInSteps(std::byte* data, int64_t bytes, CommitProgress& progress,
                          const AfterStep& after_step) {
    for (int64_t at = 0; at < bytes && !progress.failed; at += kCommitStepBytes) {
      const int64_t step_bytes = std::min(kCommitStepBytes, bytes - at);
      if (!Back(data + at, step_bytes)) progress.failed = true;
      progress.done_bytes += step_bytes;
      after_step();
    }
  }
  static bool Back(std::byte* data, int64_t bytes) {
    if (bytes == 0 || madvise(data, bytes, MADV_POPULATE_WRITE) == 0) return true;
    if (errno != EINVAL) return false;
    // Kernels before 5.14: touch every page.
    for (int64_t at = 0; at < bytes; at += 4096) {
      volatile std::byte* const page = data + at;
      *page = std::byte{0};
    }
    return true;
  }
};

}  // namespace

Buffer::~Buffer() {
  if (device_ != nullptr) device_->Free(data_, bytes_);
}

Device::~Device() { BH_CHECK(allocated_bytes_ == 0); }  // a buffer outlived its device

absl::Status Device::Charge(int64_t bytes) {
  const int64_t left = capacity_bytes_ - allocated_bytes_;
  if (capacity_bytes_ > 0 && bytes > left) {
    return absl::ResourceExhaustedError(absl::StrCat(FormatBytes(bytes), " requested, ",
                                                     FormatBytes(left), " left of a capacity of ",
                                                     FormatBytes(capacity_bytes_)));
  }
  allocated_bytes_ += bytes;
  return absl::OkStatus();
}

absl::Status Device::Extend(Buffer&, int64_t) {
  return absl::UnimplementedError(absl::StrCat("memory of ", name(), " does not grow"));
}

absl::StatusOr<HostBuffer> Device::AllocateHost(int64_t bytes) {
  auto* const memory = new (std::nothrow) std::byte[bytes]();
  if (memory == nullptr) {
    return absl::ResourceExhaustedError(absl::StrCat("the host has no ", bytes, " bytes left"));
  }
  return HostBuffer(memory, [](std::byte* plain) { delete[] plain; });
}

std::unique_ptr<Device> NewHostDevice(int64_t capacity_bytes) {
  return std::make_unique<HostDevice>(capacity_bytes);
}

}  // namespace bulkhead
