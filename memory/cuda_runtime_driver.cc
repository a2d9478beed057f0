#include "memory/cuda_runtime_driver.h"

#include <cuda.h>
#include <cudaTypedefs.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/check.h"
#include "base/status.h"
#include "memory/nvidia_driver.h"

namespace bulkhead {
namespace {

constexpr unsigned kRangeApi = 10020;  // the versions of the functions below
constexpr unsigned kLoadApi = 12040;
constexpr int kMinMajor = 8;                     // minimum compute capability of the kernels
constexpr int kEarlyMajor = 9;                   // minimum for programmatic dependent launch,
constexpr int kEarlyDriver = 12030;              // and the first driver that captures it in a graph
constexpr int64_t kPlainSharedBytes = 48 << 10;  // more requires an opt-in per kernel

absl::Status RuntimeStatus(cudaError_t error, const char* call) {
  if (error == cudaSuccess) return absl::OkStatus();
  const absl::StatusCode code = error == cudaErrorMemoryAllocation
                                    ? absl::StatusCode::kResourceExhausted
                                    : absl::StatusCode::kInternal;
  return absl::Status(
      code, absl::StrCat(call, ": ", cudaGetErrorName(error), ", ", cudaGetErrorString(error)));
}

absl::Status DriverStatus(CUresult result, const char* call) {
  if (result == CUDA_SUCCESS) return absl::OkStatus();
  if (result == CUDA_ERROR_OUT_OF_MEMORY) {
    return absl::ResourceExhaustedError(absl::StrCat(call, ": the device has no more memory"));
  }
  return absl::InternalError(absl::StrCat(call, ": driver error ", static_cast<int>(result)));
}

// Driver API functions without a runtime equivalent: virtual address ranges and module loading.
// Looked up at run time: a program linked to libcuda.so.1 would not start without it.
struct DriverFunctions {
  PFN_cuMemGetAllocationGranularity_v10020 granularity = nullptr;
  PFN_cuMemAddressReserve_v10020 reserve = nullptr;
  PFN_cuMemAddressFree_v10020 free_range = nullptr;
  PFN_cuMemCreate_v10020 create = nullptr;
  PFN_cuMemRelease_v10020 release = nullptr;
  PFN_cuMemMap_v10020 map = nullptr;
  PFN_cuMemSetAccess_v10020 set_access = nullptr;
  PFN_cuMemUnmap_v10020 unmap = nullptr;
  PFN_cuFuncLoad_v12040 load = nullptr;  // null: the driver is too old

