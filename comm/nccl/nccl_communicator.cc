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
#include "base/lost_rank.h"
#include "base/status.h"
#include "comm/nccl/nccl_library.h"

namespace bulkhead {
namespace {

constexpr int64_t kFloatBytes = sizeof(float);
constexpr absl::Duration kLookAgain = absl::Microseconds(200);
constexpr absl::Duration kFarewell = absl::Seconds(5);
constexpr char kConnectPhase[] = "NCCL";
constexpr int kLateRounds = 8;
constexpr int64_t kMaxLateElements = 1 << 16;

// A rank of NCCL's own group. The ranks connect with a non-blocking communicator, for a deadline,
// and then split off a blocking one: in non-blocking mode every collective outside a graph would
// start and join a thread. A rank that hangs in a blocking call is left to the watchdog.
class NcclRank {
 public:
  NcclRank(const NcclLibrary& nccl, Group& group) : nccl_(nccl), group_(group) {
    const RankTopology& topology = group_.exchange().topology();
    lost_rank_ = topology.LostRankAt(topology.rank);
    name_ = absl::StrCat("rank ", topology.rank, " (host ", topology.hosts[topology.rank], ")");
  }
  NcclRank(const NcclRank&) = delete;
  NcclRank& operator=(const NcclRank&) = delete;
  ~NcclRank() {
    if (connecting_ != nullptr) EndConnecting(absl::Now() + kFarewell).IgnoreError();
    if (comm_ == nullptr) return;
    // Destroy if all is well; a broken communicator can only be aborted.
    const bool good = !broken_ && group_.liveness().Check(absl::InfiniteDuration()).ok() &&
                      nccl_.comm_finalize(comm_) == ncclSuccess;
    (good ? nccl_.comm_destroy : nccl_.comm_abort)(comm_);
  }

  absl::Status Init(const ncclUniqueId& id, absl::Time deadline) {
    const RankTopology& topology = group_.exchange().topology();
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    const ncclResult_t begun =
        nccl_.comm_init_rank_config(&connecting_, topology.size, id, topology.rank, &config);
    BH_RETURN_IF_ERROR(WaitUntilReady(begun, "ncclCommInitRank", deadline));
    config.blocking = 1;
    const ncclResult_t split =
        nccl_.comm_split(connecting_, /*color=*/0, /*key=*/topology.rank, &comm_, &config);
    BH_RETURN_IF_ERROR(WaitUntilReady(split, "ncclCommSplit", deadline));
    return EndConnecting(deadline);
  }

  // Checks the result of a call and the communicator's asynchronous error: ok or UNAVAILABLE with
  // NCCL's message.
  absl::Status Check(ncclResult_t answer, const char* call) {
    return answer == ncclSuccess ? AsyncError() : Failure(answer, call, comm_);
  }
  absl::Status AsyncError() {
    ncclResult_t answer = ncclSuccess;
    const ncclResult_t asked = nccl_.comm_get_async_error(comm_, &answer);
    if (asked != ncclSuccess) answer = asked;
    if (answer == ncclSuccess || answer == ncclInProgress) return absl::OkStatus();
    return Failure(answer, "a collective", comm_);
  }
  // Enqueued work timed out: anything that waits for it would hang, too.
  void SetBroken() { broken_ = true; }

  const NcclLibrary& nccl() const { return nccl_; }
  ncclComm_t comm() const { return comm_; }
  const std::string& name() const { return name_; }

 private:
  // Waits until the operation started on connecting_ is complete. Even ncclSuccess may only mean
  // that it was started, and NCCL refuses further calls until it is complete. UNAVAILABLE with
  // NCCL's message, or with the rank that the group has lost; DEADLINE_EXCEEDED.
  absl::Status WaitUntilReady(ncclResult_t answer, const char* call, absl::Time deadline) {
    while (answer == ncclSuccess || answer == ncclInProgress) {
      const ncclResult_t asked = nccl_.comm_get_async_error(connecting_, &answer);
      if (asked != ncclSuccess) answer = asked;
      if (answer == ncclSuccess) return absl::OkStatus();
      if (answer != ncclInProgress) break;
      BH_RETURN_IF_ERROR(group_.liveness().Check(absl::InfiniteDuration()));
      if (absl::Now() > deadline) {
        broken_ = true;
        return absl::DeadlineExceededError(
            absl::StrCat(name_, ": ", call, " timed out; NCCL_DEBUG=INFO shows more"));
      }
      absl::SleepFor(kLookAgain);
    }
    return Failure(answer, call, connecting_);
  }

