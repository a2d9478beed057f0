#include <algorithm>

#include "base/arithmetic.h"
#include "base/check.h"
#include "kernels/activation/op.h"
#include "kernels/cpu/cpu_backend.h"

namespace bulkhead {
namespace {

constexpr int64_t kColumns = 512;  // of a row at a time

// visit(row, first column, columns) for all of `out`.
template <typename Visit>
void ForParts(ThreadPool& pool, MatrixView out, const Visit& visit) {
  const int64_t parts = CeilDiv(out.cols(), kColumns);  // of a row
  pool.ParallelForWork(out.rows() * parts, out.rows() * out.cols(),
                       [&](int, int64_t begin, int64_t end) {
                         for (int64_t i = begin; i < end; ++i) {
                           const int64_t column = i % parts * kColumns;
                           visit(i / parts, column, std::min(kColumns, out.cols() - column));
                         }
                       });
}

}  // namespace

void CpuBackend::GatedActivation(Activation activation, ConstMatrixView gate_up, MatrixView out) {
  BH_CHECK(gate_up.rows() == out.rows() && gate_up.cols() == 2 * out.cols());
  const auto activate = BH_OF_ISA(isa_, ActivateRow);
  ForParts(*pool_, out, [&](int64_t row, int64_t column, int64_t count) {
    const float* gate = gate_up.F32(row) + column;
    activate(activation, gate, gate + out.cols(), count, out.F32(row) + column);
  });
}

void CpuBackend::ClampedSwiglu(float alpha, float limit, ConstMatrixView gate_up, MatrixView out) {
  BH_CHECK(gate_up.rows() == out.rows() && gate_up.cols() == 2 * out.cols());
  const auto activate = BH_OF_ISA(isa_, ClampedSwigluRow);
  ForParts(*pool_, out, [&](int64_t row, int64_t column, int64_t count) {
    activate(alpha, limit, gate_up.F32(row) + 2 * column, count, out.F32(row) + column);
  });
}

void CpuBackend::Activate(Activation activation, ConstMatrixView x, MatrixView out) {
  BH_CHECK(x.rows() == out.rows() && x.cols() == out.cols());
  const auto activate = BH_OF_ISA(isa_, ActivateRow);
  ForParts(*pool_, out, [&](int64_t row, int64_t column, int64_t count) {
    activate(activation, x.F32(row) + column, nullptr, count, out.F32(row) + column);
  });
}

}  // namespace bulkhead
