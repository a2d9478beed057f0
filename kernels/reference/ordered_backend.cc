// The oracle of the bits: each op in exactly the order and with exactly the roundings that every
// SIMD variant must equal by memcmp.
#include <cmath>
#include <vector>

#include "kernels/cpu/number_format.h"
#include "kernels/reference/input_quantizer.h"
#include "kernels/reference/ordered_attention.h"
#include "kernels/reference/ordered_math.h"
#include "kernels/reference/plain_backend.h"
#include "kernels/reference/quantized_weight.h"

namespace bulkhead {
namespace {

class OrderedBackend final : public PlainBackend {
 public:
  OrderedBackend(Device& device, ActivationDType activation)
      : PlainBackend(device), activation_(activation) {}

  // out_i = (x_i * scale) * weight_i
  void RmsNorm(ConstMatrixView x, ConstMatrixView weight, float epsilon, MatrixView out) override {
    if (x.empty()) return;
    for (int64_t t = 0; t < x.rows(); ++t) {
      Norm(x.F32(t), weight.F32(), epsilon, x.cols(), out.F32(t));
    }
  }

  // One chain per slice; slices join in pairs, pairs of pairs ...; an empty slice is -0.0.
  void MatMul(ConstMatrixView x, const Linear& weight, MatrixView out) override {
    if (x.empty()) return;
    const WeightFormat format = weight.shape.format;
    if (activation_ == ActivationDType::kInt8 && IsQuantized(format) &&
        weight.shape.groups.indexed == 0) {
      return MatMulInInt8(x, weight, out);
    }
    const std::vector<int64_t>& borders = weight.shape.k_borders;
    std::vector<float> row(x.cols());
    std::vector<float> sums(borders.size() - 1);
    for (int64_t n = 0; n < out.cols(); ++n) {
      WeightRow(weight, n, row.data());
      for (int64_t t = 0; t < x.rows(); ++t) {
        for (size_t slice = 0; slice < sums.size(); ++slice) {
          sums[slice] = Chain(x.F32(t), row.data(), borders[slice], borders[slice + 1]);
        }
        out.F32(t)[n] = Join(sums);
      }
    }
  }

  // out1 = fma(-x2, s, x1 * c), out2 = fma(x2, c, x1 * s); the norm before it as in RmsNorm.
  void NormRope(const StepIndex& index, const HeadLayout& heads, ConstMatrixView q_norm,
                ConstMatrixView k_norm, float epsilon, ConstMatrixView rope,
                MatrixView qkv) override {
    const int half = heads.head_dim / 2;
    for (int t = 0; t < index.num_tokens; ++t) {
      const float* cosines = rope.F32(index.position[t]);
      const float* sines = cosines + half;
      for (int head = 0; head < heads.num_heads + heads.num_kv_heads; ++head) {
        float* x = qkv.F32(t) + int64_t{head} * heads.head_dim;
        const ConstMatrixView norm = head < heads.num_heads ? q_norm : k_norm;
        if (!norm.empty()) Norm(x, norm.F32(), epsilon, heads.head_dim, x);
        for (int i = 0; i < half; ++i) {
          const float x1 = x[i];
          const float x2 = x[half + i];
          x[i] = std::fma(-x2, sines[i], x1 * cosines[i]);
          x[half + i] = std::fma(x2, cosines[i], x1 * sines[i]);
        }
      }
    }
  }

  void Attend(const StepIndex& index, const HeadLayout& heads, ConstMatrixView qkv,
              const KvLayerView& kv, float scale, int window, MatrixView out) override {
    const int d = heads.head_dim;
    for (int t = 0; t < index.num_tokens; ++t) {
      const SequenceCache cache(index, index.token_seq[t], kv);
      const int last = index.position[t];
      for (int head = 0; head < heads.num_heads; ++head) {
        const ordered::Query query{qkv.F32(t) + int64_t{head} * d, d,    heads.head_to_kv[head],
                                   FirstVisible(last, window),     last, scale};
        ordered::Attend(cache, query, out.F32(t) + int64_t{head} * d);
      }
    }
  }

