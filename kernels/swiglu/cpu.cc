#include <algorithm>

#include "base/arithmetic.h"
#include "base/check.h"
#include "kernels/cpu/cpu_backend.h"

namespace bulkhead {

// out_i = gate_i / (1 + exp(-gate_i)) * up_i, for any gate
BH_PER_ISA(void Gated(const float* gate, const float* up, int64_t size, float* out))

namespace {
constexpr int64_t kColumns = 512;  // of a row, at a time
}

void CpuBackend::SwiGlu(ConstMatrixView gate_up, MatrixView out) {
  BH_CHECK(gate_up.rows() == out.rows() && gate_up.cols() == 2 * out.cols());
  const int64_t parts = CeilDiv(out.cols(), kColumns);  // of a row
  const auto gated = BH_OF_ISA(isa_, Gated);
  pool_->ParallelForWork(out.rows() * parts, out.rows() * out.cols(),
                         [&](int, int64_t begin, int64_t end) {
                           for (int64_t i = begin; i < end; ++i) {
                             const int64_t column = i % parts * kColumns;
                             const float* gate = gate_up.F32(i / parts) + column;
                             gated(gate, gate + out.cols(), std::min(kColumns, out.cols() - column),
                                   out.F32(i / parts) + column);
                           }
                         });
}

}  // namespace bulkhead
