// Sequence: one request in the scheduler. Private to the scheduler and its queues.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "memory/kv_block_pool.h"
#include "runtime/engine/drafts.h"
#include "runtime/engine/logits_processor.h"
#include "runtime/engine/request.h"
#include "runtime/engine/stop_rule.h"

namespace bulkhead {

using SequenceId = int64_t;

enum class SequenceState {
  kWaiting,
  kRunning,     // has a slot
  kPreempting,  // keeps slot and blocks until nothing in flight uses them, then waits again
  kEnded,       // keeps them as kPreempting does, then is destroyed
};

// Blocks of a sequence in a KV group with a window: block table entries from `first` on.
struct WindowBlocks {
  int64_t first = 0;
  std::deque<BlockId> blocks;
  int64_t sent = 0;  // entries before this one have been sent to the ranks

  int64_t end() const { return first + static_cast<int64_t>(blocks.size()); }
};

struct Sequence {
  Sequence(StopRule rule, uint64_t arrival) : stop_rule(std::move(rule)), arrival(arrival) {}

  SequenceId id = 0;
  StopRule stop_rule;
  uint64_t arrival;           // order of arrival; kept through preemption
  uint64_t enqueue_step = 0;  // when it started to wait
  int priority = 0;           // 0 under FCFS
  SamplingParams sampling;
  std::unique_ptr<LogitsProcessor> logits;   // null: logits are not changed
  int64_t grammar_work = 0;                  // others waited for it, minus its own waiting
  std::optional<GeneratedToken> held_token;  // the last of `tokens`, until it is followed along the
                                             // grammar and emitted
  std::optional<int> num_logprobs;
  LogitsSink* prompt_logits = nullptr;
  std::vector<float>* last_hidden_state = nullptr;
  int adapter = 0;              // Request::adapter
  KvDigest cache_context = {};  // SequenceDigest

  std::vector<TokenId> tokens;  // prompt, then all committed generated tokens
  std::vector<EmbeddingSpan> embeddings;
  std::vector<ContentSpan> spans;  // of `embeddings`
  int64_t prompt_tokens = 0;
  int64_t max_total_tokens = 0;  // the maximum length
  bool is_long = false;          // its queue
  bool never_ran = true;
  bool failed = false;               // one of its rows failed to produce a token: nothing of it is
                                     // cached any more
  int64_t cached_prompt_tokens = 0;  // hits at its first admission
  SequenceState state = SequenceState::kWaiting;

  CachedPrefix prefix;  // while it is the head of its queue: the result of the last lookup

  // While it has a slot.
  int slot = -1;
  std::vector<BlockId> blocks;        // of KV group 0
  std::vector<WindowBlocks> windows;  // of the other groups
  int64_t reserved_blocks = 0;        // for `windows`
  int64_t planned_tokens = 0;  // positions [0, planned_tokens) are written by steps planned so far
  int pending_samples = 0;     // tokens being sampled by steps in flight
  int in_flight = 0;           // steps in flight that use slot and blocks
  int64_t blocks_sent = 0;     // block table entries sent to the ranks
  int64_t blocks_cached = 0;   // leading blocks that are full, computed, shared; never written
                               // again
  int restore_snapshot = -1;   // pinned until its first row
  int64_t branch_tokens = 0;   // the cache has its tokens up to here, but no state
  BlockId kept_block = 0;      // its newest state of generated tokens is kept after it
  int preemptions = 0;

  DraftAcceptance acceptance;
  std::vector<TokenId> drafts;  // verified by the step in flight or the next one
  // With a draft model: positions that it has computed (`drafts` included), and drafts wanted
  // before the next step.
  int64_t draft_computed_tokens = 0;
  int drafts_wanted = 0;
  // With an MTP layer: positions whose hidden states the model's last step left, until the layer's
  // next step.
  int64_t hidden_begin = 0;
  int64_t hidden_end = 0;

  // Cache key of the first `num_tokens`.
  SequenceKey Key(int64_t num_tokens) const {
    return {.sequence = cache_context,
            .tokens = absl::MakeConstSpan(tokens).first(num_tokens),
            .spans = spans};
  }
  // Length including tokens being sampled.
  int64_t known_tokens() const { return static_cast<int64_t>(tokens.size()) + pending_samples; }
  int64_t num_generated() const { return known_tokens() - prompt_tokens; }
  int64_t tokens_to_plan() const { return known_tokens() - planned_tokens; }
  // Whether all tokens it may generate are being sampled: only a commit decides whether it
  // continues.
  bool exhausted() const {
    return pending_samples > 0 && stop_rule.AtLimit(num_generated(), known_tokens());
  }
  bool prefilling() const { return tokens_to_plan() > 1; }
};

}  // namespace bulkhead
