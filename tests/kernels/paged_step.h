// Sequences in a paged cache, run through AppendKv and Attend in any pieces. What no sequence has
// written holds NaN, and so does every position that a window has left behind.
#pragma once

#include <cstdint>
#include <ostream>
#include <vector>

#include "kernels/backend.h"

namespace bulkhead {

struct AttentionCase {
  std::vector<int32_t> head_to_kv;
  int num_kv_heads = 1;
  int head_dim = 16;
  KvFormat format = KvFormat::kF32;
  int block_tokens = 16;
  int window = 0;
  float soft_cap = 0;
  bool has_sinks = false;
  int chunk = 0;
  int value_dim = 0;    // of a latent cache
  int row_padding = 5;  // rows lie further apart than they are wide
  AttentionDType dtype = AttentionDType::kF32;

  int num_heads() const { return static_cast<int>(head_to_kv.size()); }
  // `group` query heads for each KV head.
  static std::vector<int32_t> Groups(int num_kv_heads, int group);
};

// What a query that sees one token in fp8 gets: its value [d] with this scale.
std::vector<float> AttendToOneToken(Backend& backend, const std::vector<float>& value, float scale);

// Shapes and formats that the CUDA backend has, each border of a tile once; those of latent caches,
// those of heads of more than 256 numbers, and all.
std::vector<AttentionCase> CudaLatentCases();
std::vector<AttentionCase> CudaWideCases();
std::vector<AttentionCase> CudaAttentionCases();

std::ostream& operator<<(std::ostream& out, const AttentionCase& attention_case);

// Tokens [begin, end) of one sequence.
struct Piece {
  int seq = 0;
  int begin = 0;
  int end = 0;
};

class PagedSequences {
 public:
  // Sequence i will have lengths[i] tokens; queries, keys and values come from the seed.
  PagedSequences(Backend& backend, const AttentionCase& attention_case, std::vector<int> lengths,
                 uint32_t seed);

  // Column 0 of every value of this token becomes `x`.
  void SetValues(int seq, int position, float x);
  // Multiplies all values.
  void ScaleValues(float factor);
  // Appends the pieces' keys and values in one step.
  void Append(const std::vector<Piece>& pieces);
  // Appends, attends, and returns the heads' sums [tokens, h out_dim], the pieces' tokens in order.
  // `out_dtype`: f32 or bf16, which is widened.
  std::vector<float> AppendAndAttend(const std::vector<Piece>& pieces,
                                     DType out_dtype = DType::kF32);

 private:
  struct Step {
    StepIndex index;
    std::vector<int32_t> seq_begin, seq_slot, position, token_seq;
    std::vector<float> qkv;
  };

  Step MakeStep(const std::vector<Piece>& pieces) const;
  ConstMatrixView Qkv(const Step& step) const;
  HeadLayout Heads() const;
  KvLayerView Layer();
  void PoisonBefore(int seq, int position);
  int64_t QkvWidth() const;

  Backend& backend_;
  AttentionCase case_;
  std::vector<int> lengths_;
  std::vector<std::vector<float>> qkv_;  // per sequence [length, qkv_dim]
  int table_stride_ = 0;
  std::vector<int32_t> block_tables_;
  std::vector<float> scales_;  // of an fp8 cache: of each head's keys, then of its values
  std::vector<float> sinks_;   // of each head, where the case has any
  std::vector<std::byte> arena_;
  std::vector<std::byte> workspace_;
};

}  // namespace bulkhead
