#include "runtime/model/model_runner.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "comm/wait.h"
#include "memory/check.h"
#include "memory/exit_code.h"
#include "memory/status.h"
#include "runtime/engine/scheduler_limits.h"
#include "runtime/model/rope_table.h"

namespace bulkhead {
namespace {

using internal::StepPlan;

ModelWeights LayOutOver(const ShardPlan& plan, int rank, const WeightFormats& held_as,
                        const Backend& backend, std::byte* base) {
  Carver carver(base);
  return LayOutWeights(plan.config(), plan.rank(rank), held_as, backend, carver);
}

}  // namespace

void ClaimArenas(const RankNeeds& needs, int64_t num_kv_blocks, MemoryLedger& ledger) {
  for (int i = 0; i < kNumTerms; ++i) ledger.Claim(static_cast<Term>(i), needs.term_bytes[i]);
  ledger.Claim(Term::kKv, num_kv_blocks * needs.kv_block_bytes);
}

absl::StatusOr<ModelArenas> TakeArenas(const RankNeeds& needs, int64_t num_kv_blocks,
                                       MemoryLedger& ledger) {
  const auto take = [&](Term term, int64_t less) {
    return ledger.Take(term, needs.term_bytes[static_cast<int>(term)] - less);
  };
  ModelArenas arenas;
  BH_ASSIGN_OR_RETURN(arenas.weights, take(Term::kWeights, 0));
  BH_ASSIGN_OR_RETURN(arenas.activations, take(Term::kActivations, 0));
  BH_ASSIGN_OR_RETURN(arenas.block_tables, take(Term::kBlockTables, 0));
  BH_ASSIGN_OR_RETURN(arenas.logits, take(Term::kLogits, 0));
  BH_ASSIGN_OR_RETURN(arenas.workspace, take(Term::kWorkspace, needs.kv_block_bytes));
  BH_ASSIGN_OR_RETURN(arenas.kv,
                      ledger.TakeTogether(Term::kWorkspace, needs.kv_block_bytes, Term::kKv,
                                          num_kv_blocks * needs.kv_block_bytes));
  return arenas;
}

ModelRunner::ModelRunner(const ShardPlan& plan, int rank, const ModelLimits& limits,
                         ModelArenas arenas, Backend& backend, Communicator& comm)
    : plan_(plan),
      rank_(rank),
      limits_(limits),
      arenas_(std::move(arenas)),
      backend_(backend),
      comm_(comm),
      weights_(LayOutOver(plan, rank, limits.weights, backend, arenas_.weights.data())),
      vocab_cols_(plan.vocab_cols()) {
  Carver arrays(arenas_.block_tables.data());
  arrays_ = LayOutStepArrays(limits_, arrays);
  host_steps_.resize(arrays.used_bytes());
  Carver host_arrays(host_steps_.data());
  host_arrays_ = LayOutStepArrays(limits_, host_arrays);
  table_ranges_.resize(limits_.max_num_seqs);
  Carver logits(arenas_.logits.data());
  logits_ = LayOutLogits(plan_, rank_, limits_, logits);
  const DrawBuffers draw_buffers = LayOutDraws(plan_, rank_, limits_, backend_, logits);
  if (backend_.draw_verbs() != nullptr) {
    draws_.emplace(draw_buffers, plan_.rank(rank_).vocab.begin, limits_.max_num_seqs,
                   backend_.device(), *backend_.draw_verbs(), comm_);
  }
  if (rank_ == 0) {
    std::byte* scratch = logits_.sampler_scratch;
    if (!backend_.device().host_memory()) {
      host_scratch_.resize(Sampler::ScratchBytes(plan_.config().vocab_size));
      scratch = host_scratch_.data();
      host_logits_.resize(logits_.whole.rows() * logits_.whole.cols());
    }
    sampler_.emplace(plan_.config().vocab_size, scratch);
  }
  Carver carver(arenas_.workspace.data());
  const Workspace workspace = LayOutWorkspace(plan_, rank_, limits_, backend_, carver);
  CopyRopeTable(workspace.rope);
  backend_.SetWorkspace(workspace.scratch, StepLimitsOf(plan_, rank_, limits_),
                        HeadLayoutOf(plan_, rank_));
  Carver activations(arenas_.activations.data());
  decoder_ = std::make_unique<Decoder>(
      DecoderParts{plan_, rank_, weights_, LayOutActivations(plan_, rank_, limits_, activations),
                   workspace.rope, Kv()},
      backend_, comm_);
  logit_seq_.reserve(limits_.max_num_batched_tokens);
  logit_position_.reserve(limits_.max_num_batched_tokens);
  CudaDriver* const driver = backend_.device().cuda_driver();
  if (driver != nullptr && limits_.transport != Transport::kStaged) {  // which waits on the host
    graphs_ = std::make_unique<DecodeGraphs>(*driver, [this](int rows) {
      return decoder_->Forward(IndexOf(rows, rows), arrays_.token_ids).status();
    });
  }
}

KvArena ModelRunner::Kv() const {
  return {KvGeometryOf(plan_, rank_, limits_), limits_.num_kv_blocks, arenas_.kv.data()};
}

// Some rows at a time: the whole table may be large. What goes wrong is said by the first step.
void ModelRunner::CopyRopeTable(MatrixView rope) {
  constexpr int64_t kRowsAtOnce = 256;
  std::vector<float> values(kRowsAtOnce * rope.cols());
  for (int64_t begin = 0; begin < rope.rows(); begin += kRowsAtOnce) {
    const int64_t n = std::min(kRowsAtOnce, rope.rows() - begin);
    const MatrixView rows(reinterpret_cast<std::byte*>(values.data()), DType::kF32, n, rope.cols());
    FillRopeRows(plan_.config().rope, plan_.config().head_dim, begin, rows);
    backend_.device().CopyFromHost(rows.data(), rope.RowBytes(begin),
                                   n * rope.cols() * static_cast<int64_t>(sizeof(float)));
    backend_.device().Synchronize().IgnoreError();
  }
}

absl::Status ModelRunner::GrowKv(int64_t num_kv_blocks, MemoryLedger& ledger) {
  const int64_t more = num_kv_blocks - limits_.num_kv_blocks;
  BH_CHECK(more >= 0);
  const int64_t bytes = more * KvGeometryOf(plan_, rank_, limits_).BlockBytes();
  ledger.Claim(Term::kKv, bytes);
  if (bytes > 0) BH_RETURN_IF_ERROR(ledger.Extend(Term::kKv, arenas_.kv, bytes));
  limits_.num_kv_blocks = num_kv_blocks;
  decoder_->SetKv(Kv());
  return graphs_ == nullptr ? absl::OkStatus() : graphs_->RecordAgain();
}

absl::Status ModelRunner::RehearseDecodes() {
  if (backend_.device().cuda_driver() == nullptr) return absl::OkStatus();
  const int most = MostDecodeRows(limits_.max_num_seqs, limits_.max_num_batched_tokens);
  logit_seq_.clear();
  CopyArrays(Pad(0, 0, most));
  for (int rows = 1;; rows = PaddedDecodeRows(rows + 1, most)) {
    BH_RETURN_IF_ERROR(decoder_->Forward(IndexOf(rows, rows), arrays_.token_ids).status());
    const int64_t logit_rows = std::min<int64_t>(rows, logits_.selected.rows());
    decoder_->Logits(logits_.selected.Rows(0, logit_rows), logits_.part.Rows(0, logit_rows));
    if (graphs_ != nullptr) {
      BH_RETURN_IF_ERROR(graphs_->Record(rows));
      BH_CHECK(graphs_->Launch(rows));
    }
    if (rows == most) return backend_.device().Synchronize();
  }
}

absl::Status ModelRunner::Check(const StepPlan& plan) const {
  const auto overstep = [&](absl::string_view what, int64_t value, int64_t limit) {
    return WithExitCode(absl::InternalError(absl::StrCat("rank ", rank_, ": step ", plan.seq(),
                                                         " oversteps the sealed arenas: ", what,
                                                         " ", value, ", limit ", limit)),
                        ExitCode::kBug);
  };
  const int seqs = plan.slot_size();
  const int tokens = plan.token_ids_size();
  if (seqs > limits_.max_num_seqs) return overstep("sequences", seqs, limits_.max_num_seqs);
  if (tokens > limits_.max_num_batched_tokens) {
    return overstep("tokens", tokens, limits_.max_num_batched_tokens);
  }
  if (plan.padded_tokens() < tokens || plan.padded_tokens() > limits_.max_num_batched_tokens) {
    return overstep("padded tokens", plan.padded_tokens(), limits_.max_num_batched_tokens);
  }
  const int padded_seqs = seqs + plan.padded_tokens() - tokens;
  if (padded_seqs > limits_.max_num_seqs) {
    return overstep("sequences with padding", padded_seqs, limits_.max_num_seqs);
  }
  if (plan.num_tokens_size() != seqs || plan.start_position_size() != seqs ||
      plan.num_logits_size() != seqs || plan.table_index_size() != plan.table_slot_size() ||
      plan.table_block_size() != plan.table_slot_size()) {
    return overstep("columns of unequal length, sequences", seqs, seqs);
  }
  int64_t sum = 0;
  for (int s = 0; s < seqs; ++s) {
    const int64_t n = plan.num_tokens(s);
    const int64_t end = int64_t{plan.start_position(s)} + n;
    if (plan.slot(s) < 0 || plan.slot(s) >= limits_.max_num_seqs) {
      return overstep("slot", plan.slot(s), limits_.max_num_seqs - 1);
    }
    if (n < 1 || plan.start_position(s) < 0 || end > limits_.max_model_len) {
      return overstep("position", end, limits_.max_model_len);
    }
    if (plan.num_logits(s) < 0 || plan.num_logits(s) > n)
      return overstep("logits", plan.num_logits(s), n);
    if (DrawnOnDevice(plan, s) && plan.num_logits(s) != 1)
      return overstep("logits to draw from", plan.num_logits(s), 1);
    sum += n;
  }
  if (sum != tokens) return overstep("tokens of the sequences", sum, tokens);
  for (const int32_t id : plan.token_ids()) {
    const bool known = id >= 0 && id < plan_.config().vocab_size;
    if (!known && !(id == kLastSampled && draws_.has_value()))
      return overstep("token id", id, plan_.config().vocab_size - 1);
  }
  for (int i = 0; i < plan.table_slot_size(); ++i) {
    if (plan.table_slot(i) < 0 || plan.table_slot(i) >= limits_.max_num_seqs) {
      return overstep("table slot", plan.table_slot(i), limits_.max_num_seqs - 1);
    }
    if (plan.table_index(i) < 0 || plan.table_index(i) >= limits_.blocks_per_seq()) {
      return overstep("table index", plan.table_index(i), limits_.blocks_per_seq() - 1);
    }
    if (plan.table_block(i) < 0 || plan.table_block(i) > limits_.num_kv_blocks) {
      return overstep("block", plan.table_block(i), limits_.num_kv_blocks);
    }
  }
  return absl::OkStatus();
}

StepIndex ModelRunner::Prepare(const StepPlan& plan) {
  const int stride = limits_.blocks_per_seq();
  for (int i = 0; i < plan.table_slot_size(); ++i) {
    const int slot = plan.table_slot(i);
    const int at = plan.table_index(i);
    host_arrays_.block_tables[int64_t{slot} * stride + at] = plan.table_block(i);
    TableRange& range = table_ranges_[slot];
    if (range.end == 0) {
      changed_slots_.push_back(slot);
      range = {at, at + 1};
    }
    range = {std::min(range.begin, at), std::max(range.end, at + 1)};
  }
  const StepArrays& arrays = host_arrays_;
  int token = 0;
  for (int s = 0; s < plan.slot_size(); ++s) {
    arrays.seq_begin[s] = token;
    arrays.seq_slot[s] = plan.slot(s);
    for (int i = 0; i < plan.num_tokens(s); ++i, ++token) {
      arrays.position[token] = plan.start_position(s) + i;
      arrays.token_seq[token] = s;
      arrays.token_ids[token] = plan.token_ids(token);
    }
  }
  ListLogitRows(plan);
  return Pad(plan.slot_size(), token, plan.padded_tokens() - token);
}

StepIndex ModelRunner::Pad(int num_seqs, int num_tokens, int rows) {
  const StepArrays& arrays = host_arrays_;
  for (int i = 0; i < rows; ++i, ++num_seqs, ++num_tokens) {
    arrays.seq_begin[num_seqs] = num_tokens;
    arrays.seq_slot[num_seqs] = limits_.max_num_seqs;
    arrays.position[num_tokens] = 0;
    arrays.token_seq[num_tokens] = num_seqs;
    arrays.token_ids[num_tokens] = 0;
  }
  arrays.seq_begin[num_seqs] = num_tokens;
  return IndexOf(num_seqs, num_tokens);
}

StepIndex ModelRunner::IndexOf(int num_seqs, int num_tokens) const {
  return StepIndex{.num_seqs = num_seqs,
                   .num_tokens = num_tokens,
                   .seq_begin = arrays_.seq_begin,
                   .seq_slot = arrays_.seq_slot,
                   .position = arrays_.position,
                   .token_seq = arrays_.token_seq,
                   .block_tables = arrays_.block_tables,
                   .block_table_stride = limits_.blocks_per_seq()};
}

absl::StatusOr<ConstMatrixView> ModelRunner::Forward(const StepIndex& index) {
  const bool decodes = index.num_tokens == index.num_seqs;
  if (decodes && graphs_ != nullptr && graphs_->Launch(index.num_tokens)) {
    return decoder_->Output(index.num_tokens);
  }
  return decoder_->Forward(index, arrays_.token_ids);
}

void ModelRunner::ListLogitRows(const StepPlan& plan) {
  logit_seq_.clear();
  logit_position_.clear();
  size_t host_rows = 0;
  for (const bool drawn : {false, true}) {
    int end = 0;  // of the sequence's tokens in the step
    for (int s = 0; s < plan.slot_size(); ++s) {
      end += plan.num_tokens(s);
      if (DrawnOnDevice(plan, s) != drawn) continue;
      for (int left = plan.num_logits(s); left > 0; --left) {
        host_arrays_.logit_rows[logit_seq_.size()] = end - left;
        logit_seq_.push_back(s);
        logit_position_.push_back(plan.start_position(s) + plan.num_tokens(s) - left);
      }
    }
    if (!drawn) host_rows = logit_seq_.size();
  }
  num_drawn_rows_ = static_cast<int64_t>(logit_seq_.size() - host_rows);
}

// The copies read the host's arrays until the step's Synchronize.
void ModelRunner::CopyArrays(const StepIndex& index) {
  const auto copy = [&](const int32_t* host, int32_t* device, int64_t count) {
    if (count == 0) return;
    backend_.device().CopyFromHost(host, reinterpret_cast<std::byte*>(device),
                                   count * static_cast<int64_t>(sizeof(int32_t)));
  };
  for (const int slot : changed_slots_) {
    TableRange& range = table_ranges_[slot];
    const int64_t at = int64_t{slot} * index.block_table_stride + range.begin;
    copy(host_arrays_.block_tables + at, arrays_.block_tables + at, range.end - range.begin);
    range = {};
  }
  changed_slots_.clear();
  copy(host_arrays_.seq_begin, arrays_.seq_begin, index.num_seqs + 1);
  copy(host_arrays_.seq_slot, arrays_.seq_slot, index.num_seqs);
  copy(host_arrays_.position, arrays_.position, index.num_tokens);
  copy(host_arrays_.token_seq, arrays_.token_seq, index.num_tokens);
  copy(host_arrays_.token_ids, arrays_.token_ids, index.num_tokens);
  copy(host_arrays_.logit_rows, arrays_.logit_rows, static_cast<int64_t>(logit_seq_.size()));
}

absl::StatusOr<ConstMatrixView> ModelRunner::OnHost(ConstMatrixView logits) {
  Device& device = backend_.device();
  if (device.host_memory()) return logits;
  BH_CHECK(logits.row_stride() == logits.cols());
  const ConstMatrixView host(reinterpret_cast<const std::byte*>(host_logits_.data()), DType::kF32,
                             logits.rows(), logits.cols());
  device.CopyToHost(logits.data(), host_logits_.data(),
                    logits.rows() * logits.cols() * static_cast<int64_t>(sizeof(float)));
  BH_RETURN_IF_ERROR(device.Synchronize());
  return host;
}

absl::Status ModelRunner::Submit(Step step) {
  BH_RETURN_IF_ERROR(Check(step.plan));
  const StepIndex index = Prepare(step.plan);
  CopyArrays(index);
  if (draws_.has_value()) {
    BH_RETURN_IF_ERROR(draws_->Upload(step, num_drawn_rows_));
    draws_->FillIn(index, arrays_.token_ids);
  }
  BH_ASSIGN_OR_RETURN(const ConstMatrixView hidden, Forward(index));
  step_ = std::move(step);
  result_ = StepResult();
  result_.prompt_logits.resize(step_.prompt_logits.size());
  result_.samples.resize(step_.samples.size());
  return RunLogits(step_, hidden, result_);
}

absl::StatusOr<StepResult> ModelRunner::Collect() {
  BH_RETURN_IF_ERROR(backend_.device().Synchronize());
  if (draws_.has_value()) draws_->Collect(step_, result_);
  return std::move(result_);
}

absl::Status ModelRunner::RunLogits(const Step& step, ConstMatrixView hidden, StepResult& result) {
  const int64_t rows = static_cast<int64_t>(logit_seq_.size());
  const int64_t host_rows = rows - num_drawn_rows_;
  int64_t n = 0;  // of a tile: rows of one kind
  for (int64_t first = 0; first < rows; first += n) {
    n = std::min(logits_.selected.rows(), (first < host_rows ? host_rows : rows) - first);
    const MatrixView selected = logits_.selected.Rows(0, n);  // [R, D]
    const MatrixView part = logits_.part.Rows(0, n);          // [R, v]
    backend_.SelectRows(hidden, arrays_.logit_rows + first, selected);
    decoder_->Logits(selected, part);
    if (first < host_rows) {
      BH_RETURN_IF_ERROR(GatherTile(step, first, part, result));
    } else {
      draws_->Select(first - host_rows, part);
    }
  }
  if (num_drawn_rows_ == 0) return absl::OkStatus();
  BH_RETURN_IF_ERROR(draws_->Draw(num_drawn_rows_));
  draws_->Download();
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

void ModelRunner::TakeTile(const Step& step, int64_t first_row, ConstMatrixView logits,
                           StepResult& result) {
  const int64_t host_rows = static_cast<int64_t>(logit_seq_.size()) - num_drawn_rows_;
  for (int64_t row = 0; row < logits.rows();) {
    const int seq = logit_seq_[first_row + row];
    int64_t end = row + 1;  // of the rows of the same sequence in this tile
    while (end < logits.rows() && logit_seq_[first_row + end] == seq) ++end;
    for (size_t i = 0; i < step.prompt_logits.size(); ++i) {
      if (step.prompt_logits[i].seq_index != seq || !result.prompt_logits[i].ok()) continue;
      result.prompt_logits[i] = step.prompt_logits[i].sink->OnRows(
          logit_position_[first_row + row], end - row, logits.cols(), logits.F32(row));
    }
    const bool last_of_seq = first_row + end == host_rows || logit_seq_[first_row + end] != seq;
    const auto sample =
        std::lower_bound(step.samples.begin(), step.samples.end(), seq,
                         [](const SampleRow& a, int seq_index) { return a.seq_index < seq_index; });
    if (last_of_seq && sample != step.samples.end() && sample->seq_index == seq) {
      const int64_t begin_ns = MonotonicNanos();
      result.samples[sample - step.samples.begin()] = sampler_->Sample(
          absl::MakeConstSpan(logits.F32(end - 1), static_cast<size_t>(logits.cols())), *sample);
      sampling_ns_ += static_cast<uint64_t>(MonotonicNanos() - begin_ns);
    }
    row = end;
  }
}

}  // namespace bulkhead
