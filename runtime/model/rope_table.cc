#include "runtime/model/rope_table.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace bulkhead {
namespace {

struct SinCos {
  double sin;
  double cos;
};

// Taylor series on [-pi/4, pi/4] after subtracting whole quarter turns; |x| below 2^20 or so.
SinCos SinCosOf(double x) {
  // pi/2 in three parts of at most 33 bits, so that quarters x part is exact.
  constexpr double kPi2High = 0x1.921fb544p+0;
  constexpr double kPi2Middle = 0x1.0b4611a6p-34;
  constexpr double kPi2Low = 0x1.3198a2e037073p-69;
  const double quarters = std::floor(x * 0.63661977236758134308 + 0.5);
  const double r = ((x - quarters * kPi2High) - quarters * kPi2Middle) - quarters * kPi2Low;
  const double r2 = r * r;
  double sin = 1.0;
  for (int n = 21; n >= 3; n -= 2) sin = 1.0 - sin * r2 / (n * (n - 1));
  sin *= r;
  double cos = 1.0;
  for (int n = 20; n >= 2; n -= 2) cos = 1.0 - cos * r2 / (n * (n - 1));
  switch (static_cast<int64_t>(quarters) & 3) {
    case 0:
      return {sin, cos};
    case 1:
      return {cos, -sin};
    case 2:
      return {-sin, -cos};
    default:
      return {-cos, sin};
  }
}

float Llama3Scaled(const RopeConfig& rope, double inverse) {
  constexpr double kTwoPi = 6.28318530717958647692;
  const double length = rope.original_max_position_embeddings;
  const double wavelength = kTwoPi / inverse;
  if (wavelength < length / rope.high_freq_factor) return static_cast<float>(inverse);
  if (wavelength > length / rope.low_freq_factor) return static_cast<float>(inverse / rope.factor);
  if (rope.high_freq_factor == rope.low_freq_factor) return static_cast<float>(inverse);
  const double smooth =
      (length / wavelength - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor);
  return static_cast<float>((1.0 - smooth) * inverse / rope.factor + smooth * inverse);
}

// The columns between which yarn ramps from unscaled frequencies to frequencies divided by
// `factor`.
struct YarnRange {
  double low;
  double high;
};
YarnRange YarnRangeOf(const RopeConfig& rope, int rotary_dim) {
  const auto column = [&](double rotations) {
    const long double pi = 3.14159265358979323846L;
    const long double length = rope.original_max_position_embeddings;
    return static_cast<double>(rotary_dim * logl(length / (rotations * 2 * pi)) /
                               (2 * logl(static_cast<long double>(rope.theta))));
  };
  double low = column(rope.beta_fast);
  double high = column(rope.beta_slow);
  if (rope.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, rotary_dim - 1.0);
  return {low, low == high ? high + 0.001 : high};
}

float Yarn(const RopeConfig& rope, const YarnRange& range, int column, double plain) {
  const double ramp = std::clamp((column - range.low) / (range.high - range.low), 0.0, 1.0);
  return static_cast<float>(plain / rope.factor * ramp + plain * (1 - ramp));
}

}  // namespace

std::vector<float> RopeInverseFrequencies(const RopeConfig& rope, int rotary_dim,
                                          int max_model_len) {
  const bool is_long = max_model_len > rope.original_max_position_embeddings;
  const std::vector<double>& factors = is_long ? rope.long_factor : rope.short_factor;
  const YarnRange range =
      rope.scaling == RopeScaling::kYarn ? YarnRangeOf(rope, rotary_dim) : YarnRange{};
  long double theta = rope.theta;
  if (rope.scaling == RopeScaling::kNtkAlpha) {
    theta *= powl(static_cast<long double>(rope.factor),
                  static_cast<long double>(rotary_dim) / (rotary_dim - 2));
  }
  const int whole_dim = rope.whole_dim > 0 ? rope.whole_dim : rotary_dim;
  std::vector<float> inverse(rotary_dim / 2);
  for (int i = 0; i < rotary_dim / 2; ++i) {
    // x87 arithmetic: the same on every CPU, which a double pow is not.
    const long double exponent = static_cast<long double>(2 * i) / whole_dim;
    const float plain = static_cast<float>(1.0L / powl(theta, exponent));
    switch (rope.scaling) {
      case RopeScaling::kNone:
      case RopeScaling::kNtkAlpha:
        inverse[i] = plain;
        break;
      case RopeScaling::kLinear:
      case RopeScaling::kProportional:
        inverse[i] = static_cast<float>(plain / rope.factor);
        break;
      case RopeScaling::kLlama3:
        inverse[i] = Llama3Scaled(rope, plain);
        break;
      case RopeScaling::kYarn:
        inverse[i] = Yarn(rope, range, i, plain);
        break;
      case RopeScaling::kLongRope:
        inverse[i] = static_cast<float>(plain / factors[i]);
        break;
    }
  }
  return inverse;
}

void FillRopeRows(const RopeConfig& rope, int max_model_len, int64_t first_position,
                  MatrixView rows) {
  const int half = static_cast<int>(rows.cols()) / 2;
  const std::vector<float> inverse = RopeInverseFrequencies(rope, 2 * half, max_model_len);
  const auto factor = static_cast<float>(rope.attention_factor);
  for (int64_t r = 0; r < rows.rows(); ++r) {
    const int64_t position = first_position + r;
    float* row = rows.F32(r);
    for (int i = 0; i < half; ++i) {
      // The angle is rounded to f32, as in the implementations that trained these models.
      const float angle = static_cast<float>(position) * inverse[i];
      const SinCos value = SinCosOf(angle);
      row[i] = static_cast<float>(value.cos) * factor;
      row[half + i] = static_cast<float>(value.sin) * factor;
    }
  }
}

void FillQScale(const ModelConfig& config, int64_t first_position, MatrixView rows) {
  for (int64_t r = 0; r < rows.rows(); ++r) {
    const int64_t turns = (first_position + r + config.q_scale_offset) / config.q_scale_context;
    const auto log = static_cast<double>(log1pl(static_cast<long double>(turns)));
    *rows.F32(r) = static_cast<float>(1 + config.q_scale_beta * log);
  }
}

}  // namespace bulkhead
