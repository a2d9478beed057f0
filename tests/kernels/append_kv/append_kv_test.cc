// int8 and int4 keys and values: the bytes that AppendKv writes are those of the ordered reference,
// and what is read back is as near as memory/kv_cache.h lets one expect.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/reference/sequence_cache.h"
#include "tests/kernels/tolerance.h"
#include "tests/kernels/variants.h"

namespace bulkhead {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr KvFormat kQuantized[] = {KvFormat::kInt8, KvFormat::kInt4};

// One sequence of tokens with one head, at positions 0, 1, 2 ... or any others.
class OneSequence {
 public:
  OneSequence(KvFormat format, int head_dim, int block_tokens, int max_tokens)
      : geometry_{1, head_dim, block_tokens, format} {
    const int blocks = (max_tokens + block_tokens - 1) / block_tokens;
    for (int i = 0; i < blocks; ++i) blocks_.push_back(blocks - i);
    arena_.resize((blocks + 1) * geometry_.LayerBlockBytes(), std::byte{0xff});
  }

  // keys and values [positions, d].
  void Append(Backend& backend, const std::vector<int32_t>& positions,
              const std::vector<float>& keys, const std::vector<float>& values) {
    const int d = geometry_.head_dim;
    std::vector<float> qkv;
    for (size_t t = 0; t < positions.size(); ++t) {
      qkv.insert(qkv.end(), keys.begin() + t * d, keys.begin() + (t + 1) * d);
      qkv.insert(qkv.end(), values.begin() + t * d, values.begin() + (t + 1) * d);
    }
    const StepIndex index = Index(positions);
    const ConstMatrixView view(reinterpret_cast<const std::byte*>(qkv.data()), DType::kF32,
                               index.num_tokens, 2 * d);
    backend.AppendKv(index, {0, 1, d, nullptr}, view, Layer());
  }

  float Key(int position, int i) { return Read(position, i, true); }
  float Value(int position, int i) { return Read(position, i, false); }
  const std::vector<std::byte>& arena() const { return arena_; }

 private:
  KvLayerView Layer() { return {geometry_, arena_.data(), geometry_.LayerBlockBytes()}; }
  StepIndex Index(const std::vector<int32_t>& positions) {
    const int count = static_cast<int>(positions.size());
    token_seq_.assign(positions.size(), 0);
    seq_begin_[1] = count;
    return {1,
            count,
            seq_begin_,
            &slot_,
            positions.data(),
            token_seq_.data(),
            blocks_.data(),
            static_cast<int>(blocks_.size())};
  }
  float Read(int position, int i, bool is_key) {
    const KvLayerView layer = Layer();
    const SequenceCache cache(Index({position}), 0, layer);
    return is_key ? cache.Key(0, position, i) : cache.Value(0, position, i);
  }

