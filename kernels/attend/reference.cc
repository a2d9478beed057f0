// Only visible positions take part: nothing else is read. In order, per chunk of kAttentionChunk
// positions, cut at absolute multiples, that holds a visible one:
//   score_s = chain over ascending i of fma(q_i, key_s_i, acc) from +0, then * scale, then capped;
//             for an fp8 cache the chain is over codes, and scale times the head's key scale
//   m = max score_s      p_s = Exp(score_s - m)      l = sum of p_s in 16 lanes, by s mod 16
//   o_i = chain over ascending s of fma(p_s, value_s_i, acc) from +0
// The first chunk is the running state; each later one, ascending, joins it:
//   m' = max(m, m_c)   a = Exp(m - m')   b = Exp(m_c - m')
//   l' = fma(l, a, l_c * b)               o'_i = fma(o_i, a, o_c_i * b)
// A head's sink s, a score without a value, is joined after the last chunk:
//   m' = max(m, s)   a = Exp(m - m')   l' = fma(l, a, Exp(s - m'))   o'_i = o_i * a
// and at the end out_i = o_i / l, for an fp8 cache times the scale of the head's values.
// With AttentionDType::kBf16 or kBf16Amx and a cache in bf16 both chains are those of the
// ActivationDType: q is rounded to bf16, denormals as 0, i is taken in pairs or 32s, p_s is rounded
// the same way (for the values only), and s is taken in pairs or 32s from the chunk's begin, with
// invisible positions as 0; an o_i that is a zero is +0.
// p_s = Exp2ForBf16((score_s - m) * c), c = log2(e); without a soft cap score_s and this m are
// those before the scale, which is a factor of c.
#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/reference/ordered_math.h"
#include "kernels/reference/reference_backend.h"
#include "kernels/reference/sequence_cache.h"
#include "kernels/simd/exp_constants.h"

namespace bulkhead {
namespace {

using ordered::Exp;
using ordered::FoldLanes;
using ordered::kLanes;

// One query head over one KV head.
struct Query {
  const float* q = nullptr;  // [d]
  int head_dim = 0;          // d
  int out_dim = 0;           // columns of a value
  int kv_head = 0;
  int first = 0;  // visible positions: [first, last]
  int last = 0;
  float scale = 1;
  float key_scale = 1;
  float value_scale = 1;
  float soft_cap = 0;
  const float* sink = nullptr;  // null: none
  AttentionDType dtype = AttentionDType::kF32;

