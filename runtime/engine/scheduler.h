// Scheduler: decides what each step computes. A pure state machine: no clock, thread, device or
// I/O; the work per step does not grow with the length of a running sequence or of the queue. Used
// by one thread.
//
// A step is filled in this order: one token for every decoding sequence; chunks of the prompts
// being prefilled; then new admissions. Prompts longer than a quarter of a step (LongPromptTokens)
// are queued in a long-prompt queue: short prompts take the step's prefill tokens first, except for
// an eighth that a long prompt in prefill always gets; long prompts take all remaining tokens, one
// after the other. While sequences decode, a step has fewer prompt tokens than fit if it would
// otherwise take longer than a target (PrefillPace). At admission the head of the long-prompt queue
// counts as having arrived kLongQueueAgeSteps later, so that the wait of each queue for the other
// is bounded; if it is a long head's turn and blocks are short, free blocks are reserved for it, a
// few more with every step. While short prompts arrive, long ones hold at most three quarters of
// the slots. With SchedulingPolicy::kPriority all of this applies among requests of equal priority,
// and higher priorities go first.
//
// With depth 2 a step may be planned while another one is uncommitted. Then a row's input token can
// be kLastSampled, a stop is seen one step late (the surplus token is dropped), and slots and
// blocks are released only when no step in flight uses them. A step with a token that rank 0's host
// samples is committed before the next one is planned: the ranks get that token only with the next
// plan, and a batch without those sequences would cost about as much as a full one. The same holds
// for a step that verifies drafts, and for one whose token may complete a suffix that a draft is
// looked up by (AwaitsDrafts); a draft model and an MTP layer need depth 1.
//
// With prefix caching a sequence starts after the longest cached run of blocks matching its tokens;
// at least its last token is computed, and its queue depends on the remaining tokens. A full block
// is cached when the step that completes it is committed, so every rank has written it before any
// later step reads it. If another sequence has cached a block with the same content by then, that
// one replaces ours. Nothing else changes: idle cached blocks count as free.
//
// Blocks of KV groups with a window (memory/limits.h) are released when a commit has moved the
// window past them; cached ones become idle and can be evicted before the sequence ends. A sequence
// can start after a prefix only if every block in its windows there is still cached.
//
// With drafts (drafts.h) a decoding sequence computes its last token and up to
// num_speculative_tokens draft tokens after it, and a token is sampled after each of them, as plain
// decoding would if the preceding draft tokens were right. Drafts that equal the sample are
// accepted, and the first sample that differs is the next token: answers equal those of plain
// decoding. Draft tokens take what is left of a step when every decoding sequence has its token (an
// eighth of that while prompts are computed), and only blocks that the sequence holds. Rejected
// tokens are overwritten and never cached. If an answer has a grammar, a draft ends before the
// first token that the grammar does not allow.
//
// A draft model drafts in steps of its own (StepPlan::draft) before each step that verifies: one
// more token of each sequence that drafts, sampled as the request asks. Its keys and values use the
// same blocks. The first of these steps also gives it the tokens of a sequence that it has not seen
// (initially all), at most an eighth of a step at once, while the sequence decodes without drafts;
// cached blocks that it has computed are marked. The time it may take depends on the time it saves
// (DraftAllowance). If its logits are not finite, there is no draft.
//
// The model's MTP layer drafts like a draft model, but for position i its input is the model's
// hidden state of i and the token after it, and it drafts the token after that. The ranks have
// these states until the model's next step: after every one of them a step of the layer computes
// all of its rows whose next token is known, and drafts if wanted; steps for more drafts continue
// from the layer's own states. A sequence with a position that the layer did not compute (it starts
// after cached blocks which the layer has not computed) has no drafts. The last position of a
// cached block may have been computed with the next token of another continuation; it is not
// recomputed, because this can only make drafts worse.
//
// In a model with recurrent states a sequence starts after a block with a state snapshot. Snapshots
// are kept at the last multiple of state_tokens in a prompt, at every multiple in generated tokens
// (only a sequence's newest), and where the cache knows more of a prompt's tokens than it has a
// snapshot for: the next prompt with that prefix starts there. Prompt chunks end at these
// positions.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "memory/kv_block_pool.h"
#include "runtime/engine/request.h"
#include "runtime/engine/scheduler_limits.h"
#include "runtime/engine/sequence.h"
#include "runtime/engine/step_estimate.h"
#include "runtime/engine/step_runner.h"
#include "runtime/engine/waiting_queues.h"