  KvGeometry geometry_;
  std::vector<std::byte> arena_;
  std::vector<int32_t> blocks_;
  std::vector<int32_t> token_seq_;
  int32_t seq_begin_[2] = {0, 0};
  int32_t slot_ = 0;
};

std::vector<int32_t> FirstPositions(int count) {
  std::vector<int32_t> positions(count);
  for (int i = 0; i < count; ++i) positions[i] = i;
  return positions;
}

// Vectors of d numbers: usual ones, and whatever is hard on rounding, limits and signs.
std::vector<std::vector<float>> HardVectors(int d) {
  std::vector<std::vector<float>> vectors;
  const std::vector<float> usual = RandomFloats(d, 3);
  for (const float scale : {1.0f, 1e-3f, 1e-7f, 1e-9f, 1e-30f, 300.0f, 3e4f, 1e5f, 3e38f / 4}) {
    vectors.push_back(usual);
    for (float& x : vectors.back()) x *= scale;
  }
  for (const float offset : {100.0f, -1000.0f, 60000.0f, -65504.0f, 7e4f}) {
    vectors.push_back(usual);
    for (float& x : vectors.back()) x += offset;
  }
  for (const float constant : {0.0f, -0.0f, 1.0f, -0.3f, 1e-8f, -1e-8f, 65504.0f, -1e30f}) {
    vectors.emplace_back(d, constant);
  }
  std::vector<float> halves(d);  // on the border between two codes
  for (int i = 0; i < d; ++i) halves[i] = static_cast<float>(i % 31) * 0.5f;
  halves[0] = 15.0f;
  vectors.push_back(halves);
  for (const float odd : {-0.0f, kNan, kInfinity, -kInfinity, 1e38f, -1e38f, 65520.0f}) {
    vectors.push_back(usual);
    vectors.back()[d - 1] = odd;
    vectors.emplace_back(d, 0.0f);
    vectors.back()[d / 2] = odd;
  }
  return vectors;
}

std::vector<float> Joined(const std::vector<std::vector<float>>& vectors) {
  std::vector<float> joined;
  for (const std::vector<float>& v : vectors) joined.insert(joined.end(), v.begin(), v.end());
  return joined;
}

// How far from x a number may be read back when its vector spans [min, max] within f16: half a
// step, what rounding the scale takes from the last of the steps, and what rounding zero takes.
double Bound(double min, double max, int levels) {
  const auto rounding = [](double x) { return std::max(std::fabs(x) * 0x1p-11, 0x1p-25); };
  const double scale = (max - min) / levels;
  return (0.5 * (scale + rounding(scale)) + levels * rounding(scale) + rounding(min)) * 1.00001;
}

class KvQuantization : public testing::TestWithParam<Variant> {
 protected:
  KvQuantization()
      : device_(NewHostDevice(0)),
        backend_(GetParam().Make(*device_)),
        ordered_(NewOrderedBackend(*device_)) {}

