#include <cublasLt.h>

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"
#include "kernels/cuda/cublas_lt_library.h"
#include "kernels/cuda/gemm_library.h"

namespace bulkhead {
namespace {

constexpr uint32_t kOperandAlignmentBytes = 16;

// A scale for each 128 inputs, for compute capability 9.0 only. Older headers lack the names: the
// values are those of cublasLt.h 12.9 and later.
constexpr size_t kFp8Version = 120900;
constexpr auto kScalePointerOfA = static_cast<cublasLtMatmulDescAttributes_t>(17);
constexpr auto kScalePointerOfB = static_cast<cublasLtMatmulDescAttributes_t>(18);
constexpr auto kScaleModeOfA = static_cast<cublasLtMatmulDescAttributes_t>(31);
constexpr auto kScaleModeOfB = static_cast<cublasLtMatmulDescAttributes_t>(32);
// CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F. By NVIDIA's documentation ("Scaling factors layouts")
// the scales of A and B are M-major and N-major: [depth / 128][M] and [depth / 128][N] of C++, at
// addresses of 16 bytes, with M and N multiples of 4.
constexpr int32_t kVec128Scales = 4;
constexpr int64_t kFp8RowsMultiple = 4;

// A library descriptor, destroyed with this.
template <typename T>
class Owned {
 public:
  using Destroy = cublasStatus_t (*)(T);
  Owned() = default;
  explicit Owned(Destroy destroy) : destroy_(destroy) {}
  Owned(Owned&& other) noexcept
      : destroy_(other.destroy_), value_(std::exchange(other.value_, nullptr)) {}
  Owned& operator=(Owned&& other) noexcept {
    std::swap(destroy_, other.destroy_);
    std::swap(value_, other.value_);
    return *this;
  }
  ~Owned() {
    if (value_ != nullptr) destroy_(value_);
  }
  T get() const { return value_; }
  T* to_fill() { return &value_; }

 private:
  Destroy destroy_ = nullptr;
  T value_ = nullptr;
};

// The library's matrices are column-major: a row-major [r][c] is its [c][r]. So it computes
// out^T [outputs][tokens] = (weight^T)^T x^T.
struct Plan {
  Owned<cublasLtMatmulDesc_t> operation;
  Owned<cublasLtMatrixLayout_t> weight;  // [depth][outputs], transposed by the operation
  Owned<cublasLtMatrixLayout_t> x;       // [depth][tokens]
  Owned<cublasLtMatrixLayout_t> out;     // [outputs][tokens]
  cublasLtMatmulAlgo_t algorithm;
};

class CublasLt final : public GemmLibrary {
 public:
  CublasLt(const CublasLtLibrary& lt, CudaDriver& driver) : lt_(lt), driver_(driver) {}
  CublasLt(const CublasLt&) = delete;
  CublasLt& operator=(const CublasLt&) = delete;
  ~CublasLt() override {
    plans_.clear();
    if (handle_ != nullptr) lt_.destroy(handle_);
  }

  absl::Status Open() {
    const absl::Status created = StatusOf(lt_.create(&handle_), "cublasLtCreate");
    if (created.ok()) return created;
    handle_ = nullptr;
    return absl::UnavailableError(
        absl::StrCat(lt_.path, " does not start: ", created.message(),
                     "; set BULKHEAD_CUBLASLT= (empty) to do without, or name another"));
  }

  absl::Status CheckFp8() const override {
    if (lt_.version >= kFp8Version) return absl::OkStatus();
    return absl::UnimplementedError(
        absl::StrCat(lt_.path, " has version ", lt_.version, ": it needs ", kFp8Version));
  }

  absl::Status Prepare(const GemmProblem& problem) override {
    if (IsPrepared(problem)) return absl::OkStatus();
    if (problem.fp8 && (problem.tokens | problem.outputs) % kFp8RowsMultiple != 0) {
      return NoAlgorithm(problem, " (tokens and outputs must be multiples of 4)");
    }
    BH_ASSIGN_OR_RETURN(Plan plan, Describe(problem));
    BH_RETURN_IF_ERROR(Choose(problem, plan));
    plans_.emplace(problem, std::move(plan));
    return absl::OkStatus();
  }

  bool IsPrepared(const GemmProblem& problem) const override { return plans_.contains(problem); }

  void Multiply(const GemmProblem& problem, const GemmOperands& operands, void* out,
                std::byte* workspace) override {
    const auto plan = plans_.find(problem);
    BH_CHECK(plan != plans_.end());
    const Plan& w = plan->second;
    const float one = 1;
    const float zero = 0;
    absl::Status enqueued;
    if (problem.fp8) enqueued = SetScales(w, operands.weight_scales, operands.x_scales);
    if (enqueued.ok()) {
      enqueued = StatusOf(
          lt_.matmul(handle_, w.operation.get(), &one, operands.weight, w.weight.get(), operands.x,
                     w.x.get(), &zero, out, w.out.get(), out, w.out.get(), &w.algorithm, workspace,
                     kWorkspaceBytes, static_cast<cudaStream_t>(driver_.native_stream())),
          "cublasLtMatmul");
    }
    if (!enqueued.ok()) driver_.ReportFault(enqueued);
  }

 private:
  absl::Status StatusOf(cublasStatus_t status, const char* call) const {
    if (status == CUBLAS_STATUS_SUCCESS) return absl::OkStatus();
    return absl::InternalError(absl::StrCat(call, ": ", lt_.status_text(status)));
  }

