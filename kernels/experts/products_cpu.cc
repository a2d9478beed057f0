#include <algorithm>

#include "base/arithmetic.h"
#include "base/check.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/experts/runs.h"
#include "kernels/matmul/bf16_amx.h"
#include "kernels/matmul/op.h"
#include "kernels/packing/quantized_packing.h"

namespace bulkhead {
namespace {

// The products of one op: each expert's with its pairs.
class ProductsOfExperts {
 public:
  ProductsOfExperts(Isa isa, ThreadPool& pool, const CpuMatMulScratch& scratch, ConstMatrixView x,
                    absl::Span<const Linear> experts, const ExpertRouting& routing,
                    const ProductOutput& output)
      : isa_(isa),
        pool_(pool),
        scratch_(scratch),
        x_(x),
        experts_(experts),
        routing_(routing),
        output_(output),
        shape_(experts[0].shape) {}

  void InInt8() const {
    const QuantizedPanels cut = QuantizedPanelsOf(experts_[0]);
    const Int8Runs runs(isa_, cut, scratch_.InputsFor(cut));
    ForUnits([&](int e) { return runs.UnitsOf(RowsOf(e)); },
             [&](int e, int64_t begin, int64_t end) {
               runs.Quantize({x_.F32(), x_.row_stride(), TokensOf(e)}, FirstOf(e), RowsOf(e), begin,
                             end);
             });
    const auto multiply = BH_OF_ISA_OR_VNNI(isa_, MultiplyInt8);
    const auto multiply_in_tiles = BH_OF_AMX(isa_, MultiplyInt8InTiles);
    ForPanels(HasAmx(isa_) ? kReadingInTiles : kReading, [&](int thread, int e, int64_t begin,
                                                             int64_t end) {
      const QuantizedPanels weight = QuantizedPanelsOf(experts_[e]);
      const int64_t rows = RowsOf(e);
      const int64_t tiles = runs.TilesOf(rows);
      Int8Product product =
          Int8ProductOf(experts_[e], weight, runs.Of(FirstOf(e), rows), rows, tiles, output_.out);
      const bool by_row = product.x.by_row;
      const int64_t chunk_rows = by_row ? TileChunkRows(cut.x_bytes) : kInt8ChunkRows;
      Multiply(thread, e, {rows, tiles, chunk_rows}, begin, end, [&](int, const GridPart& part) {
        product.out = part.out;
        product.out_stride = part.out_stride;
        const Int8Part in_tiles{part.panel_begin, part.panel_end, part.unit_begin, part.unit_end};
        if (!by_row) return multiply(product, in_tiles);
        multiply_in_tiles(product, in_tiles, scratch_.Of(thread));
      });
    });
  }

  void InBf16Tiles() const {
    BH_CHECK(scratch_.bf16_tiles != nullptr && x_.rows() <= scratch_.max_rows &&
             shape_.cols <= scratch_.max_expert_inputs);
    QuantizedPanels none{};
    const auto product_of = [&](int e) {
      Product product = ProductOf(x_, experts_[e], output_.out, none);
      product.x_rows = TokensOf(e);
      return product;
    };
    const auto inputs_of = [&](int e) { return scratch_.ExpertTiles(e, FirstOf(e)); };
    const auto round = BH_OF_AMX(isa_, RoundRowToTiles);
    ForUnits([&](int e) { return RowsOf(e); },
             [&](int e, int64_t begin, int64_t end) {
               const Product product = product_of(e);
               for (int64_t row = begin; row < end; ++row) round(product, row, inputs_of(e));
             });
    const auto multiply = BH_OF_AMX(isa_, MultiplyBf16InTiles);
    ForPanels(kReadingInTiles, [&](int thread, int e, int64_t begin, int64_t end) {
      const int64_t rows = RowsOf(e);
      Product product = product_of(e);
      Multiply(thread, e,
               {rows, CeilDiv(rows, kBf16TileRows), TileChunkRows(shape_.cols * 2), kBf16TileRows},
               begin, end, [&](int, const GridPart& part) {
                 product.out = part.out;
                 product.out_stride = part.out_stride;
                 multiply(product, inputs_of(e),
                          {part.panel_begin, part.panel_end, part.unit_begin * kBf16TileRows,
                           std::min(part.unit_end * kBf16TileRows, rows), scratch_.Of(thread)});
               });
    });
  }

