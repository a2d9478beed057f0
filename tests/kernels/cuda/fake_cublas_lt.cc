#include "tests/kernels/cuda/fake_cublas_lt.h"

#include <cublasLt.h>

#include <cstring>

#include "kernels/simd/number_format.h"
#include "memory/fp8.h"

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
  int32_t scale_mode[2] = {CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F,
                           CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F};  // of A and B
  const float* scales[2] = {nullptr, nullptr};

  bool is_scaled() const {
    return scale_mode[0] == CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F &&
           scale_mode[1] == scale_mode[0];
  }
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

bool Aligned(const void* at, uint64_t bytes) {
  return reinterpret_cast<uintptr_t>(at) % bytes == 0;
}

bool IsFp8(const Layout& a) { return a.type == CUDA_R_8F_E4M3; }

// Numbers of 16 bits, transposed times plain, to f32, or of bf16 to bf16; the same of E4M3 with
// scales of 128 inputs: all that Bulkhead asks for.
bool Fits(const Operation& op, const Layout& a, const Layout& b, const Layout& d) {
  const bool to_bf16 = d.type == CUDA_R_16BF && (a.type == d.type || IsFp8(a));
  const bool takes_a = IsFp8(a) ? op.is_scaled()
                                : (a.type == CUDA_R_16BF || a.type == CUDA_R_16F) &&
                                      op.scale_mode[0] == 0 && op.scale_mode[1] == 0 &&
                                      op.scales[0] == nullptr && op.scales[1] == nullptr;
  return op.compute == CUBLAS_COMPUTE_32F && op.scale == CUDA_R_32F &&
         op.transpose_a == CUBLAS_OP_T && takes_a && b.type == a.type &&
         (d.type == CUDA_R_32F || to_bf16) && a.rows == b.rows && a.cols == d.rows &&
         b.cols == d.cols && a.stride >= a.rows && b.stride >= b.rows && d.stride >= d.rows;
}

// Scales are there, at addresses of 16 bytes.
bool HasScales(const Operation& op) {
  return op.scales[0] != nullptr && op.scales[1] != nullptr && Aligned(op.scales[0], 16) &&
         Aligned(op.scales[1], 16);
}

// What cuBLASLt multiplies in E4M3: dimensions and addresses of 16 bytes.
bool FitsFp8(const Layout& a, const Layout& b, const Layout& d, uint64_t out_alignment) {
  const int64_t out_bytes = d.type == CUDA_R_32F ? 4 : 2;
  return a.cols % 4 == 0 && b.cols % 4 == 0 && a.rows % 16 == 0 && a.stride % 16 == 0 &&
         b.stride % 16 == 0 && d.stride * out_bytes % 16 == 0 && out_alignment >= 16;
}

float Widened(const void* numbers, int64_t at, cudaDataType_t type) {
  if (type == CUDA_R_8F_E4M3) return bulkhead::F32OfE4m3(static_cast<const uint8_t*>(numbers)[at]);
  const uint16_t bits = static_cast<const uint16_t*>(numbers)[at];
  return type == CUDA_R_16F ? bulkhead::F32OfF16(bits) : bulkhead::F32OfBf16(bits);
}

// The scale of a row and a place in the depth: [depth / 128][rows].
float ScaleAt(const float* scales, int64_t row, int64_t rows, int64_t depth, int64_t k,
              bool by_row) {
  if (scales == nullptr) return 1;
  return by_row ? scales[row * ((depth + 127) / 128) + k / 128] : scales[k / 128 * rows + row];
}

bool HasFault(FakeCublasLtFault fault, const Layout& a) {
  return controls.fault == fault && (IsFp8(a) || !controls.fault_of_fp8);
}

