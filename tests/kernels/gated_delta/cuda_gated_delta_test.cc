#include <cmath>
#include <limits>

#include "tests/kernels/cuda/padded_matrix.h"
#include "tests/kernels/gated_delta/delta_steps.h"

namespace bulkhead {
namespace {

constexpr double kTolerance = 1e-4;

// Of two sequences, over borders of blocks, in steps with one token and with many. Columns of
// values are less than a block's, or the last block has less.
TEST(CudaGatedDeltaTest, IsThatOfTheReference) {
  for (const DeltaSizes& sizes :
       {DeltaSizes{1, 1, 16, 16}, DeltaSizes{2, 4, 16, 16}, DeltaSizes{1, 3, 24, 40}}) {
    SCOPED_TRACE(testing::Message() << sizes);
    ExpectLikeReference(
        [&](Backend& backend) {
          return RunDelta(backend, sizes, {{1, 3}, {{70, 3}, {1, 60}, {1, 1}, {62, 1}, {9, 70}}});
        },
        kTolerance);
  }
}

TEST(CudaGatedDeltaTest, HeadsOfPublishedSizesAreThoseOfTheReference) {
  const auto run = [](Backend& backend) {
    return RunDelta(backend, {1, 2, 128, 128}, {{0}, {{66}, {1}}});
  };
  const std::unique_ptr<Device> host = NewHostDevice(0);
  ExpectNear(OnAllSchedules(run, true), run(*NewReferenceBackend(*host)), kTolerance);
}

TEST(CudaGatedDeltaTest, DecaysFromNoneToAllAreThoseOfTheReference) {
  for (const float a_log : {-30.0F, 0.0F, 3.0F, 40.0F}) {
    SCOPED_TRACE(a_log);
    ExpectLikeReference(
        [&](Backend& backend) {
          return RunDelta(backend, {1, 2, 16, 16}, {{0}, {{130}, {1}}}, a_log);
        },
        kTolerance);
  }
}

TEST(CudaGatedDeltaTest, StepsOfAnySizeGiveTheSameBits) {
  const DeltaSizes sizes{2, 4, 20, 24};
  CudaUnderTest cuda;
  const std::vector<float> whole = RunDelta(*cuda.backend, sizes, {{0}, {{200}}});
  for (const int size : {1, 7, 15, 16, 17, 63, 64, 65}) {
    SCOPED_TRACE(size);
    DeltaSteps steps{{2}, {}};
    for (int done = 0; done < 200; done += size) {
      steps.tokens.push_back({std::min(size, 200 - done)});
    }
    ExpectSameBits(RunDelta(*cuda.backend, sizes, steps), whole);
  }
}

TEST(CudaGatedDeltaTest, RejectedDraftsLeaveTheStateBeforeThem) {
  const DeltaSizes sizes{2, 4, 20, 24};
  CudaUnderTest cuda;
  const std::vector<float> whole = RunDelta(*cuda.backend, sizes, {{0}, {{150}}});
  for (const int drafts : {1, 5, 16}) {
    DeltaSteps steps{{2}, {{60}}, drafts};
    for (int done = 60; done < 150; ++done) steps.tokens.push_back({1});
    ExpectSameBits(RunDelta(*cuda.backend, sizes, steps), whole);
  }
}

// Of two sequences in one step, and in another's slot, a sequence has the bits it has alone.
TEST(CudaGatedDeltaTest, SequencesDoNotMix) {
  const DeltaSizes sizes{2, 2, 16, 16};
  CudaUnderTest cuda;
  const std::vector<float> both =
      RunDelta(*cuda.backend, sizes, {{3, 0}, {{64, 1}, {1, 1}, {30, 90}, {40, 2}}});
  const std::vector<float> first = RunDelta(*cuda.backend, sizes, {{1}, {{135}}});
  ExpectSameBits({both.begin(), both.begin() + static_cast<int64_t>(first.size())}, first);
}

TEST(CudaGatedDeltaTest, ANanStaysVisible) {
  CudaUnderTest cuda;
  const std::vector<float> out = RunDelta(*cuda.backend, {1, 1, 16, 16}, {{0}, {{3}}},
                                          std::numeric_limits<float>::quiet_NaN());
  EXPECT_TRUE(std::isnan(out.back()));
}

// Decode steps are padded with rows of the slot behind the last one, whose state is not there.
TEST(CudaGatedDeltaTest, ARowWithoutAStateIsZeroAndWritesNoState) {
  const std::vector<int32_t> map = {0};  // a GPU does not see the stack
  const StateGeometry geometry{
      .num_layers = 1, .num_slots = 1, .conv_taps = 3, .heads = {1, 1, 16, 16, map.data()}};
  CudaUnderTest cuda;
  std::vector<double> memory(2 * geometry.Bytes() / 8, 5.0);  // twice: of a slot that is not there
  const std::vector<double> before = memory;
  const StateArena arena{geometry, reinterpret_cast<std::byte*>(memory.data())};
  const SequenceStep step({{1, 0, 1}});
  std::vector<float> qkv = RandomFloats(48, 1);
  const std::vector<float> unchanged = qkv;
  const std::vector<float> ba(2, 1.0F), one(1, 1.0F), norm(16, 1.0F), taps(48 * 3, 1.0F);
  std::vector<float> out(16, 7.0F);
  cuda.backend->CausalConv(step.index(), View(taps, 1, 48 * 3, 0), arena.Layer(0),
                           View(qkv, 1, 48, 48));
  cuda.backend->GatedDelta(
      step.index(), {View(one, 1, 1, 0), View(one, 1, 1, 0), View(norm, 1, 16, 0), 1e-6F},
      View(qkv, 1, 48, 48), View(ba, 1, 2, 2), arena.Layer(0), View(out, 1, 16, 16));
  Wait(*cuda.backend);
  ExpectSameBits(qkv, unchanged);
  ExpectSameBits(out, std::vector<float>(16, 0.0F));
  EXPECT_EQ(memory, before);
}

}  // namespace
}  // namespace bulkhead
