// Backend: the ops that a decoder consists of. Ops only enqueue work on the backend's device;
// faults surface at Device::Synchronize. Activations are f32, except that rows read only by
// products (outputs of RmsNorm, LayerNorm, AddResidualNorm, Attend, MatMulHeads and activations; x
// of MatMul and MatMulHeads) may be in product_input_dtype.
//
// The bits (docs/architecture.md, Determinism): every output of a product is one chain of fused
// multiply-adds over ascending k per slice, slices joined as a binary tree (memory/linear.h); norms
// sum in 16 fixed virtual lanes; attention is cut at absolute multiples of 256 tokens. No op's
// result for one row depends on the other rows, on the number of threads or on the instruction set.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/activation.h"
#include "base/router_options.h"
#include "base/token_sampling.h"
#include "memory/device.h"
#include "memory/kv_cache.h"
#include "memory/linear.h"
#include "memory/matrix.h"
#include "memory/recurrent_state.h"

namespace bulkhead {

// The tokens of a step: S sequences, T tokens, each sequence's tokens adjacent and in ascending
// position. All arrays are in device memory.
struct StepIndex {
  int num_seqs = 0;                       // S
  int num_tokens = 0;                     // T
  const int32_t* seq_begin = nullptr;     // [S + 1] first token of each sequence, then T
  const int32_t* seq_slot = nullptr;      // [S] row of block_tables
  const int32_t* position = nullptr;      // [T] absolute position
  const int32_t* token_seq = nullptr;     // [T] its sequence
  const int32_t* block_tables = nullptr;  // [slots, block_table_stride] block ids
  int block_table_stride = 0;
  int padding_slot = -1;  // slot of padding sequences, one token each
};

// The heads of one rank. Query head i reads KV head head_to_kv[i], an index on this rank.
struct HeadLayout {
  int num_heads = 0;                    // h
  int num_kv_heads = 0;                 // k
  int head_dim = 0;                     // d
  const int32_t* head_to_kv = nullptr;  // [h], ascending; host memory, outlives the backend's use
  // Latent attention: a value is the first value_dim columns of its key. 0: separate values.
  int value_dim = 0;

