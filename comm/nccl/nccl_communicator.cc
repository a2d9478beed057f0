#include "comm/nccl/nccl_communicator.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/check.h"
#include "base/exit_code.h"
#include "base/log.h"
#include "base/status.h"
#include "comm/nccl/nccl_library.h"
#include "comm/nccl/nccl_rank.h"

namespace bulkhead {
namespace {

constexpr int64_t kFloatBytes = sizeof(float);
constexpr absl::Duration kLookAgain = absl::Microseconds(200);
constexpr char kConnectPhase[] = "NCCL";
constexpr int kLateRounds = 8;
constexpr int64_t kMaxLateElements = 1 << 16;

class NcclCommunicator final : public Communicator {
 public:
  NcclCommunicator(const NcclLibrary& nccl, Group& group, const CommLimits& limits,
                   CudaDriver& driver, NcclKernels kernels)
      : topology_(group.exchange().topology()),
        limits_(limits),
        layout_(limits, topology_.size),
        known_(KnownNumbersIn(limits.sum_dtype, topology_.size)),
        driver_(driver),
        kernels_(std::move(kernels)),
        liveness_(group.liveness()),
        rank_(nccl, group),
        memory_(rank_) {}
  int rank() const override { return topology_.rank; }
  int size() const override { return topology_.size; }
  NcclRank& nccl_rank() { return rank_; }
  NcclMemory& memory() { return memory_; }

  MatrixView PartialSum(int64_t rows, int64_t cols) override {
    BH_CHECK(rows >= 0 && cols >= 0 && rows * cols <= limits_.max_sum_elements);
    view_ = MatrixView(memory_.data(), DType::kF32, rows, cols);
    return view_;
  }

  absl::StatusOr<ConstMatrixView> AllReduceSum() override {
    const int64_t elements = view_.rows() * view_.cols();
    if (limits_.sum_dtype == DType::kF32 || elements == 0) return AllReduceSumF32();
    std::byte* const rounded = memory_.data() + layout_.rounded_offset_bytes;
    auto* const numbers = reinterpret_cast<uint16_t*>(rounded);
    kernels_.round(view_.F32(), numbers, elements);
    BH_RETURN_IF_ERROR(SumInPlace(rounded, elements, ncclBfloat16));
    kernels_.widen(numbers, view_.F32(), elements);
    return ConstMatrixView(view_);
  }
  absl::StatusOr<ConstMatrixView> AllReduceSumF32() override {
    BH_RETURN_IF_ERROR(SumInPlace(view_.data(), view_.rows() * view_.cols(), ncclFloat32));
    return ConstMatrixView(view_);
  }

  absl::Status GatherCols(ConstMatrixView part, absl::Span<const int64_t> cols_of_rank,
                          MatrixView out) override {
    BH_CHECK(static_cast<int>(cols_of_rank.size()) == size() &&
             part.cols() == cols_of_rank[rank()]);
    const int64_t widest = *std::max_element(cols_of_rank.begin(), cols_of_rank.end());
    const int64_t share = part.rows() * widest;  // per rank; narrower parts leave the end unused
    BH_CHECK(share <= limits_.max_gather_elements);
    if (share == 0) return absl::OkStatus();
    std::byte* const mine = memory_.data() + layout_.part_offset_bytes;
    std::byte* const all = memory_.data() + layout_.whole_offset_bytes;
    const int64_t row_bytes = part.cols() * kFloatBytes;
    if (row_bytes > 0) {
      driver_.CopyRows(part.data(), part.row_stride() * kFloatBytes, mine, row_bytes, row_bytes,
                       part.rows());
    }
    const ncclResult_t answer = rank_.nccl().all_gather(mine, all, static_cast<size_t>(share),
                                                        ncclFloat32, rank_.comm(), stream());
    BH_RETURN_IF_ERROR(rank_.Check(answer, "ncclAllGather"));
    if (rank() != 0) return absl::OkStatus();
    const int64_t narrowest = *std::min_element(cols_of_rank.begin(), cols_of_rank.end());
    if (part.rows() == 1 && narrowest == widest) {  // already in the order of `out`
      BH_CHECK(out.rows() == 1 && out.cols() == size() * widest);
      driver_.Copy(all, out.data(), size() * share * kFloatBytes);
      return absl::OkStatus();
    }
    int64_t col = 0;
    for (int r = 0; r < size(); ++r) {
      const int64_t bytes = cols_of_rank[r] * kFloatBytes;
      BH_CHECK(out.rows() == part.rows() && col + cols_of_rank[r] <= out.cols());
      if (bytes > 0) {
        driver_.CopyRows(all + r * share * kFloatBytes, bytes, out.data() + col * kFloatBytes,
                         out.row_stride() * kFloatBytes, bytes, part.rows());
      }
      col += cols_of_rank[r];
    }
    BH_CHECK(col == out.cols());
    return absl::OkStatus();
  }

