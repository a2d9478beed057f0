// The rows of a step whose logits are wanted: on the device where they are sampled there, whole on
// rank 0's host for everything else.
#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/clock.h"
#include "base/status.h"
#include "comm/wait.h"
#include "runtime/model/model_runner.h"

namespace bulkhead {

void ModelRunner::ListLogitRows(const internal::StepPlan& plan) {
  logit_seq_.clear();
  logit_position_.clear();
  size_t host_rows = 0;
  for (const bool on_device : {false, true}) {
    int end = 0;  // of the sequence's tokens in the step
    for (int s = 0; s < plan.slot_size(); ++s) {
      end += plan.num_tokens(s);
      if (SampledOnDevice(plan, s) != on_device) continue;
      for (int left = plan.num_logits(s); left > 0; --left) {
        host_arrays_.logit_rows[logit_seq_.size()] = end - left;
        logit_seq_.push_back(s);
        logit_position_.push_back(plan.start_position(s) + plan.num_tokens(s) - left);
      }
    }
    if (!on_device) host_rows = logit_seq_.size();
  }
  num_sampled_rows_ = static_cast<int64_t>(logit_seq_.size() - host_rows);
}

absl::Status ModelRunner::RunLogits(const Step& step, ConstMatrixView hidden, StepResult& result) {
  if (!plan_.rank(rank_).last_stage()) return absl::OkStatus();
  const int64_t rows = static_cast<int64_t>(logit_seq_.size());
  const int64_t host_rows = rows - num_sampled_rows_;
  int64_t n = 0;  // of a tile: rows of one kind
  for (int64_t first = 0; first < rows; first += n) {
    n = first < host_rows ? std::min<int64_t>(kLogitTileRows, host_rows - first)
                          : std::min(logits_.selected.rows(), rows - first);
    const MatrixView selected = logits_.selected.Rows(0, n);  // [R, D]
    const MatrixView part = logits_.part.Rows(0, n);          // [R, v]
    backend_.SelectRows(hidden, arrays_.logit_rows + first, selected);
    decoder_->Logits(selected, part);
    BH_RETURN_IF_ERROR(TakeHiddenStates(step, first, selected, result));
    if (first < host_rows) {
      BH_RETURN_IF_ERROR(GatherTile(step, first, part, result));
    } else {
      device_sampler_->Select(first - host_rows, part);
    }
  }
  if (num_sampled_rows_ == 0) return absl::OkStatus();
  BH_RETURN_IF_ERROR(device_sampler_->Sample(num_sampled_rows_));
  device_sampler_->Download();
  return absl::OkStatus();
}

// A whole copy for each: few requests want one.
absl::Status ModelRunner::TakeHiddenStates(const Step& step, int64_t first_row,
                                           ConstMatrixView normed, StepResult& result) {
  for (size_t i = 0; i < step.hidden_states.size(); ++i) {
    const auto [seq, out] = step.hidden_states[i];
    int64_t row = normed.rows() - 1;
    while (row >= 0 && logit_seq_[first_row + row] != seq) --row;
    if (row < 0) continue;
    out->resize(normed.cols());
    backend_.device().CopyToHost(normed.RowBytes(row), out->data(),
                                 normed.cols() * static_cast<int64_t>(sizeof(float)));
    BH_RETURN_IF_ERROR(backend_.device().Synchronize());
    if (!std::all_of(out->begin(), out->end(), [](float x) { return std::isfinite(x); })) {
      result.hidden_states[i] = absl::InternalError("the model's output is not finite numbers");
    }
  }
  return absl::OkStatus();
}

absl::Status ModelRunner::GatherTile(const Step& step, int64_t first_row, ConstMatrixView part,
                                     StepResult& result) {
  MatrixView whole;  // [R, V] on rank 0
  if (rank_ == 0) whole = logits_.whole.Rows(0, part.rows());
  if (plan_.size() > 1) BH_RETURN_IF_ERROR(comm_.GatherCols(part, vocab_cols_, whole));
  if (rank_ != 0) return absl::OkStatus();
  BH_ASSIGN_OR_RETURN(const ConstMatrixView logits, OnHost(whole));
  TakeTile(step, first_row, logits, result);
  return absl::OkStatus();
}

absl::StatusOr<ConstMatrixView> ModelRunner::OnHost(ConstMatrixView logits) {
  Device& device = backend_.device();
  if (device.host_memory()) return logits;
  BH_CHECK(logits.row_stride() == logits.cols());
  BH_RETURN_IF_ERROR(host_logits_.status());
  const ConstMatrixView host(host_logits_->get(), DType::kF32, logits.rows(), logits.cols());
  device.CopyToHost(logits.data(), host_logits_->get(),
                    logits.rows() * logits.cols() * static_cast<int64_t>(sizeof(float)));
  BH_RETURN_IF_ERROR(device.Synchronize());
  return host;
}

void ModelRunner::TakeTile(const Step& step, int64_t first_row, ConstMatrixView logits,
                           StepResult& result) {
  host_samples_.clear();
  for (int64_t row = 0; row < logits.rows();) {
    const int seq = logit_seq_[first_row + row];
    int64_t end = row + 1;  // of the rows of the same sequence in this tile
    while (end < logits.rows() && logit_seq_[first_row + end] == seq) ++end;
    for (size_t i = 0; i < step.prompt_logits.size(); ++i) {
      if (step.prompt_logits[i].seq_index != seq || !result.prompt_logits[i].ok()) continue;
      result.prompt_logits[i] = step.prompt_logits[i].sink->OnRows(
          logit_position_[first_row + row], end - row, logits.cols(), logits.F32(row));
    }
    for (; row < end; ++row) {
      const std::pair<int, int64_t> place(seq, logit_position_[first_row + row] + 1);
      const auto sample = std::lower_bound(
          step.samples.begin(), step.samples.end(), place,
          [](const SampleRow& a, const auto& b) { return std::pair(a.seq_index, a.position) < b; });
      if (sample == step.samples.end() || std::pair(sample->seq_index, sample->position) != place) {
        continue;
      }
      host_samples_.push_back(
          {logits.F32(row), static_cast<size_t>(sample - step.samples.begin())});
    }
  }
  if (!host_samples_.empty()) SampleTile(step, result);
}

void ModelRunner::SampleTile(const Step& step, StepResult& result) {
  const int64_t begin_ns = MonotonicNanos();
  const size_t parts = std::min(samplers_.size(), host_samples_.size());
  // Behind a guess that the sample before it, of the same sequence, decides.
  const auto follows = [&](size_t i) {
    const size_t at = host_samples_[i].sample;
    return at > 0 && !step.samples[at].drafted.empty() &&
           step.samples[at - 1].seq_index == step.samples[at].seq_index;
  };
  // Rows of a sequence stay together: each waits for the sample before it.
  const auto part_begin = [&](size_t part) {
    size_t begin = part * host_samples_.size() / parts;
    while (begin < host_samples_.size() && follows(begin)) ++begin;
    return part == 0 ? 0 : begin;
  };
  backend_.OnHostThreads(static_cast<int>(parts), [&](int part) {
    for (size_t i = part_begin(part); i < part_begin(part + 1); ++i) {
      const auto [logits, sample] = host_samples_[i];
      if (follows(i)) {  // behind a wrong guess, or where nothing was sampled?
        const absl::StatusOr<GeneratedToken>& before = result.samples[sample - 1];
        if (!before.ok() || before->id != step.samples[sample].drafted.back()) continue;
      }
      result.samples[sample] = samplers_[part].Sample(
          absl::MakeConstSpan(logits, static_cast<size_t>(plan_.config().vocab_size)),
          step.samples[sample]);
    }
  });
  sampling_ns_ += static_cast<uint64_t>(MonotonicNanos() - begin_ns);
}

}  // namespace bulkhead
