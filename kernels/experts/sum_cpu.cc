#include <algorithm>
#include <cstring>

#include "base/arithmetic.h"
#include "base/check.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/experts/runs.h"
#include "kernels/matmul/bf16_amx.h"
#include "kernels/matmul/op.h"
#include "kernels/packing/quantized_packing.h"

namespace bulkhead {
namespace {

// One op: blocks of tokens one after the other, with all experts in each.
class SumOfExperts {
 public:
  SumOfExperts(Isa isa, ThreadPool& pool, const CpuMatMulScratch& scratch,
               ActivationDType activation, ConstMatrixView x, absl::Span<const Linear> experts,
               const ExpertRouting& routing, ConstMatrixView shared_x, const Linear* shared,
               MatrixView out)
      : isa_(isa),
        pool_(pool),
        scratch_(scratch),
        activation_(activation),
        x_(x),
        experts_(experts),
        routing_(routing),
        shared_x_(shared_x),
        shared_(shared),
        out_(out),
        shape_(experts[0].shape) {}

  void Run() {
    for (int64_t token = 0; token < out_.rows(); token += kExpertSumTokens) {
      first_token_ = token;
      num_tokens_ = std::min(kExpertSumTokens, out_.rows() - token);
      FindRows();
      if (activation_ == ActivationDType::kInt8) Quantize();
      if (activation_ == ActivationDType::kBf16) RoundToPairs();
      if (activation_ == ActivationDType::kBf16Amx) RoundToTiles();
      const int64_t panels = CeilDiv(shape_.rows, kPanelColumns);
      const int64_t rows = num_tokens_ * (routing_.experts_per_token + 1);
      pool_.ParallelForWork(panels, rows * shape_.rows * shape_.cols,
                            [&](int thread, int64_t begin, int64_t end) {
                              SumPanels(scratch_.Of(thread), begin, end);
                            });
    }
  }

 private:
  // Finds the block's pairs of each expert.
  void FindRows() {
    const int32_t* const tokens = routing_.pair_token;
    int32_t rows = 0;
    for (int e = 0; e < routing_.num_experts; ++e) {
      const int32_t* const begin = tokens + routing_.expert_begin[e];
      const int32_t* const end = tokens + routing_.expert_begin[e + 1];
      begin_[e] = static_cast<int32_t>(std::lower_bound(begin, end, first_token_) - tokens);
      end_[e] =
          static_cast<int32_t>(std::lower_bound(begin, end, first_token_ + num_tokens_) - tokens);
      rows_before_[e] = rows;
      rows += end_[e] - begin_[e];
    }
    rows_before_[routing_.num_experts] = rows;
  }

  bool has_shared() const { return shared_ != nullptr; }
  int num_runs() const { return routing_.num_experts + (has_shared() ? 1 : 0); }
  int64_t RowsOf(int run) const {
    return run < routing_.num_experts ? end_[run] - begin_[run] : num_tokens_;
  }
  const Linear& WeightOf(int run) const {
    return run < routing_.num_experts ? experts_[run] : *shared_;
  }
  ConstMatrixView InputsOf(int run) const {
    return run < routing_.num_experts ? x_.Rows(begin_[run], RowsOf(run))
                                      : shared_x_.Rows(first_token_, num_tokens_);
  }
  // The shared expert's inputs are stored after those of all pairs, and its rows have another size.
  Int8Runs RunsOf(int run) const {
    const QuantizedPanels panels = QuantizedPanelsOf(WeightOf(run));
    QuantizedInputs inputs = scratch_.InputsFor(panels);
    if (run == routing_.num_experts && InInt8(0)) {
      const QuantizedInputs of_pairs = scratch_.InputsFor(QuantizedPanelsOf(experts_[0]));
      inputs.codes += RoundUp(x_.rows() * of_pairs.row_bytes, int64_t{64});
      inputs.scales += x_.rows() * of_pairs.cells;
      inputs.sums += x_.rows() * of_pairs.cells;
    }
    return Int8Runs(isa_, panels, inputs);
  }
  // Null: all tokens of the block, in order.
  const int32_t* TokensOf(int run) const {
    return run < routing_.num_experts ? routing_.pair_token + begin_[run] : nullptr;
  }
  int64_t FirstRowOf(int run) const { return run < routing_.num_experts ? begin_[run] : 0; }