  absl::Status EndConnecting(absl::Time deadline) {
    absl::Status ended = absl::UnavailableError("");
    if (!broken_)
      ended = WaitUntilReady(nccl_.comm_finalize(connecting_), "ncclCommFinalize", deadline);
    (ended.ok() ? nccl_.comm_destroy : nccl_.comm_abort)(std::exchange(connecting_, nullptr));
    return ended;
  }

  absl::Status Failure(ncclResult_t answer, const char* call, ncclComm_t comm) {
    broken_ = true;
    return WithLostRank(
        absl::UnavailableError(absl::StrCat(name_, ": ", call, ": ", nccl_.error_text(answer), ", ",
                                            nccl_.last_error(comm))),
        lost_rank_);
  }

  const NcclLibrary& nccl_;
  Group& group_;
  std::string name_;
  LostRank lost_rank_;               // this rank, if NCCL failed on it
  ncclComm_t connecting_ = nullptr;  // non-blocking
  ncclComm_t comm_ = nullptr;        // blocking
  bool broken_ = false;
};

// Memory allocated by NCCL, registered as a symmetric window if possible.
class NcclMemory {
 public:
  explicit NcclMemory(NcclRank& rank) : rank_(rank) {}
  NcclMemory(const NcclMemory&) = delete;
  NcclMemory& operator=(const NcclMemory&) = delete;
  ~NcclMemory() {
    if (window_ != nullptr) rank_.nccl().window_deregister(rank_.comm(), window_);
    if (data_ != nullptr) rank_.nccl().mem_free(data_);
  }

  absl::Status Allocate(int64_t bytes) {
    const ncclResult_t answer = rank_.nccl().mem_alloc(&data_, static_cast<size_t>(bytes));
    bytes_ = bytes;
    if (answer == ncclSuccess) return absl::OkStatus();
    data_ = nullptr;
    return absl::ResourceExhaustedError(
        absl::StrCat("communication: ncclMemAlloc: ", rank_.nccl().error_text(answer)));
  }
  // Collective; all ranks have the same version. From 2.30.7 on NCCL returns a null window if
  // devices have no peer access: its sums then run as without one.
  absl::Status Register() {
    if (!rank_.nccl().HasWindows()) return absl::OkStatus();
    const ncclResult_t answer = rank_.nccl().window_register(
        rank_.comm(), data_, static_cast<size_t>(bytes_), &window_, NCCL_WIN_COLL_SYMMETRIC);
    return rank_.Check(answer, "ncclCommWindowRegister");
  }

  std::byte* data() const { return static_cast<std::byte*>(data_); }
  // For the log.
  std::string WindowText() const {
    if (window_ != nullptr) return "yes";
    if (!rank_.nccl().HasWindows()) {
      return absl::StrCat("no, since sums over them wait for the kernels before them only from ",
                          kWindowsFrom, " on");
    }
    return "no, since the ranks' devices have no peer access";
  }

 private:
  NcclRank& rank_;
  void* data_ = nullptr;
  int64_t bytes_ = 0;
  ncclWindow_t window_ = nullptr;
};

class NcclCommunicator final : public Communicator {
 public:
  NcclCommunicator(const NcclLibrary& nccl, Group& group, const CommLimits& limits,
                   CudaDriver& driver)
      : topology_(group.exchange().topology()),
        limits_(limits),
        layout_(limits, topology_.size),
        driver_(driver),
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
    ncclResult_t answer = ncclSuccess;
    if (elements > 0) {
      answer = rank_.nccl().all_reduce(view_.data(), view_.data(), static_cast<size_t>(elements),
                                       ncclFloat32, ncclSum, rank_.comm(), stream());
    }
    BH_RETURN_IF_ERROR(rank_.Check(answer, "ncclAllReduce"));
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
    for (int64_t i = 0; i < elements; ++i) numbers[i] = static_cast<float>(KnownValue(i, rank()));
    const MatrixView partial = PartialSum(1, elements);
    driver_.CopyToDevice(numbers.data(), partial.data(), elements * kFloatBytes);
    return CheckSum(0, numbers, deadline);
  }

