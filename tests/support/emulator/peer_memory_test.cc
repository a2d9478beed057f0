// Memory that two devices share, and what each must wait for.
#include "tests/support/emulator/peer_memory.h"

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/emulator/emulated_device.h"
#include "tests/support/emulator/peer_intrinsics.h"

namespace bulkhead::emulator {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kBytes = 1 << 20;
constexpr uint32_t kNothing = ~0U;

enum class Does { kSends, kSendsTooSoon, kReads, kReadsOnce, kClears, kReadsAndClears };
struct Step {
  Does does = Does::kSends;
  uint32_t* at = nullptr;  // 4 words per lane
  uint32_t value = 0;      // to send, or expected
  uint32_t* wrong = nullptr;
};

void DoStep(Step p) {
  using namespace cuda;  // NOLINT(google-build-using-namespace)
  if (p.does != Does::kSendsTooSoon) GridDependencySynchronize();
  uint32_t* const at = p.at + int(threadIdx.x) * 4;
  if (p.does == Does::kSends || p.does == Does::kSendsTooSoon) {
    SendWords(at, {{p.value, p.value, p.value, p.value}});
  }
  if (p.does == Does::kReads || p.does == Does::kReadsOnce || p.does == Does::kReadsAndClears) {
    Words4 x = ReceivedWords(at);
    while (p.does != Does::kReadsOnce && (x.w[0] == kNothing || x.w[3] == kNothing)) {
      WaitTurn();
      x = ReceivedWords(at);
    }
    if (x.w[0] != p.value || x.w[3] != p.value) p.wrong[int(threadIdx.x)] = x.w[3];
  }
  if (p.does == Does::kClears || p.does == Does::kReadsAndClears) ClearWords(at, kNothing);
  if (p.does == Does::kSendsTooSoon) GridDependencySynchronize();
}

class PeerMemoryTest : public testing::Test {
 protected:
  struct Rank {
    EmulatedCudaDriver driver{{.host_memory_too = true}};
    uint32_t* memory = nullptr;
    uint32_t* of_other = nullptr;
  };

  PeerMemoryTest() {
    for (Rank& rank : ranks_) {
      rank.memory = reinterpret_cast<uint32_t*>(*rank.driver.AllocateShared(kBytes));
    }
    for (int r = 0; r < 2; ++r) {
      auto* const other = reinterpret_cast<std::byte*>(ranks_[1 - r].memory);
      ranks_[r].of_other = reinterpret_cast<uint32_t*>(
          *ranks_[r].driver.OpenShared(*ranks_[1 - r].driver.HandleOf(other)));
    }
  }
  ~PeerMemoryTest() override {
    for (Rank& rank : ranks_) {
      rank.driver.CloseShared(reinterpret_cast<std::byte*>(rank.of_other));
      rank.driver.FreeShared(reinterpret_cast<std::byte*>(rank.memory));
    }
  }

  // Runs the step and the device's whole queue; returns its status.
  absl::Status Run(int rank, Does does, uint32_t* at, uint32_t value = 0) {
    CudaDriver& driver = ranks_[rank].driver;
    Enqueue(driver, cuda::KernelOf<32>("step", &DoStep), {.block = {32, 1, 1}},
            Step{does, at, value, wrong_.data()});
    return driver.Synchronize();
  }
  void ExpectFault(const absl::Status& status, const char* what) {
    EXPECT_THAT(std::string(status.message()), HasSubstr(what));
  }

  Rank ranks_[2];
  std::vector<uint32_t> wrong_ = std::vector<uint32_t>(32, 0);
};

TEST_F(PeerMemoryTest, GoesRound) {
  for (uint32_t turn = 1; turn < 5; ++turn) {
    for (int sender = 0; sender < 2; ++sender) {
      ASSERT_TRUE(Run(sender, Does::kSends, ranks_[sender].of_other, turn).ok());
      ASSERT_TRUE(Run(1 - sender, Does::kReads, ranks_[1 - sender].memory, turn).ok());
      ASSERT_TRUE(Run(1 - sender, Does::kClears, ranks_[1 - sender].memory).ok());
    }
    // The first hears that the second has cleared.
    ASSERT_TRUE(Run(1, Does::kSends, ranks_[1].of_other + 1024 * turn, 9).ok());
    ASSERT_TRUE(Run(0, Does::kReads, ranks_[0].memory + 1024 * turn, 9).ok());
  }
  EXPECT_EQ(wrong_, std::vector<uint32_t>(32, 0));
}

TEST_F(PeerMemoryTest, WordsOfAVectorComeApart) {
  ASSERT_TRUE(Run(0, Does::kSends, ranks_[0].of_other, 7).ok());
  ASSERT_TRUE(Run(1, Does::kReadsOnce, ranks_[1].memory, 7).ok());
  EXPECT_EQ(wrong_, std::vector<uint32_t>(32, kNothing));
}

TEST_F(PeerMemoryTest, ASenderWaitsForTheClearing) {
  ASSERT_TRUE(Run(0, Does::kSends, ranks_[0].of_other, 7).ok());
  ASSERT_TRUE(Run(1, Does::kReads, ranks_[1].memory, 7).ok());
  ExpectFault(Run(0, Does::kSends, ranks_[0].of_other, 8), "has not cleared");
}

TEST_F(PeerMemoryTest, ASenderMustHaveHeardOfTheClearing) {
  ASSERT_TRUE(Run(0, Does::kSends, ranks_[0].of_other, 7).ok());
  ASSERT_TRUE(Run(1, Does::kReads, ranks_[1].memory, 7).ok());
  ASSERT_TRUE(Run(1, Does::kClears, ranks_[1].memory).ok());
  ExpectFault(Run(0, Does::kSends, ranks_[0].of_other, 8), "does not know to be cleared");
}

TEST_F(PeerMemoryTest, AnOwnerClearsWhatItHasReadInAKernelBefore) {
  ASSERT_TRUE(Run(0, Does::kSends, ranks_[0].of_other, 7).ok());
  ExpectFault(Run(1, Does::kReadsAndClears, ranks_[1].memory, 7), "this kernel reads");
}

TEST_F(PeerMemoryTest, AnOwnerClearsNothingUnread) {
  ASSERT_TRUE(Run(0, Does::kSends, ranks_[0].of_other, 7).ok());
  ExpectFault(Run(1, Does::kClears, ranks_[1].memory), "has not read");
}

TEST_F(PeerMemoryTest, AKernelSendsBehindTheOneBeforeIt) {
  ExpectFault(Run(0, Does::kSendsTooSoon, ranks_[0].of_other, 7), "has not waited");
}

TEST_F(PeerMemoryTest, HasOneOwner) {
  ExpectFault(Run(0, Does::kSends, ranks_[0].memory, 7), "its own device");
  ExpectFault(Run(1, Does::kReads, ranks_[1].of_other, 7), "to another device");
}

TEST_F(PeerMemoryTest, IsAllThatIsSentTo) {
  ExpectFault(Run(0, Does::kSends, wrong_.data(), 7), "not 16 bytes of memory");
  ExpectFault(Run(1, Does::kSends, ranks_[1].of_other + 1, 7), "not 16 bytes of memory");
}

}  // namespace
}  // namespace bulkhead::emulator