  void Quantize() {
    const int shared = num_runs() - 1;
    if (!InInt8(0) && !InInt8(shared)) return;
    const Int8Runs pairs = RunsOf(InInt8(0) ? 0 : shared);
    const auto units = [&](int run) -> int64_t {
      if (!InInt8(run)) return 0;
      return run < routing_.num_experts ? pairs.UnitsOf(RowsOf(run))
                                        : RunsOf(run).UnitsOf(RowsOf(run));
    };
    ForExperts(
        pool_, num_runs(), x_.rows() * x_.cols(), units, [](int) { return int64_t{1}; },
        [&](int, int run, int64_t begin, int64_t end) {
          const ConstMatrixView x = InputsOf(run);
          RunsOf(run).Quantize({x.F32(), x.row_stride(), nullptr}, FirstRowOf(run), RowsOf(run),
                               begin, end);
        });
  }

  // The shared expert's format may differ from the others'.
  bool InInt8(int run) const { return bulkhead::InInt8(activation_, WeightOf(run).shape); }
  bool InBf16Pairs(int run) const {
    return bulkhead::InBf16Pairs(activation_, WeightOf(run).shape);
  }
  bool InBf16Tiles(int run) const {
    return bulkhead::InBf16Tiles(activation_, WeightOf(run).shape);
  }
  // Does not write `out`: slices are added separately.
  Product Bf16ProductOf(int run) const {
    QuantizedPanels none{};
    return ProductOf(InputsOf(run), WeightOf(run), out_.Rows(first_token_, RowsOf(run)), none);
  }
  uint16_t* TilesOf(int run) const {
    return scratch_.ExpertTiles(run, run < routing_.num_experts ? begin_[run] : x_.rows());
  }

  // The pairs of a run: runs are stored one after the other, with rows of the maximum width.
  float* PairsOf(int run) const {
    return scratch_.bf16_rows + rows_before_[run] * PairFloats(scratch_.max_expert_inputs);
  }

  // round(product, first row, end, run) for all rows of the runs that `takes`.
  template <typename Takes, typename Round>
  void ForRows(const Takes& takes, const Round& round) const {
    BH_CHECK(x_.cols() <= scratch_.max_expert_inputs &&
             shared_x_.cols() <= scratch_.max_expert_inputs);
    ForExperts(
        pool_, num_runs(), x_.rows() * x_.cols(),
        [&](int run) { return takes(run) ? RowsOf(run) : 0; }, [](int) { return int64_t{1}; },
        [&](int, int run, int64_t begin, int64_t end) {
          round(Bf16ProductOf(run), begin, end, run);
        });
  }

  // Inputs of products in bf16.
  void RoundToPairs() const {
    BH_CHECK(scratch_.bf16_rows != nullptr &&
             rows_before_[routing_.num_experts] + num_tokens_ <= scratch_.max_bf16_rows);
    const auto round = BH_OF_ISA_OR_BF16(isa_, RoundRows);
    ForRows([&](int run) { return InBf16Pairs(run); },
            [&](Product product, int64_t begin, int64_t end, int run) {
              product.in_bf16 = true;
              product.x += begin * product.x_stride;
              round(product, end - begin, PairsOf(run) + begin * PairFloats(product.inputs));
            });
  }
  void RoundToTiles() const {
    BH_CHECK(scratch_.bf16_tiles != nullptr && out_.rows() <= scratch_.max_rows);
    const auto round = BH_OF_AMX(isa_, RoundRowToTiles);
    ForRows([&](int run) { return InBf16Tiles(run); },
            [&](const Product& product, int64_t begin, int64_t end, int run) {
              for (int64_t row = begin; row < end; ++row) round(product, row, TilesOf(run));
            });
  }

