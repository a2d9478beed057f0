#include "runtime/engine/scheduler.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"

namespace bulkhead {

int LongPromptTokens(const SchedulerLimits& limits) {
  return std::max(1, limits.max_num_batched_tokens / 4);
}

Scheduler::Scheduler(const SchedulerLimits& limits, std::vector<TokenId> eos_ids, KvBlockPool& pool)
    : limits_(limits),
      eos_ids_(std::move(eos_ids)),
      pool_(pool),
      max_num_seqs_(limits.max_num_seqs) {
  BH_CHECK(ValidateLimits(limits).ok() && pool.num_blocks() == limits.num_kv_blocks);
  BH_CHECK(pool.caches() == limits.prefix_caching);
  BH_CHECK((pool.snapshots() != nullptr) == (limits.num_snapshots() > 0));
  const DraftOptions& drafts = limits.drafts;
  BH_CHECK(drafts.num_speculative_tokens == 0 ||
           (drafts.num_speculative_tokens <= kMaxDraftTokens &&
            (limits.depth == 1 || !drafts.by_model())));
  BH_CHECK(drafts.num_speculative_tokens == 0 || drafts.by_model() ||
           (drafts.prompt_lookup_min >= 1 && drafts.prompt_lookup_max <= kMaxLookupTokens));
  for (int slot = limits.max_num_seqs - 1; slot >= 0; --slot) free_slots_.push_back(slot);
  BH_CHECK(pool.Reserve(limits.step_blocks()));
}

Scheduler::~Scheduler() {
  for (Sequence* sequence : running_) ReleaseBlocks(*sequence);
  pool_.Unreserve(limits_.step_blocks());
}

namespace {

// Puts kGivenRow at positions with given embeddings.
absl::Status SetGivenRows(std::vector<EmbeddingSpan> embeddings, Sequence& sequence) {
  int64_t end = 0;
  for (const EmbeddingSpan& span : embeddings) {
    const int64_t count = span.where.end - span.where.begin;
    if (span.where.begin < end || count < 1 || span.where.end > sequence.prompt_tokens ||
        span.rows.empty() || static_cast<int64_t>(span.rows.size()) % count != 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("the embeddings of positions ", span.where.begin, " to ", span.where.end,
                       " are ", span.rows.size(), " numbers, in a prompt of ",
                       sequence.prompt_tokens, " tokens whose first ", end, " are before them"));
    }
    end = span.where.end;
    std::fill_n(sequence.tokens.begin() + span.where.begin, count, kGivenRow);
    sequence.spans.push_back(span.where);
  }
  sequence.embeddings = std::move(embeddings);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<SequenceId> Scheduler::Submit(Request request) {
  const auto prompt_tokens = static_cast<int64_t>(request.prompt.size());
  const auto emitted_tokens = static_cast<int64_t>(request.emitted.size());
  const int max_tokens = request.stopping.max_tokens;
  SchedulerLimits limits = limits_;
  if (request.max_model_len > 0) {
    limits.max_model_len = std::min(limits.max_model_len, request.max_model_len);
  }
  BH_RETURN_IF_ERROR(CheckRequestFits(limits, prompt_tokens, emitted_tokens, max_tokens));
  const QueueLoad load = {.num_running = NumRunning(),
                          .num_waiting = static_cast<int64_t>(waiting_.size())};
  BH_RETURN_IF_ERROR(CheckQueueHasRoom(limits_, load));
  const int64_t max_total_tokens = MaxTotalTokens(limits, prompt_tokens, max_tokens);
  if (emitted_tokens > 0 && prompt_tokens + emitted_tokens >= max_total_tokens) {
    return absl::InvalidArgumentError(
        absl::StrCat("all tokens of the answer (", emitted_tokens, ") were emitted"));
  }
  auto owned = std::make_unique<Sequence>(
      StopRule(std::move(request.stopping), eos_ids_, limits.max_model_len), last_id_ + 1);
  Sequence& sequence = *owned;
  sequence.id = ++last_id_;
  sequence.enqueue_step = plan_seq_;
  sequence.priority = limits_.policy == SchedulingPolicy::kPriority ? request.priority : 0;
  sequence.sampling = request.sampling;
  if (!request.logits.off()) {
    sequence.logits =
        std::make_unique<LogitsProcessor>(std::move(request.logits), sequence.stop_rule.eos_ids());
  }
  if (limits_.drafts.by_model()) sequence.acceptance = {draft_acceptance_.rate(), 0.1};
  sequence.num_logprobs = request.num_logprobs;
  sequence.prompt_logits = request.prompt_logits;
  sequence.last_hidden_state = request.last_hidden_state;
  sequence.adapter = request.adapter;
  sequence.cache_context = SequenceDigest(request.cache_salt, request.adapter_name);
  sequence.prompt_tokens = prompt_tokens;
  sequence.max_total_tokens = max_total_tokens;
  // Growing the vector would double its capacity.
  sequence.tokens.reserve(max_total_tokens);
  sequence.tokens.assign(request.prompt.begin(), request.prompt.end());
  BH_RETURN_IF_ERROR(SetGivenRows(std::move(request.embeddings), sequence));
  sequence.tokens.insert(sequence.tokens.end(), request.emitted.begin(), request.emitted.end());
  sequences_.emplace(sequence.id, std::move(owned));
  Enqueue(sequence);
  if (!sequence.is_long) last_short_step_ = plan_seq_;
  return sequence.id;
}

void Scheduler::SetMaxNumSeqs(int max_num_seqs) {
  BH_CHECK(max_num_seqs >= 1 && max_num_seqs <= limits_.max_num_seqs);
  max_num_seqs_ = max_num_seqs;
}

void Scheduler::Finish(SequenceId id) {
  const auto found = sequences_.find(id);
  if (found == sequences_.end() || found->second->state == SequenceState::kEnded) return;
  Sequence& sequence = *found->second;
  if (sequence.state == SequenceState::kWaiting) {
    waiting_.Remove(sequence);
    sequences_.erase(found);
    return;
  }
  Leave(sequence, SequenceState::kEnded);
}

Step Scheduler::PlanStop() {
  BH_CHECK(in_flight_.empty());
  Step step;
  step.plan.set_seq(++plan_seq_);
  step.plan.set_stop(true);
  return step;
}

Step Scheduler::PlanCollect() const {
  BH_CHECK(!in_flight_.empty());
  Step step;
  step.plan.set_seq(plan_seq_);
  step.plan.set_collect(true);
  return step;
}

// Unfinished requests.
int64_t Scheduler::NumRunning() const {
  return std::count_if(running_.begin(), running_.end(), [](const Sequence* sequence) {
    return sequence->state != SequenceState::kEnded;
  });
}

void Scheduler::Enqueue(Sequence& sequence) {
  sequence.state = SequenceState::kWaiting;
  sequence.planned_tokens = 0;
  sequence.draft_computed_tokens = 0;
  sequence.drafts.clear();
  sequence.blocks_sent = 0;
  sequence.blocks_cached = 0;
  // Based on the cache now; it may change before admission.
  UpdatePrefix(sequence);
  const int64_t cached =
      static_cast<int64_t>(UsablePrefix(sequence).blocks.size()) * limits_.block_tokens;
  sequence.is_long = sequence.tokens_to_plan() - cached > LongPromptTokens(limits_);
  waiting_.Add(sequence);
}

void Scheduler::Preempt(Sequence& sequence) {
  ++sequence.preemptions;
  ++preemptions_total_;
  Leave(sequence, SequenceState::kPreempting);
}

// Removes a sequence from planning; its slot and blocks are released when nothing in flight uses
// them.
void Scheduler::Leave(Sequence& sequence, SequenceState state) {
  if (sequence.state == SequenceState::kRunning) {
    blocks_pending_release_ += static_cast<int64_t>(sequence.blocks.size());
  }
  sequence.state = state;
  if (sequence.in_flight == 0) ReleaseIfUnused(sequence);
}

// Releases a leaving sequence once no step in flight uses it.
void Scheduler::ReleaseIfUnused(Sequence& sequence) {
  if (sequence.in_flight > 0) return;
  if (sequence.state == SequenceState::kPreempting) {
    ReleaseSlot(sequence);
    Enqueue(sequence);
  } else if (sequence.state == SequenceState::kEnded) {
    ReleaseSlot(sequence);
    sequences_.erase(sequence.id);
  }
}

void Scheduler::ReleaseSlot(Sequence& sequence) {
  blocks_pending_release_ -= static_cast<int64_t>(sequence.blocks.size());
  if (sequence.restore_snapshot >= 0) pool_.snapshots()->Unpin(sequence.restore_snapshot);
  sequence.restore_snapshot = -1;
  sequence.kept_block = 0;
  ReleaseBlocks(sequence);
  free_slots_.push_back(sequence.slot);
  sequence.slot = -1;
  if (sequence.is_long) --num_long_running_;
  const auto at = std::find(running_.begin(), running_.end(), &sequence);
  BH_CHECK(at != running_.end());
  if (static_cast<size_t>(at - running_.begin()) < decode_cursor_) --decode_cursor_;
  running_.erase(at);
}

int Scheduler::preemptions(SequenceId id) const {
  const auto found = sequences_.find(id);
  return found == sequences_.end() ? 0 : found->second->preemptions;
}

int64_t Scheduler::cached_prompt_tokens(SequenceId id) const {
  const auto found = sequences_.find(id);
  return found == sequences_.end() ? 0 : found->second->cached_prompt_tokens;
}

absl::Span<const TokenId> Scheduler::prompt(SequenceId id) const {
  const Sequence& sequence = *sequences_.at(id);
  return absl::MakeConstSpan(sequence.tokens).first(sequence.prompt_tokens);
}

SequenceId Scheduler::IdInSlot(int slot) const {
  for (const Sequence* sequence : running_) {
    if (sequence->slot == slot) return sequence->id;
  }
  return 0;
}

void Scheduler::RecordPressure() {
  SchedulerPressure& p = pressure_;
  p.peak_running = std::max(p.peak_running, static_cast<int>(running_.size()));
  p.peak_waiting = std::max(p.peak_waiting, waiting_.size());
  p.peak_blocks_used = std::max(p.peak_blocks_used, NumBlocksUsed());
  if (waiting_.size() == 0) return;
  if (lacked_blocks_ || !admits_) {
    ++p.steps_short_of_blocks;
  } else if (!HasSlot()) {
    ++p.steps_short_of_slots;
  }
}

SchedulerLoad Scheduler::load() const {
  SchedulerLoad load;
  load.pressure = pressure_;
  load.num_running = static_cast<int>(running_.size());
  load.num_waiting = waiting_.size();
  load.num_waiting_tokens = waiting_.tokens();
  load.num_blocks_used = NumBlocksUsed();
  // Blocks reserved for sequences may be cached ones until they are taken.
  load.num_blocks_cached = std::min(pool_.num_idle(), pool_.num_available());
  load.prompt_tokens_total = prompt_tokens_total_;
  load.generation_tokens_total = generation_tokens_total_;
  load.preemptions_total = preemptions_total_;
  load.prefix_queries_total = prefix_queries_total_;
  load.prefix_hits_total = prefix_hits_total_;
  load.drafts = draft_totals_;
  return load;
}

void Scheduler::CheckInvariants() const {
  std::vector<bool> slot_taken(limits_.max_num_seqs, false);
  std::vector<int> holders(pool_.num_blocks() + 1, 0);
  int64_t coming = 0;
  int64_t reserved = limits_.step_blocks();
  for (const Sequence* sequence : running_) {
    BH_CHECK(sequence->state != SequenceState::kWaiting && !slot_taken[sequence->slot]);
    slot_taken[sequence->slot] = true;
    reserved += sequence->reserved_blocks;
    CheckBlocks(*sequence, holders);
    BH_CHECK(sequence->blocks_cached * limits_.block_tokens <= sequence->planned_tokens);
    const bool leaves = sequence->state != SequenceState::kRunning;
    if (leaves) coming += static_cast<int64_t>(sequence->blocks.size());
    BH_CHECK(!leaves || sequence->in_flight > 0);
    BH_CHECK(sequence->known_tokens() <= limits_.max_model_len);
    BH_CHECK(sequence->pending_samples <= sequence->in_flight);
    BH_CHECK(sequence->planned_tokens <= sequence->known_tokens());
    const auto drafted = static_cast<int64_t>(sequence->drafts.size());
    BH_CHECK(sequence->draft_computed_tokens <= sequence->known_tokens() + drafted);
  }
  BH_CHECK(coming == blocks_pending_release_);
  BH_CHECK(reserved == pool_.num_reserved() && pool_.num_available() >= 0);
  int64_t used = 0;
  for (BlockId block = 1; block <= pool_.num_blocks(); ++block) {
    BH_CHECK(holders[block] == pool_.NumHolders(block));
    used += holders[block] > 0 ? 1 : 0;
  }
  BH_CHECK(used == pool_.num_blocks() - pool_.num_free());
  if (pool_.caches()) pool_.cache()->CheckInvariants();
  BH_CHECK(running_.size() + free_slots_.size() == static_cast<size_t>(limits_.max_num_seqs));
  BH_CHECK(running_.size() + waiting_.size() == sequences_.size());
}

}  // namespace bulkhead
