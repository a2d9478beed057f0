#include "comm/one_shot/one_shot_communicator.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/arithmetic.h"
#include "base/bytes.h"
#include "base/check.h"
#include "base/exit_code.h"
#include "base/log.h"
#include "base/status.h"

namespace bulkhead {
namespace {

constexpr int64_t kFloatBytes = sizeof(float);
constexpr int64_t kStateBytes = kPeerStates * 16;
constexpr int64_t kGranuleBytes = int64_t{2} << 20;
constexpr char kPhase[] = "one-shot sums";
constexpr int kLargeRounds = 8;
constexpr int64_t kSmallElements = 256;
constexpr int kMaxSumsInTurn = 4;  // 4 sums of kMaxPeers ranks are exact in f32
constexpr int kMaxNormsInTurn = 3;
// Buffers for checking normed rows: the residual stream, the normed rows, and the weight.
constexpr int64_t kMaxNormed = 16384;
constexpr int64_t kCheckBytes = (2 * kMaxNormed + kMaxPeerNormCols) * kFloatBytes;
constexpr double kNormTolerance = 1e-5;
constexpr KnownNumbers kKnown = KnownNumbersIn(DType::kF32, kMaxPeers);

// This rank's memory, and the others' as this device addresses it.
class SharedPlaces {
 public:
  SharedPlaces(CudaDriver& driver, PeerDriver& peers) : driver_(driver), peers_(peers) {}
  SharedPlaces(const SharedPlaces&) = delete;
  SharedPlaces& operator=(const SharedPlaces&) = delete;
  // When a sum ends, everything that others send for it has arrived: no writes are in flight.
  ~SharedPlaces() {
    driver_.Synchronize().IgnoreError();
    for (std::byte* const peer : opened_) peers_.CloseShared(peer);
    if (own_ != nullptr) peers_.FreeShared(own_);
  }

  absl::Status Allocate(const OneShotLayout& layout) {
    BH_ASSIGN_OR_RETURN(own_, peers_.AllocateShared(layout.total_bytes));
    driver_.Fill(own_, std::byte{kNothingCame & 0xFF}, layout.state_offset_bytes);
    driver_.Fill(own_ + layout.state_offset_bytes, std::byte{0}, kStateBytes + kCheckBytes);
    return driver_.Synchronize();
  }
  absl::StatusOr<std::byte*> Open(absl::string_view handle) {
    BH_ASSIGN_OR_RETURN(std::byte* const peer, peers_.OpenShared(handle));
    opened_.push_back(peer);
    return peer;
  }
  std::byte* own() const { return own_; }

 private:
  CudaDriver& driver_;
  PeerDriver& peers_;
  std::byte* own_ = nullptr;
  std::vector<std::byte*> opened_;
};

class OneShotCommunicator final : public Communicator {
 public:
  OneShotCommunicator(CudaDriver& driver, PeerDriver& peers, OneShotOptions options,
                      std::unique_ptr<Communicator> inner)
      : inner_(std::move(inner)),
        driver_(driver),
        options_(std::move(options)),
        places_(driver, peers) {}
  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }

  MatrixView PartialSum(int64_t rows, int64_t cols) override {
    view_ = inner_->PartialSum(rows, cols);
    return view_;
  }

  // In place, as in the inner communicator.
  absl::StatusOr<ConstMatrixView> AllReduceSum() override {
    return SumIfSmall() ? ConstMatrixView(view_) : inner_->AllReduceSum();
  }
  absl::StatusOr<ConstMatrixView> AllReduceSumF32() override {
    return SumIfSmall() ? ConstMatrixView(view_) : inner_->AllReduceSumF32();
  }

  bool NormsSum(int64_t rows, int64_t cols) const override { return sums_.NormsRows(rows, cols); }
  void AllReduceSumNorm(const ResidualNorm& norm) override {
    options_.sum_norm(sums_, ConstMatrixView(view_), norm);
  }

