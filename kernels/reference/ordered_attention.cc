// Only visible positions take part: nothing else is read. Per chunk of kAttentionChunk positions,
// cut at absolute multiples, that holds a visible one:
//   score_s = chain over ascending i of fma(q_i, key_s_i, acc) from +0, then * scale
//   m = max score_s          p_s = Exp(score_s - m)          l = sum of p_s in 16 lanes, by s mod
//   16 o_i = chain over ascending s of fma(p_s, value_s_i, acc) from +0
// The first chunk is the running state; each later one, ascending, joins it:
//   m' = max(m, m_c)   a = Exp(m - m')   b = Exp(m_c - m')
//   l' = fma(l, a, l_c * b)               o'_i = fma(o_i, a, o_c_i * b)
// and at the end out_i = o_i / l.
#include "kernels/reference/ordered_attention.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/reference/exp_constants.h"
#include "kernels/reference/ordered_math.h"

namespace bulkhead::ordered {
namespace {

struct State {
  float m = 0;
  float l = 0;
  std::vector<float> o;  // [d]
};

State Chunk(const SequenceCache& cache, const Query& query, int begin, int end) {
  std::vector<float> weights(end - begin);
  for (int s = begin; s < end; ++s) {
    float score = 0.0f;
    for (int i = 0; i < query.head_dim; ++i) {
      score = std::fma(query.q[i], cache.Key(query.kv_head, s, i), score);
    }
    weights[s - begin] = score * query.scale;
  }
  State state{*std::max_element(weights.begin(), weights.end()), 0.0f,
              std::vector<float>(query.head_dim, 0.0f)};
  float lanes[kLanes] = {};
  for (int s = begin; s < end; ++s) {
    float& weight = weights[s - begin];
    weight = Exp(weight - state.m);
    lanes[s % kLanes] += weight;
    for (int i = 0; i < query.head_dim; ++i) {
      state.o[i] = std::fma(weight, cache.Value(query.kv_head, s, i), state.o[i]);
    }
  }
  state.l = FoldLanes(lanes);
  return state;
}

void Join(const State& chunk, State& running) {
  const float m = std::max(running.m, chunk.m);
  const float a = Exp(running.m - m);
  const float b = Exp(chunk.m - m);
  running.m = m;
  running.l = std::fma(running.l, a, chunk.l * b);
  for (size_t i = 0; i < running.o.size(); ++i) {
    running.o[i] = std::fma(running.o[i], a, chunk.o[i] * b);
  }
}

}  // namespace

void Attend(const SequenceCache& cache, const Query& query, float* out) {
  State running;
  const int first_chunk = query.first / kAttentionChunk;
  for (int chunk = first_chunk; chunk <= query.last / kAttentionChunk; ++chunk) {
    const int begin = std::max(query.first, chunk * kAttentionChunk);
    const int end = std::min(query.last + 1, (chunk + 1) * kAttentionChunk);
    State state = Chunk(cache, query, begin, end);
    if (chunk == first_chunk) {
      running = std::move(state);
    } else {
      Join(state, running);
    }
  }
  for (int i = 0; i < query.head_dim; ++i) out[i] = running.o[i] / running.l;
}

}  // namespace bulkhead::ordered
