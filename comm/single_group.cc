#include "comm/single_group.h"

#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/exit_code.h"

namespace bulkhead {
namespace {

class SingleExchange final : public GroupExchange {
 public:
  SingleExchange() {
    const absl::StatusOr<RankTopology> topology = TopologyFrom(0, {HostIdentity()});
    BH_CHECK(topology.ok());
    topology_ = *topology;
  }
  const RankTopology& topology() const override { return topology_; }
  absl::StatusOr<std::vector<std::string>> AllGather(absl::string_view mine,
                                                     absl::Duration) override {
    return std::vector<std::string>{std::string(mine)};
  }

 private:
  RankTopology topology_;
};

class SingleBus final : public ControlBus {
 public:
  absl::Status Publish(absl::string_view) override { return absl::OkStatus(); }
  absl::Status Receive(std::string*) override {
    return absl::FailedPreconditionError("a group of one has no readers");
  }
};

// No ranks to lose: only the watchdog's own limits apply.
class SingleLiveness final : public GroupLiveness {
 public:
  void Beat() override {}
  absl::Status Check(absl::Duration) override { return absl::OkStatus(); }
  void Rearm() override {}
  void ReportIdle(absl::Duration) override {}
  Stragglers FindStragglers() override { return {}; }
  int fd() const override { return -1; }
  void Abort(const absl::Status&) override {}
  void Ending() override {}
};

// The partial sum is the sum.
class SingleCommunicator final : public Communicator {
 public:
  SingleCommunicator(const CommLimits& limits, Buffer partial)
      : limits_(limits), partial_(std::move(partial)) {}
  int rank() const override { return 0; }
  int size() const override { return 1; }

  MatrixView PartialSum(int64_t rows, int64_t cols) override {
    BH_CHECK(rows >= 0 && cols >= 0 && rows * cols <= limits_.max_sum_elements);
    view_ = MatrixView(partial_.data(), DType::kF32, rows, cols);
    return view_;
  }
  absl::StatusOr<ConstMatrixView> AllReduceSum() override { return ConstMatrixView(view_); }
  absl::Status GatherCols(ConstMatrixView part, absl::Span<const int64_t> cols_of_rank,
                          MatrixView out) override {
    BH_CHECK(cols_of_rank.size() == 1 && cols_of_rank[0] == part.cols());
    BH_CHECK(out.rows() == part.rows() && out.cols() == part.cols());
    for (int64_t row = 0; row < part.rows(); ++row) {
      std::memcpy(out.F32(row), part.F32(row), part.cols() * sizeof(float));
    }
    return absl::OkStatus();
  }

 private:
  CommLimits limits_;
  Buffer partial_;
  MatrixView view_;
};

class SingleGroup final : public Group {
 public:
  GroupExchange& exchange() override { return exchange_; }
  ControlBus& bus() override { return bus_; }
  GroupLiveness& liveness() override { return liveness_; }
  void AllowSpinning(bool) override {}
  absl::StatusOr<std::unique_ptr<Communicator>> Connect(const CommLimits& limits,
                                                        MemoryLedger& ledger) override {
    absl::StatusOr<Buffer> partial =
        ledger.Take(MemoryCategory::kCommunication, CommunicationBytes(limits, 1));
    if (!partial.ok()) return MarkAgreed(WithExitCode(partial.status(), ExitCode::kDoesNotFit));
    return std::make_unique<SingleCommunicator>(limits, *std::move(partial));
  }
  void Leave(const absl::Status&) override {}

 private:
  SingleExchange exchange_;
  SingleBus bus_;
  SingleLiveness liveness_;
};

}  // namespace

std::unique_ptr<Group> NewSingleGroup() { return std::make_unique<SingleGroup>(); }

}  // namespace bulkhead
