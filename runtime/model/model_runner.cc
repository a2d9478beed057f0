#include "runtime/model/model_runner.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/exit_code.h"
#include "base/status.h"
#include "runtime/engine/decode_rows.h"
#include "runtime/model/rope_table.h"

namespace bulkhead {
namespace {

std::vector<AdapterRun> AdapterRunsOf(const internal::StepPlan& plan) {
  std::vector<AdapterRun> runs;
  int64_t token = 0;
  for (int s = 0; s < plan.adapter_size(); ++s) {
    const int64_t begin = token;
    token += plan.num_tokens(s);
    if (plan.adapter(s) == 0) continue;
    const bool continues =
        !runs.empty() && runs.back().adapter == plan.adapter(s) && runs.back().end == begin;
    if (!continues) runs.push_back({plan.adapter(s), begin, begin});
    runs.back().end = token;
  }
  return runs;
}

ModelWeights LayOutOver(const ShardPlan& plan, int rank, const WeightFormats& held_as,
                        const Backend& backend, std::byte* base) {
  BumpAllocator allocator(base);
  return LayOutWeights(plan.rank(rank), held_as, backend, allocator);
}

}  // namespace

void ClaimArenas(const RankNeeds& needs, int64_t num_kv_blocks, MemoryLedger& ledger) {
  for (int i = 0; i < kNumMemoryCategories; ++i)
    ledger.Claim(static_cast<MemoryCategory>(i), needs.category_bytes[i]);
  ledger.Claim(MemoryCategory::kKv, num_kv_blocks * needs.kv_block_bytes);
}

namespace {

// All terms except KV; a draft model's are in the category `draft`.
absl::StatusOr<ModelArenas> TakeFixedArenas(const RankNeeds& needs, MemoryLedger& ledger,
                                            std::optional<MemoryCategory> draft) {
  const auto take = [&](MemoryCategory term, int64_t less) {
    return ledger.Take(draft.value_or(term), needs.category_bytes[static_cast<int>(term)] - less);
  };
  ModelArenas arenas;
  BH_ASSIGN_OR_RETURN(arenas.weights, take(MemoryCategory::kWeights, 0));
  BH_ASSIGN_OR_RETURN(arenas.activations, take(MemoryCategory::kActivations, 0));
  BH_ASSIGN_OR_RETURN(arenas.block_tables, take(MemoryCategory::kBlockTables, 0));
  BH_ASSIGN_OR_RETURN(arenas.logits, take(MemoryCategory::kLogits, 0));
  BH_ASSIGN_OR_RETURN(arenas.state, take(MemoryCategory::kState, 0));
  BH_ASSIGN_OR_RETURN(arenas.workspace, take(MemoryCategory::kWorkspace, needs.kv_block_bytes));
  return arenas;
}

absl::StatusOr<Buffer> TakeKv(const RankNeeds& needs, int64_t num_kv_blocks, MemoryLedger& ledger,
                              MemoryCategory block0) {
  return ledger.TakeTogether(block0, needs.kv_block_bytes, MemoryCategory::kKv,
                             num_kv_blocks * needs.kv_block_bytes);
}

}  // namespace

absl::StatusOr<ModelArenas> TakeArenas(const RankNeeds& needs, int64_t num_kv_blocks,
                                       MemoryLedger& ledger) {
  BH_ASSIGN_OR_RETURN(ModelArenas arenas, TakeFixedArenas(needs, ledger, std::nullopt));
  BH_ASSIGN_OR_RETURN(arenas.kv, TakeKv(needs, num_kv_blocks, ledger, MemoryCategory::kWorkspace));
  return arenas;
}

absl::StatusOr<ArenasOfBoth> TakeArenas(const RankNeeds& needs, const RankNeeds& draft_needs,
                                        int64_t num_kv_blocks, MemoryLedger& ledger) {
  ArenasOfBoth both;
  BH_ASSIGN_OR_RETURN(both.model, TakeFixedArenas(needs, ledger, std::nullopt));
  BH_ASSIGN_OR_RETURN(both.draft,
                      TakeFixedArenas(draft_needs, ledger, MemoryCategory::kDraftModel));
  BH_ASSIGN_OR_RETURN(both.model.kv,
                      TakeKv(needs, num_kv_blocks, ledger, MemoryCategory::kWorkspace));
  BH_ASSIGN_OR_RETURN(both.draft.kv,
                      TakeKv(draft_needs, num_kv_blocks, ledger, MemoryCategory::kDraftModel));
  return both;
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
      host_steps_(HostBuffer()),
      vocab_cols_(plan.vocab_cols()),
      host_logits_(HostBuffer()) {
  BumpAllocator arrays(arenas_.block_tables.data());
  arrays_ = LayOutStepArrays(plan_.config(), limits_, arrays);
  if (backend_.device().host_memory()) {
    host_arrays_ = arrays_;
  } else if (host_steps_ = backend_.device().AllocateHost(arrays.used_bytes()); host_steps_.ok()) {
    // Otherwise the first step returns the error.
    BumpAllocator host_arrays(host_steps_->get());
    host_arrays_ = LayOutStepArrays(plan_.config(), limits_, host_arrays);
  }
  table_ranges_.resize(int64_t{limits_.num_kv_groups()} * limits_.table_rows());
  BumpAllocator logits(arenas_.logits.data());
  logits_ = LayOutLogits(plan_, rank_, limits_, backend_, logits);
  const SamplingBuffers sampling_buffers = LayOutSampling(plan_, rank_, limits_, backend_, logits);
  const bool last_stage = plan_.rank(rank_).last_stage();
  if (last_stage && backend_.samples_tokens()) {
    device_sampler_.emplace(sampling_buffers, plan_.rank(rank_).vocab.begin, limits_,
                            backend_.device(), backend_, comm_);
  }
  if (last_stage && rank_ == 0) {
    if (!backend_.device().host_memory()) {
      host_scratch_.resize(Sampler::ScratchBytes(plan_.config().vocab_size));
      logits_.sampler_scratch = {host_scratch_.data()};
      host_logits_ = backend_.device().AllocateHost(logits_.whole.rows() * logits_.whole.cols() *
                                                    static_cast<int64_t>(sizeof(float)));
    }
  }
  host_sampler_.emplace(plan_.config().vocab_size, logits_.sampler_scratch,
                        shares_samples() ? SharedTileRows(plan_, limits_) : 0, backend_, comm_);
  BumpAllocator allocator(arenas_.workspace.data());
  const Workspace workspace = LayOutWorkspace(plan_, rank_, limits_, backend_, allocator);
  FillPositionTables(workspace.positions);
  scratch_ = workspace.scratch;
  step_limits_ = StepLimitsOf(plan_, rank_, limits_);
  UseWorkspace();
  state_ = {StateGeometryOf(plan_, rank_, limits_), arenas_.state.data()};
  BumpAllocator activations(arenas_.activations.data());
  decoder_ = std::make_unique<Decoder>(
      DecoderParts{plan_, rank_, weights_,
                   LayOutActivations(plan_, rank_, limits_, backend_, activations),
                   workspace.positions, kv(), state_, LayerPlacesOf(plan_.rank(rank_), limits_),
                   limits_.table_rows()},
      backend_, comm_);
  if (is_mtp()) backend_.Fill(0.0F, decoder_->MtpHidden(limits_.max_num_batched_tokens));
  logit_seq_.reserve(limits_.max_num_batched_tokens);
  logit_position_.reserve(limits_.max_num_batched_tokens);
  CudaDriver* const driver = backend_.device().cuda_driver();
  if (driver != nullptr && limits_.transport != Transport::kStaged) {  // staged waits on the host
    graphs_ = std::make_unique<DecodeGraphs>(*driver, [this](int rows) {
      return decoder_->Forward(IndexOf(rows, rows), arrays_.token_ids).status();
    });
    if (device_sampler_.has_value()) {
      copied_ = driver->NewEvent();
      ended_ = {driver->NewEvent(), driver->NewEvent()};
    }
  }
}

void ModelRunner::FillPositionTables(const PositionTables& tables) {
  const ModelConfig& config = plan_.config();
  const auto rope_rows = [this](const RopeConfig& rope) {
    return [this, &rope](int64_t first, MatrixView rows) {
      FillRopeRows(rope, limits_.max_model_len, first, rows);
    };
  };
  CopyTable(tables.rope, rope_rows(config.rope));
  if (config.window_rope.has_value()) CopyTable(tables.window_rope, rope_rows(*config.window_rope));
  CopyTable(tables.q_scale,
            [&config](int64_t first, MatrixView rows) { FillQScale(config, first, rows); });
}

// Some rows at a time: the whole table may be large. Errors surface at the first step.
void ModelRunner::CopyTable(MatrixView table,
                            const std::function<void(int64_t first, MatrixView rows)>& fill) {
  constexpr int64_t kRowsAtOnce = 256;
  std::vector<float> values(kRowsAtOnce * table.cols());
  for (int64_t begin = 0; begin < table.rows(); begin += kRowsAtOnce) {
    const int64_t n = std::min(kRowsAtOnce, table.rows() - begin);
    const MatrixView rows(reinterpret_cast<std::byte*>(values.data()), DType::kF32, n,
                          table.cols());
    fill(begin, rows);
    backend_.device().CopyFromHost(rows.data(), table.RowBytes(begin),
                                   n * table.cols() * static_cast<int64_t>(sizeof(float)));
    backend_.device().Synchronize().IgnoreError();
  }
}

absl::Status ModelRunner::GrowKv(int64_t num_kv_blocks, MemoryLedger& ledger, ModelRunner* draft) {
  const int64_t more = num_kv_blocks - limits_.num_kv_blocks;
  BH_CHECK(more >= 0);
  int64_t bytes = more * kv().block_bytes;
  Buffer* last = &arenas_.kv;
  // A rank without the draft model's heads has no memory for its KV.
  if (draft != nullptr && draft->arenas_.kv.bytes() > 0) {
    BH_CHECK(draft->limits_.num_kv_blocks == limits_.num_kv_blocks &&
             draft->arenas_.kv.data() >= arenas_.kv.data() + arenas_.kv.bytes());
    // Memory that held another model's keys and values must contain finite numbers.
    const KvArena before = draft->kv();
    backend_.Fill(0.0F, MatrixView(before.base, DType::kF32, 1 + before.num_blocks,
                                   before.block_bytes / static_cast<int64_t>(sizeof(float))));
    draft->kv_offset_ += bytes;
    bytes += more * draft->kv().block_bytes;
    last = &draft->arenas_.kv;
  }
  ledger.Claim(MemoryCategory::kKv, bytes);
  if (bytes > 0) BH_RETURN_IF_ERROR(ledger.Extend(MemoryCategory::kKv, *last, bytes));
  if (draft != nullptr) BH_RETURN_IF_ERROR(draft->UseGrownKv(num_kv_blocks));
  return UseGrownKv(num_kv_blocks);
}

absl::Status ModelRunner::UseGrownKv(int64_t num_kv_blocks) {
  limits_.num_kv_blocks = num_kv_blocks;
  decoder_->SetKv(kv());
  if (graphs_ == nullptr) return absl::OkStatus();
  UseWorkspace();
  return graphs_->RecordAgain();
}

absl::Status ModelRunner::WarmUpDecodes() {
  if (backend_.device().cuda_driver() == nullptr) return absl::OkStatus();
  BH_RETURN_IF_ERROR(host_steps_.status());
  const int max_rows = MaxDecodeRows(limits_.max_num_seqs, limits_.max_num_batched_tokens);
  logit_seq_.clear();
  CopyArrays(Pad(0, 0, max_rows));
  if (state_.geometry.num_snapshots > 0) {  // no step of the warm-up copies states
    state_.Save(backend_.device(), 0, 0);
    state_.Restore(backend_.device(), 0, 0);
  }
  for (int rows = 1;; rows = PaddedDecodeRows(rows + 1, max_rows)) {
    BH_RETURN_IF_ERROR(decoder_->Forward(IndexOf(rows, rows), arrays_.token_ids).status());
    if (plan_.rank(rank_).last_stage()) {
      const int64_t logit_rows = std::min<int64_t>(rows, logits_.selected.rows());
      decoder_->Logits(logits_.selected.Rows(0, logit_rows), logits_.part.Rows(0, logit_rows));
    }
    if (graphs_ != nullptr) {
      BH_RETURN_IF_ERROR(graphs_->Record(rows));
      BH_CHECK(graphs_->Launch(rows));
    }
    if (rows == max_rows) return backend_.device().Synchronize();
  }
}

void ModelRunner::UseWorkspace() {
  backend_.SetWorkspace(scratch_, step_limits_, HeadLayoutOf(plan_, rank_));
}

absl::Status ModelRunner::SetMtpHidden(const ModelRunner& from, absl::Span<const int32_t> rows) {
  BH_RETURN_IF_ERROR(host_steps_.status());
  const auto count = static_cast<int64_t>(rows.size());
  std::copy(rows.begin(), rows.end(), host_arrays_.hidden_rows);
  SendIndices(host_arrays_.hidden_rows, arrays_.hidden_rows, count);
  const bool normed = !from.is_mtp() || plan_.config().family->mtp_prefix != nullptr;
  from.decoder_->SelectHidden(arrays_.hidden_rows, normed, decoder_->MtpHidden(count));
  return absl::OkStatus();
}

absl::StatusOr<ConstMatrixView> ModelRunner::Forward(const StepIndex& index, const Step& step) {
  const auto& ids = step.plan.token_ids();
  // A recorded pass has no adapters and looks up all rows; every rank sees in the plan whether that
  // suffices.
  const bool decodes = index.num_tokens == index.num_seqs && step.plan.adapter_size() == 0 &&
                       std::find(ids.begin(), ids.end(), kGivenRow) == ids.end();
  if (decodes && graphs_ != nullptr && graphs_->Launch(index.num_tokens)) {
    return decoder_->Hidden(index.num_tokens);
  }
  return decoder_->Forward(index, arrays_.token_ids, step.given_rows, AdapterRunsOf(step.plan));
}

absl::Status ModelRunner::Submit(Step step) {
  BH_CHECK(static_cast<int>(in_flight_.size()) < depth());
  CudaDriver* const driver = backend_.device().cuda_driver();
  BH_RETURN_IF_ERROR(host_steps_.status());
  BH_RETURN_IF_ERROR(Check(step.plan));
  BH_RETURN_IF_ERROR(CheckGivenRows(step));
  // At most one step is in flight, and runs: its copies are about to pass, or have.
  if (depth() > 1) BH_RETURN_IF_ERROR(driver->HostWait(*copied_));
  BH_RETURN_IF_ERROR(WithExitCode(host_sampler_->Begin(step.plan), ExitCode::kBug));
  const StepIndex index = Prepare(step.plan);
  CopyArrays(index);
  if (depth() > 1) driver->Record(*copied_);
  if (device_sampler_.has_value()) {
    BH_RETURN_IF_ERROR(
        device_sampler_->Upload(step, static_cast<int64_t>(logit_seq_.size()) - num_host_rows_));
    device_sampler_->FillIn(index, arrays_.token_ids);
  }
  for (int i = 0; i < step.plan.restore_slot_size(); ++i) {
    state_.Restore(backend_.device(), step.plan.restore_slot(i), step.plan.restore_snapshot(i));
  }
  BH_ASSIGN_OR_RETURN(const ConstMatrixView hidden, Forward(index, step));
  for (int i = 0; i < step.plan.save_slot_size(); ++i) {
    state_.Save(backend_.device(), step.plan.save_slot(i), step.plan.save_snapshot(i));
  }
  InFlight& mine = in_flight_.emplace_back();
  mine.step = std::move(step);
  mine.result.prompt_logits.resize(mine.step.prompt_logits.size());
  mine.result.samples.resize(mine.step.samples.size());
  mine.result.hidden_states.resize(mine.step.hidden_states.size());
  BH_RETURN_IF_ERROR(RunLogits(mine.step, hidden, mine.result));
  if (depth() > 1) driver->Record(ended_[submits_++ % ended_.size()]);
  return absl::OkStatus();
}

absl::StatusOr<StepResult> ModelRunner::Collect() {
  BH_CHECK(!in_flight_.empty());
  Device& device = backend_.device();
  BH_RETURN_IF_ERROR(depth() > 1
                         ? device.cuda_driver()->HostWait(ended_[collects_++ % ended_.size()])
                         : device.Synchronize());
  InFlight oldest = std::move(in_flight_.front());
  in_flight_.pop_front();
  if (device_sampler_.has_value()) device_sampler_->Collect(oldest.step, oldest.result);
  return std::move(oldest.result);
}

}  // namespace bulkhead
