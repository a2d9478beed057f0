#include "comm/nccl_library.h"

#include <dlfcn.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "comm/nccl_communicator.h"
#include "memory/status.h"

namespace bulkhead {
namespace {

constexpr int kOldestVersion = 21900;  // ncclMemAlloc
constexpr int kWindowsFrom = 22800;

std::vector<std::string> Candidates() {
  const char* named = std::getenv("BULKHEAD_NCCL");
  if (named != nullptr) return {named};
  return {"libnccl.so.2", "/usr/local/cuda/lib64/libnccl.so.2",
          "/usr/lib/x86_64-linux-gnu/libnccl.so.2"};
}

// The first that opens; its path stays in `path`. The last one's error otherwise.
absl::StatusOr<void*> OpenFirst(std::string* path) {
  std::string why;
  for (const std::string& candidate : Candidates()) {
    *path = candidate;
    void* const library = dlopen(candidate.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library != nullptr) return library;
    why = dlerror();
  }
  return absl::UnavailableError(absl::StrCat("NCCL is not found (", why,
                                             "); name it with BULKHEAD_NCCL=/.../libnccl.so.2, "
                                             "or use --comm staged"));
}

absl::Status FindFunctions(void* library, const std::string& path, NcclLibrary& nccl) {
  std::string missing;
  const auto find = [&](const char* name, auto* function) {
    *function = reinterpret_cast<std::remove_pointer_t<decltype(function)>>(dlsym(library, name));
    if (*function == nullptr && missing.empty()) missing = name;
  };
  decltype(&::ncclGetVersion) get_version = nullptr;
  find("ncclGetVersion", &get_version);
  find("ncclGetUniqueId", &nccl.get_unique_id);
  find("ncclCommInitRankConfig", &nccl.comm_init_rank_config);
  find("ncclCommGetAsyncError", &nccl.comm_get_async_error);
  find("ncclCommFinalize", &nccl.comm_finalize);
  find("ncclCommDestroy", &nccl.comm_destroy);
  find("ncclCommAbort", &nccl.comm_abort);
  find("ncclGetErrorString", &nccl.error_text);
  find("ncclGetLastError", &nccl.last_error);
  find("ncclMemAlloc", &nccl.mem_alloc);
  find("ncclMemFree", &nccl.mem_free);
  find("ncclAllReduce", &nccl.all_reduce);
  find("ncclAllGather", &nccl.all_gather);
  find("ncclBroadcast", &nccl.broadcast);
  if (!missing.empty() || get_version(&nccl.version) != ncclSuccess ||
      nccl.version < kOldestVersion) {
    return absl::UnavailableError(absl::StrCat(
        path, " is no NCCL that can be used: ", missing.empty() ? "version " : "it has no ",
        missing.empty() ? absl::StrCat(nccl.version, ", at least ", kOldestVersion, " is needed")
                        : missing));
  }
  if (nccl.version >= kWindowsFrom) {
    find("ncclCommWindowRegister", &nccl.window_register);
    find("ncclCommWindowDeregister", &nccl.window_deregister);
  }
  return absl::OkStatus();
}

absl::StatusOr<const NcclLibrary*> Open() {
  // Ranks that share a GPU were refused before, unless it is meant; from 2.30 on NCCL then has to
  // be told that it is.
  setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1", 0);
  std::string path;
  BH_ASSIGN_OR_RETURN(void* const library, OpenFirst(&path));
  auto* nccl = new NcclLibrary();  // lives as long as the process
  BH_RETURN_IF_ERROR(FindFunctions(library, path, *nccl));
  return nccl;
}

}  // namespace

absl::StatusOr<const NcclLibrary*> NcclLibrary::Get() {
  static const absl::StatusOr<const NcclLibrary*> library = Open();
  return library;
}

absl::StatusOr<int> NcclVersion() {
  BH_ASSIGN_OR_RETURN(const NcclLibrary* const nccl, NcclLibrary::Get());
  return nccl->version;
}

}  // namespace bulkhead
