#include "comm/nccl/nccl_library.h"

#include <dlfcn.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "comm/nccl/nccl_communicator.h"

namespace bulkhead {
namespace {

constexpr int kMinVersion = 21900;  // first with ncclMemAlloc

std::vector<std::string> Candidates() {
  const char* named = std::getenv("BULKHEAD_NCCL");
  if (named != nullptr) return {named};
  return {"libnccl.so.2", "/usr/local/cuda/lib64/libnccl.so.2",
          "/usr/lib/x86_64-linux-gnu/libnccl.so.2"};
}

// The first library that opens, with its path in `path`; otherwise the last error.
absl::StatusOr<void*> OpenFirst(std::string* path) {
  std::string why;
  for (const std::string& candidate : Candidates()) {
    *path = candidate;
    void* const library = dlopen(candidate.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library != nullptr) return library;
    why = dlerror();
  }
  return absl::UnavailableError(absl::StrCat("NCCL was not found (", why,
                                             "); name it with BULKHEAD_NCCL=/.../libnccl.so.2, "
                                             "or use --comm staged"));
}

absl::Status FindFunctions(void* library, const std::string& path, NcclLibrary& nccl) {
  std::string missing;
  const auto find_optional = [&](const char* name, auto* function) {
    *function = reinterpret_cast<std::remove_pointer_t<decltype(function)>>(dlsym(library, name));
  };
  const auto find = [&](const char* name, auto* function) {
    find_optional(name, function);
    if (*function == nullptr && missing.empty()) missing = name;
  };
  find("ncclGetVersion", &nccl.get_version);
  find("ncclGetUniqueId", &nccl.get_unique_id);
  find("ncclCommInitRankConfig", &nccl.comm_init_rank_config);
  find("ncclCommSplit", &nccl.comm_split);
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
  find_optional("ncclCommWindowRegister", &nccl.window_register);
  find_optional("ncclCommWindowDeregister", &nccl.window_deregister);
  if (!missing.empty()) {
    return absl::UnavailableError(absl::StrCat(path, " is not a usable NCCL: it has no ", missing));
  }
  if (nccl.Version() < kMinVersion) {
    return absl::UnavailableError(absl::StrCat(path, " is not a usable NCCL: version ",
                                               nccl.Version(), ", at least ", kMinVersion,
                                               " is needed"));
  }
  return absl::OkStatus();
}

absl::StatusOr<const NcclLibrary*> Open() {
  std::string path;
  BH_ASSIGN_OR_RETURN(void* const library, OpenFirst(&path));
  auto* nccl = new NcclLibrary();  // never freed
  BH_RETURN_IF_ERROR(FindFunctions(library, path, *nccl));
  return nccl;
}

}  // namespace

int NcclLibrary::Version() const {
  int version = 0;
  return get_version(&version) == ncclSuccess ? version : 0;
}

bool NcclLibrary::HasWindows() const {
  return WindowsWaitForStream(Version()) && window_register != nullptr &&
         window_deregister != nullptr;
}

absl::StatusOr<const NcclLibrary*> NcclLibrary::Get() {
  static const absl::StatusOr<const NcclLibrary*> library = Open();
  return library;
}

absl::StatusOr<int> NcclVersion() {
  BH_ASSIGN_OR_RETURN(const NcclLibrary* const nccl, NcclLibrary::Get());
  return nccl->Version();
}

}  // namespace bulkhead