  // e = Exp(-|gate_i|)   out_i = ((gate_i < 0 ? gate_i * e : gate_i) / (1 + e)) * up_i: no overflow
  void SwiGlu(ConstMatrixView gate_up, MatrixView out) override {
    for (int64_t t = 0; t < out.rows(); ++t) {
      const float* gate = gate_up.F32(t);
      const float* up = gate + out.cols();
      for (int64_t i = 0; i < out.cols(); ++i) {
        const float e = ordered::Exp(-std::fabs(gate[i]));
        out.F32(t)[i] = (gate[i] < 0.0f ? gate[i] * e : gate[i]) / (1.0f + e) * up[i];
      }
    }
  }

 private:
  // One chain over the cells of each slice.
  static void MatMulInInt8(ConstMatrixView x, const Linear& linear, MatrixView out) {
    const QuantizedWeight weight(linear);
    const std::vector<WeightCell>& cells = weight.cells();
    const std::vector<int64_t>& borders = linear.shape.k_borders;
    std::vector<int8_t> inputs(x.cols());
    std::vector<InputScaling> scalings(cells.size());
    std::vector<float> sums(borders.size() - 1);
    for (int64_t t = 0; t < x.rows(); ++t) {
      for (size_t i = 0; i < cells.size(); ++i) {
        const auto size = static_cast<size_t>(cells[i].size());
        scalings[i] = QuantizeInputs({x.F32(t) + cells[i].begin, size},
                                     {inputs.data() + cells[i].begin, size});
      }
      for (int64_t n = 0; n < out.cols(); ++n) {
        for (size_t slice = 0; slice < sums.size(); ++slice) {
          sums[slice] = borders[slice] == borders[slice + 1] ? -0.0f : 0.0f;
        }
        for (size_t i = 0; i < cells.size(); ++i) {
          const WeightScaling scaling = weight.ScalingOf(n, static_cast<int64_t>(i));
          int32_t sum = -int32_t{scaling.zero} * scalings[i].sum;
          for (int64_t k = cells[i].begin; k < cells[i].end; ++k) {
            sum += int32_t{weight.codes(n)[k]} * inputs[k];
          }
          float& acc = sums[cells[i].slice];
          acc = std::fma(static_cast<float>(sum), F32OfF16(scaling.scale) * scalings[i].scale, acc);
        }
        out.F32(t)[n] = Join(sums);
      }
    }
  }

  // Destroys them.
  static float Join(std::vector<float>& sums) {
    for (size_t width = 1; width < sums.size(); width *= 2) {
      for (size_t i = 0; i < sums.size(); i += 2 * width) sums[i] += sums[i + width];
    }
    return sums[0];
  }

  static void Norm(const float* x, const float* weight, float epsilon, int64_t size, float* out) {
    const float scale = ordered::RmsScale(x, size, epsilon);
    for (int64_t i = 0; i < size; ++i) out[i] = x[i] * scale * weight[i];
  }

  // fma(x_k, w_k, acc) over ascending k in [begin, end), from +0.
  static float Chain(const float* x, const float* weight, int64_t begin, int64_t end) {
    if (begin == end) return -0.0f;
    float acc = 0.0f;
    for (int64_t k = begin; k < end; ++k) acc = std::fma(x[k], weight[k], acc);
    return acc;
  }

  const ActivationDType activation_;
};

}  // namespace

std::unique_ptr<Backend> NewOrderedBackend(Device& device) {
  return NewOrderedBackend(device, ActivationDType::kF32);
}

std::unique_ptr<Backend> NewOrderedBackend(Device& device, ActivationDType activation) {
  return std::make_unique<OrderedBackend>(device, activation);
}

}  // namespace bulkhead