// Two chains over the depth, cut at a place that differs from problem to problem, as algorithms do.
void Multiply(const Operation& op, const Layout& a, const Layout& b, const Layout& d,
              const void* weight, const void* x, void* out) {
  const bool by_row = controls.fault == FakeCublasLtFault::kScalesByRow;
  const int64_t cut = b.cols % 3 * a.rows / 4;
  for (int64_t t = 0; t < b.cols; ++t) {
    for (int64_t n = 0; n < a.cols; ++n) {
      float sums[2] = {0, 0};
      for (int64_t k = 0; k < a.rows; ++k) {
        sums[k < cut] += Widened(weight, n * a.stride + k, a.type) *
                         ScaleAt(op.scales[0], n, a.cols, a.rows, k, false) *
                         (Widened(x, t * b.stride + k, b.type) *
                          ScaleAt(op.scales[1], t, b.cols, b.rows, k, by_row));
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

size_t cublasLtGetVersion() { return controls.version; }
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
  Operation& op = *Of<Operation>(operation);
  const auto set = [&](auto& field) {
    if (bytes != sizeof(field)) return CUBLAS_STATUS_INVALID_VALUE;
    std::memcpy(&field, value, bytes);
    return CUBLAS_STATUS_SUCCESS;
  };
  switch (what) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
      return set(op.transpose_a);
    case CUBLASLT_MATMUL_DESC_A_SCALE_MODE:
      return set(op.scale_mode[0]);
    case CUBLASLT_MATMUL_DESC_B_SCALE_MODE:
      return set(op.scale_mode[1]);
    case CUBLASLT_MATMUL_DESC_A_SCALE_POINTER:
      return set(op.scales[0]);
    case CUBLASLT_MATMUL_DESC_B_SCALE_POINTER:
      return set(op.scales[1]);
    default:
      return CUBLAS_STATUS_INVALID_VALUE;
  }
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
  if (IsFp8(a) && !HasScales(*Of<Operation>(operation))) return CUBLAS_STATUS_INVALID_VALUE;
  *count = 0;
  if (IsFp8(a) && !FitsFp8(a, b, d, p.alignment[3])) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (HasFault(FakeCublasLtFault::kKnowsNoWay, a) && b.cols == controls.unknown_tokens) {
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  const Algorithm algorithm{kSeal, a.cols, b.cols, a.rows, d.stride, p.alignment[3]};
  std::memcpy(&results->algo, &algorithm, sizeof(algorithm));
  results->state = CUBLAS_STATUS_SUCCESS;
  results->workspaceSize =
      HasFault(FakeCublasLtFault::kWantsMore, a) ? p.workspace + 1 : kWorkspaceOfAlgorithm;
  *count = 1;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t operation, const void* alpha,
                              const void* weight, cublasLtMatrixLayout_t a_layout, const void* x,
                              cublasLtMatrixLayout_t b_layout, const void* beta, const void* c,
                              cublasLtMatrixLayout_t, void* out, cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t* algo, void* workspace,
                              size_t workspace_bytes, cudaStream_t stream) {
  const Operation op = *Of<Operation>(operation);
  const Layout a = *Of<Layout>(a_layout);
  const Layout b = *Of<Layout>(b_layout);
  const Layout d = *Of<Layout>(d_layout);
  Algorithm algorithm;
  std::memcpy(&algorithm, algo, sizeof(algorithm));
  const bool right = Fits(op, a, b, d) && (!IsFp8(a) || HasScales(op)) && algorithm.seal == kSeal &&
                     algorithm.outputs == a.cols && algorithm.tokens == b.cols &&
                     algorithm.depth == a.rows && algorithm.out_stride == d.stride &&
                     *static_cast<const float*>(alpha) == 1 &&
                     *static_cast<const float*>(beta) == 0 && c == out && workspace != nullptr &&
                     workspace_bytes >= kWorkspaceOfAlgorithm && Aligned(workspace, 16) &&
                     Aligned(weight, 16) && Aligned(x, 16) && Aligned(out, algorithm.out_alignment);
  if (!right) return CUBLAS_STATUS_INVALID_VALUE;
  if (HasFault(FakeCublasLtFault::kFailsToEnqueue, a)) return CUBLAS_STATUS_EXECUTION_FAILED;
  ++controls.products;
  controls.last_tokens = b.cols;
  controls.last_out_bf16 = d.type == CUDA_R_16BF;
  if (IsFp8(a)) ++controls.fp8_products;
  const int64_t out_bytes = ((d.cols - 1) * d.stride + d.rows) * (d.type == CUDA_R_32F ? 4 : 2);
  const int64_t number_bytes = IsFp8(a) ? 1 : 2;
  std::vector<bulkhead::FakeCublasLtRange> uses = {
      {weight, a.cols * a.stride * number_bytes, false},
      {x, b.cols * b.stride * number_bytes, false},
      {out, out_bytes, true},
      {workspace, static_cast<int64_t>(kWorkspaceOfAlgorithm), true}};
  if (IsFp8(a)) {
    const int64_t groups = (a.rows + 127) / 128;
    uses.push_back({op.scales[0], groups * a.cols * 4, false});
    uses.push_back({op.scales[1], groups * b.cols * 4, false});
  }
  controls.enqueue(
      stream, uses,
      [=] {
        std::memset(workspace, 0xFF, kWorkspaceOfAlgorithm);
        Multiply(op, a, b, d, weight, x, out);
      },
      HasFault(FakeCublasLtFault::kDoesNotWait, a));
  return CUBLAS_STATUS_SUCCESS;
}

}  // extern "C"
