#include <cmath>
#include <vector>

#include "kernels/gated_delta/op.h"
#include "kernels/reference/ordered_math.h"
#include "kernels/reference/reference_backend.h"
#include "kernels/rms_norm/reference.h"

namespace bulkhead {
namespace {

struct Token {
  const StateLayerView& state;
  const GatedDeltaWeights& weights;
  int64_t slot;
  int position;
  const float* qkv;
  const float* ba;

  const DeltaHeads& heads() const { return state.geometry.heads; }
  const float* Q(int64_t key_head) const { return qkv + key_head * heads().key_dim; }
  const float* K(int64_t key_head) const { return Q(heads().num_key_heads + key_head); }
  const float* V(int64_t head) const {
    return Q(2 * heads().num_key_heads) + head * heads().value_dim;
  }
};

std::vector<float> NormedInOrder(const float* x, int size, float scale) {
  const float inverse = 1.0F / std::sqrt(SumOfSquaresInOrder(x, size) + kDeltaNormEpsilon);
  std::vector<float> out(size);
  for (int i = 0; i < size; ++i) out[i] = x[i] * (inverse * scale);
  return out;
}

std::vector<double> NormedInDouble(const float* x, int size) {
  double sum = kDeltaNormEpsilon;
  for (int i = 0; i < size; ++i) sum += double{x[i]} * x[i];
  std::vector<double> out(size);
  for (int i = 0; i < size; ++i) out[i] = x[i] / std::sqrt(sum);
  return out;
}

// The chain over i of x[i] * m[i, column].
float Dot(const std::vector<float>& x, const float* m, int64_t stride, int64_t column) {
  float sum = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    sum = std::fma(x[i], m[static_cast<int64_t>(i) * stride + column], sum);
  }
  return sum;
}

float DecayBetween(double from, double to) { return ordered::Exp(static_cast<float>(to - from)); }

void AdvanceInOrder(const Token& token, int64_t head, const double* decays, const float* keys,
                    const float* corrected) {
  const int64_t padded = token.state.geometry.padded_value_dim();
  const double end = decays[kStateBlock - 1];
  float* const matrix = token.state.Matrix(token.slot, head);
  for (int i = 0; i < token.heads().key_dim; ++i) {
    for (int64_t j = 0; j < padded; ++j) {
      float& at = matrix[i * padded + j];
      float sum = token.position >= kStateBlock ? DecayBetween(0, end) * at : 0.0F;
      for (int s = 0; s < kStateBlock; ++s) {
        const float key = keys[i * kStateBlock + s] * DecayBetween(decays[s], end);
        sum = std::fma(key, corrected[s * padded + j], sum);
      }
      at = sum;
    }
  }
}

void RunInOrder(const Token& token, int64_t head, float* out) {
  const DeltaHeads& heads = token.heads();
  const int64_t key_head = heads.value_to_key[head];
  const int64_t padded = token.state.geometry.padded_value_dim();
  const int t = token.position % kStateBlock;
  const float q_scale = 1.0F / std::sqrt(static_cast<float>(heads.key_dim));
  const std::vector<float> k = NormedInOrder(token.K(key_head), heads.key_dim, 1);
  const std::vector<float> q = NormedInOrder(token.Q(key_head), heads.key_dim, q_scale);
  float* const keys = token.state.Keys(token.slot, key_head);
  for (int i = 0; i < heads.key_dim; ++i) keys[i * kStateBlock + t] = k[i];
  double* const decays = token.state.Decays(token.slot, head);
  decays[t] = (t == 0 ? 0 : decays[t - 1]) + DeltaDecay(DeltaRate(token.weights.a_log.F32()[head]),
                                                        token.ba[heads.num_value_heads + head],
                                                        token.weights.dt_bias.F32()[head]);
  const float beta = DeltaBeta(token.ba[head]);
  const float* const matrix = token.state.Matrix(token.slot, head);
  float* const corrected = token.state.Corrected(token.slot, head);
  std::vector<float> k_weights;  // for the block's tokens so far
  std::vector<float> q_weights;
  for (int s = 0; s <= t; ++s) {
    const float decay = DecayBetween(decays[s], decays[t]);
    k_weights.push_back(decay * Dot(k, keys, kStateBlock, s));
    q_weights.push_back(decay * Dot(q, keys, kStateBlock, s));
  }
  for (int64_t j = 0; j < padded; ++j) {
    float of_k = 0;
    float of_q = 0;
    if (token.position >= kStateBlock) {
      of_k = DecayBetween(0, decays[t]) * Dot(k, matrix, padded, j);
      of_q = DecayBetween(0, decays[t]) * Dot(q, matrix, padded, j);
    }
    for (int s = 0; s < t; ++s) {
      of_k = std::fma(k_weights[s], corrected[s * padded + j], of_k);
      of_q = std::fma(q_weights[s], corrected[s * padded + j], of_q);
    }
    const float v = j < heads.value_dim ? token.V(head)[j] : 0.0F;
    const float u = corrected[t * padded + j] = beta * (v - of_k);
    if (j < heads.value_dim) out[j] = std::fma(q_weights[t], u, of_q);
  }
  NormInOrder(out, token.weights.norm, token.weights.epsilon, heads.value_dim, out);
  if (t + 1 == kStateBlock) AdvanceInOrder(token, head, decays, keys, corrected);
}

// The recurrence; the state's matrix is the one after the last token.
void RunInDouble(const Token& token, int64_t head, float* out) {
  const DeltaHeads& heads = token.heads();
  const int64_t key_head = heads.value_to_key[head];
  const int64_t padded = token.state.geometry.padded_value_dim();
  const std::vector<double> k = NormedInDouble(token.K(key_head), heads.key_dim);
  const std::vector<double> q = NormedInDouble(token.Q(key_head), heads.key_dim);
  const double a =
      double{token.ba[heads.num_value_heads + head]} + token.weights.dt_bias.F32()[head];
  const double decay =
      std::exp(-std::exp(double{token.weights.a_log.F32()[head]}) * std::log1p(std::exp(a)));
  const double beta = 1 / (1 + std::exp(-double{token.ba[head]}));
  float* const matrix = token.state.Matrix(token.slot, head);
  for (int j = 0; j < heads.value_dim; ++j) {
    double seen = 0;
    for (int i = 0; i < heads.key_dim; ++i) {
      const double before = token.position == 0 ? 0 : matrix[i * padded + j];
      seen += decay * before * k[i];
    }
    const double u = beta * (token.V(head)[j] - seen);
    double sum = 0;
    for (int i = 0; i < heads.key_dim; ++i) {
      const double before = token.position == 0 ? 0 : matrix[i * padded + j];
      const double after = decay * before + k[i] * u;
      sum += after * q[i] / std::sqrt(heads.key_dim);
      matrix[i * padded + j] = static_cast<float>(after);
    }
    out[j] = static_cast<float>(sum);
  }
  const std::vector<double> normed =
      NormInDouble(out, token.weights.norm, token.weights.epsilon, heads.value_dim);
  for (int j = 0; j < heads.value_dim; ++j) out[j] = static_cast<float>(normed[j]);
}

}  // namespace

void ReferenceBackend::GatedDelta(const StepIndex& index, const GatedDeltaWeights& weights,
                                  ConstMatrixView qkv, ConstMatrixView ba,
                                  const StateLayerView& state, MatrixView out) {
  const DeltaHeads& heads = state.geometry.heads;
  for (int t = 0; t < index.num_tokens; ++t) {
    const Token token{state,      weights,  index.seq_slot[index.token_seq[t]], index.position[t],
                      qkv.F32(t), ba.F32(t)};
    for (int head = 0; head < heads.num_value_heads; ++head) {
      float* const row = out.F32(t) + int64_t{head} * heads.value_dim;
      in_order_ ? RunInOrder(token, head, row) : RunInDouble(token, head, row);
    }
  }
}

}  // namespace bulkhead
