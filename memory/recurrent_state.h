// The per-sequence state of linear attention layers, which have no KV cache: its size is fixed,
// however long the sequence is. Pure arithmetic, and views of the arena.
//
// The arena is [layer][slot]. A slot holds what the layer's ops (kernels/causal_conv,
// kernels/gated_delta) need of earlier positions; for a step that begins at position p:
//   inputs     [input rows, channels] f32: the convolution's input at position q in row q mod
//              (input rows): of the taps - 1 positions before p, and of drafts after them
//   matrices   [value head][key_dim, padded value_dim] f32: the state after the last position of
//              the block of kStateBlock positions before p's
//   keys       [key head][key_dim, kStateBlock] f32: the normed keys of p's block so far; on GPUs
//              [kStateBlock, key_dim]
//   corrected  [value head][kStateBlock, padded value_dim] f32: corrected values of p's block
//   decays     [value head][kStateBlock] f64: sums of the logarithms of decay in p's block
// After the slots come snapshots, of all layers: a slot's matrices and inputs at a multiple of
// kStateBlock; nothing else of it is read there.
// Nothing of a slot is read at position 0, and no matrix before position kStateBlock, so that a
// slot is not cleared for the next sequence.
// Rejected drafts are overwritten: everything except matrices is indexed by position. Matrices are
// updated after the last position of a block, which therefore is never a draft's.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/arithmetic.h"
#include "memory/device.h"

namespace bulkhead {

// Blocks begin at absolute multiples of this many positions.
inline constexpr int kStateBlock = 64;

// The heads of linear attention of one rank. Value head i reads key head value_to_key[i].
struct DeltaHeads {
  int num_key_heads = 0;
  int num_value_heads = 0;
  int key_dim = 0;
  int value_dim = 0;
  const int32_t* value_to_key = nullptr;  // ascending; host memory, outlives its use

  // Columns of q, k and v side by side.
  int64_t qkv_dim() const {
    return 2 * int64_t{num_key_heads} * key_dim + int64_t{num_value_heads} * value_dim;
  }
  int64_t out_dim() const { return int64_t{num_value_heads} * value_dim; }
};

struct StateGeometry {
  int num_layers = 0;
  int num_slots = 0;
  int num_snapshots = 0;
  int conv_taps = 0;
  int max_drafts = 0;  // drafts after a sequence's next token, in a step
  DeltaHeads heads;

  int64_t padded_value_dim() const { return RoundUp(heads.value_dim, 16); }
  int input_rows() const { return conv_taps - 1 + max_drafts; }
  int64_t InputFloats() const { return input_rows() * heads.qkv_dim(); }
  int64_t MatrixFloats() const { return heads.key_dim * padded_value_dim(); }
  int64_t KeyFloats() const { return int64_t{heads.key_dim} * kStateBlock; }
  int64_t CorrectedFloats() const { return kStateBlock * padded_value_dim(); }
  // Bytes of one sequence and layer, in whole cache lines.
  int64_t SlotBytes() const {
    constexpr int64_t kF32 = 4;
    constexpr int64_t kF64 = 8;
    const int64_t floats = InputFloats() +
                           heads.num_value_heads * (MatrixFloats() + CorrectedFloats()) +
                           heads.num_key_heads * KeyFloats();
    return RoundUp(heads.num_value_heads * kStateBlock * kF64 + floats * kF32, 64);
  }
  int64_t SequenceBytes() const { return num_layers * SlotBytes(); }
  // Bytes of a snapshot of one layer.
  int64_t SnapshotBytes() const {
    constexpr int64_t kF32 = 4;
    return RoundUp((heads.num_value_heads * MatrixFloats() + InputFloats()) * kF32, 64);
  }
  int64_t Bytes() const {
    return num_slots * SequenceBytes() + num_layers * num_snapshots * SnapshotBytes();
  }
};

// One layer, as its ops see it.
struct StateLayerView {
  StateGeometry geometry;
  std::byte* base = nullptr;

  double* Decays(int64_t slot, int64_t value_head) const {
    return reinterpret_cast<double*>(base + slot * geometry.SlotBytes()) + value_head * kStateBlock;
  }
  float* Matrix(int64_t slot, int64_t value_head) const {
    return Floats(slot) + value_head * geometry.MatrixFloats();
  }
  float* Corrected(int64_t slot, int64_t value_head) const {
    return Floats(slot) + geometry.heads.num_value_heads * geometry.MatrixFloats() +
           value_head * geometry.CorrectedFloats();
  }
  float* Keys(int64_t slot, int64_t key_head) const {
    return Corrected(slot, geometry.heads.num_value_heads) + key_head * geometry.KeyFloats();
  }
  float* Inputs(int64_t slot) const { return Keys(slot, geometry.heads.num_key_heads); }

 private:
  float* Floats(int64_t slot) const {
    return reinterpret_cast<float*>(Decays(slot, geometry.heads.num_value_heads));
  }
};

struct StateArena {
  StateGeometry geometry;
  std::byte* base = nullptr;

  // Copies a slot's states at a multiple of kStateBlock positions, all layers. Enqueued on the
  // arena's device.
  void Save(Device& device, int slot, int snapshot) const {
    CopySnapshot(device, slot, snapshot, true);
  }
  void Restore(Device& device, int slot, int snapshot) const {
    CopySnapshot(device, slot, snapshot, false);
  }

  StateLayerView Layer(int layer) const {
    return {geometry, base + layer * geometry.num_slots * geometry.SlotBytes()};
  }

 private:
  void CopySnapshot(Device& device, int slot, int snapshot, bool saves) const {
    std::byte* const at = base + geometry.num_slots * geometry.SequenceBytes() +
                          int64_t{snapshot} * geometry.num_layers * geometry.SnapshotBytes();
    constexpr int64_t kF32 = 4;
    const int64_t matrices = geometry.heads.num_value_heads * geometry.MatrixFloats() * kF32;
    const int64_t inputs = geometry.InputFloats() * kF32;
    // Copies one part, for all layers at once.
    const auto copy = [&](std::byte* snapshot_part, float* state, int64_t bytes) {
      if (bytes == 0) return;  // a rank without heads
      auto* const state_part = reinterpret_cast<std::byte*>(state);
      const int64_t apart = geometry.num_slots * geometry.SlotBytes();
      const int64_t snapshot_apart = geometry.SnapshotBytes();
      saves ? device.CopyRows(state_part, apart, snapshot_part, snapshot_apart, bytes,
                              geometry.num_layers)
            : device.CopyRows(snapshot_part, snapshot_apart, state_part, apart, bytes,
                              geometry.num_layers);
    };
    copy(at, Layer(0).Matrix(slot, 0), matrices);
    copy(at + matrices, Layer(0).Inputs(slot), inputs);
  }
};

}  // namespace bulkhead
