// The copying threads of warpgroups.cuh: they copy inputs unchanged, and weights unchanged or, if
// they are codes, converted to bf16.
#pragma once

#include "kernels/experts/warpgroups_codes.cuh"
#include "kernels/experts/warpgroups_pieces.cuh"

namespace bulkhead::cuda {

// The share of one of kThreads threads in rows of 128 bytes: 16 bytes of each kRowsApart-th row.
template <int kThreads>
struct CopyPlace {
  static constexpr int kChunks = kPieceRowBytes / 16;
  static constexpr int kRowsApart = kThreads / kChunks;
  static_assert(kRowsApart % 8 == 0);  // a thread has the same 16-byte position in all its rows

  BH_DEVICE static int Thread() { return (int(threadIdx.x) - kPieceComputeThreads) % kThreads; }
  BH_DEVICE static int Row0() { return Thread() / kChunks; }
  BH_DEVICE static int InRow() { return Thread() % kChunks * 16; }
  BH_DEVICE static int To() {
    return Row0() * kPieceRowBytes + (Thread() % kChunks ^ Row0() % 8) * 16;
  }
};

// Copies each kGroups-th step of a piece's inputs, from `step` on.
template <int kThreads, int kGroups>
class InputCopies {
 public:
  BH_DEVICE InputCopies(const ExpertProductParameters& p, const Piece& piece, int step)
      : left_(piece.pairs() - Place::Row0()), is_tall_(piece.pairs() > kPiecePairs) {
    BH_UNROLL
    for (int i = 0; i < kManyTilePairs / Place::kRowsApart; ++i) {
      const int pair = i * Place::kRowsApart;
      const int row = pair < left_ ? RowOf(p, piece.tile.begin + Place::Row0() + pair) : 0;
      from_[i] = reinterpret_cast<const unsigned char*>(p.x) +
                 static_cast<int64_t>(row) * p.weight.depth * 2 + Place::InRow() +
                 step * kPieceRowBytes;
    }
  }

  BH_DEVICE void CopyStep(unsigned char* stage) {
    Copy<0>(stage + Place::To());
    if (is_tall_) Copy<kPiecePairs>(stage + Place::To());
  }

 private:
  using Place = CopyPlace<kThreads>;

  template <int kFirst>
  BH_DEVICE void Copy(unsigned char* to) {
    BH_UNROLL
    for (int row = kFirst; row < kFirst + kPiecePairs; row += Place::kRowsApart) {
      const unsigned char*& from = from_[row / Place::kRowsApart];
      CpAsync16(to + row * kPieceRowBytes, from, row < left_);
      from += kGroups * kPieceRowBytes;
    }
  }

  const int left_;  // rows after the first
  const bool is_tall_;
  const unsigned char* from_[kManyTilePairs / Place::kRowsApart];
};

template <int kThreads, int kGroups>
class WeightCopies {
 public:
  BH_DEVICE WeightCopies(const PackedWeight& weight, const Piece& piece, int step)
      : row_bytes_(weight.depth * 2),
        left_(weight.rows - piece.output0 - Place::Row0()),
        outputs_(piece.is_wide() ? kPieceOutputs : kPieceOutputs / 2),
        from_(weight.numbers + static_cast<int64_t>(piece.output0 + Place::Row0()) * row_bytes_ +
              Place::InRow() + step * kPieceRowBytes) {}

  BH_DEVICE void CopyStep(unsigned char* stage) {
    constexpr int kAtOnce = 4;  // few: addresses take registers
    unsigned char* to = stage + kPieceInputBytes + Place::To();
    const unsigned char* from = from_;
    BH_NO_UNROLL
    for (int row = 0; row < outputs_; row += kAtOnce * Place::kRowsApart) {
      BH_UNROLL
      for (int i = 0; i < kAtOnce; ++i) {
        CpAsync16(to + i * Place::kRowsApart * kPieceRowBytes, from,
                  row + i * Place::kRowsApart < left_);
        from += Place::kRowsApart * row_bytes_;
      }
      to += kAtOnce * Place::kRowsApart * kPieceRowBytes;
    }
    from_ += kGroups * kPieceRowBytes;
  }

