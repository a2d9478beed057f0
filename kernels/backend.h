// Backend: the few ops a decoder is made of. Ops only enqueue work on the backend's device;
// faults surface at Device::Synchronize. Activations are f32, but for what products alone read:
// outputs of RmsNorm, AddResidualNorm, Attend and SwiGlu, and x of MatMul, may be in
// product_input_dtype. Letters as in memory/matrix.h;
// lower-case h, k, f, v are this rank's share. An op on no rows, or on a share of no columns, does
// nothing.
//
// The bits (docs/architecture.md, Determinism): every output of a product is one chain of fused
// multiply-adds over ascending k per slice, slices joined as a binary tree (memory/linear.h); norms
// sum in 16 fixed virtual lanes; attention is cut at absolute multiples of 256 tokens. No op's
// result for one row depends on the other rows, on the number of threads or on the instruction set.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "memory/device.h"
#include "memory/kv_cache.h"
#include "memory/linear.h"
#include "memory/matrix.h"

namespace bulkhead {

// Where the tokens of a step belong: S sequences, T tokens, a sequence's tokens next to each other
// in ascending position. All arrays in device memory.
struct StepIndex {
  int num_seqs = 0;                       // S
  int num_tokens = 0;                     // T
  const int32_t* seq_begin = nullptr;     // [S + 1] first token of each sequence, then T
  const int32_t* seq_slot = nullptr;      // [S] row of block_tables
  const int32_t* position = nullptr;      // [T] absolute position
  const int32_t* token_seq = nullptr;     // [T] which sequence
  const int32_t* block_tables = nullptr;  // [slots, block_table_stride] block ids
  int block_table_stride = 0;
};

// Sizes that bound every step; the workspace is sized from them.
struct StepLimits {
  int max_num_batched_tokens = 0;  // T at most
  int max_num_seqs = 0;            // S at most
  int max_model_len = 0;
  int64_t max_int8_inputs = 0;  // K at most of a product with a quantised weight; 0: there is none
  int64_t max_inputs = 0;       // K at most of any product
  bool quantized_weights = false;  // whether any product has one
};

// In what products with quantised weights are computed. kInt8: inputs are quantised too, row by row
// and cell by cell (kernels/reference/input_quantizer.h), a cell's sum is exact, and the chain of
// an output is acc = fma(float(sum of (q - z) x), weight scale * input scale, acc) over ascending
// cells. Linears with an index, and tables that are only looked up, stay in f32.
enum class ActivationDType { kF32, kInt8 };

// The heads of one rank. Query head i reads KV head head_to_kv[i], an index on this rank.
struct HeadLayout {
  int num_heads = 0;                    // h
  int num_kv_heads = 0;                 // k
  int head_dim = 0;                     // d
  const int32_t* head_to_kv = nullptr;  // [h], ascending; host memory, outlives the backend's use
};

class SamplingOps;  // kernels/sampling_ops.h

// What a backend takes of memory: the same on every machine, with a device or without.
class BackendSizes {
 public:
  virtual ~BackendSizes() = default;
  // Of a weight when packed.
  virtual int64_t PackedBytes(const LinearShape& shape) const = 0;
  // Of the workspace.
  virtual int64_t WorkspaceBytes(const StepLimits& limits, const HeadLayout& heads) const = 0;
  // Whether tokens are drawn on the device, which takes memory for it.
  virtual bool samples_tokens() const = 0;
  // What rows hold that nothing but products with weights in a format read.
  virtual DType product_input_dtype(WeightFormat /*weights*/) const { return DType::kF32; }
};

class Backend : public BackendSizes {
 public:
  virtual Device& device() = 0;

  // ---- weights
  // A sink that fills `linear.packed` (PackedBytes of it, 64-byte aligned, zeroed, owned by the
  // caller).
  virtual std::unique_ptr<WeightSink> Pack(const Linear& linear) = 0;

  // ---- workspace, taken once before the first op: WorkspaceBytes of it
  virtual void SetWorkspace(std::byte* workspace, const StepLimits& limits,
                            const HeadLayout& heads) = 0;

  // Once for each step before its first op, and not inside a capture: lays out the step's work.
  // The arrays of this index lie in host memory and are read during the call alone.
  virtual void BeginStep(const StepIndex& /*host_index*/) {}

  // ---- ops
  // out[t, :] = row (tokens[t] - first_row) of the table + 0.0, or zeros for a token outside
  // [first_row, first_row + table rows).                     tokens [T] device memory, out [T, D]
  virtual void Embed(const int32_t* tokens, const Linear& table, int64_t first_row,
                     MatrixView out) = 0;

  // out[t, :] = x[t, :] * (1 / sqrt(mean(x[t, :]^2) + epsilon)) * weight   weight [1, D] f32; out
  // may be x
  virtual void RmsNorm(ConstMatrixView x, ConstMatrixView weight, float epsilon,
                       MatrixView out) = 0;