  absl::Status Broadcast(int32_t* values, int64_t count) override {
    if (count == 0) return absl::OkStatus();
    const ncclResult_t answer = rank_.nccl().broadcast(values, values, static_cast<size_t>(count),
                                                       ncclInt32, 0, rank_.comm(), stream());
    return rank_.Check(answer, "ncclBroadcast");
  }

  // Sums `elements` known numbers and checks every result.
  absl::Status SumAndCheck(int64_t elements, absl::Time deadline) {
    if (elements == 0) return absl::OkStatus();
    std::vector<float> numbers(elements);
    for (int64_t i = 0; i < elements; ++i) numbers[i] = static_cast<float>(known_.Value(i, rank()));
    const MatrixView partial = PartialSum(1, elements);
    driver_.CopyToDevice(numbers.data(), partial.data(), elements * kFloatBytes);
    return CheckSum(0, numbers, deadline);
  }

  // The same right after a kernel that writes them late, with different numbers in each round.
  absl::Status SumBehindKernelAndCheck(int64_t elements, int64_t round, absl::Time deadline) {
    if (elements == 0) return absl::OkStatus();
    std::vector<float> numbers(elements);
    auto* const partial = reinterpret_cast<float*>(PartialSum(1, elements).data());
    kernels_.write_late(partial, elements, /*first=*/round, known_.period, known_.Offset(rank()));
    return CheckSum(round, numbers, deadline);
  }

 private:
  absl::Status SumInPlace(void* numbers, int64_t elements, ncclDataType_t type) {
    ncclResult_t answer = ncclSuccess;
    if (elements > 0) {
      answer = rank_.nccl().all_reduce(numbers, numbers, static_cast<size_t>(elements), type,
                                       ncclSum, rank_.comm(), stream());
    }
    return rank_.Check(answer, "ncclAllReduce");
  }

  cudaStream_t stream() { return static_cast<cudaStream_t>(driver_.native_stream()); }

  // Sums the known partial sum starting at element `first`; `numbers` is a buffer in use until the
  // stream is idle.
  absl::Status CheckSum(int64_t first, std::vector<float>& numbers, absl::Time deadline) {
    BH_ASSIGN_OR_RETURN(const ConstMatrixView sum, AllReduceSum());
    // Before the copy, which does not return until the sum has ended.
    if (absl::Status waited = WaitForQueue(deadline); !waited.ok()) {
      rank_.SetBroken();
      return waited;
    }
    const auto elements = static_cast<int64_t>(numbers.size());
    driver_.CopyToHost(sum.data(), numbers.data(), elements * kFloatBytes);
    BH_RETURN_IF_ERROR(driver_.Synchronize());
    for (int64_t i = 0; i < elements; ++i) {
      const auto expected = static_cast<float>(known_.Sum(first + i, size()));
      if (numbers[i] == expected) continue;
      return absl::InternalError(absl::StrCat(rank_.name(), ": NCCL's sum is wrong: element ", i,
                                              " of ", elements, " is ", numbers[i],
                                              " and should be ", expected, "; use --comm staged"));
    }
    return absl::OkStatus();
  }

  // A collective that a rank never joins must fail the start, not hang it.
  absl::Status WaitForQueue(absl::Time deadline) {
    if (!event_.has_value()) event_ = driver_.NewEvent();
    driver_.Record(*event_);
    while (!driver_.Query(*event_)) {
      BH_RETURN_IF_ERROR(liveness_.Check(absl::InfiniteDuration()));
      BH_RETURN_IF_ERROR(rank_.AsyncError());
      if (absl::Now() > deadline) {
        return absl::DeadlineExceededError(
            absl::StrCat(rank_.name(), ": NCCL's first sum timed out"));
      }
      absl::SleepFor(kLookAgain);
    }
    return driver_.Synchronize();
  }

