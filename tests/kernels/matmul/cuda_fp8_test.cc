// What a library of products in fp8 multiplies, against host loops, bit by bit: a weight's codes
// and scales, and inputs quantised in groups of 128.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/matmul/cuda_kernels.h"
#include "kernels/packing/cuda_packing.h"
#include "memory/bf16.h"
#include "memory/fp8.h"
#include "tests/kernels/cuda/cuda_fixture.h"
#include "tests/kernels/cuda/device_arrays.h"
#include "tests/kernels/products_support.h"

namespace bulkhead {
namespace {

int64_t Fp8Groups(int64_t inputs) { return (inputs + cuda::kFp8Group - 1) / cuda::kFp8Group; }

struct Fp8Weight {
  LinearShape shape;
  std::vector<uint8_t> codes;
  std::vector<float> scales;  // [rows][groups]

  Fp8Weight(int64_t rows, int64_t cols)
      : shape{rows, cols, WeightFormat::kFp8, {0, cols}, {128, 0, 0, ScaleFormat::kF32}} {
    for (int64_t i = 0; i < rows * cols; ++i) {
      codes.push_back(static_cast<uint8_t>((i * 37 + i / 251) % 0x7F | i % 2 << 7));
    }
    for (int64_t i = 0; i < rows * Fp8Groups(cols); ++i) {
      scales.push_back(0.01F + 0.001F * static_cast<float>(i));
    }
  }
};

TEST(CudaFp8, UnpacksCodesAndScalesOfSomeRows) {
  for (const auto& [rows, cols] : {std::pair{40, 320}, {16, 128}, {33, 1200}, {16, 130}}) {
    const Fp8Weight weight(rows, cols);
    const PackedLayout layout(weight.shape);
    ASSERT_TRUE(layout.is_in_128s());
    for (CudaUnderTest& cuda : AllSchedules()) {
      DeviceArrays arrays(*cuda.driver);
      std::byte* const packed = arrays.New<std::byte>(layout.bytes());
      cuda.driver->Fill(packed, std::byte{0}, layout.bytes());
      cuda.backend->Pack({weight.shape, packed})
          ->PutQuantizedRows(
              0, {.rows = rows, .codes = weight.codes.data(), .f32_scales = weight.scales.data()});
      for (const auto& [first, count] : {std::pair{0, rows}, {0, 16}, {16, rows - 16}}) {
        if (count == 0) continue;
        const int64_t filled = (count + 15) / 16 * 16;
        const int64_t depth = layout.depth();
        const int64_t groups = Fp8Groups(cols);
        uint8_t* const codes = arrays.New<uint8_t>(filled * depth);
        float* const scales = arrays.New<float>(groups * count);
        const int blocks =
            static_cast<int>((depth / 64 + cuda::kUnpackWarps - 1) / cuda::kUnpackWarps);
        Enqueue(*cuda.driver, cuda::UnpackFp8Kernel(),
                {.grid = {static_cast<int>(filled / 16), blocks, 1},
                 .block = {cuda::kUnpackWarps * 32, 1, 1}},
                {layout.Parameters(weight.shape, packed), first, count, codes, scales});
        const std::vector<uint8_t> got = arrays.Get(codes, filled * depth);
        const std::vector<float> got_scales = arrays.Get(scales, groups * count);
        for (int64_t row = 0; row < filled; ++row) {
          for (int64_t at = 0; at < depth; ++at) {
            const bool is_there = first + row < rows && at < cols;
            ASSERT_EQ(got[row * depth + at], is_there ? weight.codes[(first + row) * cols + at] : 0)
                << row << ", " << at;
          }
        }
        for (int64_t group = 0; group < groups; ++group) {
          for (int64_t row = 0; row < count; ++row) {
            ASSERT_EQ(got_scales[group * count + row],
                      weight.scales[(first + row) * groups + group])
                << row << ", " << group;
          }
        }
      }
    }
  }
}

struct QuantizeCase {
  int64_t rows;
  int64_t inputs;
  int64_t depth;
  int64_t stride;  // of x
  bool in_bf16;
};

// Small and large numbers, a group of zeroes, one that is too small for a scale, and what is not
// finite.
std::vector<float> QuantizedInputs(const QuantizeCase& c) {
  std::vector<float> x = NormalFloats(c.rows * c.stride, 11);
  for (int64_t i = 0; i < std::ssize(x); ++i) {
    if (i / 64 % 5 == 1) x[i] *= 0x1p-9F;
    if (i / 64 % 5 == 3) x[i] *= 0x1p+60F;
  }
  const int64_t first_of_second = c.stride;
  for (int64_t i = 0; i < std::min<int64_t>(c.inputs, 128); ++i) x[i] = i % 2 == 0 ? 0.0F : -0.0F;
  if (c.rows < 5) return x;
  x[first_of_second + 3] = std::numeric_limits<float>::quiet_NaN();
  x[first_of_second + 40] = std::numeric_limits<float>::infinity();
  x[first_of_second + 41] = -std::numeric_limits<float>::infinity();
  for (int64_t i = 0; i < std::min<int64_t>(c.inputs, 128); ++i) {
    x[2 * c.stride + i] = i == 5 ? 0x1p-133F : 0.0F;
    x[3 * c.stride + i] = i % 3 == 0 ? 0x1p-140F : 0.0F;
    x[4 * c.stride + i] = i == 7 ? -std::numeric_limits<float>::infinity() : 0.0F;
  }
  return x;
}

float HostScale(const float* group, int64_t count) {
  float largest = 0;
  for (int64_t i = 0; i < count; ++i) {
    if (std::isfinite(group[i])) largest = std::max(largest, std::abs(group[i]));
  }
  const float scale = largest / 448;
  return scale == 0 ? 1 : scale;
}

TEST(CudaFp8, QuantisesInputsInGroupsOf128) {
  const std::vector<QuantizeCase> cases = {
      {7, 320, 320, 320, true},    {7, 320, 320, 324, false},    {5, 130, 192, 131, true},
      {5, 130, 192, 133, false},   {3, 1500, 1536, 1500, false}, {9, 128, 128, 128, true},
      {6, 1284, 1344, 1288, true},
  };
  for (const QuantizeCase& c : cases) {
    SCOPED_TRACE(testing::Message() << c.rows << " x " << c.inputs << ", bf16 " << c.in_bf16);
    std::vector<float> x = QuantizedInputs(c);
    std::vector<uint16_t> bits;
    for (float& number : x) {
      if (!c.in_bf16) continue;
      bits.push_back(Bf16OfF32(number));
      number = F32OfBf16(bits.back());
    }
    const int64_t groups = Fp8Groups(c.depth);
    const int64_t stride = c.rows + 3;
    for (CudaUnderTest& cuda : AllSchedules()) {
      DeviceArrays arrays(*cuda.driver);
      uint8_t* const codes = arrays.New<uint8_t>(c.rows * c.depth);
      float* const scales = arrays.New<float>(groups * stride);
      cuda::QuantizeInputsParameters p;
      if (c.in_bf16) {
        p.x = arrays.Put(bits);
        p.numbers = cuda::Numbers::kBF16;
      } else {
        p.x = arrays.Put(x);
      }
      p.x_stride = c.stride;
      p.vec4 = c.inputs % 4 == 0 && c.stride % 4 == 0;
      p.inputs = static_cast<int>(c.inputs);
      p.depth = static_cast<int>(c.depth);
      p.scales_stride = static_cast<int>(stride);
      p.codes = codes;
      p.scales = scales;
      const int blocks =
          static_cast<int>((groups + cuda::kQuantizeWarps - 1) / cuda::kQuantizeWarps);
      Enqueue(*cuda.driver, cuda::QuantizeInputsKernel(),
              {.grid = {static_cast<int>(c.rows), blocks, 1},
               .block = {cuda::kQuantizeWarps * 32, 1, 1}},
              p);
      const std::vector<uint8_t> got = arrays.Get(codes, c.rows * c.depth);
      const std::vector<float> got_scales = arrays.Get(scales, groups * stride);
      for (int64_t row = 0; row < c.rows; ++row) {
        for (int64_t at = 0; at < c.depth; ++at) {
          const int64_t begin = at / cuda::kFp8Group * cuda::kFp8Group;
          const int64_t count = std::clamp<int64_t>(c.inputs - begin, 0, cuda::kFp8Group);
          const float scale = HostScale(&x[row * c.stride + begin], count);
          ASSERT_EQ(got_scales[at / cuda::kFp8Group * stride + row], scale) << row << ", " << at;
          const float input = at < c.inputs ? x[row * c.stride + at] : 0;
          ASSERT_EQ(got[row * c.depth + at], E4m3OfF32(input, scale))
              << row << ", " << at << ": " << input << " / " << scale;
        }
      }
      for (int64_t group = 0; group < groups; ++group) {
        EXPECT_TRUE(std::isnan(got_scales[group * stride + c.rows])) << "behind the last row";
      }
    }
  }
}

}  // namespace
}  // namespace bulkhead
