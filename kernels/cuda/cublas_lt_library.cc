#include "kernels/cuda/cublas_lt_library.h"

#include <dlfcn.h>

#include <cstdlib>
#include <memory>
#include <type_traits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "kernels/cuda/gemm_library.h"

namespace bulkhead {
namespace {

// Older ones do not support Hopper; its interface has not changed since.
constexpr size_t kMinVersion = 120000;

std::vector<std::string> Candidates() {
  const char* named = std::getenv("BULKHEAD_CUBLASLT");
  if (named != nullptr) return {named};
  return {"libcublasLt.so.13", "/usr/local/cuda/lib64/libcublasLt.so.13", "libcublasLt.so.12",
          "/usr/local/cuda/lib64/libcublasLt.so.12"};
}

// The first that opens, with its path in `path`; otherwise the first error.
absl::StatusOr<void*> OpenFirst(std::string* path) {
  std::string why;
  for (const std::string& candidate : Candidates()) {
    *path = candidate;
    // dlopen takes an empty name for the program itself.
    if (candidate.empty()) return absl::UnavailableError("BULKHEAD_CUBLASLT is set and empty");
    void* const library = dlopen(candidate.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library != nullptr) return library;
    if (why.empty()) why = dlerror();
  }
  return absl::UnavailableError(absl::StrCat("cuBLASLt is not found (", why,
                                             "); name it with "
                                             "BULKHEAD_CUBLASLT=/.../libcublasLt.so.13"));
}

absl::Status FindFunctions(void* library, CublasLtLibrary& lt) {
  std::string missing;
  const auto find = [&](const char* name, auto* function) {
    *function = reinterpret_cast<std::remove_pointer_t<decltype(function)>>(dlsym(library, name));
    if (*function == nullptr && missing.empty()) missing = name;
  };
  decltype(&::cublasLtGetVersion) get_version = nullptr;
  find("cublasLtGetVersion", &get_version);
  find("cublasLtCreate", &lt.create);
  find("cublasLtDestroy", &lt.destroy);
  find("cublasLtGetStatusString", &lt.status_text);
  find("cublasLtMatmulDescCreate", &lt.operation_create);
  find("cublasLtMatmulDescDestroy", &lt.operation_destroy);
  find("cublasLtMatmulDescSetAttribute", &lt.operation_set);
  find("cublasLtMatrixLayoutCreate", &lt.layout_create);
  find("cublasLtMatrixLayoutDestroy", &lt.layout_destroy);
  find("cublasLtMatmulPreferenceCreate", &lt.preference_create);
  find("cublasLtMatmulPreferenceDestroy", &lt.preference_destroy);
  find("cublasLtMatmulPreferenceSetAttribute", &lt.preference_set);
  find("cublasLtMatmulAlgoGetHeuristic", &lt.heuristic);
  find("cublasLtMatmul", &lt.matmul);
  if (!missing.empty()) {
    return absl::UnavailableError(
        absl::StrCat(lt.path, " is no cuBLASLt that can be used: it has no ", missing));
  }
  lt.version = get_version();
  if (lt.version >= kMinVersion) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat(lt.path, " is no cuBLASLt that can be used: version ",
                                             lt.version, ", at least ", kMinVersion, " is needed"));
}

absl::StatusOr<const CublasLtLibrary*> Open() {
  auto lt = std::make_unique<CublasLtLibrary>();
  BH_ASSIGN_OR_RETURN(void* const library, OpenFirst(&lt->path));
  BH_RETURN_IF_ERROR(FindFunctions(library, *lt));
  return lt.release();  // never freed
}

}  // namespace

absl::StatusOr<const CublasLtLibrary*> CublasLtLibrary::Get() {
  static const absl::StatusOr<const CublasLtLibrary*> library = Open();
  return library;
}

absl::StatusOr<std::string> CublasLtName() {
  BH_ASSIGN_OR_RETURN(const CublasLtLibrary* const lt, CublasLtLibrary::Get());
  return absl::StrCat("cuBLASLt ", lt->version / 10000, ".", lt->version / 100 % 100, ".",
                      lt->version % 100);
}

}  // namespace bulkhead