namespace bulkhead {

// The outcome of a commit for one sequence.
struct Emission {
  SequenceId id = 0;
  std::optional<GeneratedToken> token;
  std::optional<TokenFinish> finish;  // the sequence has ended
  absl::Status status;                // not ok: it has ended with this
  int preemptions = 0;                // so far
};

// Totals since the start.
struct SchedulerPressure {
  int peak_running = 0;
  int peak_waiting = 0;
  int64_t peak_blocks_used = 0;
  // Steps in which a request waited, by cause.
  uint64_t steps_short_of_blocks = 0;
  uint64_t steps_short_of_slots = 0;
};

struct SchedulerLoad {
  int num_running = 0;  // with a slot
  int num_waiting = 0;
  int64_t num_waiting_tokens = 0;        // of waiting requests, cached or not
  int64_t num_blocks_used = 0;           // held or reserved
  int64_t num_blocks_cached = 0;         // idle, cached and not reserved
  uint64_t prompt_tokens_total = 0;      // computed; recomputed ones count again
  uint64_t generation_tokens_total = 0;  // emitted and delivered
  uint64_t preemptions_total = 0;
  // Tokens looked up in the prefix cache at first admissions, and hits.
  uint64_t prefix_queries_total = 0;
  uint64_t prefix_hits_total = 0;
  DraftTotals drafts;
  SchedulerPressure pressure;
};

// Grammar work that a step may begin, in units of structured::Automaton::kMaxWork (about 10 ns); it
// may overrun by up to kMaxWork, which later steps do less. And the work that its tokens may take
// beyond LogitsProcessor::kFreeTokenWork: a token over this budget is emitted by a later step and
// counts as that step's grammar work.
inline constexpr int64_t kGrammarWorkOfStep = 2'000'000;
inline constexpr int64_t kTokenWorkOfStep = 4'000'000;

// Maximum prompt rows with logits in a step: rank 0 reads each whole row (about 0.1 ms with 128k
// ids) while all other requests wait.
inline constexpr int64_t kPromptLogitRowsOfStep = 1024;

// Tokens of sequences admitted per step, cached or not: each is looked up in the prefix cache (10
// ns) and, with penalties, sorted (60 ns) while all streams wait. One sequence may exceed it.
inline constexpr int64_t kTokensAdmittedPerStep = int64_t{1} << 18;

// A prompt with more tokens to compute than this uses the long-prompt queue.
int LongPromptTokens(const SchedulerLimits& limits);

class Scheduler {
 public:
  // `pool` has limits.num_kv_blocks blocks, all free, and a cache if limits.prefix_caching; it
  // outlives the scheduler.
  Scheduler(const SchedulerLimits& limits, std::vector<TokenId> eos_ids, KvBlockPool& pool);
  ~Scheduler();
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  // Queues a request. INVALID_ARGUMENT, OUT_OF_RANGE (can never fit), RESOURCE_EXHAUSTED (queue
  // full); see scheduler_limits.h. Emitted tokens count as generated and are prefilled with the
  // prompt; a resumed request that had already ended is INVALID_ARGUMENT.
  absl::StatusOr<SequenceId> Submit(Request request);
  // Ends the sequence without an emission (cancelled, or a stop string). Its slot and blocks are
  // released at once, or when the last step in flight that uses them is committed. Ids that have
  // ended are ignored.
  void Finish(SequenceId id);

