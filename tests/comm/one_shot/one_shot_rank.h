// A rank with an emulated device whose sums are one-shot; what they are too large for is staged.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "comm/one_shot/one_shot_communicator.h"
#include "comm/staged/staged_communicator.h"
#include "kernels/cuda/peer_sum.h"
#include "memory/cuda_device.h"
#include "tests/comm/ramp.h"
#include "tests/support/emulator/emulated_device.h"

namespace bulkhead {

inline constexpr CommLimits kLimits{
    .max_sum_elements = 3000, .max_gather_elements = 64, .transport = Transport::kStaged};

struct RankOptions {
  CommLimits limits = kLimits;
  emulator::DeviceOptions device = {.total_bytes = int64_t{64} << 20, .num_sms = kPeerBlocks + 1};
  bool wanted = true;
  bool sums_wrongly = false;  // one of the sums at start
  bool misses_a_sum = false;
  bool norms_wrongly = false;  // the last one at start, on one rank
  bool misses_a_norm = false;
};

class OneShotRank {
 public:
  static constexpr int kCheckRounds = 6;
  static constexpr int kCheckedNorms = 2 + 3 + 1 + 2 + 3 + 1;
  OneShotRank(Group& group, const RankOptions& options)
      : driver_(options.device), device_(*CudaDevice::New(driver_, 0)), ledger_(*device_) {
    const int size = group.exchange().topology().size;
    layout_bytes_ = OneShotLayout(options.limits, size).total_bytes;
    ledger_.Claim(MemoryCategory::kCommunication,
                  CommunicationBytes(options.limits, size) + layout_bytes_);
    OneShotOptions one_shot;
    one_shot.check_rounds = kCheckRounds;
    // A sum that is only slow must not count as missing: kernels behind it would be faults.
    one_shot.check_limit =
        options.misses_a_sum || options.misses_a_norm ? absl::Seconds(15) : absl::Minutes(5);
    if (!options.wanted) one_shot.wanted = absl::UnavailableError("not wanted");
    one_shot.sum = [this, options](const PeerSums& sums, float* x, int64_t count) {
      ++sums_;
      if (options.misses_a_sum && sums_ == 3 && sums.rank == 1) return;
      PeerSum(driver_, sums, x, count);
      if (options.sums_wrongly && sums_ == 4 && sums.rank == 1) {
        driver_.Fill(reinterpret_cast<std::byte*>(x), std::byte{1}, 4);
      }
    };
    one_shot.sum_norm = [this, options](const PeerSums& sums, ConstMatrixView partial,
                                        const ResidualNorm& norm) {
      ++norms_;
      if (options.misses_a_norm && norms_ == 3 && sums.rank == 1) return;
      PeerSumNorm(driver_, sums, partial, norm);
      if (options.norms_wrongly && norms_ == kCheckedNorms && sums.rank == 1) {
        driver_.Fill(norm.normed.data(), std::byte{1}, 4);
      }
    };
    one_shot.write_late = RampWriter(driver_);
    std::unique_ptr<Communicator> staged = *ConnectStaged(group, options.limits, *device_, ledger_);
    comm_ = ConnectOneShot(group, options.limits, driver_, driver_, ledger_, absl::Minutes(5),
                           std::move(one_shot), std::move(staged));
  }

  emulator::EmulatedCudaDriver& driver() { return driver_; }
  Communicator& comm() { return **comm_; }
  const absl::Status& status() const { return comm_.status(); }
  MemoryLedger& ledger() { return ledger_; }
  int sums() const { return sums_; }    // that were one-shot, or were to be
  int norms() const { return norms_; }  // of sums, likewise
  int64_t layout_bytes() const { return layout_bytes_; }

  // Of partial sums that the host has.
  std::vector<float> Sum(const std::vector<float>& partial) {
    const auto bytes = static_cast<int64_t>(partial.size() * sizeof(float));
    const MatrixView view = comm().PartialSum(1, static_cast<int64_t>(partial.size()));
    driver_.CopyToDevice(partial.data(), view.data(), bytes);
    const auto sum = comm().AllReduceSum();
    std::vector<float> values(partial.size(), -1.0F);
    EXPECT_TRUE(sum.ok()) << sum.status();
    if (!sum.ok()) return values;
    driver_.CopyToHost(sum->data(), values.data(), bytes);
    EXPECT_TRUE(driver_.Synchronize().ok()) << driver_.Synchronize();
    return values;
  }

 private:
  emulator::EmulatedCudaDriver driver_;
  std::unique_ptr<CudaDevice> device_;
  MemoryLedger ledger_;
  int64_t layout_bytes_ = 0;
  int sums_ = 0;
  int norms_ = 0;
  absl::StatusOr<std::unique_ptr<Communicator>> comm_;
};

}  // namespace bulkhead