  absl::Status GatherCols(ConstMatrixView part, absl::Span<const int64_t> cols_of_rank,
                          MatrixView out) override {
    return inner_->GatherCols(part, cols_of_rank, out);
  }
  absl::Status GatherRows(ConstMatrixView part, absl::Span<const int64_t> cols_of_rank,
                          absl::Span<const int> rank_of_row, MatrixView out) override {
    return inner_->GatherRows(part, cols_of_rank, rank_of_row, out);
  }
  absl::Status Broadcast(int32_t* values, int64_t count) override {
    return inner_->Broadcast(values, count);
  }

  SharedPlaces& places() { return places_; }

  // `handles`: by rank.
  absl::Status Open(const OneShotLayout& layout, absl::Span<const std::string> handles) {
    PeerSums sums{.rank = rank(), .size = size(), .max_elements = layout.max_elements};
    for (int r = 0; r < size(); ++r) {
      std::byte* memory = places_.own();
      if (r != rank()) {
        BH_ASSIGN_OR_RETURN(memory, places_.Open(handles[r]));
      }
      sums.received[r] = reinterpret_cast<uint32_t*>(memory);
    }
    sums.own = sums.received[rank()];
    sums.state = reinterpret_cast<uint32_t*>(places_.own() + layout.state_offset_bytes);
    sums_ = sums;
    checked_ = reinterpret_cast<float*>(places_.own() + layout.check_offset_bytes);
    return absl::OkStatus();
  }
  // From now on only the inner communicator sums.
  void GiveUp() { sums_ = PeerSums(); }

  // Sums known numbers, each right after the kernel that writes them, and checks every result. If a
  // rank, or its numbers, do not arrive, returns an error after the limit.
  absl::Status Check(int64_t max_sum_elements, absl::Time deadline) {
    sums_.limit_ns = absl::ToInt64Nanoseconds(options_.check_limit);
    const int64_t most = std::min(sums_.max_elements, max_sum_elements);
    const int64_t few = std::min(most, kSmallElements);
    const std::vector<float> ones(kMaxPeerNormCols, 1.0F);
    driver_.CopyToDevice(ones.data(), reinterpret_cast<std::byte*>(checked_ + 2 * kMaxNormed),
                         kMaxPeerNormCols * kFloatBytes);
    BH_RETURN_IF_ERROR(driver_.Synchronize());
    for (int round = 1; round <= options_.check_rounds; ++round) {
      // Large sums among small ones, which then clear the large ones' buffers.
      const bool large = round % 4 == 2 && round / 4 < kLargeRounds;
      BH_RETURN_IF_ERROR(CheckSum(large ? most : few, round, 1 + round % kMaxSumsInTurn));
      // Large: the most rows that a kernel norms, or the widest.
      const int64_t most_normed = std::min(most, large ? kMaxNormed : kSmallElements);
      const int64_t cols = large && round % 8 == 2 ? kMaxNormed / kPeerBlocks : kMaxPeerNormCols;
      BH_RETURN_IF_ERROR(CheckNorm(std::min(cols, most_normed / 4 * 4), most_normed, round,
                                   1 + round % kMaxNormsInTurn));
      if (absl::Now() > deadline) {
        return absl::DeadlineExceededError("the check of sums timed out");
      }
    }
    sums_.limit_ns = 0;
    return absl::OkStatus();
  }

 private:
  // False: left to the inner communicator.
  bool SumIfSmall() {
    const int64_t elements = view_.rows() * view_.cols();
    if (elements > sums_.max_elements) return false;
    if (elements > 0) options_.sum(sums_, view_.F32(), elements);
    return true;
  }

  // `sums` of them, each over the previous one's result, without waiting in between.
  absl::Status CheckSum(int64_t elements, int64_t round, int sums) {
    std::vector<float> numbers(elements);
    options_.write_late(PartialSum(1, elements).F32(), elements, /*first=*/round, kKnown.period,
                        kKnown.Offset(rank()));
    int64_t factor = 1;
    for (int i = 0; i < sums; ++i) {
      BH_RETURN_IF_ERROR(AllReduceSum().status());
      if (i > 0) factor *= size();
    }
    driver_.CopyToHost(view_.data(), reinterpret_cast<std::byte*>(numbers.data()),
                       elements * kFloatBytes);
    BH_RETURN_IF_ERROR(driver_.Synchronize());
    for (int64_t i = 0; i < elements; ++i) {
      const auto expected = static_cast<float>(kKnown.Sum(round + i, size()) * factor);
      if (numbers[i] == expected) continue;
      return absl::InternalError(absl::StrCat("element ", i, " of ", elements, " of sum ", round,
                                              " is ", numbers[i],
                                              " (nan: it did not come) and "
                                              "should be ",
                                              expected));
    }
    return absl::OkStatus();
  }

