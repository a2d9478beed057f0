#include "runtime/model/device_sampler.h"

#include <algorithm>
#include <utility>

#include "absl/functional/function_ref.h"
#include "base/check.h"
#include "base/status.h"
#include "runtime/engine/candidates.h"

namespace bulkhead {
namespace {

constexpr int64_t kIdBytes = sizeof(int32_t);

// Calls body(i) for the step's samples i in the order in which they are sampled.
void ForSampled(const Step& step, absl::FunctionRef<void(size_t i)> body) {
  for (const SampleSource source : {SampleSource::kRow, SampleSource::kCandidates}) {
    for (size_t i = 0; i < step.samples.size(); ++i) {
      if (SampleSourceOf(step.plan, step.samples[i].seq_index) == source) body(i);
    }
  }
}

// Empty where `rows` is.
MatrixView AsOneRow(MatrixView rows) {
  if (rows.empty()) return {};
  BH_CHECK(rows.row_stride() == rows.cols());
  return {rows.data(), rows.dtype(), 1, rows.rows() * rows.cols()};
}

}  // namespace

DeviceSampler::Staging DeviceSampler::LayOut(const ModelLimits& limits, BumpAllocator& allocator) {
  const int64_t rows = MaxSampledRows(limits);
  Staging staging;
  staging.params = reinterpret_cast<TokenSampling*>(
      allocator.Next(rows * static_cast<int64_t>(sizeof(TokenSampling))));
  staging.banned =
      reinterpret_cast<int32_t*>(allocator.Next(limits.max_num_seqs * kCandidates * kIdBytes));
  staging.sampled = reinterpret_cast<int32_t*>(allocator.Next(rows * kIdBytes));
  return staging;
}

int64_t DeviceSampler::HostBytes(const ModelLimits& limits) {
  BumpAllocator sizes;
  for (size_t i = 0; i < kStagings; ++i) LayOut(limits, sizes);
  return sizes.used_bytes();
}

DeviceSampler::DeviceSampler(const SamplingBuffers& buffers, int64_t first_id,
                             const ModelLimits& limits, Device& device, Backend& backend,
                             Communicator& comm)
    : buffers_(buffers),
      first_id_(first_id),
      max_num_seqs_(limits.max_num_seqs),
      max_rows_(MaxSampledRows(limits)),
      device_(device),
      backend_(backend),
      comm_(comm),
      cols_of_rank_(comm.size()),
      memory_(HostBuffer()) {
  if (comm_.rank() != 0) return;
  memory_ = device_.AllocateHost(HostBytes(limits));
  if (!memory_.ok()) return;
  BumpAllocator allocator(memory_->get());
  for (Staging& staging : staging_) staging = LayOut(limits, allocator);
}

absl::Status DeviceSampler::Upload(const Step& step, int64_t rows) {
  if (comm_.rank() != 0) return absl::OkStatus();
  BH_RETURN_IF_ERROR(memory_.status());
  BH_CHECK(uploads_ - collects_ < staging_.size());
  Staging& staging = staging_[uploads_++ % staging_.size()];
  staging.rows = 0;
  int banned = 0;
  int banned_of = -1;  // the sequence with the last ones, which all its rows use
  int banned_begin = 0;
  staging.cuts = false;
  ForSampled(step, [&](size_t i) {
    const SampleRow& row = step.samples[i];
    if (!row.banned.empty() && row.seq_index != banned_of) {
      banned_of = row.seq_index;
      banned_begin = banned;
      std::copy(row.banned.begin(), row.banned.end(), staging.banned + banned);
      banned += static_cast<int>(row.banned.size());
    }
    // With several rows only the commit knows which row the last token is from.
    const int slot = step.plan.num_logits(row.seq_index) == 1
                         ? step.plan.slot(row.seq_index)
                         : static_cast<int>(max_num_seqs_ + staging.rows);
    const TokenSampling params = TokenSamplingOf(row, slot, banned_begin);
    staging.cuts = staging.cuts || (params.top_k == 0 && params.top_p < 1);
    staging.params[staging.rows++] = params;
  });
  BH_CHECK(staging.rows <= rows && rows <= max_rows_);
  std::fill(staging.params + staging.rows, staging.params + rows, TokenSampling());
  const auto copy = [&](const void* host, void* device, int64_t bytes) {
    if (bytes > 0) device_.CopyFromHost(host, static_cast<std::byte*>(device), bytes);
  };
  copy(staging.params, buffers_.params, rows * static_cast<int64_t>(sizeof(TokenSampling)));
  copy(staging.banned, buffers_.banned, banned * kIdBytes);
  return absl::OkStatus();
}

void DeviceSampler::FillIn(const StepIndex& index, int32_t* token_ids) {
  backend_.FillInSampled(index, buffers_.last_sampled, token_ids);
}

void DeviceSampler::SampleWhole(MatrixView logits) {
  if (comm_.rank() != 0) return;
  backend_.SampleRows(logits, buffers_.params + sampled_, buffers_.banned, newest().cuts,
                      buffers_.row_scratch.Rows(0, logits.rows()), buffers_.sampled + sampled_,
                      buffers_.last_sampled);
  sampled_ += logits.rows();
}

void DeviceSampler::Select(ConstMatrixView logits) {
  // On the rank that has them.
  const TokenSampling* const params =
      comm_.rank() == 0 ? buffers_.params + sampled_ + selected_ : nullptr;
  backend_.SelectCandidates(logits, first_id_, params,
                            buffers_.lists.Rows(selected_, logits.rows()));
  selected_ += logits.rows();
}

absl::Status DeviceSampler::Sample() {
  const bool first = comm_.rank() == 0;
  const int64_t rows = std::exchange(selected_, 0);
  const MatrixView lists = buffers_.lists.Rows(0, rows);
  MatrixView all_lists;  // on rank 0
  if (first) all_lists = buffers_.all_lists.Rows(0, comm_.size() * rows);
  if (comm_.size() > 1) {
    // Rank by rank, which needs no copy per row.
    const MatrixView part = AsOneRow(lists);
    std::fill(cols_of_rank_.begin(), cols_of_rank_.end(), part.cols());
    BH_RETURN_IF_ERROR(comm_.GatherCols(part, cols_of_rank_, AsOneRow(all_lists)));
  }
  if (first) {
    backend_.Sample(all_lists, comm_.size(), buffers_.params + sampled_, buffers_.banned,
                    buffers_.sampled + sampled_, buffers_.last_sampled);
  }
  sampled_ += rows;
  return absl::OkStatus();
}

absl::Status DeviceSampler::Finish() {
  sampled_ = 0;
  if (comm_.size() > 1) {
    BH_RETURN_IF_ERROR(comm_.Broadcast(buffers_.last_sampled, max_num_seqs_));
  }
  if (comm_.rank() != 0) return absl::OkStatus();
  const Staging& staging = newest();
  if (staging.rows == 0) return absl::OkStatus();
  device_.CopyToHost(reinterpret_cast<const std::byte*>(buffers_.sampled), staging.sampled,
                     staging.rows * kIdBytes);
  return absl::OkStatus();
}

void DeviceSampler::Collect(const Step& step, StepResult& result) {
  if (comm_.rank() != 0) return;
  const Staging& staging = staging_[collects_++ % staging_.size()];
  int64_t next = 0;
  ForSampled(step, [&](size_t i) {
    result.samples[i] = SampledToken(staging.sampled[next++], step.samples[i]);
  });
  BH_CHECK(next == staging.rows);
}

}  // namespace bulkhead
