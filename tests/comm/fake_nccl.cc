#include "tests/comm/fake_nccl.h"

#include <nccl.h>

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace {

using bulkhead::FakeNcclFault;

bulkhead::FakeNcclControls controls;

// The ranks that came with one id.
struct Clique {
  explicit Clique(int size) : sent(size) {}
  std::mutex mutex;
  std::condition_variable met;
  int arrived = 0;
  int meeting = 0;
  int connected = 0;
  std::vector<std::vector<float>> sent;  // by rank

  void Meet() {
    std::unique_lock<std::mutex> lock(mutex);
    const int mine = meeting;
    if (++arrived == static_cast<int>(sent.size())) {
      arrived = 0;
      ++meeting;
      met.notify_all();
    }
    met.wait(lock, [&] { return meeting != mine; });
  }
};

std::mutex registry_mutex;
std::map<std::string, std::shared_ptr<Clique>> registry;
int next_id = 0;

}  // namespace

struct ncclComm {
  std::shared_ptr<Clique> clique;
  int rank = 0;
  int unsettled = 2;               // questions about its state until what was begun is done
  ncclWindow_t* window = nullptr;  // that is being registered
};

namespace {

// As NCCL without blocking: what was begun is done some questions later, and nothing else may be
// asked for before.
bool Begin(ncclComm_t comm) {
  if (comm->unsettled > 0) return false;
  comm->unsettled = 2;
  return true;
}

}  // namespace

extern "C" {

bulkhead::FakeNcclControls* fake_nccl_controls() { return &controls; }

ncclResult_t ncclGetVersion(int* version) {
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  const std::lock_guard<std::mutex> lock(registry_mutex);
  std::memset(id->internal, 'a' + next_id++ % 26, sizeof(id->internal));
  std::memcpy(id->internal, &next_id, sizeof(next_id));
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int size, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  if (config->blocking != 0) return ncclInvalidArgument;
  // Its ranks share what they run on.
  if (std::getenv("NCCL_MULTI_RANK_GPU_ENABLE") == nullptr) return ncclInvalidUsage;
  *comm = new ncclComm();
  ++controls.communicators;
  const std::lock_guard<std::mutex> lock(registry_mutex);
  std::shared_ptr<Clique>& clique = registry[std::string(id.internal, sizeof(id.internal))];
  if (clique == nullptr) clique = std::make_shared<Clique>(size);
  (*comm)->clique = clique;
  (*comm)->rank = rank;
  ++clique->connected;
  return ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  const std::lock_guard<std::mutex> lock(registry_mutex);
  const bool connected = comm->clique->connected == static_cast<int>(comm->clique->sent.size()) &&
                         controls.fault != FakeNcclFault::kNeverConnects;
  const bool settled = connected && (comm->unsettled == 0 || --comm->unsettled == 0);
  *state = !settled ? ncclInProgress : controls.fail ? ncclRemoteError : ncclSuccess;
  if (settled && comm->window != nullptr) {
    *std::exchange(comm->window, nullptr) = reinterpret_cast<ncclWindow_t>(comm);
  }
  return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  return Begin(comm) ? ncclInProgress : ncclInvalidUsage;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  delete comm;
  --controls.communicators;
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) { return ncclCommDestroy(comm); }

const char* ncclGetErrorString(ncclResult_t result) {
  return result == ncclRemoteError ? "remote process exited" : "an error";
}

const char* ncclGetLastError(ncclComm_t) { return "the last error"; }

ncclResult_t ncclMemAlloc(void** memory, size_t bytes) {
  *memory = controls.allocate(bytes);
  return *memory == nullptr ? ncclUnhandledCudaError : ncclSuccess;
}

ncclResult_t ncclMemFree(void* memory) {
  controls.free(memory);
  return ncclSuccess;
}

// Begun only, although it says success, as that of 2.28 to 2.30 does.
ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void*, size_t, ncclWindow_t* window,
                                    int flags) {
  if (!Begin(comm)) return ncclInvalidArgument;
  if (controls.fault == FakeNcclFault::kRefusesWindows || flags != NCCL_WIN_COLL_SYMMETRIC) {
    return ncclInvalidUsage;
  }
  ++controls.windows;
  comm->window = window;
  return ncclSuccess;
}

ncclResult_t ncclCommWindowDeregister(ncclComm_t, ncclWindow_t) {
  --controls.windows;
  return ncclSuccess;
}

ncclResult_t ncclAllReduce(const void* in, void* out, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t) {
  if (!Begin(comm) || type != ncclFloat32 || op != ncclSum) return ncclInvalidArgument;
  Clique& clique = *comm->clique;
  const auto* values = static_cast<const float*>(in);
  clique.sent[comm->rank].assign(values, values + count);
  clique.Meet();
  auto* sum = static_cast<float*>(out);
  for (size_t i = 0; i < count; ++i) {
    sum[i] = 0;
    for (const std::vector<float>& sent : clique.sent) sum[i] += sent[i];
  }
  if (controls.fault == FakeNcclFault::kSumsWrongly && count > 1000) sum[1000] += 1;
  clique.Meet();
  return ncclInProgress;
}

ncclResult_t ncclAllGather(const void* in, void* out, size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t) {
  if (!Begin(comm) || type != ncclFloat32) return ncclInvalidArgument;
  Clique& clique = *comm->clique;
  const auto* values = static_cast<const float*>(in);
  clique.sent[comm->rank].assign(values, values + count);
  clique.Meet();
  auto* all = static_cast<float*>(out);
  for (const std::vector<float>& sent : clique.sent) all = std::copy(sent.begin(), sent.end(), all);
  clique.Meet();
  return ncclInProgress;
}

ncclResult_t ncclBroadcast(const void* in, void* out, size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t) {
  if (!Begin(comm) || type != ncclInt32) return ncclInvalidArgument;
  Clique& clique = *comm->clique;
  std::vector<float>& mine = clique.sent[comm->rank];
  mine.resize(count);
  std::memcpy(mine.data(), in, count * sizeof(int32_t));
  clique.Meet();
  std::memcpy(out, clique.sent[root].data(), count * sizeof(int32_t));
  clique.Meet();
  return ncclInProgress;
}

}  // extern "C"
