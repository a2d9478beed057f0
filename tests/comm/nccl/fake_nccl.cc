#include "tests/comm/nccl/fake_nccl.h"

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

#include "memory/bf16.h"

namespace {

using bulkhead::FakeNcclFault;
using bulkhead::FakeNcclRange;

bulkhead::FakeNcclControls controls;

// The ranks with the same id.
struct Clique {
  Clique(std::string id, int size) : id(std::move(id)), sent(size) {}
  const std::string id;
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
  bool blocks = false;
  int unsettled = 2;           // queries until an operation is complete; if non-blocking
  ncclComm** split = nullptr;  // destination of the communicator being split off
  FakeNcclRange window;
};

namespace {

// Like non-blocking NCCL: an operation completes some queries later, and other calls are refused
// until then.
bool Begin(ncclComm_t comm) {
  if (comm->blocks) return true;
  if (comm->unsettled > 0) return false;
  comm->unsettled = 2;
  return true;
}

ncclComm_t NewRank(const std::string& id, int size, int rank, bool blocks) {
  auto* const comm = new ncclComm();
  ++controls.communicators;
  const std::lock_guard<std::mutex> lock(registry_mutex);
  std::shared_ptr<Clique>& clique = registry[id];
  if (clique == nullptr) clique = std::make_shared<Clique>(id, size);
  comm->clique = clique;
  comm->rank = rank;
  comm->blocks = blocks;
  ++clique->connected;
  return comm;
}

bool Overlap(const FakeNcclRange& window, const void* at) {
  const auto* const begin = static_cast<const std::byte*>(window.begin);
  return at >= begin && at < begin + window.bytes;
}

}  // namespace

extern "C" {

bulkhead::FakeNcclControls* fake_nccl_controls() { return &controls; }

ncclResult_t ncclGetVersion(int* version) {
  *version = controls.version;
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
  // The ranks share their device.
  if (std::getenv("NCCL_MULTI_RANK_GPU_ENABLE") == nullptr) return ncclInvalidUsage;
  if (rank == 1 && controls.fault == FakeNcclFault::kRefusesRank1) {
    *comm = nullptr;
    return ncclRemoteError;
  }
  *comm = NewRank(std::string(id.internal, sizeof(id.internal)), size, rank, /*blocks=*/false);
  return ncclInProgress;
}

// The new communicator is available when the old one reports completion.
ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* split,
                           ncclConfig_t* config) {
  if (!Begin(comm) || color != 0 || key != comm->rank || config->blocking != 1) {
    return ncclInvalidArgument;
  }
  *split = nullptr;
  comm->split = split;
  return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  *state = controls.fail ? ncclRemoteError : ncclSuccess;
  if (comm->blocks) return ncclSuccess;
  const FakeNcclFault fault = controls.fault;
  std::unique_lock<std::mutex> lock(registry_mutex);
  const Clique& clique = *comm->clique;
  const bool connected = clique.connected == static_cast<int>(clique.sent.size()) &&
                         fault != FakeNcclFault::kNeverConnects &&
                         (fault != FakeNcclFault::kNeverSplits || comm->split == nullptr);
  const bool settled = connected && (comm->unsettled == 0 || --comm->unsettled == 0);
  lock.unlock();
  if (!settled) *state = ncclInProgress;
  if (settled && comm->split != nullptr) {
    *std::exchange(comm->split, nullptr) = NewRank(
        clique.id + " split", static_cast<int>(clique.sent.size()), comm->rank, /*blocks=*/true);
  }
  return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  if (comm->blocks) return ncclSuccess;
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

ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void* memory, size_t bytes,
                                    ncclWindow_t* window, int flags) {
  if (!comm->blocks) return ncclInvalidArgument;
  if (controls.fault == FakeNcclFault::kRefusesWindows || flags != NCCL_WIN_COLL_SYMMETRIC) {
    return ncclInvalidUsage;
  }
  ++controls.windows;
  comm->window = {memory, static_cast<int64_t>(bytes)};
  *window = reinterpret_cast<ncclWindow_t>(comm);
  return ncclSuccess;
}

ncclResult_t ncclCommWindowDeregister(ncclComm_t, ncclWindow_t) {
  --controls.windows;
  return ncclSuccess;
}

// Adds in reverse rank order; bf16 is rounded after every addition.
ncclResult_t ncclAllReduce(const void* in, void* out, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  const bool rounds = type == ncclBfloat16;
  if (!comm->blocks || (!rounds && type != ncclFloat32) || op != ncclSum) {
    return ncclInvalidArgument;
  }
  const auto bytes = static_cast<int64_t>(count * (rounds ? sizeof(uint16_t) : sizeof(float)));
  controls.summed_bytes += bytes;
  const FakeNcclFault fault = controls.fault;
  if (fault == FakeNcclFault::kNeverSums) {
    controls.enqueue_endless(stream);
    return ncclSuccess;
  }
  const bool early = (fault == FakeNcclFault::kStartsEarly ||
                      (fault == FakeNcclFault::kStartsLargeSumsEarly && count > 65536)) &&
                     Overlap(comm->window, in);
  const auto work = [=, clique = comm->clique, rank = comm->rank] {
    std::vector<float>& mine = clique->sent[rank];
    mine.resize(count);
    for (size_t i = 0; i < count; ++i) {
      mine[i] = rounds ? bulkhead::F32OfBf16(static_cast<const uint16_t*>(in)[i])
                       : static_cast<const float*>(in)[i];
    }
    clique->Meet();
    for (size_t i = 0; i < count; ++i) {
      float sum = 0;
      for (auto sent = clique->sent.rbegin(); sent != clique->sent.rend(); ++sent) {
        sum += (*sent)[i];
        if (rounds) sum = bulkhead::F32OfBf16(bulkhead::Bf16OfF32(sum));
      }
      if (controls.fault == FakeNcclFault::kSumsWrongly && i == 1000) sum += 1;
      if (rounds) {
        static_cast<uint16_t*>(out)[i] = bulkhead::Bf16OfF32(sum);
      } else {
        static_cast<float*>(out)[i] = sum;
      }
    }
    clique->Meet();
  };
  controls.enqueue(stream, {{in, bytes}, {out, bytes}}, work, early);
  return ncclSuccess;
}

ncclResult_t ncclAllGather(const void* in, void* out, size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
  if (!comm->blocks || type != ncclFloat32) return ncclInvalidArgument;
  const auto bytes = static_cast<int64_t>(count * sizeof(float));
  const auto size = static_cast<int64_t>(comm->clique->sent.size());
  const auto work = [=, clique = comm->clique, rank = comm->rank] {
    const auto* values = static_cast<const float*>(in);
    clique->sent[rank].assign(values, values + count);
    clique->Meet();
    auto* all = static_cast<float*>(out);
    for (const std::vector<float>& sent : clique->sent) {
      all = std::copy(sent.begin(), sent.end(), all);
    }
    clique->Meet();
  };
  controls.enqueue(stream, {{in, bytes}, {out, size * bytes}}, work, /*early=*/false);
  return ncclSuccess;
}

ncclResult_t ncclBroadcast(const void* in, void* out, size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream) {
  if (!comm->blocks || type != ncclInt32) return ncclInvalidArgument;
  const auto bytes = static_cast<int64_t>(count * sizeof(int32_t));
  const auto work = [=, clique = comm->clique, rank = comm->rank] {
    std::vector<float>& mine = clique->sent[rank];
    mine.resize(count);
    std::memcpy(mine.data(), in, bytes);
    clique->Meet();
    std::memcpy(out, clique->sent[root].data(), bytes);
    clique->Meet();
  };
  controls.enqueue(stream, {{in, bytes}, {out, bytes}}, work, /*early=*/false);
  return ncclSuccess;
}

}  // extern "C"