  std::unique_ptr<Device> device_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Backend> ordered_;
};

TEST_P(KvQuantization, WritesTheBytesOfTheOrderedReference) {
  for (const KvFormat format : kQuantized) {
    for (const int d : {2, 8, 10, 16, 24, 32, 48, 62, 64, 80, 128, 130}) {
      for (const int block_tokens : {16, 64}) {
        SCOPED_TRACE(testing::Message() << KvElementBits(format) << " bits, d " << d);
        const std::vector<std::vector<float>> vectors = HardVectors(d);
        const std::vector<float> keys = Joined(vectors);
        const std::vector<float> values = Joined({vectors.rbegin(), vectors.rend()});
        const int count = static_cast<int>(vectors.size());
        OneSequence actual(format, d, block_tokens, count);
        OneSequence expected(format, d, block_tokens, count);
        actual.Append(*backend_, FirstPositions(count), keys, values);
        expected.Append(*ordered_, FirstPositions(count), keys, values);
        EXPECT_EQ(actual.arena(), expected.arena());
      }
    }
  }
}

TEST_P(KvQuantization, ReadsBackWithinHalfAStepAndTheRoundingOfScaleAndZero) {
  for (const KvFormat format : kQuantized) {
    const int levels = (1 << KvElementBits(format)) - 1;
    for (const int d : {10, 64, 128}) {
      for (const std::vector<float>& v : HardVectors(d)) {
        const auto [min, max] = std::minmax_element(v.begin(), v.end());
        const bool in_range =
            std::all_of(v.begin(), v.end(), [](float x) { return std::fabs(x) <= 65504.0f; });
        if (!in_range) continue;
        OneSequence sequence(format, d, 16, 1);
        sequence.Append(*backend_, {0}, v, v);
        for (int i = 0; i < d; ++i) {
          const double bound = Bound(*min, *max, levels);
          ASSERT_NEAR(sequence.Key(0, i), v[i], bound) << *min << " to " << *max;
          ASSERT_NEAR(sequence.Value(0, i), v[i], bound) << *min << " to " << *max;
        }
      }
    }
  }
}

TEST_P(KvQuantization, RoundsHalfAStepToTheEvenCode) {
  const std::vector<float> v = {-1, -0.5, 0.5, 1.5, 1.75, 12.5, 13.5, 14};  // steps of 1 from -1
  OneSequence sequence(KvFormat::kInt4, 8, 16, 1);
  sequence.Append(*backend_, {0}, v, v);
  const std::vector<float> expected = {-1, -1, 1, 1, 2, 13, 13, 14};
  for (int i = 0; i < 8; ++i) {
    EXPECT_EQ(sequence.Key(0, i), expected[i]);
    EXPECT_EQ(sequence.Value(0, i), expected[i]);
  }
}

TEST_P(KvQuantization, AVectorOfEqualNumbersReadsAsTheirF16) {
  for (const KvFormat format : kQuantized) {
    for (const float constant : {0.0f, -0.0f, 1.0f, -0.333251953125f, 65504.0f, -0x1p-24f}) {
      OneSequence sequence(format, 64, 16, 1);
      const std::vector<float> v(64, constant);
      sequence.Append(*backend_, {0}, v, v);
      for (int i = 0; i < 64; ++i) {
        EXPECT_EQ(sequence.Key(0, i), constant);
        EXPECT_EQ(sequence.Value(0, i), constant);
      }
    }
  }
}

TEST_P(KvQuantization, ANanOrAnInfinityMakesItsWholeVectorNanAndNoOther) {
  for (const KvFormat format : kQuantized) {
    for (const float fault : {kNan, -kNan, kInfinity, -kInfinity}) {
      std::vector<float> keys = RandomFloats(3 * 24, 5);
      const std::vector<float> values = RandomFloats(3 * 24, 6);
      keys[24 + 17] = fault;
      OneSequence sequence(format, 24, 16, 3);
      sequence.Append(*backend_, {0, 1, 2}, keys, values);
      for (int i = 0; i < 24; ++i) {
        EXPECT_TRUE(std::isnan(sequence.Key(1, i)));
        EXPECT_TRUE(std::isfinite(sequence.Value(1, i)));
        EXPECT_TRUE(std::isfinite(sequence.Key(0, i)));
        EXPECT_TRUE(std::isfinite(sequence.Key(2, i)));
      }
    }
  }
}

TEST_P(KvQuantization, NumbersBeyondF16ReadAsItsGreatest) {
  for (const KvFormat format : kQuantized) {
    const int levels = (1 << KvElementBits(format)) - 1;
    std::vector<float> v(32, 0.0f);
    v[3] = 3e38f;
    v[31] = -1e6f;
    OneSequence sequence(format, 32, 16, 1);
    sequence.Append(*backend_, {0}, v, v);
    EXPECT_NEAR(sequence.Value(0, 3), 65504.0, Bound(-65504, 65504, levels));
    EXPECT_EQ(sequence.Value(0, 31), -65504.0f);
    EXPECT_NEAR(sequence.Key(0, 0), 0.0, Bound(-65504, 65504, levels));
  }
}

TEST_P(KvQuantization, ATokenWrittenAnewLeavesItsNeighboursAlone) {
  for (const KvFormat format : kQuantized) {
    for (const int d : {10, 48, 64}) {
      const std::vector<float> keys = RandomFloats(16 * d, 7);
      const std::vector<float> values = RandomFloats(16 * d, 8);
      OneSequence at_once(format, d, 16, 16);
      at_once.Append(*backend_, FirstPositions(16), keys, values);
      OneSequence one_by_one(format, d, 16, 16);
      for (const int t : {3, 4, 15, 0, 1, 2, 9, 8, 7, 6, 5, 10, 14, 13, 12, 11, 4}) {
        one_by_one.Append(*backend_, {t}, {keys.begin() + t * d, keys.begin() + (t + 1) * d},
                          {values.begin() + t * d, values.begin() + (t + 1) * d});
      }
      EXPECT_EQ(one_by_one.arena(), at_once.arena());
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Variants, KvQuantization, testing::ValuesIn(AllVariants()),
                         [](const auto& info) { return info.param.Name(); });

}  // namespace
}  // namespace bulkhead
