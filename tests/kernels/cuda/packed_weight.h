// Weights in every format, packed on a CUDA backend's device, for the tests of its products.
#pragma once

#include <ostream>
#include <random>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/backend.h"
#include "kernels/simd/number_format.h"
#include "tests/kernels/products_support.h"
#include "tests/kernels/variants.h"

namespace bulkhead {

struct ProductCase {
  LinearShape shape;
  bool codes_as_stored = false;  // of a checkpoint, not quantised at load
};

inline std::ostream& operator<<(std::ostream& out, const ProductCase& c) {
  return out << WeightFormatName(c.shape.format) << " " << c.shape.cols << " -> " << c.shape.rows
             << ", groups of " << c.shape.groups.size << (c.codes_as_stored ? ", stored" : "");
}

// Rows in two parts, the last ones first, as a loader with threads may bring them.
inline void Fill(const ProductCase& c, WeightSink& sink) {
  const LinearShape& shape = c.shape;
  const int64_t half = shape.rows / 2;
  const std::vector<std::pair<int64_t, int64_t>> parts = {{half, shape.rows}, {0, half}};
  if (!c.codes_as_stored) {
    const std::vector<float> weights = NormalFloats(shape.rows * shape.cols, 5);
    const std::vector<std::byte> bytes = AsBytes(weights, DType::kBF16);
    for (const auto& [begin, end] : parts) {
      sink.PutRows(begin, ConstMatrixView(bytes.data() + begin * shape.cols * 2, DType::kBF16,
                                          end - begin, shape.cols));
    }
    return;
  }
  std::mt19937 random(3);
  const int64_t groups = NumGroups(shape);
  const bool is_int4 = WeightBits(shape.format) == 4;
  std::vector<uint8_t> codes(shape.rows * shape.cols), zeros(shape.rows * groups);
  std::vector<uint16_t> scales(shape.rows * groups);
  for (uint8_t& code : codes)
    code = static_cast<uint8_t>(is_int4 ? random() % 16 : 1 + random() % 255);
  for (uint8_t& zero : zeros) zero = static_cast<uint8_t>(is_int4 ? random() % 17 : 128);
  std::vector<float> f32_scales(scales.size());
  for (size_t i = 0; i < scales.size(); ++i) {
    f32_scales[i] = 0.001F + 0.01F * static_cast<float>(random() % 100);
    switch (shape.groups.scales) {
      case ScaleFormat::kE8M0:
        scales[i] = static_cast<uint16_t>(110 + random() % 20);
        break;
      case ScaleFormat::kE4M3:
        scales[i] = static_cast<uint16_t>(random() % 0x7F);
        break;
      case ScaleFormat::kBF16:
        scales[i] = Bf16OfF32(f32_scales[i]);
        break;
      default:
        scales[i] = F16OfF32(f32_scales[i]);
    }
  }
  // Of 8 bits, so that a weight is rounded once.
  std::vector<float> factors(shape.rows);
  for (float& factor : factors) factor = static_cast<float>(1 + random() % 255) * 0x1p-14F;
  // 0x7f and 0xff are no numbers.
  for (uint8_t& code : codes) {
    if (shape.format == WeightFormat::kFp8 && (code & 0x7F) == 0x7F) code ^= 1;
  }
  for (const auto& [begin, end] : parts) {
    QuantizedRows rows{end - begin, codes.data() + begin * shape.cols,
                       scales.data() + begin * groups, zeros.data() + begin * groups};
    if (shape.format == WeightFormat::kFp8) rows.f32_scales = f32_scales.data() + begin * groups;
    if (shape.format == WeightFormat::kNvfp4) rows.factors = factors.data() + begin;
    sink.PutQuantizedRows(begin, rows);
    if (end == shape.rows && shape.groups.indexed > 0) {  // between the rows
      std::vector<int32_t> index(shape.cols);
      for (int32_t& group : index) group = static_cast<int32_t>(random() % shape.groups.indexed);
      sink.PutGroupIndex(index);
    }
  }
}

// As checkpoints have them; of int8 and int4 also bf16.
inline ScaleFormat StoredScalesOf(WeightFormat format) {
  return format == WeightFormat::kMxfp4   ? ScaleFormat::kE8M0
         : format == WeightFormat::kNvfp4 ? ScaleFormat::kE4M3
         : format == WeightFormat::kFp8   ? ScaleFormat::kF32
                                          : ScaleFormat::kF16;
}

// A packed weight and a workspace on the backend's device.
class Packed {
 public:
  Packed(Backend& backend, const ProductCase& c, int max_rows, bool room_for_parts = false)
      : backend_(backend) {
    StepLimits limits{max_rows, max_rows, 128, 0, c.shape.cols};
    limits.quantized_weights = room_for_parts;
    static constexpr int32_t kHead = 0;
    const HeadLayout heads{1, 1, 16, &kHead};
    workspace_ = Allocate(backend.WorkspaceBytes(limits, heads));
    backend.SetWorkspace(workspace_.data(), limits, heads);
    memory_ = Allocate(backend.PackedBytes(c.shape));
    linear = {c.shape, memory_.data()};
    Fill(c, *backend.Pack(linear));
  }
  void Wait() const {
    const absl::Status status = backend_.device().Synchronize();
    EXPECT_TRUE(status.ok()) << status;
  }

  Linear linear;

 private:
  Buffer Allocate(int64_t bytes) { return std::move(backend_.device().Allocate(bytes)).value(); }

  Backend& backend_;
  Buffer workspace_;
  Buffer memory_;
};

}  // namespace bulkhead