  // The same right after a kernel that writes them late, with different numbers in each round.
  absl::Status SumBehindKernelAndCheck(int64_t elements, int64_t round,
                                       const WritePartialSumLate& write_late, absl::Time deadline) {
    if (elements == 0) return absl::OkStatus();
    std::vector<float> numbers(elements);
    auto* const partial = reinterpret_cast<float*>(PartialSum(1, elements).data());
    write_late(partial, elements, /*first=*/round, kKnownPeriod, KnownOffset(rank()));
    return CheckSum(round, numbers, deadline);
  }

 private:
  cudaStream_t stream() { return static_cast<cudaStream_t>(driver_.native_stream()); }

  // Sums the known partial sum starting at element `first`; `numbers` is a buffer in use until the
  // stream is idle.
  absl::Status CheckSum(int64_t first, std::vector<float>& numbers, absl::Time deadline) {
    BH_ASSIGN_OR_RETURN(const ConstMatrixView sum, AllReduceSum());
    const auto elements = static_cast<int64_t>(numbers.size());
    driver_.CopyToHost(sum.data(), numbers.data(), elements * kFloatBytes);
    if (absl::Status waited = WaitForQueue(deadline); !waited.ok()) {
      rank_.SetBroken();
      return waited;
    }
    for (int64_t i = 0; i < elements; ++i) {
      const auto expected = static_cast<float>(KnownSum(first + i, size()));
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
  CudaDriver& driver_;
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
                                                          const WritePartialSumLate& write_late) {
  GroupExchange& exchange = group.exchange();
  const absl::StatusOr<const NcclLibrary*> nccl = NcclLibrary::Get();
  BH_RETURN_IF_ERROR(AgreeOnVersion(nccl, exchange, timeout));
  BH_ASSIGN_OR_RETURN(const ncclUniqueId id, ShareId(**nccl, exchange, timeout));
  const absl::Time deadline = absl::Now() + timeout;
  auto comm = std::make_unique<NcclCommunicator>(**nccl, group, limits, driver);
  const auto agree = [&](absl::Status mine, ExitCode code) {
    return Agree(exchange, kConnectPhase, WithExitCode(std::move(mine), code), timeout);
  };
  BH_RETURN_IF_ERROR(agree(comm->nccl_rank().Init(id, deadline), ExitCode::kGroupNotUp));
  const int64_t bytes = NcclWindow(limits, comm->size()).total_bytes;
  absl::Status taken = ledger.TakeMapped(MemoryCategory::kCommunication, bytes);
  if (taken.ok()) taken = comm->memory().Allocate(bytes);
  BH_RETURN_IF_ERROR(agree(std::move(taken), ExitCode::kDoesNotFit));
  driver.Fill(comm->memory().data(), std::byte{0}, bytes);
  BH_RETURN_IF_ERROR(agree(comm->memory().Register(), ExitCode::kGroupNotUp));
  // Small and large messages use different algorithms.
  const int64_t most = limits.max_sum_elements;
  for (const int64_t elements : {std::min<int64_t>(most, 256), most}) {
    BH_RETURN_IF_ERROR(agree(comm->SumAndCheck(elements, deadline), ExitCode::kGroupNotUp));
    for (int round = 1; round <= kLateRounds; ++round) {
      BH_RETURN_IF_ERROR(agree(comm->SumBehindKernelAndCheck(std::min(elements, kMaxLateElements),
                                                             round, write_late, deadline),
                               ExitCode::kGroupNotUp));
    }
  }
  BH_LOG(kInfo) << "NCCL " << (*nccl)->Version() << " connects " << comm->size()
                << " ranks; symmetric windows: " << comm->memory().WindowText();
  return comm;
}

}  // namespace bulkhead
