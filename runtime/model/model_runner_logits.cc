// The rows of a step whose logits are wanted: on the device if they are sampled there, otherwise
// whole on rank 0's host.
#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/status.h"
#include "runtime/model/model_runner.h"

namespace bulkhead {

void ModelRunner::ListLogitRows(const internal::StepPlan& plan) {
  logit_seq_.clear();
  logit_position_.clear();
  num_host_rows_ = 0;
  num_whole_rows_ = 0;
  for (const SampleSource source :
       {SampleSource::kHost, SampleSource::kRow, SampleSource::kCandidates}) {
    int end = 0;  // of the sequence's tokens in the step
    for (int s = 0; s < plan.slot_size(); ++s) {
      end += plan.num_tokens(s);
      if (SourceOf(plan, s) != source) continue;
      if (source == SampleSource::kHost) num_host_rows_ += plan.num_logits(s);
      if (source == SampleSource::kRow) num_whole_rows_ += plan.num_logits(s);
      for (int left = plan.num_logits(s); left > 0; --left) {
        host_arrays_.logit_rows[logit_seq_.size()] = end - left;
        logit_seq_.push_back(s);
        logit_position_.push_back(plan.start_position(s) + plan.num_tokens(s) - left +
                                  plan.tokens_ahead());
      }
    }
  }
}

absl::Status ModelRunner::RunLogits(const Step& step, ConstMatrixView hidden, StepResult& result) {
  if (!plan_.rank(rank_).last_stage()) return absl::OkStatus();
  const int64_t rows = static_cast<int64_t>(logit_seq_.size());
  const int64_t whole_end = num_host_rows_ + num_whole_rows_;
  int64_t n = 0;  // rows of a tile, all of one kind
  for (int64_t first = 0; first < rows; first += n) {
    if (first < num_host_rows_) {
      n = std::min<int64_t>(kLogitTileRows, num_host_rows_ - first);
    } else if (first < whole_end) {
      n = std::min<int64_t>(WholeRowsAtOnce(plan_, limits_), whole_end - first);
    } else {
      n = std::min({logits_.selected.rows(), rows - first, device_sampler_->room()});
    }
    const MatrixView selected = logits_.selected.Rows(0, n);  // [R, D]
    const MatrixView part = logits_.part.Rows(0, n);          // [R, v]
    backend_.SelectRows(hidden, arrays_.logit_rows + first, selected);
    decoder_->Logits(selected, part);
    BH_RETURN_IF_ERROR(TakeHiddenStates(step, first, selected, result));
    if (first < num_host_rows_) {
      BH_RETURN_IF_ERROR(GatherTile(step, first, part, result));
    } else if (first < whole_end) {
      BH_RETURN_IF_ERROR(SampleWholeRows(part));
    } else {
      device_sampler_->Select(part);
      const bool ends = first + n == rows || device_sampler_->room() == 0;
      if (ends) BH_RETURN_IF_ERROR(device_sampler_->Sample());
    }
  }
  return rows > num_host_rows_ ? device_sampler_->Finish() : absl::OkStatus();
}

// One full copy each: few requests want one.
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

absl::Status ModelRunner::GatherTile(const Step& step, int64_t first_row, MatrixView part,
                                     StepResult& result) {
  LogitTile tile;
  tile.seqs = absl::MakeConstSpan(logit_seq_).subspan(first_row, part.rows());
  tile.positions = absl::MakeConstSpan(logit_position_).subspan(first_row, part.rows());
  host_sampler_->Divide(tile);
  const int64_t own = tile.RowsOf(rank_);
  MatrixView whole;  // [own, V]
  if (own > 0) whole = logits_.whole.Rows(0, own);
  if (plan_.size() > 1) {
    BH_RETURN_IF_ERROR(tile.rank_of_row.empty()
                           ? comm_.GatherCols(part, vocab_cols_, whole)
                           : comm_.GatherRows(part, vocab_cols_, tile.rank_of_row, whole));
  }
  BH_ASSIGN_OR_RETURN(const MatrixView logits, OnHost(whole));
  if (rank_ == 0) HandOut(step, tile, logits, result);
  return host_sampler_->Sample(step, tile, logits, result);
}

absl::Status ModelRunner::SampleWholeRows(MatrixView part) {
  MatrixView whole = part;
  if (plan_.size() > 1) {
    whole = rank_ == 0 ? logits_.whole.Rows(0, part.rows()) : MatrixView();
    BH_RETURN_IF_ERROR(comm_.GatherCols(part, vocab_cols_, whole));
  }
  device_sampler_->SampleWhole(whole);
  return absl::OkStatus();
}

absl::StatusOr<MatrixView> ModelRunner::OnHost(MatrixView logits) {
  Device& device = backend_.device();
  if (device.host_memory() || logits.empty()) return logits;
  BH_CHECK(logits.row_stride() == logits.cols());
  BH_RETURN_IF_ERROR(host_logits_.status());
  const MatrixView host(host_logits_->get(), DType::kF32, logits.rows(), logits.cols());
  device.CopyToHost(logits.data(), host_logits_->get(),
                    logits.rows() * logits.cols() * static_cast<int64_t>(sizeof(float)));
  BH_RETURN_IF_ERROR(device.Synchronize());
  return host;
}

void ModelRunner::HandOut(const Step& step, const LogitTile& tile, ConstMatrixView logits,
                          StepResult& result) {
  int64_t own = 0;  // the row in `logits`
  for (int64_t row = 0; row < tile.rows();) {
    const int seq = tile.seqs[row];
    int64_t end = row;  // of the sequence's rows in this tile
    int64_t count = 0;  // of these rows, the ones in `logits`
    for (; end < tile.rows() && tile.seqs[end] == seq; ++end)
      count += tile.RankOf(end) == 0 ? 1 : 0;
    for (size_t i = 0; i < step.prompt_logits.size(); ++i) {
      if (step.prompt_logits[i].seq_index != seq || !result.prompt_logits[i].ok()) continue;
      BH_CHECK(count == end - row);
      result.prompt_logits[i] = step.prompt_logits[i].sink->OnRows(tile.positions[row], count,
                                                                   logits.cols(), logits.F32(own));
    }
    own += count;
    row = end;
  }
}

}  // namespace bulkhead
