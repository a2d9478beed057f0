#include "comm/staged/staged_communicator.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/arithmetic.h"
#include "base/check.h"
#include "base/exit_code.h"
#include "base/status.h"

// The host writes the pinned memory only after a Synchronize in the same operation, so that no
// earlier copy still reads it.

namespace bulkhead {
namespace {

constexpr int64_t kFloatBytes = sizeof(float);
constexpr int64_t kAlignBytes = 256;
constexpr absl::Duration kConnectTimeout = absl::Minutes(1);

// The host side: its memory is not the device's, and is not capped.
struct HostSide {
  HostSide(const CommLimits& limits, int size, int64_t pinned_bytes) {
    ledger.Claim(MemoryCategory::kCommunication, CommunicationBytes(limits, size) + pinned_bytes);
  }
  std::unique_ptr<Device> device = NewHostDevice(0);
  MemoryLedger ledger{*device};
  std::unique_ptr<Communicator> comm;
};

CommLimits OnHost(CommLimits limits) {
  limits.transport = Transport::kShared;
  return limits;
}

// One at a time: a partial sum and its result, a part, or broadcast values.
int64_t OutgoingBytes(const CommLimits& limits) {
  return RoundUp(std::max(limits.max_sum_elements, limits.max_gather_elements) * kFloatBytes,
                 kAlignBytes);
}

// Calls copy(row, bytes) for every contiguous piece of `view`: all of it, or each row.
template <typename Copy>
void ForDenseRows(ConstMatrixView view, const Copy& copy) {
  if (view.empty()) return;
  const bool dense = view.row_stride() == view.cols();
  const int64_t bytes = view.cols() * kFloatBytes;
  if (dense) return copy(0, view.rows() * bytes);
  for (int64_t row = 0; row < view.rows(); ++row) copy(row, bytes);
}

class StagedCommunicator final : public Communicator {
 public:
  // `pinned`: StagedHostBytes.
  StagedCommunicator(std::unique_ptr<HostSide> host, const CommLimits& limits, Device& device,
                     Buffer partial, HostBuffer pinned)
      : host_(std::move(host)),
        limits_(limits),
        device_(device),
        partial_(std::move(partial)),
        pinned_(std::move(pinned)) {}
  int rank() const override { return host_->comm->rank(); }
  int size() const override { return host_->comm->size(); }

  MatrixView PartialSum(int64_t rows, int64_t cols) override {
    BH_CHECK(rows >= 0 && cols >= 0 && rows * cols <= limits_.max_sum_elements);
    view_ = MatrixView(partial_.data(), DType::kF32, rows, cols);
    return view_;
  }

  absl::StatusOr<ConstMatrixView> AllReduceSum() override {
    return Sum(&Communicator::AllReduceSum);
  }
  absl::StatusOr<ConstMatrixView> AllReduceSumF32() override {
    return Sum(&Communicator::AllReduceSumF32);
  }

  absl::Status GatherCols(ConstMatrixView part, absl::Span<const int64_t> cols_of_rank,
                          MatrixView out) override {
    BH_CHECK(part.rows() * part.cols() <= limits_.max_gather_elements);
    const MatrixView host_part(outgoing(), DType::kF32, part.rows(), part.cols());
    ForDenseRows(part, [&](int64_t row, int64_t bytes) {
      device_.CopyToHost(part.RowBytes(row), host_part.RowBytes(row), bytes);
    });
    BH_RETURN_IF_ERROR(device_.Synchronize());
    MatrixView host_out;
    if (rank() == 0) {
      BH_CHECK(out.rows() * out.cols() <= limits_.max_gather_elements * size());
      host_out = MatrixView(whole(), DType::kF32, out.rows(), out.cols());
    }
    BH_RETURN_IF_ERROR(host_->comm->GatherCols(host_part, cols_of_rank, host_out));
    if (rank() != 0) return absl::OkStatus();
    ForDenseRows(out, [&](int64_t row, int64_t bytes) {
      device_.CopyFromHost(host_out.RowBytes(row), out.RowBytes(row), bytes);
    });
    return absl::OkStatus();
  }

