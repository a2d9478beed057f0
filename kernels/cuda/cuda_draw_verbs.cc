#include "kernels/cuda/cuda_draw_verbs.h"

#include "kernels/cuda/kernels.h"
#include "memory/check.h"

namespace bulkhead {
namespace {

LaunchShape OneBlockPerRow(ConstMatrixView x, int64_t shared_bytes) {
  return {.grid = {static_cast<int>(x.rows()), 1, 1},
          .block = {cuda::kSelectThreads, 1, 1},
          .shared_bytes = shared_bytes};
}

}  // namespace

void CudaDrawVerbs::SelectCandidates(ConstMatrixView logits, int64_t first_id, MatrixView lists) {
  BH_CHECK(lists.rows() == logits.rows() && lists.cols() == kCandidateCols);
  Enqueue(driver_, cuda::SelectCandidatesKernel(), OneBlockPerRow(lists, cuda::kSelectSharedBytes),
          {{logits.F32(), logits.row_stride()},
           static_cast<int>(logits.cols()),
           static_cast<int32_t>(first_id),
           {lists.F32(), lists.row_stride()}});
}

void CudaDrawVerbs::Draw(ConstMatrixView lists, const TokenDraw* draws, const int32_t* banned,
                         int32_t* drawn, int32_t* last_sampled) {
  BH_CHECK(lists.cols() % kCandidateCols == 0);
  Enqueue(driver_, cuda::DrawKernel(), OneBlockPerRow(lists, cuda::kDrawSharedBytes),
          {{lists.F32(), lists.row_stride()},
           static_cast<int>(lists.cols() / kCandidateCols),
           draws,
           banned,
           drawn,
           last_sampled});
}

void CudaDrawVerbs::FillInSampled(const StepIndex& index, const int32_t* last_sampled,
                                  int32_t* token_ids) {
  const int blocks = (index.num_tokens + cuda::kRowThreads - 1) / cuda::kRowThreads;
  Enqueue(driver_, cuda::FillInSampledKernel(),
          {.grid = {blocks, 1, 1}, .block = {cuda::kRowThreads, 1, 1}},
          {last_sampled, index.seq_slot, index.token_seq, token_ids, index.num_tokens});
}

}  // namespace bulkhead
