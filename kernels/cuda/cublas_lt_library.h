// cuBLASLt as found on the machine: its functions, by name. Built only if its header is available.
#pragma once

#include <cublasLt.h>

#include <string>

#include "absl/status/statusor.h"

namespace bulkhead {

struct CublasLtLibrary {
  // The library, opened once per process; errors as CublasLtName (gemm_library.h).
  static absl::StatusOr<const CublasLtLibrary*> Get();

  std::string path;
  size_t version = 0;  // 130100 for 13.1.0
  decltype(&::cublasLtCreate) create = nullptr;
  decltype(&::cublasLtDestroy) destroy = nullptr;
  decltype(&::cublasLtGetStatusString) status_text = nullptr;
  decltype(&::cublasLtMatmulDescCreate) operation_create = nullptr;
  decltype(&::cublasLtMatmulDescDestroy) operation_destroy = nullptr;
  decltype(&::cublasLtMatmulDescSetAttribute) operation_set = nullptr;
  decltype(&::cublasLtMatrixLayoutCreate) layout_create = nullptr;
  decltype(&::cublasLtMatrixLayoutDestroy) layout_destroy = nullptr;
  decltype(&::cublasLtMatmulPreferenceCreate) preference_create = nullptr;
  decltype(&::cublasLtMatmulPreferenceDestroy) preference_destroy = nullptr;
  decltype(&::cublasLtMatmulPreferenceSetAttribute) preference_set = nullptr;
  decltype(&::cublasLtMatmulAlgoGetHeuristic) heuristic = nullptr;
  decltype(&::cublasLtMatmul) matmul = nullptr;
};

}  // namespace bulkhead
