#include "kernels/backend.h"

#include "base/check.h"

namespace bulkhead {

void Backend::AddResidualNorm(ConstMatrixView sum, ConstMatrixView bias, float factor,
                              MatrixView hidden, ConstMatrixView weight, float epsilon,
                              MatrixView normed) {
  AddResidual(sum, bias, factor, hidden);
  RmsNorm(hidden, weight, epsilon, normed);
}

// Only backends that sample tokens get these.
void Backend::SelectCandidates(ConstMatrixView, int64_t, MatrixView) { BH_CHECK(samples_tokens()); }
void Backend::Sample(ConstMatrixView, const TokenSampling*, const int32_t*, int32_t*, int32_t*) {
  BH_CHECK(samples_tokens());
}
void Backend::FillInSampled(const StepIndex&, const int32_t*, int32_t*) {
  BH_CHECK(samples_tokens());
}

// Only backends that attend over latents get these.
void Backend::MatMulHeads(ConstMatrixView, int64_t, absl::Span<const Linear>, MatrixView, int64_t) {
  BH_CHECK(attends_latents());
}
void Backend::RopeLatents(const StepIndex&, const HeadLayout&, const Rotary&, ConstMatrixView,
                          MatrixView) {
  BH_CHECK(attends_latents());
}

}  // namespace bulkhead
