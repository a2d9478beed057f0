#include "comm/staged_communicator.h"

#include <utility>
#include <vector>

#include "memory/check.h"
#include "memory/exit_code.h"
#include "memory/status.h"

// Host memory that a copy to the device still reads is written again only behind a later
// Synchronize of this rank: its staging is, since every operation begins with one; and what the
// ranks share is, since nobody goes on before all have come to the next operation.

namespace bulkhead {
namespace {

constexpr int64_t kFloatBytes = sizeof(float);
constexpr int64_t kAlignBytes = 256;
constexpr absl::Duration kConnectTimeout = absl::Minutes(1);

// The host's part: its memory is not the device's, and has no cap.
struct HostSide {
  explicit HostSide(const CommLimits& limits, int size) {
    ledger.Claim(Term::kCommunication, CommunicationBytes(limits, size));
  }
  std::unique_ptr<Device> device = NewHostDevice(0);
  MemoryLedger ledger{*device};
  std::unique_ptr<Communicator> comm;
};

// Calls copy(row, bytes) for every piece of `view` that lies together: all of it, or each row.
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
  StagedCommunicator(std::unique_ptr<HostSide> host, const CommLimits& limits, Device& device,
                     Buffer term)
      : host_(std::move(host)), limits_(limits), device_(device), term_(std::move(term)) {
    part_.resize(limits_.max_gather_elements);
    if (rank() == 0) whole_.resize(limits_.max_gather_elements * size());
  }
  int rank() const override { return host_->comm->rank(); }
  int size() const override { return host_->comm->size(); }

  MatrixView Term(int64_t rows, int64_t cols) override {
    BH_CHECK(rows >= 0 && cols >= 0 && rows * cols <= limits_.max_sum_elements);
    view_ = MatrixView(term_.data(), DType::kF32, rows, cols);
    return view_;
  }

  absl::StatusOr<ConstMatrixView> AllReduceSum() override {
    const int64_t bytes = view_.rows() * view_.cols() * kFloatBytes;
    const MatrixView host_term = host_->comm->Term(view_.rows(), view_.cols());
    if (bytes > 0) device_.CopyToHost(view_.data(), host_term.data(), bytes);
    BH_RETURN_IF_ERROR(device_.Synchronize());
    BH_ASSIGN_OR_RETURN(const ConstMatrixView sum, host_->comm->AllReduceSum());
    if (bytes > 0) device_.CopyFromHost(sum.data(), view_.data(), bytes);
    return ConstMatrixView(view_);
  }

  absl::Status GatherCols(ConstMatrixView part, absl::Span<const int64_t> cols_of_rank,
                          MatrixView out) override {
    BH_CHECK(part.rows() * part.cols() <= limits_.max_gather_elements);
    const MatrixView host_part(reinterpret_cast<std::byte*>(part_.data()), DType::kF32, part.rows(),
                               part.cols());
    ForDenseRows(part, [&](int64_t row, int64_t bytes) {
      device_.CopyToHost(part.RowBytes(row), host_part.RowBytes(row), bytes);
    });
    BH_RETURN_IF_ERROR(device_.Synchronize());
    MatrixView host_out;
    if (rank() == 0) {
      BH_CHECK(out.rows() * out.cols() <= static_cast<int64_t>(whole_.size()));
      host_out = MatrixView(reinterpret_cast<std::byte*>(whole_.data()), DType::kF32, out.rows(),
                            out.cols());
    }
    BH_RETURN_IF_ERROR(host_->comm->GatherCols(host_part, cols_of_rank, host_out));
    if (rank() != 0) return absl::OkStatus();
    ForDenseRows(out, [&](int64_t row, int64_t bytes) {
      device_.CopyFromHost(host_out.RowBytes(row), out.RowBytes(row), bytes);
    });
    return absl::OkStatus();
  }

  absl::Status Broadcast(int32_t* values, int64_t count) override {
    auto* const device = reinterpret_cast<std::byte*>(values);
    const int64_t bytes = count * static_cast<int64_t>(sizeof(int32_t));
    BH_RETURN_IF_ERROR(device_.Synchronize());  // a copy may still read what was broadcast before
    values_.resize(count);
    if (rank() == 0 && count > 0) device_.CopyToHost(device, values_.data(), bytes);
    BH_RETURN_IF_ERROR(device_.Synchronize());
    BH_RETURN_IF_ERROR(host_->comm->Broadcast(values_.data(), count));
    if (rank() != 0 && count > 0) device_.CopyFromHost(values_.data(), device, bytes);
    return absl::OkStatus();
  }

 private:
  std::unique_ptr<HostSide> host_;
  CommLimits limits_;
  Device& device_;
  Buffer term_;
  MatrixView view_;              // of the term
  std::vector<float> part_;      // this rank's, on the host
  std::vector<float> whole_;     // rank 0
  std::vector<int32_t> values_;  // of a broadcast
};

}  // namespace

int64_t StagedTermBytes(const CommLimits& limits) {
  return (limits.max_sum_elements * kFloatBytes + kAlignBytes - 1) / kAlignBytes * kAlignBytes;
}

absl::StatusOr<std::unique_ptr<Communicator>> ConnectStaged(Group& group, const CommLimits& limits,
                                                            Device& device, MemoryLedger& ledger) {
  absl::StatusOr<Buffer> term = ledger.Take(Term::kCommunication, StagedTermBytes(limits));
  BH_RETURN_IF_ERROR(Agree(group.exchange(), "communication buffers",
                           WithExitCode(term.status(), ExitCode::kDoesNotFit), kConnectTimeout));
  CommLimits host_limits = limits;
  host_limits.transport = Transport::kShared;
  auto host = std::make_unique<HostSide>(host_limits, group.exchange().topology().size);
  BH_ASSIGN_OR_RETURN(host->comm, group.Connect(host_limits, host->ledger));
  return std::make_unique<StagedCommunicator>(std::move(host), limits, device, *std::move(term));
}

}  // namespace bulkhead
