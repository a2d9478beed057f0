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

// A descriptor of the library's, destroyed with this.
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
struct Way {
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
    ways_.clear();
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

  absl::Status Prepare(const GemmProblem& problem) override {
    if (IsPrepared(problem)) return absl::OkStatus();
    BH_ASSIGN_OR_RETURN(Way way, Describe(problem));
    BH_RETURN_IF_ERROR(Choose(problem, way));
    ways_.emplace(problem, std::move(way));
    return absl::OkStatus();
  }

  bool IsPrepared(const GemmProblem& problem) const override { return ways_.contains(problem); }

  void Multiply(const GemmProblem& problem, const uint16_t* x, const uint16_t* weight, float* out,
                std::byte* workspace) override {
    const auto way = ways_.find(problem);
    BH_CHECK(way != ways_.end());
    const Way& w = way->second;
    const float one = 1;
    const float zero = 0;
    const absl::Status enqueued =
        StatusOf(lt_.matmul(handle_, w.operation.get(), &one, weight, w.weight.get(), x, w.x.get(),
                            &zero, out, w.out.get(), out, w.out.get(), &w.algorithm, workspace,
                            kWorkspaceBytes, static_cast<cudaStream_t>(driver_.native_stream())),
                 "cublasLtMatmul");
    if (!enqueued.ok()) driver_.ReportFault(enqueued);
  }

 private:
  absl::Status StatusOf(cublasStatus_t status, const char* call) const {
    if (status == CUBLAS_STATUS_SUCCESS) return absl::OkStatus();
    return absl::InternalError(absl::StrCat(call, ": ", lt_.status_text(status)));
  }

  absl::StatusOr<Way> Describe(const GemmProblem& problem) const {
    const cudaDataType_t operands = problem.f16 ? CUDA_R_16F : CUDA_R_16BF;
    const cublasOperation_t transposed = CUBLAS_OP_T;
    const auto layout = [&](cudaDataType_t type, int64_t rows, int64_t cols, int64_t stride,
                            Owned<cublasLtMatrixLayout_t>& made) {
      made = Owned<cublasLtMatrixLayout_t>(lt_.layout_destroy);
      return StatusOf(lt_.layout_create(made.to_fill(), type, static_cast<uint64_t>(rows),
                                        static_cast<uint64_t>(cols), stride),
                      "cublasLtMatrixLayoutCreate");
    };
    Way way;
    way.operation = Owned<cublasLtMatmulDesc_t>(lt_.operation_destroy);
    BH_RETURN_IF_ERROR(
        StatusOf(lt_.operation_create(way.operation.to_fill(), CUBLAS_COMPUTE_32F, CUDA_R_32F),
                 "cublasLtMatmulDescCreate"));
    BH_RETURN_IF_ERROR(StatusOf(lt_.operation_set(way.operation.get(), CUBLASLT_MATMUL_DESC_TRANSA,
                                                  &transposed, sizeof(transposed)),
                                "cublasLtMatmulDescSetAttribute"));
    BH_RETURN_IF_ERROR(layout(operands, problem.depth, problem.outputs, problem.depth, way.weight));
    BH_RETURN_IF_ERROR(layout(operands, problem.depth, problem.tokens, problem.depth, way.x));
    BH_RETURN_IF_ERROR(
        layout(CUDA_R_32F, problem.outputs, problem.tokens, problem.out_stride, way.out));
    return way;
  }

  // The first algorithm that the library proposes. Parts of the depth may be added up in f32 and in
  // a fixed order alone: other schemes round on their way, or add in the order of time.
  absl::Status Choose(const GemmProblem& problem, Way& way) const {
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
    const absl::Status asked =
        StatusOf(lt_.heuristic(handle_, way.operation.get(), way.weight.get(), way.x.get(),
                               way.out.get(), way.out.get(), preference.get(), 1, &found, &count),
                 "cublasLtMatmulAlgoGetHeuristic");
    if (!asked.ok() || count == 0 || found.state != CUBLAS_STATUS_SUCCESS ||
        found.workspaceSize > static_cast<size_t>(kWorkspaceBytes)) {
      return absl::NotFoundError(
          absl::StrCat("cuBLASLt has no way to multiply ", problem.tokens, " tokens of ",
                       problem.depth, " inputs with ", problem.outputs, " outputs",
                       asked.ok() ? "" : absl::StrCat(" (", asked.message(), ")")));
    }
    way.algorithm = found.algo;
    return absl::OkStatus();
  }

  const CublasLtLibrary& lt_;
  CudaDriver& driver_;
  cublasLtHandle_t handle_ = nullptr;
  std::map<GemmProblem, Way> ways_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<GemmLibrary>> NewCublasLt(CudaDriver& driver) {
  BH_ASSIGN_OR_RETURN(const CublasLtLibrary* const lt, CublasLtLibrary::Get());
  auto library = std::make_unique<CublasLt>(*lt, driver);
  BH_RETURN_IF_ERROR(library->Open());
  return library;
}

}  // namespace bulkhead
