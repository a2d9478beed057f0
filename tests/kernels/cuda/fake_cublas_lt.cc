#include "tests/kernels/cuda/fake_cublas_lt.h"

#include <cublasLt.h>

#include <cstring>

#include "kernels/simd/number_format.h"

namespace {

using bulkhead::FakeCublasLtFault;

bulkhead::FakeCublasLtControls controls;

constexpr uint64_t kSeal = 0x5EA1;
constexpr size_t kWorkspaceOfAlgorithm = 1 << 20;

// The opaque structs' contents.
struct Operation {
  cublasComputeType_t compute;
  cudaDataType_t scale;
  cublasOperation_t transpose_a = CUBLAS_OP_N;
};
struct Layout {
  cudaDataType_t type;
  int64_t rows;
  int64_t cols;
  int64_t stride;
};
struct Preference {
  uint64_t workspace = 0;
  uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_MASK;
  uint32_t alignment[4] = {256, 256, 256, 256};
};

// An algorithm is good for the one problem that it was proposed for.
struct Algorithm {
  uint64_t seal;
  int64_t outputs;
  int64_t tokens;
  int64_t depth;
  int64_t out_stride;
  uint64_t out_alignment;
};
static_assert(sizeof(Algorithm) <= sizeof(cublasLtMatmulAlgo_t));

template <typename T, typename Opaque>
T* Of(Opaque* opaque) {
  return reinterpret_cast<T*>(opaque);
}

template <typename T, typename Handle>
cublasStatus_t Make(Handle* handle, T value) {
  *handle = reinterpret_cast<Handle>(new T(value));
  ++controls.descriptors;
  return CUBLAS_STATUS_SUCCESS;
}
template <typename T, typename Handle>
cublasStatus_t Destroy(Handle handle) {
  delete reinterpret_cast<T*>(handle);
  --controls.descriptors;
  return CUBLAS_STATUS_SUCCESS;
}

// Numbers of 16 bits, transposed times plain, to f32, or of bf16 to bf16: all that Bulkhead asks
// for.
bool Fits(const Operation& op, const Layout& a, const Layout& b, const Layout& d) {
  return op.compute == CUBLAS_COMPUTE_32F && op.scale == CUDA_R_32F &&
         op.transpose_a == CUBLAS_OP_T && (a.type == CUDA_R_16BF || a.type == CUDA_R_16F) &&
         b.type == a.type &&
         (d.type == CUDA_R_32F || (d.type == CUDA_R_16BF && a.type == d.type)) &&
         a.rows == b.rows && a.cols == d.rows && b.cols == d.cols && a.stride >= a.rows &&
         b.stride >= b.rows && d.stride >= d.rows;
}

bool Aligned(const void* at, uint64_t bytes) {
  return reinterpret_cast<uintptr_t>(at) % bytes == 0;
}

float Widened(uint16_t bits, bool f16) {
  return f16 ? bulkhead::F32OfF16(bits) : bulkhead::F32OfBf16(bits);
}

// Two chains over the depth, cut at a place that differs from problem to problem, as algorithms do.
void Multiply(const Layout& a, const Layout& b, const Layout& d, const uint16_t* weight,
              const uint16_t* x, void* out) {
  const bool f16 = a.type == CUDA_R_16F;
  const int64_t cut = b.cols % 3 * a.rows / 4;
  for (int64_t t = 0; t < b.cols; ++t) {
    for (int64_t n = 0; n < a.cols; ++n) {
      float sums[2] = {0, 0};
      for (int64_t k = 0; k < a.rows; ++k) {
        sums[k < cut] += Widened(weight[n * a.stride + k], f16) * Widened(x[t * b.stride + k], f16);
      }
      const float sum = sums[0] + sums[1];
      if (d.type == CUDA_R_32F) {
        static_cast<float*>(out)[t * d.stride + n] = sum;
      } else {
        static_cast<uint16_t*>(out)[t * d.stride + n] = bulkhead::Bf16OfF32(sum);
      }
    }
  }
}

}  // namespace

