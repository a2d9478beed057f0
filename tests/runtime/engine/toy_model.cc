#include "tests/runtime/engine/toy_model.h"

#include <algorithm>
#include <limits>
#include <memory>

#include "gtest/gtest.h"
#include "runtime/engine/candidates.h"
#include "runtime/structured/automaton.h"
#include "runtime/structured/token_trie.h"
#include "tests/runtime/structured/grammars.h"

namespace bulkhead {

uint64_t ToyStart(const std::string& cache_salt) {
  uint64_t history = 0;
  for (const char c : cache_salt) history = ToyHash(history, c);
  return history;
}

uint64_t ToyHash(uint64_t before, TokenId token) {
  uint64_t x = before * 0x9E3779B97F4A7C15ULL + static_cast<uint64_t>(token) + 1;
  x ^= x >> 29;
  x *= 0xBF58476D1CE4E5B9ULL;
  return x ^ (x >> 32);
}

TokenId ToyDraw(uint64_t history, const std::vector<TokenId>& banned) {
  auto token = static_cast<TokenId>(history % kToyVocab);
  while (std::find(banned.begin(), banned.end(), token) != banned.end()) {
    token = (token + 1) % kToyVocab;
  }
  return token;
}

TokenId ToyDraw(uint64_t history, const std::vector<TokenId>& banned,
                const LogitsProcessor& processor, absl::Span<const TokenId> drafted) {
  std::vector<float> logits(kToyVocab);
  uint64_t hash = history;
  for (float& logit : logits) {
    hash = ToyHash(hash, 1);
    logit = static_cast<float>(hash % 4096) / 512 - 4;
  }
  BH_CHECK(processor.Apply(absl::MakeSpan(logits), drafted).ok());
  for (const TokenId id : banned) logits[id] = -std::numeric_limits<float>::infinity();
  return static_cast<TokenId>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

TokenId ToyDrawNext(uint64_t history, const std::vector<TokenId>& banned,
                    const LogitsParams& params, absl::Span<const TokenId> tokens,
                    int64_t prompt_tokens) {
  if (params.off()) return ToyDraw(history, banned);
  LogitsParams followed = params;
  if (params.grammar != nullptr) FollowGrammar(tokens.subspan(prompt_tokens), followed);
  LogitsProcessor processor(followed);
  processor.Begin(tokens, prompt_tokens, static_cast<int64_t>(tokens.size()));
  int64_t work_left = structured::Automaton::kMaxWork;
  BH_CHECK(processor.Prepare({}, &work_left));
  return ToyDraw(history, banned, processor);
}

namespace {

// Ids below 25, then others, by turns; never complete, as no token has the byte at its end. One
// automaton for all requests, as the service shares them.
std::shared_ptr<structured::Automaton> ToyGrammar() {
  static const auto* const trie = [] {
    std::vector<std::string> tokens(kToyVocab);
    for (TokenId id = 0; id < kToyVocab; ++id) {
      tokens[id] = std::string(id % 3 + 1, id < kToyVocab / 2 ? 'a' : 'b');
    }
    tokens[kToyEos].clear();
    return new structured::TokenTrie(tokens);
  }();
  static const auto* const grammar =
      new std::shared_ptr<structured::Automaton>(std::make_shared<structured::Automaton>(
          *structured::RegexGrammar("((aa?a?)(bb?b?))*!"), trie, size_t{1} << 16));
  return *grammar;
}

}  // namespace

LogitsParams ToyLogitsParams(uint32_t choice) {
  LogitsParams params;
  if (choice % 2 == 1) params.repetition_penalty = 1.5F;
  if (choice % 3 == 1) params.frequency_penalty = 0.5F;
  if (choice % 5 == 1) params.presence_penalty = -1.0F;
  if (choice % 7 == 1) params.bias = {{2, 3.0F}, {9, -50.0F}};
  if (choice % 11 == 1) {
    for (TokenId id = 0; id < kToyVocab; id += 2) params.allowed.push_back(id);
  }
  if (choice % 3 == 2) params.grammar = ToyGrammar();
  if (choice % 13 == 1) params.bad_words = {{4}, {2, 6}, {8, 2, 10}};
  return params;
}

ToyResult ToyGenerate(const Request& request, const std::vector<TokenId>& eos_ids,
                      int max_model_len) {
  ToyResult result;
  uint64_t history = ToyStart(request.cache_salt);
  for (const TokenId token : request.prompt) history = ToyHash(history, token);
  for (const TokenId token : request.emitted) history = ToyHash(history, token);
  std::vector<TokenId> eos = request.stopping.ignore_eos ? std::vector<TokenId>{} : eos_ids;
  std::vector<TokenId> stops = eos;
  stops.insert(stops.end(), request.stopping.stop_token_ids.begin(),
               request.stopping.stop_token_ids.end());
  const auto has = [](const std::vector<TokenId>& ids, TokenId token) {
    return std::find(ids.begin(), ids.end(), token) != ids.end();
  };
  auto generated = static_cast<int64_t>(request.emitted.size());
  std::vector<TokenId> tokens = request.prompt;
  tokens.insert(tokens.end(), request.emitted.begin(), request.emitted.end());
  const auto prompt_tokens = static_cast<int64_t>(request.prompt.size());
  while (generated < request.stopping.max_tokens) {
    const bool bans = generated < request.stopping.min_tokens;
    const TokenId token = ToyDrawNext(history, bans ? stops : std::vector<TokenId>{},
                                      request.logits, tokens, prompt_tokens);
    tokens.push_back(token);
    history = ToyHash(history, token);
    result.tokens.push_back(token);
    ++generated;
    if (!bans && has(stops, token)) {
      result.reason = has(eos, token) ? FinishReason::kEos : FinishReason::kStopToken;
      return result;
    }
    if (generated == request.stopping.max_tokens) break;
    if (static_cast<int64_t>(request.prompt.size()) + generated == max_model_len) {
      result.reason = FinishReason::kModelLength;
      return result;
    }
  }
  return result;
}

ToyRunner::ToyRunner(const SchedulerLimits& limits)
    : limits_(limits),
      tables_(limits.num_kv_groups(),
              std::vector<std::vector<BlockId>>(
                  limits.max_num_seqs,
                  std::vector<BlockId>(limits.max_model_len / limits.block_tokens + 1, 0))),
      blocks_(limits.num_kv_blocks + 1, std::vector<uint64_t>(limits.block_tokens, 0)),
      draft_blocks_(blocks_),
      last_rows_(limits.max_num_seqs),
      last_sampled_(limits.max_num_seqs, -1),
      starts_(limits.max_num_seqs, 0),
      states_(limits.max_num_seqs),
      draft_states_(limits.max_num_seqs),
      snapshots_(limits.num_snapshots()) {}

uint64_t& ToyRunner::Cell(int slot, int64_t position, int group) {
  const BlockId block = tables_[group][slot][position / limits_.block_tokens];
  EXPECT_GT(block, 0);
  return blocks_[block][position % limits_.block_tokens];
}

int64_t ToyRunner::FirstSeen(int group, int64_t position) const {
  const int window = group == 0 ? 0 : limits_.kv_groups[group].window;
  return window == 0 ? 0 : std::max<int64_t>(0, position - window + 1);
}

void ToyRunner::CheckPlan(const internal::StepPlan& plan) {
  EXPECT_EQ(plan.seq(), static_cast<uint64_t>(++steps_));
  EXPECT_LE(plan.slot_size(), limits_.max_num_seqs);
  EXPECT_LE(plan.token_ids_size(), limits_.max_num_batched_tokens);
  EXPECT_GE(plan.padded_tokens(), plan.token_ids_size());
  int tokens = 0;
  std::vector<bool> slots(limits_.max_num_seqs, false);
  enum Use { kNone, kRead, kWritten };
  std::vector<Use> uses(limits_.num_kv_blocks + 1, kNone);
  for (int i = 0; i < plan.slot_size(); ++i) {
    EXPECT_FALSE(slots[plan.slot(i)]);
    slots[plan.slot(i)] = true;
    EXPECT_GE(plan.num_tokens(i), 1);
    EXPECT_LE(plan.num_logits(i), plan.num_tokens(i));
    tokens += plan.num_tokens(i);
    const int64_t end = int64_t{plan.start_position(i)} + plan.num_tokens(i);
    EXPECT_LE(end, limits_.max_model_len);
    for (int group = 0; !plan.draft() && group < limits_.num_kv_groups(); ++group) {
      const int64_t first = FirstSeen(group, plan.start_position(i));
      const int64_t first_block = first / limits_.block_tokens;
      for (int64_t at = first_block * limits_.block_tokens; at < end; at += limits_.block_tokens) {
        const BlockId block = tables_[group][plan.slot(i)][at / limits_.block_tokens];
        const Use use = at + limits_.block_tokens <= plan.start_position(i) ? kRead : kWritten;
        EXPECT_TRUE(uses[block] == kNone || (use == kRead && uses[block] == kRead))
            << "block " << block << " is written and in two tables";
        uses[block] = use;
      }
    }
  }
  EXPECT_EQ(tokens, plan.token_ids_size());
}

void ToyRunner::CheckWindows(int slot, int64_t begin) {
  for (int group = 1; group < limits_.num_kv_groups(); ++group) {
    for (int64_t at = FirstSeen(group, begin); at < begin; ++at) {
      EXPECT_EQ(Cell(slot, at, group), Cell(slot, at)) << "position " << at << " of " << begin;
    }
  }
}

// A draft that was rejected must not have moved it on.
void ToyRunner::CheckState(int slot, int64_t begin) {
  if (limits_.state_tokens == 0 || begin < limits_.state_tokens) return;
  const int64_t end = begin / limits_.state_tokens * limits_.state_tokens;
  EXPECT_EQ(states_[slot].end, end);
  EXPECT_EQ(states_[slot].hash, Cell(slot, end - 1)) << "another's state";
}

uint64_t ToyRunner::RunSequence(const internal::StepPlan& plan, int seq_index, int first_token) {
  const int slot = plan.slot(seq_index);
  const int64_t begin = plan.start_position(seq_index);
  if (plan.token_ids(first_token) == kLastSampled) {
    EXPECT_GE(last_sampled_[slot], 0) << "a token that no rank but 0 has";
    ++steps_planned_ahead_;
  }
  uint64_t hash = begin == 0 ? starts_[slot] : Cell(slot, begin - 1);
  CheckState(slot, begin);
  CheckWindows(slot, begin);
  for (int i = 0; i < plan.num_tokens(seq_index); ++i) {
    const TokenId id = plan.token_ids(first_token + i);
    hash = ToyHash(hash, id == kLastSampled ? last_sampled_[slot] : id);
    for (int group = 0; group < limits_.num_kv_groups(); ++group) {
      Cell(slot, begin + i, group) = hash;
    }
    const int64_t end = begin + i + 1;
    if (limits_.state_tokens > 0 && end % limits_.state_tokens == 0) states_[slot] = {end, hash};
  }
  return hash;
}

absl::Status ToyRunner::Submit(Step step) {
  EXPECT_LT(results_.size(), static_cast<size_t>(depth()));
  const internal::StepPlan& plan = step.plan;
  for (int i = 0; i < plan.table_slot_size(); ++i) {
    const int group = plan.table_group_size() > 0 ? plan.table_group(i) : 0;
    tables_[group][plan.table_slot(i)][plan.table_index(i)] = plan.table_block(i);
  }
  CheckPlan(plan);
  if (plan.draft()) {
    results_.push_back(RunDraft(step));
    RecordRows(plan);
    return absl::OkStatus();
  }
  RecordRows(plan);
  for (int i = 0; i < plan.restore_slot_size(); ++i) {
    states_[plan.restore_slot(i)] = snapshots_.at(plan.restore_snapshot(i));
  }
  StepResult result;
  size_t sample = 0;
  size_t logits = 0;
  int first_token = 0;
  for (int i = 0; i < plan.slot_size(); ++i) {
    const uint64_t hash = RunSequence(plan, i, first_token);
    if (logits < step.prompt_logits.size() && step.prompt_logits[logits].seq_index == i) {
      EXPECT_EQ(plan.num_logits(i), plan.num_tokens(i));
      std::vector<float> rows(plan.num_tokens(i) * 2);
      for (int row = 0; row < plan.num_tokens(i); ++row) {
        rows[2 * row] = static_cast<float>(plan.start_position(i) + row);
        rows[2 * row + 1] = static_cast<float>(plan.token_ids(first_token + row));
      }
      result.prompt_logits.push_back(step.prompt_logits[logits++].sink->OnRows(
          plan.start_position(i), plan.num_tokens(i), 2, rows.data()));
    }
    const int64_t end = int64_t{plan.start_position(i)} + plan.num_tokens(i);
    while (sample < step.samples.size() && step.samples[sample].seq_index == i) {
      const SampleRow& row = step.samples[sample++];
      EXPECT_GE(plan.num_logits(i), 1);
      EXPECT_GT(row.position, plan.start_position(i));
      EXPECT_LE(row.position, end);
      const bool last = sample == step.samples.size() || step.samples[sample].seq_index != i;
      EXPECT_TRUE(!last || row.position == end);
      const uint64_t history = Cell(plan.slot(i), row.position - 1);
      GeneratedToken token;
      const bool on_device = SampleSourceOf(plan, i) != SampleSource::kHost;
      EXPECT_TRUE(row.logits == nullptr || !on_device);
      token.id = row.logits == nullptr ? ToyDraw(history, row.banned)
                                       : ToyDraw(history, row.banned, *row.logits, row.drafted);
      const bool is_kept = on_device && plan.num_logits(i) == 1;
      last_sampled_[plan.slot(i)] = is_kept ? token.id : -1;
      result.samples.emplace_back(std::move(token));
    }
    if (step.samples.empty() && SampleSourceOf(plan, i) != SampleSource::kHost)
      last_sampled_[plan.slot(i)] = ToyDraw(hash, {});
    first_token += plan.num_tokens(i);
  }
  for (int i = 0; i < plan.save_slot_size(); ++i) {
    const int slot = plan.save_slot(i);
    EXPECT_TRUE(std::find(plan.slot().begin(), plan.slot().end(), slot) != plan.slot().end());
    snapshots_.at(plan.save_snapshot(i)) = states_[slot];
  }
  EXPECT_EQ(sample, step.samples.size());
  EXPECT_EQ(logits, step.prompt_logits.size());
  results_.push_back(std::move(result));
  return absl::OkStatus();
}

absl::StatusOr<StepResult> ToyRunner::Collect() {
  StepResult result = std::move(results_.front());
  results_.pop_front();
  return result;
}

ToyLoop::ToyLoop(const SchedulerLimits& limits, PrefixCache::Hash hash)
    : limits_(limits),
      pool_(limits.num_kv_blocks,
            limits.prefix_caching
                ? std::make_unique<PrefixCache>(limits.num_kv_blocks, limits.block_tokens, hash)
                : nullptr,
            limits.num_snapshots() > 0 ? std::make_unique<SnapshotPool>(limits.num_snapshots())
                                       : nullptr),
      scheduler_(limits, {kToyEos}, pool_),
      runner_(limits) {}

absl::StatusOr<SequenceId> ToyLoop::Submit(Request request) {
  const uint64_t start = ToyStart(request.cache_salt);
  absl::StatusOr<SequenceId> id = scheduler_.Submit(std::move(request));
  if (id.ok()) starts_[*id] = start;
  return id;
}

std::vector<Emission> ToyLoop::Step() {
  PlanAndRun();
  return CommitOldest();
}

void ToyLoop::PlanAndRun() {
  bool follows = false;
  while (scheduler_.num_in_flight() < limits_.depth) {
    std::optional<bulkhead::Step> step = scheduler_.PlanStep();
    const std::vector<Emission> followed = scheduler_.TakeFollowed();
    follows |= !followed.empty() || scheduler_.works_on_grammars();
    EXPECT_TRUE(followed.empty() || !step.has_value())
        << "its receiver may end a sequence of the step";
    Record(followed);
    if (!followed.empty()) continue;
    if (!step.has_value()) break;
    plan_ = step->plan;
    for (const int slot : plan_.slot()) runner_.SetStart(slot, starts_[scheduler_.IdInSlot(slot)]);
    EXPECT_TRUE(runner_.Submit(*std::move(step)).ok());
  }
  EXPECT_TRUE(follows || scheduler_.num_in_flight() > 0 || scheduler_.idle())
      << "requests wait and nothing can run";
}

std::vector<Emission> ToyLoop::CommitOldest() {
  if (scheduler_.num_in_flight() == 0) return {};
  std::vector<Emission> emissions = scheduler_.Commit(*runner_.Collect());
  Record(emissions);
  return emissions;
}

void ToyLoop::Record(absl::Span<const Emission> emissions) {
  for (const Emission& emission : emissions) {
    if (emission.token.has_value()) tokens_[emission.id].push_back(emission.token->id);
    if (!emission.finish.has_value() && emission.status.ok()) continue;
    EXPECT_TRUE(ends_.emplace(emission.id, emission).second) << "ended twice";
  }
}

void ToyLoop::RunToEnd() {
  for (int64_t round = 0; !scheduler_.idle(); ++round) {
    ASSERT_LT(round, 1000000) << "no end in sight";
    Step();
    scheduler_.CheckInvariants();
    if (testing::Test::HasFailure()) return;
  }
}

const Emission* ToyLoop::EndOf(SequenceId id) const {
  const auto found = ends_.find(id);
  return found == ends_.end() ? nullptr : &found->second;
}

SchedulerLimits ToyLimits() {
  SchedulerLimits limits;
  limits.max_num_seqs = 4;
  limits.max_model_len = 64;
  limits.max_num_batched_tokens = 16;
  limits.block_tokens = 4;
  limits.num_kv_blocks = 64;
  limits.max_num_queued_reqs = 1000;
  return limits;
}

Request ToyRequest(int prompt_tokens, int max_tokens, int salt) {
  Request request;
  request.request_id = "r" + std::to_string(salt);
  for (int i = 0; i < prompt_tokens; ++i)
    request.prompt.push_back((i * 7 + salt * 13 + 1) % kToyVocab);
  request.sampling.temperature = 0;
  request.stopping.max_tokens = max_tokens;
  request.stopping.ignore_eos = true;
  return request;
}

}  // namespace bulkhead
