// EmulatedCudaDriver: a CUDA device in host memory, for tests: kernels run under the block emulator
// (block.h), memory is a range of host addresses with a budget, and work runs either at once or as
// late as the interface allows (when something waits for it). Device addresses are host addresses,
// so tests may read them once the queue is done, unless the memory is guarded.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "memory/cuda_driver.h"
#include "memory/peer_driver.h"
#include "tests/support/emulator/block.h"

namespace bulkhead::emulator {

struct DeviceOptions {
  int64_t total_bytes = int64_t{1} << 30;
  int64_t map_granule_bytes = int64_t{64} << 10;
  int64_t max_shared_bytes = 227 << 10;
  int num_sms = 4;
  int capability_major = 8;
  bool host_memory_too = false;  // copies may use host memory as device memory
  bool guarded = false;          // the host faults on access to device memory
  bool late = false;             // work runs when waited for, else when enqueued
  Schedule schedule = Schedule::kAscending;
  bool peer_access = true;                           // to memory of other devices
  std::map<std::string, int>* bank_turns = nullptr;  // see Block::set_bank_turns()
  std::string idle_kernels = "-";                    // kernels with this name prefix do nothing
};

class EmulatedCudaDriver final : public CudaDriver, public PeerDriver {
 public:
  explicit EmulatedCudaDriver(const DeviceOptions& options);
  ~EmulatedCudaDriver() override;  // a bug while anything is mapped, reserved or pinned

  const CudaProperties& properties() const override { return properties_; }
  absl::StatusOr<CudaMemory> Memory() override;
  absl::StatusOr<std::byte*> Reserve(int64_t bytes) override;
  absl::Status Map(std::byte* at, int64_t bytes) override;
  void Unmap(std::byte* at, int64_t bytes) override;
  void ReleaseRange(std::byte* at, int64_t bytes) override;
  absl::StatusOr<std::byte*> AllocateHost(int64_t bytes) override;
  void FreeHost(std::byte* memory) override;
  absl::StatusOr<std::byte*> AllocateShared(int64_t bytes) override;
  void FreeShared(std::byte* memory) override;
  absl::StatusOr<std::string> HandleOf(std::byte* memory) override;
  absl::StatusOr<std::byte*> OpenShared(absl::string_view handle) override;
  void CloseShared(std::byte* memory) override;
  // Once any kernel was loaded explicitly, only loaded kernels may be launched.
  void Load(const CudaKernel& kernel) override { loaded_.insert(kernel.function); }
  void Launch(const CudaKernel& kernel, const LaunchShape& shape, const void* parameters) override;
  void CopyToDevice(const void* host, std::byte* device, int64_t bytes) override;
  void CopyToHost(const std::byte* device, void* host, int64_t bytes) override;
  void Copy(const std::byte* from, std::byte* to, int64_t bytes) override;
  void CopyRows(const std::byte* from, int64_t from_stride_bytes, std::byte* to,
                int64_t to_stride_bytes, int64_t bytes, int64_t rows) override;
  void Fill(std::byte* device, std::byte value, int64_t bytes) override;
  absl::Status Synchronize() override;
  void ReportFault(absl::Status fault) override { Fail(std::string(fault.message())); }
  void* native_stream() override { return this; }  // for libraries made for tests
  CudaEvent NewEvent() override;
  void Record(CudaEvent event) override;
  bool Query(CudaEvent event) override;
  absl::Status HostWait(CudaEvent event) override;
  void BeginCapture() override;
  absl::StatusOr<CudaGraph> EndCapture() override;
  void LaunchGraph(CudaGraph graph) override;
  void FreeGraph(CudaGraph graph) override;

  // ---- for tests
  using Work = std::function<absl::Status()>;
  struct Range {
    const void* begin = nullptr;
    int64_t bytes = 0;
    bool written = true;
  };
  // Kernels of a library, enqueued like any others; `uses` must be device memory, otherwise a
  // fault. They may let the next kernel begin: it must not read their output before it has waited.
  // `early`: a kernel that starts while the previous one runs, without waiting for its end: in a
  // late queue, or a graph, it overtakes a kernel at the end.
  void EnqueueForLibrary(const std::vector<Range>& uses, Work work, bool early = false);
  // Work that never ends: an event after it never completes, and waiting for it is a fault.
  void EnqueueEndless() { endless_ = std::min(endless_, ++enqueued_); }
  void set_schedule(Schedule schedule) { options_.schedule = schedule; }
  // Sets the device memory used by other processes from now on.
  void set_others_bytes(int64_t bytes) { others_bytes_ = bytes; }
  // Number of kernels run so far.
  int64_t launches() const { return launches_; }
  // Number of graph launches so far, and number of graphs not yet freed.
  int64_t graph_launches() const { return graph_launches_; }
  int64_t live_graphs() const { return live_graphs_; }
  // Bytes of pinned host memory.
  int64_t pinned_bytes() const;
  // Copies from and to pageable host memory: a GPU's stream would wait for them, and a call that
  // copies to it waits for the stream, as here.
  int64_t pageable_copies() const { return pageable_copies_; }
  // Number of copies to and within the device's memory so far: recorded copies count once, and the
  // rows of one call count as one.
  int64_t copies_to_device() const { return copies_to_device_; }

 private:
  struct Item {
    int64_t place = 0;  // position in the queue
    Work work;
    bool lets_next_begin = false;  // a kernel: the next one may start while it runs
  };

  void Enqueue(Work work, bool lets_next_begin = false);
  void RunUpTo(int64_t place);
  void WaitUpTo(int64_t place);
  void CheckMapped(const std::byte* at, int64_t bytes, const char* what);
  bool IsMapped(const std::byte* at, int64_t bytes) const;
  bool IsPinned(const void* at, int64_t bytes) const;
  void CheckPinned(const void* host, int64_t bytes, const char* what);
  void Fail(const std::string& why);
  void Guard(bool closed);

  DeviceOptions options_;
  CudaProperties properties_;
  Block block_;
  std::map<std::byte*, int64_t> reserved_;
  std::map<std::byte*, int64_t> mapped_;
  std::map<std::byte*, int64_t> pinned_;
  std::map<std::byte*, int64_t> shared_;  // shared with other devices, never guarded
  std::set<std::byte*> opened_;
  std::atomic<int64_t> mapped_bytes_ = 0;
  std::atomic<int64_t> others_bytes_ = 0;
  std::set<const void*> loaded_;
  int64_t launches_ = 0;
  int64_t graph_launches_ = 0;
  int64_t live_graphs_ = 0;
  int64_t pageable_copies_ = 0;
  int64_t copies_to_device_ = 0;
  std::vector<Item> queue_;                                // not yet run; in order
  int64_t enqueued_ = 0;                                   // positions assigned
  int64_t endless_ = std::numeric_limits<int64_t>::max();  // position that is never passed
  std::vector<int64_t> events_;                            // the position each was recorded at
  bool capturing_ = false;
  std::vector<Item> captured_;
  std::vector<std::shared_ptr<const std::vector<Item>>> graphs_;
  absl::Status fault_;  // the first fault; final
};

}  // namespace bulkhead::emulator
