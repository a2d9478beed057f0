#include "kernels/backend.h"

#include "base/check.h"

namespace bulkhead {

void Backend::AddResidualNorm(ConstMatrixView sum, ConstMatrixView bias, float factor,
                              MatrixView hidden, ConstMatrixView weight, float epsilon,
                              MatrixView normed) {
  AddResidual(sum, bias, factor, hidden);
  RmsNorm(hidden, weight, epsilon, normed);
}

void Backend::NormRopeAppendKv(const StepIndex& index, const HeadLayout& heads,
                               const HeadNorms& norms, const Rotary& rotary, MatrixView qkv,
                               const KvLayerView& kv) {
  NormRope(index, heads, norms, rotary, qkv);
  AppendKv(index, heads, qkv, kv);
}

void Backend::SetEntries(const int32_t* changes, int count, int32_t* entries) {
  for (int i = 0; i < count; ++i) entries[changes[2 * i]] = changes[2 * i + 1];
}

// Only backends that sample tokens get these.
void Backend::SelectCandidates(ConstMatrixView, int64_t, const TokenSampling*, MatrixView) {
  BH_CHECK(samples_tokens());
}
void Backend::Sample(ConstMatrixView, int, const TokenSampling*, const int32_t*, int32_t*,
                     int32_t*) {
  BH_CHECK(samples_tokens());
}
void Backend::SampleRows(MatrixView, const TokenSampling*, const int32_t*, bool, MatrixView,
                         int32_t*, int32_t*) {
  BH_CHECK(samples_tokens());
}
void Backend::FillInSampled(const StepIndex&, const int32_t*, int32_t*) {
  BH_CHECK(samples_tokens());
}

}  // namespace bulkhead