  // out = x * weight^T, by the chains of memory/linear.h      x [T, K], out [T, N]; x and out apart
  virtual void MatMul(ConstMatrixView x, const Linear& weight, MatrixView out) = 0;

  // Once before the first step, for a weight that MatMul will get with many rows: does what MatMul
  // may do with it for any number of rows, so that what a library loads at first use is loaded.
  // x [R, K], of any content; out [R, N], with R up to max_num_batched_tokens. From then on MatMul
  // may read rows behind the last one of x and write such of out, up to R in all.
  virtual absl::Status WarmUpMatMul(ConstMatrixView /*x*/, const Linear& /*weight*/,
                                    MatrixView /*out*/) {
    return absl::OkStatus();
  }

  // x[t, :] += bias                                           bias [1, N] f32
  virtual void AddBias(ConstMatrixView bias, MatrixView x) = 0;

  // The q and k parts of qkv [T, (h + 2k) d], in place, per head: RmsNorm with q_norm or k_norm [1,
  // d] (empty: none), then the rotary embedding of halves: with (c, s) = rope[position], (x1, x2)
  // -> (x1 c - x2 s, x2 c + x1 s).     rope [max_model_len, d] f32: d/2 cosines, d/2 sines
  virtual void NormRope(const StepIndex& index, const HeadLayout& heads, ConstMatrixView q_norm,
                        ConstMatrixView k_norm, float epsilon, ConstMatrixView rope,
                        MatrixView qkv) = 0;

  // Writes the k and v parts of qkv into the cache, in its format (memory/kv_cache.h).
  virtual void AppendKv(const StepIndex& index, const HeadLayout& heads, ConstMatrixView qkv,
                        const KvLayerView& kv) = 0;

  // Causal attention of each token over its sequence's cache, positions (p - window, p] (window 0:
  // all): out[t, :] = sum over s of softmax(q . k_s * scale)_s v_s      q: the first h d columns of
  // qkv;
  //                                                               out [T, h d]
  virtual void Attend(const StepIndex& index, const HeadLayout& heads, ConstMatrixView qkv,
                      const KvLayerView& kv, float scale, int window, MatrixView out) = 0;

  // out = silu(gate) * up                                      gate_up [T, 2f]: gate, then up; out
  // [T, f]
  virtual void SwiGlu(ConstMatrixView gate_up, MatrixView out) = 0;

  // hidden += (sum + bias), bias empty for none                sum, hidden [T, D]; bias [1, D] f32
  virtual void AddResidual(ConstMatrixView sum, ConstMatrixView bias, MatrixView hidden) = 0;

  // AddResidual, then RmsNorm of hidden into normed [T, D]: one pass where the device has one.
  virtual void AddResidualNorm(ConstMatrixView sum, ConstMatrixView bias, MatrixView hidden,
                               ConstMatrixView weight, float epsilon, MatrixView normed) {
    AddResidual(sum, bias, hidden);
    RmsNorm(hidden, weight, epsilon, normed);
  }

  // out[i, :] = x[rows[i], :]                                  rows [R] device memory
  virtual void SelectRows(ConstMatrixView x, const int32_t* rows, MatrixView out) = 0;

  // x[t, :] = value, for a rank that contributes nothing to a sum (value -0.0).
  virtual void Fill(float value, MatrixView x) = 0;

  // Null where the host draws the tokens.
  virtual SamplingOps* sampling_ops() const { return nullptr; }
  bool samples_tokens() const final { return sampling_ops() != nullptr; }
};

// Plain loops with double sums: the oracle of the tests. Not bit-equal to the others.
std::unique_ptr<Backend> NewReferenceBackend(Device& device);  // f32 activations

// Plain loops with std::fma in the order that the promise of equal bits fixes: the oracle of the
// bits.
std::unique_ptr<Backend> NewOrderedBackend(Device& device);  // f32 activations
std::unique_ptr<Backend> NewOrderedBackend(Device& device, ActivationDType activation);

// SIMD. `isa`: "auto" (the best that this CPU has), "avx512", "avx2" or "plain". `num_threads` in
// [1, kMaxThreads]. The calling thread works too. INVALID_ARGUMENT for an unknown or absent isa.
struct CpuBackendOptions {
  int num_threads = 1;
  const char* isa = "auto";
  ActivationDType activation = ActivationDType::kF32;
  bool may_spin = true;  // false where ranks x threads exceed the cores: waits yield, then sleep
};
inline constexpr int kMaxThreads = 64;
absl::StatusOr<std::unique_ptr<Backend>> NewCpuBackend(Device& device,
                                                       const CpuBackendOptions& options);

}  // namespace bulkhead