  // As many rows of `cols` as fit in `elements`: the same sum is added to each `norms` times.
  absl::Status CheckNorm(int64_t cols, int64_t elements, int64_t round, int norms) {
    if (cols == 0) return absl::OkStatus();
    const int64_t rows = elements / cols;
    elements = rows * cols;
    const auto view = [](float* at, int64_t view_rows, int64_t view_cols) {
      return MatrixView(reinterpret_cast<std::byte*>(at), DType::kF32, view_rows, view_cols);
    };
    const ResidualNorm norm{.hidden = view(checked_, rows, cols),
                            .weight = view(checked_ + 2 * kMaxNormed, 1, cols),
                            .normed = view(checked_ + kMaxNormed, rows, cols)};
    options_.write_late(checked_, elements, /*first=*/round, kKnown.period, /*offset=*/0);
    options_.write_late(PartialSum(rows, cols).F32(), elements, /*first=*/round, kKnown.period,
                        kKnown.Offset(rank()));
    for (int i = 0; i < norms; ++i) AllReduceSumNorm(norm);
    std::vector<float> hidden(elements);
    std::vector<float> normed(elements);
    driver_.CopyToHost(norm.hidden.data(), hidden.data(), elements * kFloatBytes);
    driver_.CopyToHost(norm.normed.data(), normed.data(), elements * kFloatBytes);
    BH_RETURN_IF_ERROR(driver_.Synchronize());
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t begin = row * cols;
      double squares = 0;
      for (int64_t i = begin; i < begin + cols; ++i) squares += double{hidden[i]} * hidden[i];
      const double scale = 1 / std::sqrt(squares / static_cast<double>(cols));
      for (int64_t i = begin; i < begin + cols; ++i) {
        const auto expected =
            static_cast<float>(kKnown.Value(round + i, 0) + norms * kKnown.Sum(round + i, size()));
        const double error = std::abs(normed[i] - expected * scale);
        if (hidden[i] == expected && error <= kNormTolerance * expected * scale) continue;
        return absl::InternalError(absl::StrCat(
            "element ", i % cols, " of row ", row, " of ", rows, " of normed sum ", round, " is ",
            hidden[i], ", normed ", normed[i], " (nan: it did not come) and should be ", expected,
            ", normed ", expected * scale));
      }
    }
    return absl::OkStatus();
  }

  const std::unique_ptr<Communicator> inner_;
  CudaDriver& driver_;
  const OneShotOptions options_;
  SharedPlaces places_;
  PeerSums sums_;             // max_elements 0: not used
  float* checked_ = nullptr;  // kCheckBytes
  MatrixView view_;           // of the partial sum
};

// Every rank's handle, by rank, if all ranks can and want to; else the same error on every rank.
absl::StatusOr<std::vector<std::string>> ShareHandles(Group& group, CudaDriver& driver,
                                                      PeerDriver& peers, const absl::Status& wanted,
                                                      std::byte* own, absl::Duration timeout) {
  GroupExchange& exchange = group.exchange();
  absl::Status mine = wanted;
  if (!exchange.topology().one_host()) mine = absl::UnavailableError("ranks are on several hosts");
  const int num_sms = driver.properties().num_sms;
  if (num_sms <= kPeerBlocks) {
    mine = absl::UnavailableError(absl::StrCat("a GPU has ", num_sms, " multiprocessors, and ",
                                               kPeerBlocks + 1, " are needed"));
  }
  std::string handle;
  if (mine.ok()) {
    absl::StatusOr<std::string> given = peers.HandleOf(own);
    mine = given.status();
    if (given.ok()) handle = *std::move(given);
  }
  BH_RETURN_IF_ERROR(Agree(exchange, kPhase, mine, timeout));
  const std::string& uuid = driver.properties().uuid;
  BH_ASSIGN_OR_RETURN(const std::vector<std::string> uuids, exchange.AllGather(uuid, timeout));
  for (size_t r = 0; r < uuids.size(); ++r) {
    if (std::count(uuids.begin(), uuids.end(), uuids[r]) == 1) continue;
    return MarkAgreed(absl::UnavailableError(absl::StrCat("ranks share a GPU (", uuids[r], ")")));
  }
  return exchange.AllGather(handle, timeout);
}