  bool in_bf16() const { return dtype != AttentionDType::kF32; }
};

float ChainInBf16(AttentionDType dtype, const std::vector<float>& x, const std::vector<float>& w) {
  const auto count = static_cast<int64_t>(x.size());
  return dtype == AttentionDType::kBf16 ? ordered::PairChain(x.data(), w.data(), 0, count)
                                        : ordered::TileChain(x.data(), w.data(), 0, count);
}

// score_s before its scale.
float ScoreOf(const SequenceCache& cache, const Query& query, int s) {
  std::vector<float> key(query.head_dim);
  for (int i = 0; i < query.head_dim; ++i) key[i] = cache.Key(query.kv_head, s, i);
  if (query.in_bf16()) {
    std::vector<float> rounded(query.q, query.q + query.head_dim);
    for (float& x : rounded) x = ordered::RoundFlushed(x);
    return ChainInBf16(query.dtype, rounded, key);
  }
  float score = 0.0f;
  for (int i = 0; i < query.head_dim; ++i) score = std::fma(query.q[i], key[i], score);
  return score;
}

// o_i over the positions from `begin` on, one per weight.
float OutOf(const SequenceCache& cache, const Query& query, int begin,
            const std::vector<float>& weights, int i) {
  const auto count = static_cast<int>(weights.size());
  if (query.in_bf16()) {
    const int before = begin % 32;
    std::vector<float> p(before + count, 0.0f);
    std::vector<float> value(before + count, 0.0f);
    for (int s = 0; s < count; ++s) {
      p[before + s] = ordered::RoundFlushed(weights[s]);
      value[before + s] = cache.Value(query.kv_head, begin + s, i);
    }
    return ChainInBf16(query.dtype, p, value) + 0.0f;
  }
  float sum = 0.0f;
  for (int s = 0; s < count; ++s) {
    sum = std::fma(weights[s], cache.Value(query.kv_head, begin + s, i), sum);
  }
  return sum;
}

struct State {
  float m = 0;
  float l = 0;
  std::vector<float> o;  // [d]
};

// Turns scores into weights; returns m and l, without o.
State Weigh(const Query& query, int begin, std::vector<float>& scores) {
  const float factor = query.scale * query.key_scale;
  // For scores without their scale.
  const bool by_power = query.in_bf16() && query.soft_cap == 0.0f && factor > 0.0f;
  for (float& score : scores) {
    if (!by_power) score = ordered::SoftCap(score * factor, query.soft_cap);
  }
  const float max = *std::max_element(scores.begin(), scores.end());
  State state{by_power ? max * factor : max, 0.0f, std::vector<float>(query.out_dim, 0.0f)};
  const float power = by_power ? factor * kExpLog2E : kExpLog2E;
  float lanes[kLanes] = {};
  for (size_t i = 0; i < scores.size(); ++i) {
    scores[i] =
        query.in_bf16() ? ordered::Exp2ForBf16((scores[i] - max) * power) : Exp(scores[i] - max);
    lanes[(begin + i) % kLanes] += scores[i];
  }
  state.l = FoldLanes(lanes);
  return state;
}

State Chunk(const SequenceCache& cache, const Query& query, int begin, int end) {
  std::vector<float> weights(end - begin);
  for (int s = begin; s < end; ++s) weights[s - begin] = ScoreOf(cache, query, s);
  State state = Weigh(query, begin, weights);
  for (int i = 0; i < query.out_dim; ++i) state.o[i] = OutOf(cache, query, begin, weights, i);
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

void AttendInOrder(const SequenceCache& cache, const Query& query, float* out) {
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
  if (query.sink != nullptr) {
    const float m = std::max(running.m, *query.sink);
    const float a = Exp(running.m - m);
    running.l = std::fma(running.l, a, Exp(*query.sink - m));
    for (float& o : running.o) o *= a;
  }
  for (int i = 0; i < query.out_dim; ++i) out[i] = running.o[i] / running.l * query.value_scale;
}

void AttendInDouble(const SequenceCache& cache, const Query& query, float* out) {
  std::vector<double> weights;
  double max = query.sink != nullptr ? *query.sink : -HUGE_VAL;
  for (int s = query.first; s <= query.last; ++s) {
    double score = 0;
    for (int i = 0; i < query.head_dim; ++i) {
      score += double{query.q[i]} * cache.Key(query.kv_head, s, i);
    }
    score *= double{query.scale} * query.key_scale;
    if (query.soft_cap > 0) score = query.soft_cap * std::tanh(score / query.soft_cap);
    weights.push_back(score);
    max = std::max(max, weights.back());
  }
  double total = query.sink != nullptr ? std::exp(*query.sink - max) : 0;
  for (double& weight : weights) total += weight = std::exp(weight - max);
  for (int i = 0; i < query.out_dim; ++i) {
    double sum = 0;
    for (int s = query.first; s <= query.last; ++s) {
      sum += weights[s - query.first] * cache.Value(query.kv_head, s, i);
    }
    out[i] = static_cast<float>(sum / total * query.value_scale);
  }
}

}  // namespace

void ReferenceBackend::Attend(const StepIndex& index, const HeadLayout& heads, ConstMatrixView qkv,
                              const KvLayerView& kv, const AttentionOptions& options,
                              MatrixView out) {
  const int d = heads.head_dim;
  for (int t = 0; t < index.num_tokens; ++t) {
    const SequenceCache cache(index, index.token_seq[t], kv);
    const int last = index.position[t];
    for (int head = 0; head < heads.num_heads; ++head) {
      const int kv_head = heads.head_to_kv[head];
      const Query query{qkv.F32(t) + int64_t{head} * d,
                        d,
                        heads.out_dim(),
                        kv_head,
                        FirstVisible(last, options),
                        last,
                        options.scale,
                        kv.KeyScale(kv_head),
                        kv.ValueScale(kv_head),
                        options.soft_cap,
                        options.sinks.empty() ? nullptr : options.sinks.F32() + head,
                        kv.geometry.format == KvFormat::kBF16 ? attention_ : AttentionDType::kF32};
      float* out_head = out.F32(t) + int64_t{head} * heads.out_dim();
      in_order_ ? AttendInOrder(cache, query, out_head) : AttendInDouble(cache, query, out_head);
    }
  }
}

}  // namespace bulkhead
