#include <gtest/gtest.h>

#include <map>
#include <string>

#include "absl/strings/match.h"
#include "tests/kernels/cuda/device_under_test.h"
#include "tests/kernels/cuda/peers_under_test.h"
#include "tests/support/emulator/emulated_device.h"

namespace bulkhead {
namespace {

// Turns at shared memory (tests/support/emulator/bank_conflicts.h) of the kernels whose names begin
// so; all others have none to wait for.
struct TurnsOf {
  const char* prefix;
  int turns;
};
constexpr TurnsOf kTurns[] = {
    {"attend", 4},       // the warps' sums, once for each part of a sequence
    {"gemm", 2},         // rows on their way in; on their way out 1
    {"expert gemm", 2},  // the same
    {"head gemm", 2},
    {"gated_delta", 2},        // rows of doubles
    {"route", 4},              // groups of experts, of a lane each
    {"sort_pairs", 8},         // counts, as the tokens choose
    {"sample", 5},             // keys of 8 bytes, as they come
    {"select_candidates", 3},  // the same
    {"load_tiles", 4},         // probes of the intrinsics
    {"copy", 4},
};

// Of all tests, compared when they have run.
class BankTurns final : public testing::Environment {
 public:
  std::map<std::string, int> turns;

  void TearDown() override {
    for (const auto& [kernel, taken] : turns) {
      int allowed = 1;
      for (const TurnsOf& of : kTurns) {
        if (absl::StartsWith(kernel, of.prefix)) allowed = of.turns;
      }
      EXPECT_LE(taken, allowed) << "bank conflicts of kernel " << kernel;
    }
  }
};
BankTurns* const bank_turns =
    static_cast<BankTurns*>(testing::AddGlobalTestEnvironment(new BankTurns));

}  // namespace

std::vector<std::unique_ptr<CudaDriver>> DevicesUnderTest(bool few, bool host_memory_too,
                                                          int capability_major) {
  std::vector<std::unique_ptr<CudaDriver>> devices;
  for (const emulator::Schedule schedule : emulator::kAllSchedules) {
    using emulator::Schedule;
    const bool finds_less = schedule == Schedule::kDescending || schedule == Schedule::kWarpGreedy;
    if (few && finds_less) continue;
    emulator::DeviceOptions options{.host_memory_too = host_memory_too, .schedule = schedule};
    if (schedule == Schedule::kAscending) options.bank_turns = &bank_turns->turns;
    if (capability_major != 0) options.capability_major = capability_major;
    options.late = devices.size() % 2 == 1;
    devices.push_back(std::make_unique<emulator::EmulatedCudaDriver>(options));
  }
  return devices;
}

PeerDriver& PeersOf(CudaDriver& driver) {
  return static_cast<emulator::EmulatedCudaDriver&>(driver);
}

}  // namespace bulkhead