  // Call before the first step; without it steps take as many prompt tokens as fit.
  void SetStepTarget(const StepTarget& target) { prefill_pace_ = PrefillPace(target); }
  // From now on admits as if max_num_seqs were this, in [1, limits.max_num_seqs]; running sequences
  // continue.
  void SetMaxNumSeqs(int max_num_seqs);

  // The next step, or nothing if a commit is needed first, tokens were followed (whoever receives
  // them may end their sequences), or work on grammars goes on in the next call. At most `depth`
  // steps may be planned and uncommitted.
  std::optional<Step> PlanStep();
  bool works_on_grammars() const { return works_on_grammars_; }  // the last call did nothing else
  // The final plan: every rank leaves its loop. Nothing may be in flight.
  Step PlanStop();
  // Not a step: every rank collects the oldest step in flight.
  Step PlanCollect() const;
  // Duration of the oldest uncommitted step; determines the length of drafts and prompt chunks.
  void RecordStepTime(double seconds);
  // Takes the result of the oldest uncommitted step. Emissions are in plan order, those of a
  // sequence with accepted drafts are consecutive; a draft model's step has none.
  std::vector<Emission> Commit(StepResult result);
  // After PlanStep: emissions of tokens that commits held because their grammars needed more work.
  std::vector<Emission> TakeFollowed() { return std::exchange(followed_, {}); }

  // Subtracts emitted tokens of the last commit that had no receiver.
  void DiscountEmissions(uint64_t tokens) { generation_tokens_total_ -= tokens; }

  bool commits_draft_step() const { return in_flight_.front().by_draft_model; }  // the oldest one
  int num_in_flight() const { return static_cast<int>(in_flight_.size()); }
  bool idle() const { return sequences_.empty(); }  // nothing is queued, running or in flight
  // First-time admissions of the last PlanStep.
  absl::Span<const SequenceId> newly_admitted() const { return newly_admitted_; }
  int preemptions(SequenceId id) const;  // so far; 0 if `id` has ended
  int64_t cached_prompt_tokens(SequenceId id) const;
  // Whether its queue is the long-prompt one; `id` must not have ended.
  bool is_long_prompt(SequenceId id) const { return sequences_.at(id)->is_long; }
  absl::Span<const TokenId> prompt(SequenceId id) const;  // `id` must not have ended
  SchedulerLoad load() const;

  // For tests: checks the invariants between calls with BH_CHECK; O(sequences + blocks).
  void CheckInvariants() const;
  SequenceId IdInSlot(int slot) const;  // for tests; 0: none

 private:
  struct PlannedRow {
    Sequence* sequence = nullptr;
    int64_t begin = 0;    // the position of its first token
    int64_t end = 0;      // one past the position of its last token
    int num_samples = 0;  // one, and one more for each draft
    bool has_prompt_logits = false;
    bool has_hidden_state = false;
    int snapshot = -1;  // index of the one written; -1: none
    bool ends = false;  // nothing is sampled: the sequence ends when its prompt is computed
  };
  struct PlannedStep {
    std::vector<PlannedRow> rows;
    bool must_be_committed = false;  // before the next one is planned
    int64_t decode_tokens = 0;       // all of its tokens if it computes no prompts; else 0
    bool by_draft_model = false;     // or its MTP layer
    bool follows = false;            // MTP layer's step after the model's: not charged
    // Set if PrefillPace limited its prompt tokens: its estimated time without them.
    std::optional<double> decode_s = std::nullopt;
    int64_t prompt_tokens = 0;
  };
  struct PrefillBudget;