  const RankTopology topology_;
  const CommLimits limits_;
  const NcclWindow layout_;
  const KnownNumbers known_;
  CudaDriver& driver_;
  const NcclKernels kernels_;
  GroupLiveness& liveness_;
  NcclRank rank_;
  NcclMemory memory_;
  std::optional<CudaEvent> event_;
  MatrixView view_;  // of the partial sum
};

// Rank 0 creates the NCCL id and shares it with all ranks.
absl::StatusOr<ncclUniqueId> ShareId(const NcclLibrary& nccl, GroupExchange& exchange,
                                     absl::Duration timeout) {
  ncclUniqueId id = {};
  absl::Status made;
  if (exchange.topology().coordinator()) {
    const ncclResult_t answer = nccl.get_unique_id(&id);
    if (answer != ncclSuccess) {
      made = absl::UnavailableError(absl::StrCat("ncclGetUniqueId: ", nccl.error_text(answer), ", ",
                                                 nccl.last_error(nullptr)));
    }
  }
  BH_RETURN_IF_ERROR(Agree(exchange, kConnectPhase, made, timeout));
  BH_ASSIGN_OR_RETURN(
      const std::vector<std::string> all,
      exchange.AllGather(absl::string_view(id.internal, sizeof(id.internal)), timeout));
  BH_CHECK(all[0].size() == sizeof(id.internal));
  std::memcpy(id.internal, all[0].data(), sizeof(id.internal));
  return id;
}

// Windows and protocols must have one version.
absl::Status AgreeOnVersion(const absl::StatusOr<const NcclLibrary*>& nccl, GroupExchange& exchange,
                            absl::Duration timeout) {
  BH_RETURN_IF_ERROR(Agree(exchange, kConnectPhase, nccl.status(), timeout));
  BH_ASSIGN_OR_RETURN(const std::vector<std::string> versions,
                      exchange.AllGather(absl::StrCat((*nccl)->Version()), timeout));
  for (size_t r = 1; r < versions.size(); ++r) {
    if (versions[r] == versions[0]) continue;
    return MarkAgreed(WithExitCode(absl::FailedPreconditionError(absl::StrCat(
                                       "rank ", r, " has NCCL ", versions[r], " and rank 0 has ",
                                       versions[0], "; name one with BULKHEAD_NCCL")),
                                   ExitCode::kGroupNotUp));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Communicator>> ConnectNccl(Group& group, const CommLimits& limits,
                                                          CudaDriver& driver, MemoryLedger& ledger,
                                                          absl::Duration timeout,
                                                          NcclKernels kernels) {
  GroupExchange& exchange = group.exchange();
  const absl::StatusOr<const NcclLibrary*> nccl = NcclLibrary::Get();
  BH_RETURN_IF_ERROR(AgreeOnVersion(nccl, exchange, timeout));
  BH_ASSIGN_OR_RETURN(const ncclUniqueId id, ShareId(**nccl, exchange, timeout));
  const absl::Time deadline = absl::Now() + timeout;
  auto comm = std::make_unique<NcclCommunicator>(**nccl, group, limits, driver, std::move(kernels));
  // For phases in which NCCL involves all ranks.
  const auto agree = [&](absl::Status mine) {
    return AgreeOrAbort(group, kConnectPhase, WithExitCode(std::move(mine), ExitCode::kGroupNotUp),
                        timeout);
  };
  BH_RETURN_IF_ERROR(agree(comm->nccl_rank().Init(id, deadline)));
  const int64_t bytes = NcclWindow(limits, comm->size()).total_bytes;
  absl::Status taken = ledger.TakeMapped(MemoryCategory::kCommunication, bytes);
  if (taken.ok()) taken = comm->memory().Allocate(bytes);
  BH_RETURN_IF_ERROR(Agree(exchange, kConnectPhase,
                           WithExitCode(std::move(taken), ExitCode::kDoesNotFit), timeout));
  driver.Fill(comm->memory().data(), std::byte{0}, bytes);
  BH_RETURN_IF_ERROR(agree(comm->memory().Register()));
  // Small and large messages use different algorithms.
  const int64_t most = limits.max_sum_elements;
  for (const int64_t elements : {std::min<int64_t>(most, 256), most}) {
    BH_RETURN_IF_ERROR(agree(comm->SumAndCheck(elements, deadline)));
    for (int round = 1; round <= kLateRounds; ++round) {
      BH_RETURN_IF_ERROR(agree(
          comm->SumBehindKernelAndCheck(std::min(elements, kMaxLateElements), round, deadline)));
    }
  }
  BH_RETURN_IF_ERROR(agree(comm->SumBehindKernelAndCheck(most, kLateRounds + 1, deadline)));
  BH_LOG(kInfo) << "NCCL " << (*nccl)->Version() << " connects " << comm->size()
                << " ranks, sums in " << DTypeName(limits.sum_dtype)
                << "; symmetric windows: " << comm->memory().WindowText();
  return comm;
}

}  // namespace bulkhead
