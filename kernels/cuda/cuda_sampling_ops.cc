#include "kernels/cuda/cuda_sampling_ops.h"

#include "base/check.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/launch_arguments.h"

namespace bulkhead {
void CudaSamplingOps::SelectCandidates(ConstMatrixView logits, int64_t first_id, MatrixView lists) {
  BH_CHECK(lists.rows() == logits.rows() && lists.cols() % kCandidateCols == 0);
  const int64_t slices = lists.cols() / kCandidateCols;
  Enqueue(driver_, cuda::SelectCandidatesKernel(),
          {.grid = {static_cast<int>(slices), static_cast<int>(lists.rows()), 1},
           .block = {cuda::kSelectThreads, 1, 1},
           .shared_bytes = cuda::kSelectSharedBytes},
          {{logits.F32(), logits.row_stride()},
           static_cast<int>(logits.cols()),
           static_cast<int32_t>(first_id),
           cuda::NumBlocks(logits.cols(), slices),
           {lists.F32(), lists.row_stride()}});
}

void CudaSamplingOps::Draw(ConstMatrixView lists, const TokenSampling* draws, const int32_t* banned,
                           int32_t* drawn, int32_t* last_sampled) {
  BH_CHECK(lists.cols() % kCandidateCols == 0);
  Enqueue(driver_, cuda::SampleKernel(),
          {.grid = {static_cast<int>(lists.rows()), 1, 1},
           .block = {cuda::kSelectThreads, 1, 1},
           .shared_bytes = cuda::kSampleSharedBytes},
          {{lists.F32(), lists.row_stride()},
           static_cast<int>(lists.cols() / kCandidateCols),
           draws,
           banned,
           drawn,
           last_sampled});
}

void CudaSamplingOps::FillInSampled(const StepIndex& index, const int32_t* last_sampled,
                                    int32_t* token_ids) {
  const int blocks = (index.num_tokens + cuda::kRowThreads - 1) / cuda::kRowThreads;
  Enqueue(driver_, cuda::FillInSampledKernel(),
          {.grid = {blocks, 1, 1}, .block = {cuda::kRowThreads, 1, 1}},
          {last_sampled, index.seq_slot, index.token_seq, token_ids, index.num_tokens});
}

}  // namespace bulkhead