  absl::Status Find() {
    const auto find = [](const char* name, auto* function,
                         unsigned version = kRangeApi) -> absl::Status {
      cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
      const cudaError_t error = cudaGetDriverEntryPointByVersion(
          name, reinterpret_cast<void**>(function), version, cudaEnableDefault, &found);
      if (error == cudaSuccess && found == cudaDriverEntryPointSuccess) return absl::OkStatus();
      return absl::UnavailableError(absl::StrCat("the CUDA driver has no ", name));
    };
    BH_RETURN_IF_ERROR(find("cuMemGetAllocationGranularity", &granularity));
    BH_RETURN_IF_ERROR(find("cuMemAddressReserve", &reserve));
    BH_RETURN_IF_ERROR(find("cuMemAddressFree", &free_range));
    BH_RETURN_IF_ERROR(find("cuMemCreate", &create));
    BH_RETURN_IF_ERROR(find("cuMemRelease", &release));
    BH_RETURN_IF_ERROR(find("cuMemMap", &map));
    BH_RETURN_IF_ERROR(find("cuMemSetAccess", &set_access));
    if (!find("cuFuncLoad", &load, kLoadApi).ok()) load = nullptr;
    return find("cuMemUnmap", &unmap);
  }
};

CUmemAllocationProp AllocationOn(int ordinal) {
  CUmemAllocationProp allocation = {};
  allocation.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  allocation.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  allocation.location.id = ordinal;
  return allocation;
}

CUdeviceptr Address(const std::byte* at) { return reinterpret_cast<CUdeviceptr>(at); }

// As written by NVML and CUDA_VISIBLE_DEVICES. For a MIG instance CUDA has it in the name.
std::string UuidOf(const cudaDeviceProp& device) {
  std::string uuid = absl::StrContains(device.name, " MIG ") ? "MIG-" : "GPU-";
  for (int i = 0; i < 16; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) uuid += '-';
    absl::StrAppendFormat(&uuid, "%02x", static_cast<unsigned char>(device.uuid.bytes[i]));
  }
  return uuid;
}

// Whether a kernel may start while the previous one runs (programmatic dependent launch).
absl::StatusOr<bool> LaunchesEarly(const cudaDeviceProp& device) {
  int driver = 0;
  BH_RETURN_IF_ERROR(RuntimeStatus(cudaDriverGetVersion(&driver), "cudaDriverGetVersion"));
  const char* const asked = std::getenv("BULKHEAD_EARLY_LAUNCH");
  const bool wanted = asked == nullptr || absl::string_view(asked) != "0";
  return wanted && device.major >= kEarlyMajor && driver >= kEarlyDriver;
}

class CudaRuntimeDriver final : public CudaDriver {
 public:
  explicit CudaRuntimeDriver(int ordinal) : ordinal_(ordinal) {}
  CudaRuntimeDriver(const CudaRuntimeDriver&) = delete;
  CudaRuntimeDriver& operator=(const CudaRuntimeDriver&) = delete;
  ~CudaRuntimeDriver() override {
    for (const cudaGraphExec_t graph : graphs_) {
      if (graph != nullptr) cudaGraphExecDestroy(graph);
    }
    for (const cudaEvent_t event : events_) cudaEventDestroy(event);
    if (stream_ != nullptr) cudaStreamDestroy(stream_);
  }

  // Creates the context: its size is the difference in free device memory.
  absl::Status Open() {
    BH_RETURN_IF_ERROR(RuntimeStatus(cudaSetDevice(ordinal_), "cudaSetDevice"));
    BH_RETURN_IF_ERROR(RuntimeStatus(cudaFree(nullptr), "creating a context"));
    cudaDeviceProp device;
    BH_RETURN_IF_ERROR(
        RuntimeStatus(cudaGetDeviceProperties(&device, ordinal_), "cudaGetDeviceProperties"));
    if (device.major < kMinMajor) {
      return absl::FailedPreconditionError(
          absl::StrCat(device.name, " has compute capability ", device.major, ".", device.minor,
                       "; at least ", kMinMajor, ".0 is needed: use --device cpu"));
    }
    BH_RETURN_IF_ERROR(driver_.Find());
    const CUmemAllocationProp allocation = AllocationOn(ordinal_);
    size_t granule = 0;
    BH_RETURN_IF_ERROR(DriverStatus(
        driver_.granularity(&granule, &allocation, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED),
        "cuMemGetAllocationGranularity"));
    properties_ = {.name = device.name,
                   .uuid = UuidOf(device),
                   .capability_major = device.major,
                   .capability_minor = device.minor,
                   .num_sms = device.multiProcessorCount,
                   .total_bytes = static_cast<int64_t>(device.totalGlobalMem),
                   .max_shared_bytes = static_cast<int64_t>(device.sharedMemPerBlockOptin),
                   .map_granule_bytes = static_cast<int64_t>(granule)};
    BH_ASSIGN_OR_RETURN(launches_early_, LaunchesEarly(device));
    return RuntimeStatus(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking),
                         "cudaStreamCreate");
  }

  const CudaProperties& properties() const override { return properties_; }
  void* native_stream() override { return stream_; }