  // Planning: scheduler_plan.cc.
  void CompletePlan(Step& step);
  int PlanDecodes(int budget, Step& step);
  bool ReadyToDecode(const Sequence& sequence) const;
  std::optional<double> DecodeSeconds(const Step& step) const;
  void GrowDecodes();
  void MakeRoom(Sequence& sequence);
  void PlanPrefills(int tokens, Step& step);
  void AdmitSequences(PrefillBudget& budget, Step& step);
  bool LongMayStart(const PrefillBudget& budget) const;
  void ScheduleLongPrompts(PrefillBudget& budget, std::optional<int> above_priority, Step& step);
  int AddChunk(Sequence& sequence, int max_tokens, Step& step);
  void AddRow(Sequence& sequence, int num_tokens, Step& step);
  int64_t NextSnapshot(const Sequence& sequence) const;
  int AddSnapshots(Sequence& sequence, int64_t end, internal::StepPlan& plan);

  // Admission: scheduler_admission.cc.
  bool IsBeingCached(Sequence& sequence) const;
  bool TryAdmit(Sequence& sequence, int64_t blocks_kept);
  void RecordFirstAdmission(Sequence& sequence);
  void ReserveBlocks(const Sequence& sequence);

  // Drafts: scheduler_drafts.cc.
  void BeginDrafts(int budget, bool verifies_only);
  void RecordSaving(const DraftTotals& before, size_t num_rows);
  int DraftLength(const Sequence& sequence) const;
  int AddDrafts(Sequence& sequence);
  void AddSample(const Sequence& sequence, int seq_index, int64_t position, int drafted,
                 Step& step);
  bool AwaitsDrafts();
  void BeginDraftRound();
  std::optional<Step> PlanDraftStep();
  int AddDraftRow(Sequence& sequence, int left, int& unseen_left, Step& step);
  int AddMtpRow(Sequence& sequence, bool follows, Step& step);
  void PlanDraftRow(Sequence& sequence, int64_t begin, int64_t end, bool samples, Step& step);
  void KeepDrafted(Sequence& sequence, int64_t begin, int64_t end) const;
  void SkipDraftedBlocks(Sequence& sequence) const;
  void ForgetDrafted(Sequence& sequence, int64_t i) const;
  bool MayWrite(const Sequence& sequence, int64_t begin, int64_t end);
  void CommitDrafts(const std::vector<PlannedRow>& rows, StepResult result);
  static void TakeDraft(Sequence& sequence, const absl::StatusOr<GeneratedToken>& sample);
  static int NumAccepted(const Sequence& sequence,
                         absl::Span<const absl::StatusOr<GeneratedToken>> samples);
  void ReturnDraftBlocks(Sequence& sequence, int64_t end);

  // Grammars of answers: scheduler_grammars.cc.
  void RenewGrammarWork();
  void PrepareGrammars();
  bool FollowHeld(Sequence& sequence);
  void EmitToken(const Sequence& sequence, GeneratedToken token, Emission& emission);
  bool GrammarIsReady(Sequence& sequence, absl::Span<const TokenId> drafted);
  bool PrepareMoreGrammars();
  void KeepDraftsOfGrammar(Sequence& sequence);

  // Blocks: scheduler_blocks.cc.
  struct BlocksToGrow {
    int64_t table = 0;     // KV group 0
    int64_t reserved = 0;  // all other groups

    bool none() const { return table == 0 && reserved == 0; }
  };
  int64_t TableBlocks(int64_t tokens) const;
  int64_t NumBlocksUsed() const;
  int64_t TokensToAdmit(const Sequence& sequence) const;
  BlocksToGrow Lacks(const Sequence& sequence, int64_t tokens) const;
  bool Grow(Sequence& sequence, int64_t tokens);
  void TakeBlocks(const CachedPrefix& prefix, Sequence& sequence);
  void ReleaseBlocks(Sequence& sequence);
  int64_t FirstInWindow(size_t window, int64_t end) const;
  void LeaveWindows(Sequence& sequence, int64_t end);
  void UpdatePrefix(Sequence& sequence) const;
  CachedPrefix UsablePrefix(const Sequence& sequence) const;
  void KeepSnapshot(Sequence& sequence, const PlannedRow& row);
  void CacheFullBlocks(Sequence& sequence, int64_t end);
  void AddTableChanges(Sequence& sequence, int64_t end, int num_groups, Step& step);
  void CheckBlocks(const Sequence& sequence, std::vector<int>& holders) const;