  // As many panels together as fit: few tokens continue in one expert's weights.
  void SumPanels(float* sums, int64_t begin, int64_t end) const {
    const int64_t panel_floats = shape_.num_slices() * num_tokens_ * kPanelColumns;
    const int64_t together = std::max<int64_t>(1, kExpertSumTokens / num_tokens_);
    for (int64_t first = begin; first < end; first += together) {
      const int64_t panels = std::min(together, end - first);
      std::fill_n(sums, panels * panel_floats, -0.0F);
      for (int run = 0; run < num_runs(); ++run) {
        if (RowsOf(run) == 0) continue;
        if (InInt8(run)) {
          AddInInt8(run, first, panels, sums);
        } else if (InBf16Tiles(run)) {
          AddInBf16Tiles(run, first, panels, sums);
        } else {
          AddInFloats(run, first, panels, sums);
        }
      }
      for (int64_t i = 0; i < panels; ++i) Join(first + i, sums + i * panel_floats);
    }
  }

  // sums [panel][slice][token][32] += added [slice][row][32]
  void Add(int run, int64_t first_row, int64_t rows, int num_slices, const float* added,
           float* sums) const {
    const int32_t* const tokens = TokensOf(run);
    for (int slice = 0; slice < num_slices; ++slice) {
      for (int64_t r = 0; r < rows; ++r, added += kPanelColumns) {
        const int64_t row = first_row + r;
        const int64_t token = tokens == nullptr ? row : tokens[row] - first_token_;
        float* const sum = sums + (slice * num_tokens_ + token) * kPanelColumns;
        for (int i = 0; i < kPanelColumns; ++i) sum[i] += added[i];
      }
    }
  }

  // For products in AMX's tiles, which do the adding.
  SliceSums SliceSumsOf(int run, int64_t first_panel, float* sums) const {
    return {.sums = sums,
            .first_panel = first_panel,
            .slice_rows = num_tokens_,
            .rows = TokensOf(run),
            .first_row = first_token_};
  }

  void AddInInt8(int run, int64_t first_panel, int64_t panels, float* sums) const {
    const Linear& weight = WeightOf(run);
    const QuantizedPanels quantized = QuantizedPanelsOf(weight);
    const Int8Runs runs = RunsOf(run);
    const int64_t rows = RowsOf(run);
    const int64_t tiles = runs.TilesOf(rows);
    // Does not write `out`: slices are added separately.
    Int8Product product = Int8ProductOf(weight, quantized, runs.Of(FirstRowOf(run), rows), rows,
                                        tiles, out_.Rows(first_token_, rows));
    if (product.x.by_row) {
      const SliceSums to = SliceSumsOf(run, first_panel, sums);
      product.slice_sums = &to;
      alignas(64) float chains[kExpertSumTokens * kPanelColumns];
      return BH_OF_AMX(isa_, MultiplyInt8InTiles)(
          product, {first_panel, first_panel + panels, 0, tiles}, chains);
    }
    const auto multiply = BH_OF_ISA_OR_VNNI(isa_, MultiplyInt8Slices);
    const int num_slices = product.num_slices;
    alignas(64) float added[kMaxSlices * kMaxInt8TileRowsOfAnyIsa * kPanelColumns];
    for (int64_t i = 0; i < panels; ++i) {
      for (int64_t tile = 0; tile < tiles; ++tile) {
        const InputTile of_tile = InputTileOf(rows, tiles, tile);
        multiply(product, first_panel + i, tile, added);
        Add(run, of_tile.begin, of_tile.rows, num_slices, added,
            sums + i * num_slices * num_tokens_ * kPanelColumns);
      }
    }
  }

  void AddInBf16Tiles(int run, int64_t first_panel, int64_t panels, float* sums) const {
    Product product = Bf16ProductOf(run);
    const SliceSums to = SliceSumsOf(run, first_panel, sums);
    product.slice_sums = &to;
    static_assert(kExpertSumTokens % kBf16TileRows == 0);
    alignas(64) float chains[kExpertSumTokens * kPanelColumns];
    const auto multiply = BH_OF_AMX(isa_, MultiplyBf16InTiles);
    multiply(product, TilesOf(run), {first_panel, first_panel + panels, 0, RowsOf(run), chains});
  }

