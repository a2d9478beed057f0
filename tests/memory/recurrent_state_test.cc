#include "memory/recurrent_state.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <vector>

#include "gtest/gtest.h"
#include "memory/cuda_device.h"
#include "tests/support/emulator/emulated_device.h"

namespace bulkhead {
namespace {

// Qwen3.5 of 9 billion parameters: 24 layers, 32 value heads of 128 x 128.
TEST(RecurrentStateTest, AStateIsOfThePublishedSize) {
  StateGeometry geometry{
      .num_layers = 24, .num_slots = 1, .conv_taps = 4, .heads = {16, 32, 128, 128, nullptr}};
  const int64_t matrices = int64_t{24} * 32 * 128 * 128 * 4;  // 48 MiB
  const int64_t inputs = int64_t{24} * 3 * 8192 * 4;
  const int64_t keys = int64_t{24} * 16 * 128 * 64 * 4;
  const int64_t corrected = int64_t{24} * 32 * 64 * 128 * 4;
  const int64_t decays = int64_t{24} * 32 * 64 * 8;
  EXPECT_EQ(geometry.Bytes(), matrices + inputs + keys + corrected + decays);
  geometry.num_snapshots = 2;
  EXPECT_EQ(geometry.Bytes(), 3 * (matrices + inputs) + keys + corrected + decays);
}

TEST(RecurrentStateTest, PartsOfSlotsAreApartAndInside) {
  const StateGeometry geometry{
      .num_layers = 2, .num_slots = 3, .conv_taps = 4, .heads = {2, 4, 5, 7, nullptr}};
  std::vector<std::byte> memory(geometry.Bytes());
  const StateArena arena{geometry, memory.data()};
  const std::byte* last = memory.data();
  for (int layer = 0; layer < 2; ++layer) {
    const StateLayerView view = arena.Layer(layer);
    for (int slot = 0; slot < 3; ++slot) {
      EXPECT_GE(reinterpret_cast<std::byte*>(view.Decays(slot, 0)), last);
      EXPECT_EQ(view.Corrected(slot, 0), view.Matrix(slot, 4));
      EXPECT_EQ(view.Keys(slot, 0), view.Corrected(slot, 4));
      EXPECT_EQ(view.Inputs(slot), view.Keys(slot, 2));
      last = reinterpret_cast<std::byte*>(view.Inputs(slot) + geometry.InputFloats());
      EXPECT_LE(last - memory.data(), (layer * 3 + slot + 1) * geometry.SlotBytes());
    }
  }
}

TEST(RecurrentStateTest, ASnapshotHasWhatIsReadAtABorder) {
  const StateGeometry geometry{.num_layers = 2,
                               .num_slots = 2,
                               .num_snapshots = 2,
                               .conv_taps = 3,
                               .heads = {1, 2, 4, 16, nullptr}};
  std::vector<std::byte> memory(geometry.Bytes());
  const StateArena arena{geometry, memory.data()};
  const std::unique_ptr<Device> device = NewHostDevice(0);
  const auto fill = [&](int slot, float value) {
    for (int layer = 0; layer < 2; ++layer) {
      const StateLayerView view = arena.Layer(layer);
      std::fill_n(view.Matrix(slot, 0), 2 * geometry.MatrixFloats(), value + layer);
      std::fill_n(view.Inputs(slot), geometry.InputFloats(), value + layer + 0.5F);
    }
  };
  fill(0, 10);
  arena.Save(*device, 0, 1);
  fill(0, 20);
  arena.Save(*device, 0, 0);
  fill(1, 30);
  arena.Restore(*device, 1, 1);
  for (int layer = 0; layer < 2; ++layer) {
    const StateLayerView view = arena.Layer(layer);
    EXPECT_EQ(view.Matrix(1, 1)[geometry.MatrixFloats() - 1], 10.0F + layer);
    EXPECT_EQ(view.Inputs(1)[geometry.InputFloats() - 1], 10.5F + layer);
    EXPECT_EQ(view.Matrix(0, 0)[0], 20.0F + layer);
  }
}

TEST(RecurrentStateTest, ASnapshotTakesTwoCopiesOnAGpuOfAnyNumberOfLayers) {
  const StateGeometry geometry{.num_layers = 5,
                               .num_slots = 2,
                               .num_snapshots = 2,
                               .conv_taps = 3,
                               .heads = {1, 2, 4, 16, nullptr}};
  emulator::EmulatedCudaDriver driver({.late = true});
  const std::unique_ptr<CudaDevice> device = *CudaDevice::New(driver, 0);
  const Buffer memory = *device->Allocate(geometry.Bytes());
  std::vector<float> host(geometry.Bytes() / 4);
  std::iota(host.begin(), host.end(), 0.0F);
  device->CopyFromHost(host.data(), memory.data(), geometry.Bytes());
  const StateArena arena{geometry, memory.data()};
  const int64_t before = driver.copies_to_device();
  arena.Save(*device, 0, 1);
  EXPECT_EQ(driver.copies_to_device(), before + 2);
  arena.Restore(*device, 1, 1);
  EXPECT_EQ(driver.copies_to_device(), before + 4);
  ASSERT_TRUE(device->Synchronize().ok());
  for (int layer = 0; layer < geometry.num_layers; ++layer) {
    const StateLayerView view = arena.Layer(layer);
    const int64_t floats = 2 * geometry.MatrixFloats();
    EXPECT_TRUE(std::equal(view.Matrix(1, 0), view.Matrix(1, 0) + floats, view.Matrix(0, 0)));
    EXPECT_TRUE(
        std::equal(view.Inputs(1), view.Inputs(1) + geometry.InputFloats(), view.Inputs(0)));
    EXPECT_NE(*view.Keys(1, 0), *view.Keys(0, 0));
  }
}

}  // namespace
}  // namespace bulkhead