  // Commits: scheduler_commit.cc.
  void CommitRow(const PlannedRow& row, const absl::Status& wanted_rows,
                 absl::Span<absl::StatusOr<GeneratedToken>> samples,
                 std::vector<Emission>& emissions);
  void CommitSample(Sequence& sequence, absl::StatusOr<GeneratedToken> sample, Emission& emission);

  // The life of a sequence: scheduler.cc.
  int64_t NumRunning() const;  // excludes ended ones
  bool HasSlot() const { return static_cast<int>(running_.size()) < max_num_seqs_; }
  void RecordPressure();
  void Enqueue(Sequence& sequence);
  void Preempt(Sequence& sequence);
  void Leave(Sequence& sequence, SequenceState state);
  void ReleaseSlot(Sequence& sequence);
  void ReleaseIfUnused(Sequence& sequence);

  SchedulerLimits limits_;
  std::vector<TokenId> eos_ids_;
  KvBlockPool& pool_;
  absl::flat_hash_map<SequenceId, std::unique_ptr<Sequence>> sequences_;
  WaitingQueues waiting_;
  std::vector<Sequence*> running_;  // everything with a slot, in order of admission
  std::vector<int> free_slots_;     // a stack
  std::deque<PlannedStep> in_flight_;
  std::vector<PlannedRow> planned_rows_;  // of the step being planned
  std::vector<SequenceId> newly_admitted_;

  int max_num_seqs_ = 0;  // at most limits_.max_num_seqs
  uint64_t plan_seq_ = 0;
  SequenceId last_id_ = 0;
  size_t decode_cursor_ = 0;          // where to continue if a step could not hold all decodes
  int64_t long_deficit_eighths_ = 0;  // deficit of the long-prompt queue in tokens, times 8
  int num_long_running_ = 0;
  SequenceId reserved_for_ = 0;  // the long head for which reserved_blocks_ are held
  int64_t reserved_blocks_ = 0;
  int64_t blocks_pending_release_ = 0;  // held by leaving sequences until their steps are committed
  bool admits_ = true;                  // false in a step that lacked blocks for decodes
  bool lacked_blocks_ = false;          // an admission failed in this step for lack of blocks
  SchedulerPressure pressure_;
  std::optional<uint64_t> last_short_step_;  // when a short prompt was last queued
  uint64_t prompt_tokens_total_ = 0;
  uint64_t generation_tokens_total_ = 0;
  uint64_t preemptions_total_ = 0;
  uint64_t prefix_queries_total_ = 0;
  uint64_t prefix_hits_total_ = 0;

  // LogitsProcessor's remaining grammar work until the next commit. Negative: work of later steps
  // is already done.
  int64_t grammar_work_left_ = kGrammarWorkOfStep;
  int64_t token_work_left_ = 0;  // of the current commit
  std::vector<Emission> followed_;
  bool works_on_grammars_ = false;

  PrefillPace prefill_pace_;
  DecodeCost decode_cost_;
  DecodeCost draft_cost_;  // draft model's steps
  DraftAllowance draft_allowance_;
  DraftAcceptance draft_acceptance_{0.5, 1.0 / 64};  // draft model, over all sequences
  double draft_trials_ = 1;                          // of draft steps while not worth it
  bool drafts_round_ = false;  // the draft model's steps before the next one have begun
  absl::flat_hash_set<BlockId> draft_writes_;  // cached blocks that its step being planned writes
  // Budgets of the step being planned.
  int draft_tokens_left_ = 0;
  int64_t lookup_places_left_ = 0;
  int num_decodes_ = 0;
  double verify_cost_ = 0;  // one more token for each decode, in steps
  DraftTotals draft_totals_;
};

}  // namespace bulkhead