  bool latent() const { return value_dim > 0; }
  // Columns of q, k and v of a token, and columns of a head's attention output.
  int64_t qkv_dim() const {
    return int64_t{num_heads + (latent() ? 1 : 2) * num_kv_heads} * head_dim;
  }
  int out_dim() const { return latent() ? value_dim : head_dim; }
};

// Sizes that bound every step; the workspace is sized from them.
struct StepLimits {
  int max_num_batched_tokens = 0;  // maximum T
  int max_num_seqs = 0;            // maximum S
  int max_model_len = 0;
  int64_t max_int8_inputs = 0;     // maximum K with a quantised weight; 0: there is none
  int64_t max_inputs = 0;          // maximum K of any product
  bool bf16_inputs = false;        // ActivationDType::kBf16
  bool bf16_tiles = false;         // ActivationDType::kBf16Amx
  bool attention_in_bf16 = false;  // AttentionDType::kBf16 or kBf16Amx
  bool quantized_weights = false;  // whether any product has one
  int num_experts = 0;             // maximum in a layer; 0: the model has none
  int experts_per_token = 0;
  int64_t max_expert_inputs = 0;  // maximum K of an expert's product
  int delta_key_dim = 0;          // linear attention's heads; 0: the model has none
  int delta_value_dim = 0;
  int min_group = 32;          // minimum group size of quantised weights
  HeadLayout full_heads = {};  // of layers with different heads; no heads: there are none
};

// Number formats of products. kF32: inputs as they are. kBf16: products with weights in bf16,
// except MatMulHeads, round their inputs to bf16, and the chain takes a slice's inputs in pairs
// from its begin, the second of a pair first: acc = fma(x[k], w[k], fma(x[k + 1], w[k + 1], acc)),
// with denormal inputs and results as 0 and the missing half of a last pair as 0: as vdpbf16ps
// computes. kBf16Amx: inputs and weights as in kBf16; a slice's inputs are taken in 32s from its
// begin, padded with 0: for each, a chain of fused multiply-adds over the even inputs from +0, and
// one over the odd ones; acc = acc + (even + odd), denormals also as 0: as AMX's tdpbf16ps computes
// (Intel's manual). Needs a CPU with it, or its emulation. kInt8: inputs of products with quantised
// weights are quantised as well, by row and cell (kernels/matmul/input_quantizer.h), a cell's sum
// is exact, and the chain of an output is acc = fma(float(sum of (q - z) x), weight scale * input
// scale, acc) over ascending cells. Linears with an index, and tables used only for look-up, stay
// in f32. kFp8: GPUs only, which ignore the others: products of many tokens with weights in fp8
// round their inputs to E4M3, with a scale for each 128 inputs of a row.
enum class ActivationDType { kF32, kBf16, kBf16Amx, kInt8, kFp8 };
inline constexpr int kNumActivationDTypes = 5;
constexpr const char* ActivationDTypeName(ActivationDType activation) {
  if (activation == ActivationDType::kFp8) return "fp8";
  if (activation == ActivationDType::kInt8) return "int8";
  if (activation == ActivationDType::kBf16Amx) return "bf16-amx";
  return activation == ActivationDType::kBf16 ? "bfloat16" : "float32";
}

// Number format of Attend. kBf16 and kBf16Amx: with a cache in bf16, sums are those of the
// ActivationDType of that name (kernels/attend/reference.cc); otherwise as kF32.
enum class AttentionDType { kF32, kBf16, kBf16Amx };
constexpr const char* AttentionDTypeName(AttentionDType attention) {
  if (attention == AttentionDType::kBf16Amx) return "bf16-amx";
  return attention == AttentionDType::kBf16 ? "bfloat16" : "float32";
}
// The AttentionDType used with products in `activation`.
constexpr AttentionDType AttentionOf(ActivationDType activation) {
  if (activation == ActivationDType::kBf16Amx) return AttentionDType::kBf16Amx;
  return activation == ActivationDType::kBf16 ? AttentionDType::kBf16 : AttentionDType::kF32;
}

// The leaves of a sum over this rank's heads: leaf i has q heads [q[i], q[i + 1]) and k heads
// [k[i], k[i + 1]). A KV head that several ranks hold is in a leaf of one of them.
struct HeadLeaves {
  absl::Span<const int64_t> q;  // [leaves + 1], of a power of two of leaves
  absl::Span<const int64_t> k;
};

// Norms of q and k: per head, or over all heads of the model.
struct HeadNorms {
  ConstMatrixView q;  // [1, d] f32; over all heads [1, h d]; empty: none
  ConstMatrixView k;
  float epsilon = 0;
  bool after_rotary = false;  // false: before it
  // Over all heads: [T, 2] the sums over ranks of SumHeadSquares, and the number of elements in
  // each. Empty: per head.
  ConstMatrixView squares = {};
  int64_t q_size = 0;           // H d
  int64_t k_size = 0;           // K d
  bool without_weight = false;  // per head; q and k are empty
  bool values = false;          // also norms heads of v, without weight
};

// Rotation of the heads of q and k by position.
struct Rotary {
  ConstMatrixView table;     // [max_model_len, r] f32, r <= d: r/2 cosines, r/2 sines; empty: none
  bool interleaved = false;  // pairs are columns (2i, 2i + 1), else (i, i + r/2)
  ConstMatrixView q_scale;   // [max_model_len, 1] f32, by position; empty: 1
  bool of_halves = false;    // pairs are columns (i, i + d/2)
};

struct AttentionOptions {
  float scale = 1;
  int window = 0;              // 0: all positions
  float soft_cap = 0;          // on scores; 0: none
  ConstMatrixView sinks = {};  // [1, h] f32: per head a score without a value; empty: none
  int chunk = 0;               // only positions from its last multiple on; 0: all
};

// Which k of E experts each of T tokens is sent to; all in device memory. There are P = T k pairs
// of a token and an expert.
struct ExpertRouting {
  int num_experts = 0;              // E
  int experts_per_token = 0;        // k
  int32_t* experts = nullptr;       // [T, k] ascending
  float* weights = nullptr;         // [T, k]
  int32_t* expert_begin = nullptr;  // [E + 1] where each expert's pairs begin
  int32_t* pair_token = nullptr;    // [P] by expert, then by token
  float* pair_weight = nullptr;     // [P]
  // GPUs only: padding tokens, which come last, are sent to the first token's experts, so that no
  // other expert's weights are read for them. Arrays and slot of StepIndex; -1: no padding.
  const int32_t* token_seq = nullptr;
  const int32_t* seq_slot = nullptr;
  int padding_slot = -1;
};

// Weights of a layer's GatedDelta: [1, value heads] f32, and of its output norm: [1, value_dim].
struct GatedDeltaWeights {
  ConstMatrixView a_log;
  ConstMatrixView dt_bias;
  ConstMatrixView norm;
  float epsilon = 0;
};

// Memory that a backend takes: the same on every machine, with a device or without.
class BackendSizes {
 public:
  virtual ~BackendSizes() = default;
  // Bytes of a packed weight.
  virtual int64_t PackedBytes(const LinearShape& shape) const = 0;
  // Host memory that the sink of a weight holds (WeightSink::HostBytes).
  virtual int64_t PackingHostBytes(const LinearShape& /*shape*/) const { return 0; }
  // Bytes of the workspace.
  virtual int64_t WorkspaceBytes(const StepLimits& limits, const HeadLayout& heads) const = 0;
  // Host memory in addition to the workspace.
  virtual int64_t WorkspaceHostBytes(const StepLimits& /*limits*/,
                                     const HeadLayout& /*heads*/) const {
    return 0;
  }
  // Whether its memory is the host's.
  virtual bool host_memory() const { return true; }
  // Whether tokens are sampled on the device, which takes memory.
  virtual bool samples_tokens() const { return false; }
  // Format of rows that only products with weights in this format read.
  virtual DType product_input_dtype(WeightFormat /*weights*/) const { return DType::kF32; }
};

class Backend : public BackendSizes {
 public:
  virtual Device& device() = 0;

