// Shared by the products of experts on CPUs: threads' parts, and inputs in int8.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/arithmetic.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/matmul/int8.h"
#include "kernels/packing/quantized_packing.h"
#include "kernels/simd/per_isa.h"
#include "memory/linear.h"

namespace bulkhead {

// body(thread, expert, first unit, end) until every expert's `units(expert)` are done; threads
// share the cost, units times `unit_cost(expert)`, equally.
template <typename Units, typename Cost, typename Body>
void ForExperts(ThreadPool& pool, int num_experts, int64_t work, const Units& units,
                const Cost& unit_cost, const Body& body) {
  int64_t total = 0;
  for (int e = 0; e < num_experts; ++e) total += units(e) * unit_cost(e);
  const int64_t parts = pool.num_threads();
  pool.ParallelForWork(parts, work, [&](int thread, int64_t first_part, int64_t end_part) {
    const int64_t first = ThreadPool::PartBegin(total, first_part, parts);
    const int64_t end = ThreadPool::PartBegin(total, end_part, parts);
    int64_t before = 0;  // the cost of the previous experts
    for (int e = 0; e < num_experts && before < end; ++e) {
      const int64_t cost = unit_cost(e);
      const int64_t count = units(e);
      // A unit belongs to the part in which it begins.
      const auto unit_at = [&](int64_t at) {
        return std::clamp<int64_t>(CeilDiv(std::max<int64_t>(at - before, 0), cost), 0, count);
      };
      const int64_t begin_unit = unit_at(first);
      const int64_t end_unit = unit_at(end);
      before += count * cost;
      if (begin_unit < end_unit) body(thread, e, begin_unit, end_unit);
    }
  });
}

// Inputs in int8 of several weights with equal cells, `rows` of each one after the other.
class Int8Runs {
 public:
  Int8Runs(Isa isa, const QuantizedPanels& panels, const QuantizedInputs& inputs)
      : isa_(isa), panels_(panels), inputs_(inputs) {}

  // Whether MultiplyInt8InTiles takes a run of `rows`.
  bool InAmxTiles(int64_t rows) const { return HasAmx(isa_) && rows >= kMinAmxRows; }
  // Tiles of a run of `rows`, and the units in which Quantize works on it: cells of tiles.
  int64_t TilesOf(int64_t rows) const {
    return CeilDiv(
        rows, InAmxTiles(rows) ? kAmxTileRows : int64_t{BH_OF_ISA_OR_VNNI(isa_, kInt8MaxTileRows)});
  }
  int64_t UnitsOf(int64_t rows) const { return TilesOf(rows) * inputs_.cells; }
  // The run of `rows` that begins at `begin`.
  QuantizedInputs Of(int64_t begin, int64_t rows) const {
    QuantizedInputs inputs = inputs_;
    inputs.by_row = InAmxTiles(rows);
    inputs.codes += begin * inputs.row_bytes;
    inputs.scales += begin * inputs.cells;
    inputs.sums += begin * inputs.cells;
    return inputs;
  }
  // Quantises the run of `rows` that begins at `begin`; x has its rows.
  void Quantize(const FloatRows& x, int64_t begin, int64_t rows, int64_t first_unit,
                int64_t end_unit) const {
    const auto quantize = BH_OF_ISA_OR_VNNI(isa_, QuantizeCell);
    const QuantizedInputs inputs = Of(begin, rows);
    for (int64_t i = first_unit; i < end_unit; ++i) {
      quantize(panels_, x, InputTileOf(rows, TilesOf(rows), i / inputs.cells),
               static_cast<int>(i % inputs.cells), inputs);
    }
  }

 private:
  Isa isa_;
  QuantizedPanels panels_;
  QuantizedInputs inputs_;
};

}  // namespace bulkhead