extern "C" {

bulkhead::FakeCublasLtControls* fake_cublas_lt_controls() { return &controls; }

size_t cublasLtGetVersion() { return 130100; }
const char* cublasLtGetStatusString(cublasStatus_t status) {
  return status == CUBLAS_STATUS_NOT_SUPPORTED ? "not supported" : "an error";
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  if (controls.fault == FakeCublasLtFault::kDoesNotStart) return CUBLAS_STATUS_NOT_INITIALIZED;
  ++controls.handles;
  *handle = reinterpret_cast<cublasLtHandle_t>(&controls);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t) {
  --controls.handles;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* operation,
                                        cublasComputeType_t compute, cudaDataType_t scale) {
  return Make(operation, Operation{compute, scale});
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t operation) {
  return Destroy<Operation>(operation);
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t operation,
                                              cublasLtMatmulDescAttributes_t what,
                                              const void* value, size_t bytes) {
  if (what != CUBLASLT_MATMUL_DESC_TRANSA || bytes != sizeof(cublasOperation_t)) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  std::memcpy(&Of<Operation>(operation)->transpose_a, value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType type,
                                          uint64_t rows, uint64_t cols, int64_t stride) {
  return Make(layout, Layout{type, static_cast<int64_t>(rows), static_cast<int64_t>(cols), stride});
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  return Destroy<Layout>(layout);
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  return Make(preference, Preference{});
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  return Destroy<Preference>(preference);
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t what,
                                                    const void* value, size_t bytes) {
  Preference& p = *Of<Preference>(preference);
  const auto set = [&](auto& field) {
    if (bytes != sizeof(field)) return CUBLAS_STATUS_INVALID_VALUE;
    std::memcpy(&field, value, bytes);
    return CUBLAS_STATUS_SUCCESS;
  };
  switch (what) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
      return set(p.workspace);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
      return set(p.reductions);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
      return set(p.alignment[0]);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
      return set(p.alignment[1]);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
      return set(p.alignment[2]);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
      return set(p.alignment[3]);
    default:
      return CUBLAS_STATUS_INVALID_VALUE;
  }
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(
    cublasLtHandle_t, cublasLtMatmulDesc_t operation, cublasLtMatrixLayout_t a_layout,
    cublasLtMatrixLayout_t b_layout, cublasLtMatrixLayout_t c_layout,
    cublasLtMatrixLayout_t d_layout, cublasLtMatmulPreference_t preference, int wanted,
    cublasLtMatmulHeuristicResult_t* results, int* count) {
  const Layout& a = *Of<Layout>(a_layout);
  const Layout& b = *Of<Layout>(b_layout);
  const Layout& d = *Of<Layout>(d_layout);
  const Preference& p = *Of<Preference>(preference);
  constexpr uint32_t kInexact =
      CUBLASLT_REDUCTION_SCHEME_INPLACE | CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE;
  if (wanted < 1 || c_layout != d_layout || !Fits(*Of<Operation>(operation), a, b, d) ||
      (p.reductions & kInexact) != 0 || p.alignment[0] > 64 || p.alignment[1] > 64 ||
      p.alignment[2] != p.alignment[3]) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  *count = 0;
  if (controls.fault == FakeCublasLtFault::kKnowsNoWay && b.cols == controls.unknown_tokens) {
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  const Algorithm algorithm{kSeal, a.cols, b.cols, a.rows, d.stride, p.alignment[3]};
  std::memcpy(&results->algo, &algorithm, sizeof(algorithm));
  results->state = CUBLAS_STATUS_SUCCESS;
  results->workspaceSize =
      controls.fault == FakeCublasLtFault::kWantsMore ? p.workspace + 1 : kWorkspaceOfAlgorithm;
  *count = 1;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t operation, const void* alpha,
                              const void* weight, cublasLtMatrixLayout_t a_layout, const void* x,
                              cublasLtMatrixLayout_t b_layout, const void* beta, const void* c,
                              cublasLtMatrixLayout_t, void* out, cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t* algo, void* workspace,
                              size_t workspace_bytes, cudaStream_t stream) {
  const Layout a = *Of<Layout>(a_layout);
  const Layout b = *Of<Layout>(b_layout);
  const Layout d = *Of<Layout>(d_layout);
  Algorithm algorithm;
  std::memcpy(&algorithm, algo, sizeof(algorithm));
  const bool right = Fits(*Of<Operation>(operation), a, b, d) && algorithm.seal == kSeal &&
                     algorithm.outputs == a.cols && algorithm.tokens == b.cols &&
                     algorithm.depth == a.rows && algorithm.out_stride == d.stride &&
                     *static_cast<const float*>(alpha) == 1 &&
                     *static_cast<const float*>(beta) == 0 && c == out && workspace != nullptr &&
                     workspace_bytes >= kWorkspaceOfAlgorithm && Aligned(workspace, 16) &&
                     Aligned(weight, 16) && Aligned(x, 16) && Aligned(out, algorithm.out_alignment);
  if (!right) return CUBLAS_STATUS_INVALID_VALUE;
  if (controls.fault == FakeCublasLtFault::kFailsToEnqueue) return CUBLAS_STATUS_EXECUTION_FAILED;
  ++controls.products;
  controls.last_tokens = b.cols;
  controls.last_out_bf16 = d.type == CUDA_R_16BF;
  const int64_t out_bytes = ((d.cols - 1) * d.stride + d.rows) * (d.type == CUDA_R_32F ? 4 : 2);
  controls.enqueue(
      stream,
      {{weight, a.cols * a.stride * 2, false},
       {x, b.cols * b.stride * 2, false},
       {out, out_bytes, true},
       {workspace, static_cast<int64_t>(kWorkspaceOfAlgorithm), true}},
      [=] {
        std::memset(workspace, 0xFF, kWorkspaceOfAlgorithm);
        Multiply(a, b, d, static_cast<const uint16_t*>(weight), static_cast<const uint16_t*>(x),
                 out);
      },
      controls.fault == FakeCublasLtFault::kDoesNotWait);
  return CUBLAS_STATUS_SUCCESS;
}

}  // extern "C"
