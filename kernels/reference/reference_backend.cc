// The oracle of the tests: every sum, quotient and exponential in double, rounded to f32 once.
#include <cmath>
#include <vector>

#include "kernels/reference/plain_backend.h"
#include "kernels/reference/sequence_cache.h"

namespace bulkhead {
namespace {

class ReferenceBackend final : public PlainBackend {
 public:
  using PlainBackend::PlainBackend;

  void RmsNorm(ConstMatrixView x, ConstMatrixView weight, float epsilon, MatrixView out) override {
    for (int64_t t = 0; t < x.rows(); ++t) {
      const std::vector<double> row = Normed(x.F32(t), weight, epsilon, x.cols());
      for (int64_t i = 0; i < x.cols(); ++i) out.F32(t)[i] = static_cast<float>(row[i]);
    }
  }

  void MatMul(ConstMatrixView x, const Linear& weight, MatrixView out) override {
    if (x.empty()) return;
    std::vector<float> row(x.cols());
    for (int64_t n = 0; n < out.cols(); ++n) {
      WeightRow(weight, n, row.data());
      for (int64_t t = 0; t < x.rows(); ++t) {
        double sum = 0;
        for (int64_t i = 0; i < x.cols(); ++i) sum += double{x.F32(t)[i]} * row[i];
        out.F32(t)[n] = static_cast<float>(sum);
      }
    }
  }

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
        const std::vector<double> row = Normed(x, norm, epsilon, heads.head_dim);
        for (int i = 0; i < half; ++i) {
          x[i] = static_cast<float>(row[i] * cosines[i] - row[half + i] * sines[i]);
          x[half + i] = static_cast<float>(row[half + i] * cosines[i] + row[i] * sines[i]);
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
        AttendOne(cache, heads.head_to_kv[head], FirstVisible(last, window), last, scale, d,
                  qkv.F32(t) + int64_t{head} * d, out.F32(t) + int64_t{head} * d);
      }
    }
  }

  void SwiGlu(ConstMatrixView gate_up, MatrixView out) override {
    for (int64_t t = 0; t < out.rows(); ++t) {
      const float* gate = gate_up.F32(t);
      const float* up = gate + out.cols();
      for (int64_t i = 0; i < out.cols(); ++i) {
        out.F32(t)[i] = static_cast<float>(gate[i] / (1 + std::exp(-double{gate[i]})) * up[i]);
      }
    }
  }

 private:
  // No weight: x as it is.
  static std::vector<double> Normed(const float* x, ConstMatrixView weight, float epsilon,
                                    int64_t size) {
    std::vector<double> row(x, x + size);
    if (weight.empty()) return row;
    double sum = 0;
    for (const double value : row) sum += value * value;
    const double scale = 1 / std::sqrt(sum / static_cast<double>(size) + epsilon);
    for (int64_t i = 0; i < size; ++i) row[i] *= scale * weight.F32()[i];
    return row;
  }

  // NOLINTNEXTLINE(readability-function-size): one formula
  static void AttendOne(const SequenceCache& cache, int kv_head, int first, int last, float scale,
                        int d, const float* q, float* out) {
    std::vector<double> weights;
    double max = -HUGE_VAL;
    for (int s = first; s <= last; ++s) {
      double score = 0;
      for (int i = 0; i < d; ++i) score += double{q[i]} * cache.Key(kv_head, s, i);
      weights.push_back(score * scale);
      max = std::max(max, weights.back());
    }
    double total = 0;
    for (double& weight : weights) total += weight = std::exp(weight - max);
    for (int i = 0; i < d; ++i) {
      double sum = 0;
      for (int s = first; s <= last; ++s) sum += weights[s - first] * cache.Value(kv_head, s, i);
      out[i] = static_cast<float>(sum / total);
    }
  }
};

}  // namespace

std::unique_ptr<Backend> NewReferenceBackend(Device& device) {
  return std::make_unique<ReferenceBackend>(device);
}

}  // namespace bulkhead