  absl::StatusOr<CudaMemory> Memory() override {
    BH_RETURN_IF_ERROR(RuntimeStatus(cudaSetDevice(ordinal_), "cudaSetDevice"));  // for this thread
    size_t free = 0;
    size_t total = 0;
    BH_RETURN_IF_ERROR(RuntimeStatus(cudaMemGetInfo(&free, &total), "cudaMemGetInfo"));
    return CudaMemory{static_cast<int64_t>(free), static_cast<int64_t>(total)};
  }

  absl::StatusOr<std::byte*> Reserve(int64_t bytes) override {
    CUdeviceptr at = 0;
    BH_RETURN_IF_ERROR(DriverStatus(driver_.reserve(&at, static_cast<size_t>(bytes), 0, 0, 0),
                                    "cuMemAddressReserve"));
    return reinterpret_cast<std::byte*>(at);
  }

  absl::Status Map(std::byte* at, int64_t bytes) override {
    const auto size = static_cast<size_t>(bytes);
    const CUmemAllocationProp allocation = AllocationOn(ordinal_);
    CUmemGenericAllocationHandle memory = 0;
    BH_RETURN_IF_ERROR(DriverStatus(driver_.create(&memory, size, &allocation, 0), "cuMemCreate"));
    absl::Status mapped = DriverStatus(driver_.map(Address(at), size, 0, memory, 0), "cuMemMap");
    driver_.release(memory);  // kept alive by the mapping
    BH_RETURN_IF_ERROR(mapped);
    const CUmemAccessDesc access = {.location = allocation.location,
                                    .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    absl::Status usable =
        DriverStatus(driver_.set_access(Address(at), size, &access, 1), "cuMemSetAccess");
    if (!usable.ok()) Unmap(at, bytes);
    return usable;
  }

  void Unmap(std::byte* at, int64_t bytes) override {
    Note(DriverStatus(driver_.unmap(Address(at), static_cast<size_t>(bytes)), "cuMemUnmap"));
  }

  void ReleaseRange(std::byte* at, int64_t bytes) override {
    Note(DriverStatus(driver_.free_range(Address(at), static_cast<size_t>(bytes)),
                      "cuMemAddressFree"));
  }

  absl::StatusOr<std::byte*> AllocateHost(int64_t bytes) override {
    void* memory = nullptr;
    BH_RETURN_IF_ERROR(
        RuntimeStatus(cudaMallocHost(&memory, static_cast<size_t>(bytes)), "cudaMallocHost"));
    std::memset(memory, 0, static_cast<size_t>(bytes));
    return static_cast<std::byte*>(memory);
  }
  void FreeHost(std::byte* memory) override { Note(cudaFreeHost(memory), "cudaFreeHost"); }

  // Without a call for loading, querying a kernel's attributes loads it.
  void Load(const CudaKernel& kernel) override {
    cudaFuncAttributes attributes = {};
    Note(cudaFuncGetAttributes(&attributes, kernel.function), kernel.name);
    BH_CHECK(!fault_.ok() || attributes.maxThreadsPerBlock >= kernel.max_threads);
    // Kernels compiled for less do not wait for the previous kernel.
    if (attributes.ptxVersion >= 10 * kEarlyMajor) waiting_.insert(kernel.function);
    cudaFunction_t function = nullptr;
    Note(cudaGetFuncBySymbol(&function, kernel.function), kernel.name);
    if (driver_.load != nullptr && fault_.ok())
      Note(DriverStatus(driver_.load(function), "cuFuncLoad"));
  }

  void Launch(const CudaKernel& kernel, const LaunchShape& shape, const void* parameters) override {
    AllowShared(kernel, shape.shared_bytes);
    void* arguments[] = {const_cast<void*>(parameters)};
    const auto dim = [](const int(&n)[3]) {
      return dim3(static_cast<unsigned>(n[0]), static_cast<unsigned>(n[1]),
                  static_cast<unsigned>(n[2]));
    };
    cudaLaunchAttribute early = {};
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim(shape.grid);
    config.blockDim = dim(shape.block);
    config.dynamicSmemBytes = static_cast<size_t>(shape.shared_bytes);
    config.stream = stream_;
    config.attrs = &early;
    config.numAttrs = launches_early_ && waiting_.contains(kernel.function) ? 1 : 0;
    Note(cudaLaunchKernelExC(&config, kernel.function, arguments), kernel.name);
  }
  void CopyToDevice(const void* host, std::byte* device, int64_t bytes) override {
    CopyAcross(host, device, bytes);
  }
  void CopyToHost(const std::byte* device, void* host, int64_t bytes) override {
    CopyAcross(device, host, bytes);
  }
  void Copy(const std::byte* from, std::byte* to, int64_t bytes) override {
    CopyAcross(from, to, bytes);
  }
  void CopyRows(const std::byte* from, int64_t from_stride_bytes, std::byte* to,
                int64_t to_stride_bytes, int64_t bytes, int64_t rows) override {
    Note(cudaMemcpy2DAsync(to, static_cast<size_t>(to_stride_bytes), from,
                           static_cast<size_t>(from_stride_bytes), static_cast<size_t>(bytes),
                           static_cast<size_t>(rows), cudaMemcpyDeviceToDevice, stream_),
         "cudaMemcpy2DAsync");
  }
  void Fill(std::byte* device, std::byte value, int64_t bytes) override {
    Note(cudaMemsetAsync(device, std::to_integer<int>(value), static_cast<size_t>(bytes), stream_),
         "cudaMemsetAsync");
  }
  absl::Status Synchronize() override {
    Note(cudaSetDevice(ordinal_), "cudaSetDevice");
    Note(cudaStreamSynchronize(stream_), "the device's queue");
    return fault_;
  }

  void ReportFault(absl::Status fault) override { Note(std::move(fault)); }

  CudaEvent NewEvent() override {
    cudaEvent_t& event = events_.emplace_back(nullptr);
    Note(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreate");
    return static_cast<CudaEvent>(events_.size() - 1);
  }
  void Record(CudaEvent event) override {
    Note(cudaEventRecord(EventOf(event), stream_), "cudaEventRecord");
  }
  bool Query(CudaEvent event) override {
    const cudaError_t error = cudaEventQuery(EventOf(event));
    if (error != cudaErrorNotReady) Note(error, "the device's queue");
    return error != cudaErrorNotReady;
  }
  absl::Status HostWait(CudaEvent event) override {
    Note(cudaEventSynchronize(EventOf(event)), "the device's queue");
    return fault_;
  }

  void BeginCapture() override {
    Note(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal),
         "cudaStreamBeginCapture");
  }
  absl::StatusOr<CudaGraph> EndCapture() override {
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    Note(cudaStreamEndCapture(stream_, &graph), "cudaStreamEndCapture");
    if (fault_.ok()) Note(cudaGraphInstantiate(&executable, graph, 0), "cudaGraphInstantiate");
    if (graph != nullptr) cudaGraphDestroy(graph);
    // Upload now, so that memory is allocated before the first launch.
    if (fault_.ok()) Note(cudaGraphUpload(executable, stream_), "cudaGraphUpload");
    if (executable != nullptr) graphs_.push_back(executable);
    BH_RETURN_IF_ERROR(fault_);
    return static_cast<CudaGraph>(graphs_.size() - 1);
  }
  void LaunchGraph(CudaGraph graph) override {
    Note(cudaGraphLaunch(graphs_.at(static_cast<size_t>(graph)), stream_), "cudaGraphLaunch");
  }
  void FreeGraph(CudaGraph graph) override {
    Note(cudaGraphExecDestroy(std::exchange(graphs_.at(static_cast<size_t>(graph)), nullptr)),
         "cudaGraphExecDestroy");
  }

 private:
  // The first failure is the one reported, at the next wait; the device is lost after it.
  void Note(absl::Status status) {
    if (fault_.ok()) fault_ = std::move(status);
  }
  void Note(cudaError_t error, const char* what) { Note(RuntimeStatus(error, what)); }

  // Weights are copied by other threads, whose current device is 0: a call there would create a
  // context. The direction of a copy follows from the addresses.
  void CopyAcross(const void* from, void* to, int64_t bytes) {
    Note(cudaSetDevice(ordinal_), "cudaSetDevice");
    Note(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDefault, stream_),
         "cudaMemcpyAsync");
  }