absl::Status ConnectPeers(Group& group, const OneShotLayout& layout, int64_t max_sum_elements,
                          CudaDriver& driver, PeerDriver& peers, absl::Duration timeout,
                          const absl::Status& wanted, OneShotCommunicator& comm) {
  const absl::Time deadline = absl::Now() + timeout;
  BH_ASSIGN_OR_RETURN(const std::vector<std::string> handles,
                      ShareHandles(group, driver, peers, wanted, comm.places().own(), timeout));
  BH_RETURN_IF_ERROR(Agree(group.exchange(), kPhase, comm.Open(layout, handles), timeout));
  return Agree(group.exchange(), kPhase, comm.Check(max_sum_elements, deadline), timeout);
}

}  // namespace

OneShotLayout::OneShotLayout(const CommLimits& limits, int size) {
  if (size < 2 || size > kMaxPeers) return;
  max_elements = std::min(kMaxPeerSumElements, RoundUp(limits.max_sum_elements, 4));
  state_offset_bytes = kPeerBuffers * (size - 1) * max_elements * kFloatBytes;
  check_offset_bytes = state_offset_bytes + kStateBytes;
  total_bytes = RoundUp(check_offset_bytes + kCheckBytes, kGranuleBytes);
}

absl::StatusOr<std::unique_ptr<Communicator>> ConnectOneShot(Group& group, const CommLimits& limits,
                                                             CudaDriver& driver, PeerDriver& peers,
                                                             MemoryLedger& ledger,
                                                             absl::Duration timeout,
                                                             OneShotOptions options,
                                                             std::unique_ptr<Communicator> inner) {
  const OneShotLayout layout(limits, inner->size());
  if (layout.total_bytes == 0) return inner;
  const absl::Status wanted = options.wanted;
  const int rounds = options.check_rounds;
  auto comm =
      std::make_unique<OneShotCommunicator>(driver, peers, std::move(options), std::move(inner));
  absl::Status taken = ledger.TakeMapped(MemoryCategory::kCommunication, layout.total_bytes);
  if (taken.ok()) taken = comm->places().Allocate(layout);
  const ExitCode code =
      absl::IsResourceExhausted(taken) ? ExitCode::kDoesNotFit : ExitCode::kGroupNotUp;
  BH_RETURN_IF_ERROR(Agree(group.exchange(), kPhase, WithExitCode(taken, code), timeout));
  const absl::Status connected =
      ConnectPeers(group, layout, limits.max_sum_elements, driver, peers, timeout, wanted, *comm);
  if (connected.ok()) {
    BH_LOG(kInfo) << "sums up to " << FormatBytes(layout.max_elements * kFloatBytes)
                  << " are one-shot over peer memory (" << rounds << " checked)";
    return comm;
  }
  if (!IsAgreed(connected)) return connected;
  // If a kernel of the check has lost the device, NCCL cannot use it either.
  absl::Status usable = driver.Synchronize();
  if (!usable.ok()) {
    usable =
        WithExitCode(absl::Status(usable.code(), absl::StrCat(usable.message(),
                                                              "; BULKHEAD_ONE_SHOT=0 goes "
                                                              "without sums over peer memory")),
                     ExitCode::kGroupNotUp);
  }
  BH_RETURN_IF_ERROR(Agree(group.exchange(), kPhase, usable, timeout));
  comm->GiveUp();
  constexpr char kWithout[] = "no sums are one-shot over peer memory: ";
  if (absl::IsUnavailable(connected)) {
    BH_LOG(kInfo) << kWithout << connected.message();
  } else {
    BH_LOG(kWarning) << kWithout << connected.message();
  }
  return comm;
}

}  // namespace bulkhead