  void AddInFloats(int run, int64_t first_panel, int64_t panels, float* sums) const {
    const auto multiply = BH_OF_ISA_OR_BF16(isa_, MultiplySlice);
    const int64_t most = BH_OF_ISA_OR_BF16(isa_, kMaxFewRows);
    QuantizedPanels quantized{};
    Product product = ProductOf(InputsOf(run), WeightOf(run), MatrixView(), quantized);
    if (InBf16Pairs(run)) {
      product.in_bf16 = true;
      product.x = PairsOf(run);
      product.x_stride = PairFloats(product.inputs);
    }
    const int64_t rows = RowsOf(run);
    alignas(64) float added[kMaxSlices * kMaxFewRowsOfAnyIsa * kPanelColumns] = {};
    for (int64_t i = 0; i < panels; ++i) {
      const int64_t panel = first_panel + i;
      for (int64_t row = 0; row < rows; row += most) {
        const int64_t count = std::min(most, rows - row);
        for (int slice = 0; slice < product.num_slices; ++slice) {
          multiply(product, {panel, panel + 1, row, row + count, nullptr}, slice,
                   added + slice * count * kPanelColumns);
        }
        Add(run, row, count, product.num_slices, added,
            sums + i * product.num_slices * num_tokens_ * kPanelColumns);
      }
    }
  }

  // Joins the slices of one panel into out.
  void Join(int64_t panel, float* sums) const {
    const int num_slices = shape_.num_slices();
    const int64_t slice_floats = num_tokens_ * kPanelColumns;
    for (int width = 1; width < num_slices; width *= 2) {
      for (int i = 0; i < num_slices; i += 2 * width) {
        float* const left = sums + i * slice_floats;
        const float* const right = left + width * slice_floats;
        for (int64_t at = 0; at < slice_floats; ++at) left[at] += right[at];
      }
    }
    const int64_t column = panel * kPanelColumns;
    const int64_t columns = std::min<int64_t>(kPanelColumns, shape_.rows - column);
    for (int64_t token = 0; token < num_tokens_; ++token) {
      std::copy_n(sums + token * kPanelColumns, columns, out_.F32(first_token_ + token) + column);
    }
  }

  const Isa isa_;
  ThreadPool& pool_;
  const CpuMatMulScratch& scratch_;
  const ActivationDType activation_;
  const ConstMatrixView x_;
  const absl::Span<const Linear> experts_;
  const ExpertRouting& routing_;
  const ConstMatrixView shared_x_;
  const Linear* const shared_;
  const MatrixView out_;
  const LinearShape& shape_;
  int64_t first_token_ = 0;  // of the block
  int64_t num_tokens_ = 0;
  int32_t begin_[kMaxExperts];
  int32_t end_[kMaxExperts];
  int32_t rows_before_[kMaxExperts + 1];  // before each run
};

}  // namespace

void CpuBackend::SumExperts(ConstMatrixView x, absl::Span<const Linear> experts,
                            const ExpertRouting& routing, ConstMatrixView shared_x,
                            const Linear* shared, MatrixView out) {
  if (out.empty()) return;
  const LinearShape& shape = experts[0].shape;
  BH_CHECK(x.cols() == shape.cols && out.cols() == shape.rows);
  BH_CHECK(x.rows() == out.rows() * routing.experts_per_token);
  BH_CHECK(routing.num_experts <= kMaxExperts && shape.num_slices() <= kMaxSlices);
  BH_CHECK(shared == nullptr ||
           (shared_x.rows() == out.rows() && shared->shape.num_slices() == shape.num_slices()));
  SumOfExperts(isa_, *pool_, mat_mul_scratch_, activation_, x, experts, routing, shared_x, shared,
               out)
      .Run();
}

}  // namespace bulkhead