 private:
  using Place = CopyPlace<kThreads>;

  const int row_bytes_;
  const int left_;  // rows after the first
  const int outputs_;
  const unsigned char* from_;
};

// The stages being written, in rotation; a thread copies each kGroups-th one. At each __syncthreads
// the oldest copied stage is complete, and products no longer read the one that is overwritten
// next.
template <int kGroups>
class CopyRing {
 public:
  static_assert(kStepsAhead % kGroups == 0);
  BH_DEVICE explicit CopyRing(int group) : turn_(group) {}

  BH_DEVICE unsigned char* Next() {
    turn_ = turn_ == 0 ? kGroups - 1 : turn_ - 1;
    if (copied_ == kStepsAhead) {
      if (is_mine()) SayThatItIsThere<kStepsAhead / kGroups - 1>();
      __syncthreads();
    } else {
      ++copied_;
    }
    return ring_.Next();
  }
  // Number of steps that others copy first.
  BH_DEVICE int turn() const { return turn_; }
  // Whether this thread copies what Next() returned.
  BH_DEVICE bool is_mine() const { return kGroups == 1 || turn_ == kGroups - 1; }

  BH_DEVICE void Finish() {
    SayThatItIsThere<0>();
    BH_NO_UNROLL
    for (; copied_ > 0; --copied_) __syncthreads();
  }

 private:
  template <int kLeft>
  BH_DEVICE static void SayThatItIsThere() {
    CpAsyncWait<kLeft>();
    FenceForProducts();
  }

  Ring ring_;
  int turn_;
  int copied_ = 0;  // as far as needed
};

// Two groups of threads alternate, so that a fence need not wait for copies that are needed later.
inline constexpr int kCopyGroups = 2;
template <WeightFormat kFormat, int kThreads>
BH_DEVICE void CopyNumbers(const ExpertProductParameters& p) {
  constexpr int kOfGroup = kThreads / kCopyGroups;
  using Inputs = InputCopies<kOfGroup, kCopyGroups>;
  using Weights = WeightCopies<kOfGroup, kCopyGroups>;
  CopyRing<kCopyGroups> ring((int(threadIdx.x) - kPieceComputeThreads) / kOfGroup);
  ForPieces(p, [&](const Piece& piece) {
    Inputs inputs(p, piece, ring.turn());
    Weights weights(WeightOf<kFormat>(p, piece.tile.expert), piece, ring.turn());
    BH_NO_UNROLL
    for (int at = 0; at < p.weight.depth; at += kPieceStepInputs) {
      unsigned char* const stage = ring.Next();
      if (!ring.is_mine()) continue;
      inputs.CopyStep(stage);
      weights.CopyStep(stage);
      CpAsyncCommit();
    }
  });
  ring.Finish();
}

template <WeightFormat kFormat, int kThreads>
BH_DEVICE void CopyCodes(const ExpertProductParameters& p) {
  CopyRing<1> ring(0);
  ForPieces(p, [&](const Piece& piece) {
    InputCopies<kThreads, 1> inputs(p, piece, 0);
    CodeSteps<kFormat, kThreads> weights(WeightOf<kFormat>(p, piece.tile.expert), piece);
    const auto copy_inputs = [&] {
      unsigned char* const stage = ring.Next();
      inputs.CopyStep(stage);
      CpAsyncCommit();
      return stage;
    };
    weights.template Load<0>();
    while (true) {
      unsigned char* stage = copy_inputs();
      weights.template Load<1>();
      weights.template Store<0>(stage);
      if (weights.is_last()) break;
      stage = copy_inputs();
      weights.template Load<0>();
      weights.template Store<1>(stage);
      if (weights.is_last()) break;
    }
  });
  ring.Finish();
}

}  // namespace bulkhead::cuda