  void InFloats(bool in_bf16) const {
    const auto round = BH_OF_ISA_OR_BF16(isa_, RoundRows);
    const auto few = BH_OF_ISA_OR_BF16(isa_, MultiplyFew);
    const auto many = BH_OF_ISA_OR_BF16(isa_, MultiplyMany);
    ForPanels(kReading, [&](int thread, int e, int64_t begin, int64_t end) {
      const int64_t rows = RowsOf(e);
      const int32_t* const tokens = TokensOf(e);
      float* const scratch = scratch_.Of(thread);
      QuantizedPanels panels_of_weight{};
      Product product =
          ProductOf(x_, experts_[e], output_.out.Rows(FirstOf(e), rows), panels_of_weight);
      product.in_bf16 = in_bf16;
      product.x_rows = tokens;
      if (rows > BH_OF_ISA_OR_BF16(isa_, kMaxFewRows)) {
        return many(product, {begin, end, 0, rows, scratch, scratch_.thread_floats});
      }
      if (in_bf16) round(product, rows, scratch);
      for (int64_t row = 0; row < rows && !in_bf16; ++row) {
        std::copy_n(x_.F32(tokens[row]), shape_.cols, scratch + row * shape_.cols);
      }
      product.x = scratch;
      product.x_stride = in_bf16 ? PairFloats(shape_.cols) : shape_.cols;
      product.x_rows = nullptr;
      few(product, {begin, end, 0, rows, nullptr});
    });
  }

 private:
  static constexpr int64_t kReading = 4;
  static constexpr int64_t kReadingInTiles = 32;

  int64_t FirstOf(int e) const { return routing_.expert_begin[e]; }
  int64_t RowsOf(int e) const { return routing_.expert_begin[e + 1] - routing_.expert_begin[e]; }
  const int32_t* TokensOf(int e) const { return routing_.pair_token + FirstOf(e); }

  // body(expert, begin, end) for the expert's units of inputs.
  template <typename Units, typename Body>
  void ForUnits(const Units& units, const Body& body) const {
    ForExperts(
        pool_, routing_.num_experts, output_.out.rows() * shape_.cols, units,
        [](int) { return int64_t{1}; },
        [&](int, int e, int64_t begin, int64_t end) { body(e, begin, end); });
  }

  // Panels [begin, end) of an expert's product, by the kernel `multiply`; panels of gates if they
  // are activated.
  template <typename Kernel>
  void Multiply(int thread, int e, const RowUnits& units, int64_t begin, int64_t end,
                const Kernel& multiply) const {
    ProductOutput output = output_;
    output.out = output_.out.Rows(FirstOf(e), units.rows);
    const GridPart part{begin, end, 0, units.count, output.out.F32(), output.out.row_stride()};
    if (output_.gated.empty()) return multiply(thread, part);
    output.gated = output_.gated.Rows(FirstOf(e), units.rows);
    MultiplyGatedPart(isa_, output, units, thread, part, multiply);
  }

  // body(thread, expert, first panel, end). Reading a panel takes about as long as multiplying
  // `reading` rows with it.
  template <typename Body>
  void ForPanels(int64_t reading, const Body& body) const {
    const int64_t panels =
        CeilDiv(output_.gated.empty() ? shape_.rows : output_.gated.cols(), kPanelColumns);
    ForExperts(
        pool_, routing_.num_experts, output_.out.rows() * shape_.rows * shape_.cols,
        [&](int e) { return RowsOf(e) > 0 ? panels : 0; },
        [&](int e) { return RowsOf(e) + reading; }, body);
  }

  const Isa isa_;
  ThreadPool& pool_;
  const CpuMatMulScratch& scratch_;
  const ConstMatrixView x_;
  const absl::Span<const Linear> experts_;
  const ExpertRouting& routing_;
  const ProductOutput& output_;
  const LinearShape& shape_;
};

}  // namespace

void CpuBackend::MatMulExperts(ConstMatrixView x, absl::Span<const Linear> experts,
                               const ExpertRouting& routing, MatrixView out) {
  if (!x.empty() && !out.empty()) MultiplyExperts(x, experts, routing, {out});
}

void CpuBackend::MatMulExpertsGated(Activation activation, ConstMatrixView x,
                                    absl::Span<const Linear> experts, const ExpertRouting& routing,
                                    MatrixView gate_up, MatrixView out) {
  const LinearShape& shape = experts[0].shape;
  const bool in_int8_or_tiles = InInt8(activation_, shape) || InBf16Tiles(activation_, shape);
  if (x.empty() || !in_int8_or_tiles || !InGatedChunks(out.rows(), out)) {
    return Backend::MatMulExpertsGated(activation, x, experts, routing, gate_up, out);
  }
  BH_CHECK(gate_up.cols() == 2 * out.cols() && gate_up.rows() == out.rows());
  MultiplyExperts(x, experts, routing, {gate_up, out, activation});
}

void CpuBackend::MultiplyExperts(ConstMatrixView x, absl::Span<const Linear> experts,
                                 const ExpertRouting& routing, const ProductOutput& output) {
  const LinearShape& shape = experts[0].shape;
  BH_CHECK(shape.num_slices() == 1 && x.cols() == shape.cols && output.out.cols() == shape.rows);
  BH_CHECK(output.out.rows() == x.rows() * routing.experts_per_token);
  const ProductsOfExperts products(isa_, *pool_, mat_mul_scratch_, x, experts, routing, output);
  if (InInt8(activation_, shape)) return products.InInt8();
  if (InBf16Tiles(activation_, shape)) return products.InBf16Tiles();
  products.InFloats(InBf16Pairs(activation_, shape));
}

}  // namespace bulkhead