  // ---- weights
  // A sink that fills `linear.packed` (PackedBytes, 64-byte aligned, zeroed, owned by the caller).
  virtual std::unique_ptr<WeightSink> Pack(const Linear& linear) = 0;

  // ---- workspace (WorkspaceBytes): set before the first op; may be exchanged between steps
  virtual void SetWorkspace(std::byte* workspace, const StepLimits& limits,
                            const HeadLayout& heads) = 0;

  // Runs body(part) for each of `parts` parts of host work, on the ops' own threads if they run on
  // the host. Returns when all have returned.
  virtual void OnHostThreads(int parts, absl::FunctionRef<void(int part)> body) {
    for (int part = 0; part < parts; ++part) body(part);
  }

  // The number of these threads.
  virtual int host_threads() const { return 1; }

  // Once per step before its first op, and not inside a capture: lays out the step's work. The
  // arrays of this index are in host memory and are read only during the call.
  virtual void BeginStep(const StepIndex& /*host_index*/) {}

  // Once before the first step, for a weight that MatMul will get with many rows: runs all that
  // MatMul may run with it, so that a library now loads what it loads at first use. x [R, K], any
  // content; out [R, N], with R up to max_num_batched_tokens. From then on MatMul may read rows
  // after the last one of x, and write such rows of out, up to R in all.
  virtual absl::Status WarmUpMatMul(ConstMatrixView /*x*/, const Linear& /*weight*/,
                                    MatrixView /*out*/) {
    return absl::OkStatus();
  }

  // The same for a weight that MatMulGated will also get.
  virtual absl::Status WarmUpMatMulGated(ConstMatrixView x, const Linear& weight,
                                         MatrixView gate_up) {
    return WarmUpMatMul(x, weight, gate_up);
  }

  // MatMul of gates and ups [T, 2f] into `gate_up`, then their GatedActivation into `out`; gate_up
  // is undefined afterwards: CPUs compute in chunks, GPUs may round it.
  virtual void MatMulGated(Activation activation, ConstMatrixView x, const Linear& weight,
                           MatrixView gate_up, MatrixView out) {
    MatMul(x, weight, gate_up);
    GatedActivation(activation, gate_up, out);
  }

  // The same with MatMulExperts.
  virtual void MatMulExpertsGated(Activation activation, ConstMatrixView x,
                                  absl::Span<const Linear> experts, const ExpertRouting& routing,
                                  MatrixView gate_up, MatrixView out) {
    MatMulExperts(x, experts, routing, gate_up);
    GatedActivation(activation, gate_up, out);
  }

  // ---- ops: described in kernels/ops.inc
#define BH_OP(name, ...) virtual void name(__VA_ARGS__) = 0;
#define BH_OPTIONAL_OP(name, ...) virtual void name(__VA_ARGS__);
#include "kernels/ops.inc"
};

// Plain loops with double sums: the reference values of the tests. Not bit-equal to the others.
std::unique_ptr<Backend> NewReferenceBackend(Device& device);  // f32 activations

// Plain loops with std::fma in the order that the promise of equal bits fixes: the reference bits.
std::unique_ptr<Backend> NewOrderedBackend(Device& device);  // f32 activations
std::unique_ptr<Backend> NewOrderedBackend(Device& device, ActivationDType activation,
                                           AttentionDType attention = AttentionDType::kF32);

// SIMD. `isa`: "auto" (the best that this CPU has), "avx512", "avx2" or "plain". `num_threads` in
// [1, kMaxThreads], including the calling thread. INVALID_ARGUMENT for an unknown or absent isa,
// and for kBf16Amx with an isa that lacks its instruction.
struct CpuBackendOptions {
  int num_threads = 1;
  const char* isa = "auto";
  ActivationDType activation = ActivationDType::kF32;
  AttentionDType attention = AttentionDType::kF32;
  bool may_spin = true;  // false if ranks x threads exceed the cores: waits yield, then sleep
};
inline constexpr int kMaxThreads = 64;
absl::StatusOr<std::unique_ptr<Backend>> NewCpuBackend(Device& device,
                                                       const CpuBackendOptions& options);

}  // namespace bulkhead