  void AllowShared(const CudaKernel& kernel, int64_t bytes) {
    if (bytes <= kPlainSharedBytes) return;
    int64_t& allowed = allowed_shared_bytes_[kernel.function];
    if (bytes <= allowed) return;
    allowed = bytes;
    if (bytes > properties_.max_shared_bytes) {
      return Note(absl::FailedPreconditionError(
          absl::StrCat("kernel ", kernel.name, " wants ", bytes, " bytes of shared memory, and ",
                       properties_.name, " has ", properties_.max_shared_bytes,
                       " for a block: use --device cpu, or a GPU that has more")));
    }
    Note(cudaFuncSetAttribute(kernel.function, cudaFuncAttributeMaxDynamicSharedMemorySize,
                              static_cast<int>(bytes)),
         kernel.name);
  }

  cudaEvent_t EventOf(CudaEvent event) const { return events_.at(static_cast<size_t>(event)); }

  const int ordinal_;
  DriverFunctions driver_;
  CudaProperties properties_;
  bool launches_early_ = false;
  std::set<const void*> waiting_;  // kernels that wait for the previous one
  cudaStream_t stream_ = nullptr;
  std::vector<cudaEvent_t> events_;
  std::vector<cudaGraphExec_t> graphs_;
  std::map<const void*, int64_t> allowed_shared_bytes_;
  absl::Status fault_;
};

}  // namespace