  absl::Status Broadcast(int32_t* values, int64_t count) override {
    BH_CHECK(2 * count <= limits_.max_sum_elements);
    auto* const device = reinterpret_cast<std::byte*>(values);
    const int64_t bytes = count * static_cast<int64_t>(sizeof(int32_t));
    if (rank() == 0 && count > 0) device_.CopyToHost(device, outgoing(), bytes);
    BH_RETURN_IF_ERROR(device_.Synchronize());
    BH_RETURN_IF_ERROR(host_->comm->Broadcast(reinterpret_cast<int32_t*>(outgoing()), count));
    if (rank() != 0 && count > 0) device_.CopyFromHost(outgoing(), device, bytes);
    return absl::OkStatus();
  }

 private:
  // Uses `host_sum` of the host communicator.
  absl::StatusOr<ConstMatrixView> Sum(absl::StatusOr<ConstMatrixView> (Communicator::*host_sum)()) {
    const int64_t bytes = view_.rows() * view_.cols() * kFloatBytes;
    const MatrixView host_partial = host_->comm->PartialSum(view_.rows(), view_.cols());
    if (bytes > 0) device_.CopyToHost(view_.data(), outgoing(), bytes);
    BH_RETURN_IF_ERROR(device_.Synchronize());
    if (bytes > 0) std::memcpy(host_partial.data(), outgoing(), bytes);
    BH_ASSIGN_OR_RETURN(const ConstMatrixView sum, (*host_->comm.*host_sum)());
    if (bytes == 0) return ConstMatrixView(view_);
    std::memcpy(outgoing(), sum.data(), bytes);
    device_.CopyFromHost(outgoing(), view_.data(), bytes);
    return ConstMatrixView(view_);
  }

  std::byte* outgoing() const { return pinned_.get(); }
  // Rank 0: all ranks' parts.
  std::byte* whole() const { return pinned_.get() + OutgoingBytes(limits_); }

  std::unique_ptr<HostSide> host_;
  CommLimits limits_;
  Device& device_;
  Buffer partial_;
  HostBuffer pinned_;
  MatrixView view_;  // of the partial sum
};

}  // namespace

int64_t StagedPartialBytes(const CommLimits& limits) {
  return RoundUp(limits.max_sum_elements * kFloatBytes, kAlignBytes);
}

int64_t StagedHostBytes(const CommLimits& limits, int rank, int size) {
  const int64_t whole = rank == 0 ? limits.max_gather_elements * size * kFloatBytes : 0;
  return OutgoingBytes(limits) + whole;
}

int64_t StagedSharedBytes(const CommLimits& limits, int size) {
  return CommunicationBytes(OnHost(limits), size);
}

int64_t SumHostBytes(const CommLimits& limits, int rank, int size) {
  if (limits.transport != Transport::kStaged) return 0;
  return StagedHostBytes(limits, rank, size) + StagedSharedBytes(limits, size);
}

absl::StatusOr<std::unique_ptr<Communicator>> ConnectStaged(Group& group, const CommLimits& limits,
                                                            Device& device, MemoryLedger& ledger) {
  const RankTopology& topology = group.exchange().topology();
  const int64_t pinned_bytes = StagedHostBytes(limits, topology.rank, topology.size);
  absl::StatusOr<Buffer> partial =
      ledger.Take(MemoryCategory::kCommunication, StagedPartialBytes(limits));
  absl::StatusOr<HostBuffer> pinned = device.AllocateHost(pinned_bytes);
  const absl::Status& taken = partial.ok() ? pinned.status() : partial.status();
  BH_RETURN_IF_ERROR(Agree(group.exchange(), "communication buffers",
                           WithExitCode(taken, ExitCode::kDoesNotFit), kConnectTimeout));
  const CommLimits host_limits = OnHost(limits);
  auto host = std::make_unique<HostSide>(host_limits, topology.size, pinned_bytes);
  BH_RETURN_IF_ERROR(host->ledger.TakeMapped(MemoryCategory::kCommunication, pinned_bytes));
  BH_ASSIGN_OR_RETURN(host->comm, group.Connect(host_limits, host->ledger));
  host->ledger.Seal();
  return std::make_unique<StagedCommunicator>(std::move(host), limits, device, *std::move(partial),
                                              *std::move(pinned));
}

}  // namespace bulkhead
