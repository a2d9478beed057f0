// The gated delta rule in blocks, and its kernels.
//
// With S the state of a value head [key_dim, value_dim], k and q normed, beta = sigmoid(b) and
// decay g = -exp(a_log) softplus(a + dt_bias), the recurrence of a token is
//   S = e^g S      u = beta (v - S^T k)      S = S + k u^T      o = S^T q
// (transformers 5: models/qwen3_next, torch_recurrent_gated_delta_rule). It is computed only from
// the state S' before the token's block of kStateBlock positions: with G the sum of the block's g
// so far,
//   u_t = beta_t (v_t - (e^G_t S'^T k_t + sum over s < t of e^(G_t - G_s) (k_s . k_t) u_s))
//   o_t = e^G_t S'^T q_t + sum over s <= t of e^(G_t - G_s) (k_s . q_t) u_s
// and after the block's last token S' becomes e^G S' + sum over s of (e^(G - G_s) k_s) u_s^T. Each
// element is one chain of fused multiply-adds, dot products over ascending columns from +0, sums
// over ascending s from the rounded first term: no bit depends on how a sequence is cut into steps.
// G is summed in double; e^x is kernels/simd/exp.h's, of x rounded to float.
#pragma once

#include <stdint.h>

#include "kernels/simd/per_isa.h"

namespace bulkhead {

// out[r, :] = (factor == nullptr ? 0 : *factor * out[r, :]) + sum over i of x[r, i] m[i, :], a
// chain. cols: a multiple of 16.
struct DeltaProduct {
  const float* x;  // [rows, depth]
  int64_t rows;
  int64_t depth;
  const float* m;  // [depth, cols]
  int64_t m_stride;
  int64_t cols;
  const float* factor;
  float* out;  // [rows, cols]
  int64_t out_stride;
};

// Tokens of one block and value head: corrected values and outputs.
struct DeltaTokens {
  int first;  // first token, in the block
  int count;
  const double* decays;  // [kStateBlock] G
  const float* beta;     // [count]
  const float* k_dot;    // [count, kStateBlock] k_s . k_t
  const float* q_dot;
  const float* k_state;  // [count, padded value_dim] S'^T k_t; null if there is no S'
  const float* q_state;
  int64_t value_dim;
  const float* v;  // [count, value_dim]
  int64_t v_stride;
  float* corrected;  // [kStateBlock, padded value_dim]
  float* out;        // [count, value_dim]
  int64_t out_stride;
};

// e^a_log, a token's logarithm of decay, and its beta, in scalar code.
float DeltaRate(float a_log);
double DeltaDecay(float rate, float a, float dt_bias);
float DeltaBeta(float b);

// Added under the root of the sum of squares that norms keys and queries.
inline constexpr float kDeltaNormEpsilon = 1e-6F;

BH_PER_ISA(void MultiplyDelta(const DeltaProduct& product))
BH_PER_ISA(void SolveDelta(const DeltaTokens& tokens))
// out[i, s] = keys[i, s] * e^(G of the last - G of s)        keys, out [key_dim, kStateBlock]
BH_PER_ISA(void WeighKeys(const float* keys, int64_t key_dim, const double* decays, float* out))
// e^sum
BH_PER_ISA(float DecayOf(double sum))

}  // namespace bulkhead