absl::StatusOr<std::vector<CudaDeviceIdentity>> ListCudaDevices() {
  int version = 0;
  if (cudaDriverGetVersion(&version) != cudaSuccess || version == 0) {
    return absl::UnavailableError("there is no CUDA driver (libcuda.so.1) on this machine");
  }
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error == cudaErrorInsufficientDriver) return OldNvidiaDriver(version, CUDART_VERSION);
  if (error != cudaSuccess || count == 0) {
    return absl::UnavailableError(
        absl::StrCat("CUDA shows no device: ", cudaGetErrorString(error), " (driver for CUDA ",
                     version / 1000, ".", version % 1000 / 10,
                     "; CUDA_VISIBLE_DEVICES and, on a GPU in MIG mode, an instance to use)"));
  }
  std::vector<CudaDeviceIdentity> devices;
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    cudaDeviceProp device;
    char pci_bus_id[32] = {};
    BH_RETURN_IF_ERROR(
        RuntimeStatus(cudaGetDeviceProperties(&device, ordinal), "cudaGetDeviceProperties"));
    BH_RETURN_IF_ERROR(RuntimeStatus(cudaDeviceGetPCIBusId(pci_bus_id, sizeof(pci_bus_id), ordinal),
                                     "cudaDeviceGetPCIBusId"));
    devices.push_back({device.name, UuidOf(device), pci_bus_id});
  }
  return devices;
}

absl::StatusOr<std::unique_ptr<CudaDriver>> NewCudaRuntimeDriver(int ordinal) {
  BH_ASSIGN_OR_RETURN(const std::vector<CudaDeviceIdentity> devices, ListCudaDevices());
  if (ordinal < 0 || ordinal >= static_cast<int>(devices.size())) {
    return absl::UnavailableError(absl::StrCat("there is no CUDA device ", ordinal, "; CUDA shows ",
                                               devices.size(),
                                               " to this process, numbered from 0"));
  }
  auto driver = std::make_unique<CudaRuntimeDriver>(ordinal);
  const absl::Status opened = driver->Open();
  if (!opened.ok()) {
    return absl::UnavailableError(
        absl::StrCat("CUDA device ", ordinal, " cannot be opened: ", opened.message()));
  }
  return driver;
}

}  // namespace bulkhead