  template <typename T>
  absl::Status Set(const Plan& plan, cublasLtMatmulDescAttributes_t what, const T& value) const {
    return StatusOf(lt_.operation_set(plan.operation.get(), what, &value, sizeof(value)),
                    "cublasLtMatmulDescSetAttribute");
  }

  absl::Status SetScales(const Plan& plan, const void* of_weight, const void* of_x) const {
    BH_RETURN_IF_ERROR(Set(plan, kScalePointerOfA, of_weight));
    return Set(plan, kScalePointerOfB, of_x);
  }

  static absl::Status NoAlgorithm(const GemmProblem& problem, const std::string& why) {
    return absl::NotFoundError(absl::StrCat(
        "cuBLASLt has no algorithm to multiply ", problem.tokens, " tokens of ", problem.depth,
        " inputs with ", problem.outputs, " outputs", problem.fp8 ? " in fp8" : "", why));
  }

  absl::StatusOr<Plan> Describe(const GemmProblem& problem) const {
    const cudaDataType_t operands = problem.fp8   ? CUDA_R_8F_E4M3
                                    : problem.f16 ? CUDA_R_16F
                                                  : CUDA_R_16BF;
    const auto layout = [&](cudaDataType_t type, int64_t rows, int64_t cols, int64_t stride,
                            Owned<cublasLtMatrixLayout_t>& made) {
      made = Owned<cublasLtMatrixLayout_t>(lt_.layout_destroy);
      return StatusOf(lt_.layout_create(made.to_fill(), type, static_cast<uint64_t>(rows),
                                        static_cast<uint64_t>(cols), stride),
                      "cublasLtMatrixLayoutCreate");
    };
    Plan plan;
    plan.operation = Owned<cublasLtMatmulDesc_t>(lt_.operation_destroy);
    BH_RETURN_IF_ERROR(
        StatusOf(lt_.operation_create(plan.operation.to_fill(), CUBLAS_COMPUTE_32F, CUDA_R_32F),
                 "cublasLtMatmulDescCreate"));
    BH_RETURN_IF_ERROR(Set(plan, CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T));
    if (problem.fp8) {
      BH_RETURN_IF_ERROR(Set(plan, kScaleModeOfA, kVec128Scales));
      BH_RETURN_IF_ERROR(Set(plan, kScaleModeOfB, kVec128Scales));
      // An aligned address that is only looked at: null would mean that there are no scales.
      BH_RETURN_IF_ERROR(SetScales(plan, handle_, handle_));
    }
    BH_RETURN_IF_ERROR(
        layout(operands, problem.depth, problem.outputs, problem.depth, plan.weight));
    BH_RETURN_IF_ERROR(layout(operands, problem.depth, problem.tokens, problem.depth, plan.x));
    BH_RETURN_IF_ERROR(layout(problem.out_bf16 ? CUDA_R_16BF : CUDA_R_32F, problem.outputs,
                              problem.tokens, problem.out_stride, plan.out));
    return plan;
  }

  // The first algorithm that the library proposes. Parts of the depth must be added in f32 and in a
  // fixed order: other schemes round intermediate sums, or add in order of completion.
  absl::Status Choose(const GemmProblem& problem, Plan& plan) const {
    Owned<cublasLtMatmulPreference_t> preference(lt_.preference_destroy);
    BH_RETURN_IF_ERROR(
        StatusOf(lt_.preference_create(preference.to_fill()), "cublasLtMatmulPreferenceCreate"));
    absl::Status set;
    const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t what, const auto& value) {
      if (set.ok()) {
        set = StatusOf(lt_.preference_set(preference.get(), what, &value, sizeof(value)),
                       "cublasLtMatmulPreferenceSetAttribute");
      }
    };
    const auto out_alignment = static_cast<uint32_t>(problem.out_alignment_bytes);
    prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t{kWorkspaceBytes});
    prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
           uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, kOperandAlignmentBytes);
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, kOperandAlignmentBytes);
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, out_alignment);
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, out_alignment);
    BH_RETURN_IF_ERROR(set);
    cublasLtMatmulHeuristicResult_t found = {};
    int count = 0;
    const absl::Status status =
        StatusOf(lt_.heuristic(handle_, plan.operation.get(), plan.weight.get(), plan.x.get(),
                               plan.out.get(), plan.out.get(), preference.get(), 1, &found, &count),
                 "cublasLtMatmulAlgoGetHeuristic");
    if (!status.ok() || count == 0 || found.state != CUBLAS_STATUS_SUCCESS ||
        found.workspaceSize > static_cast<size_t>(kWorkspaceBytes)) {
      return NoAlgorithm(problem, status.ok() ? "" : absl::StrCat(" (", status.message(), ")"));
    }
    plan.algorithm = found.algo;
    return absl::OkStatus();
  }

  const CublasLtLibrary& lt_;
  CudaDriver& driver_;
  cublasLtHandle_t handle_ = nullptr;
  std::map<GemmProblem, Plan> plans_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<GemmLibrary>> NewCublasLt(CudaDriver& driver) {
  BH_ASSIGN_OR_RETURN(const CublasLtLibrary* const lt, CublasLtLibrary::Get());
  auto library = std::make_unique<CublasLt>(*lt, driver);
  BH_RETURN_IF_ERROR(library->Open());
  return library;
}

}  // namespace bulkhead
