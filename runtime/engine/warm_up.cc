#include "runtime/engine/warm_up.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "base/status.h"
#include "runtime/engine/shared_samples.h"

namespace bulkhead {
namespace {

// Maximum total context of warm-up steps: more would take seconds to read.
constexpr int64_t kMaxContext = 65536;
// Chunk sizes to try if a full chunk takes too long.
constexpr int kSmallerChunks[] = {4096, 1024, 256, 64, 16};
// Extrapolation is unreliable beyond this factor in tokens: small steps are bound by weight
// bandwidth, large ones by arithmetic.
constexpr int64_t kLongestLine = 16;

// Share of the patience for each step that measures rows and context.
constexpr double kTimedShare = 0.125;

constexpr absl::Duration kMinTimeout = absl::Seconds(60);
constexpr absl::Duration kMaxTimeout = absl::Minutes(5);

struct StepKind {
  int num_tokens = 0;  // of all sequences
  int start_position = 0;
  int num_logits = 1;  // maximum per sequence
  bool from_candidates = false;
};

// 0 or 1, which any vocabulary has, in a non-repeating sequence (Thue-Morse): equal tokens would
// all go to the same experts and hide the cost of attention.
int TokenIdAt(int position) { return std::popcount(static_cast<unsigned>(position)) % 2; }

Step MakeStep(const SchedulerLimits& limits, int num_seqs, const StepKind& kind, bool coordinator) {
  Step step;
  internal::StepPlan& plan = step.plan;
  const int64_t num_blocks = std::max<int64_t>(limits.num_kv_blocks, 1);
  int64_t block = 0;
  for (int s = 0; s < num_seqs; ++s) {
    const int share = kind.num_tokens / num_seqs + (s < kind.num_tokens % num_seqs ? 1 : 0);
    const int n = std::min(share, limits.max_model_len - kind.start_position);
    plan.add_slot(s);
    plan.add_num_tokens(n);
    plan.add_start_position(kind.start_position);
    const int num_logits = std::min(n, kind.num_logits);
    plan.add_num_logits(num_logits);
    plan.add_from_candidates(kind.from_candidates);
    for (int i = 0; i < n; ++i) plan.add_token_ids(TokenIdAt(s + i));
    for (int group = 0; group < limits.num_kv_groups(); ++group) {
      for (int i = 0; i * limits.block_tokens < kind.start_position + n; ++i) {
        plan.add_table_slot(s);
        plan.add_table_index(i);
        plan.add_table_block(static_cast<int32_t>(1 + block++ % num_blocks));
        plan.add_table_group(group);
      }
    }
    for (int left = num_logits; left > 0; --left) {
      SampleRow& row = step.samples.emplace_back();
      row.seq_index = s;
      row.position = int64_t{kind.start_position} + n - left + 1;
      if (kind.from_candidates) row.sampling.temperature = 0;
    }
  }
  plan.set_padded_tokens(plan.token_ids_size());
  if (limits.shares_samples) AddSharedSamples(step);
  if (!coordinator) step.samples.clear();
  return step;
}

// The maximum of the ranks' times.
absl::StatusOr<absl::Duration> Longest(absl::Duration mine, GroupExchange& exchange,
                                       absl::Duration timeout) {
  const int64_t mine_ns = absl::ToInt64Nanoseconds(mine);
  const absl::string_view bytes(reinterpret_cast<const char*>(&mine_ns), sizeof(mine_ns));
  BH_ASSIGN_OR_RETURN(const std::vector<std::string> all, exchange.AllGather(bytes, timeout));
  int64_t longest_ns = 0;
  for (const std::string& theirs : all) {
    int64_t ns = 0;
    if (theirs.size() != sizeof(ns)) return absl::InternalError("what a rank sent is no time");
    std::memcpy(&ns, theirs.data(), sizeof(ns));
    longest_ns = std::max(longest_ns, ns);
  }
  return absl::Nanoseconds(longest_ns);
}

struct Timed {
  StepShape shape;
  double seconds = 0;
};

// Clamped at 0: a step slowed down by a busy machine must not give a negative slope.
double SlopeOf(double first_s, double second_s, double more) {
  return more > 0 ? std::max(0.0, second_s - first_s) / more : 0;
}

// Maximum number of tokens of a step.
int LargestStep(const SchedulerLimits& limits, int seqs) {
  return static_cast<int>(
      std::min<int64_t>(limits.max_num_batched_tokens, int64_t{seqs} * limits.max_model_len));
}

// Number of tokens of the step after `last`: the most that should not exceed `patience_s`, 0 if
// none. `token_s`: slope of the line through the last two steps. With only one step so far, the
// smallest is run in any case.
int NextChunk(int most, const Timed& last, std::optional<double> token_s, double patience_s) {
  const int64_t done = last.shape.tokens;
  const auto in_time = [&](int64_t tokens) {
    // At most proportional.
    if (last.seconds * static_cast<double>(tokens) / static_cast<double>(done) <= patience_s) {
      return true;
    }
    return token_s.has_value() && tokens <= done * kLongestLine &&
           last.seconds + *token_s * static_cast<double>(tokens - done) <= patience_s;
  };
  if (done >= most) return 0;
  if (in_time(most)) return most;
  int least = 0;
  for (const int tokens : kSmallerChunks) {
    if (tokens >= most || tokens <= done) continue;
    if (in_time(tokens)) return tokens;
    least = tokens;
  }
  return token_s.has_value() ? 0 : least;
}

// Context per sequence of `seqs`, when the cost of context is measured.
int ContextOf(const SchedulerLimits& limits, int seqs) {
  const int64_t blocks = std::max<int64_t>(limits.num_kv_blocks, 1);
  return static_cast<int>(std::clamp<int64_t>(
      std::min(kMaxContext / seqs, blocks * limits.block_tokens), 1, limits.max_model_len));
}

}  // namespace

StepTimeLimits StepTimeLimitsFrom(const WarmUpResult& warm_up, std::optional<absl::Duration> given,
                                  const std::optional<WarmUpResult>& draft) {
  StepTimeLimits limits;
  limits.estimate = warm_up.estimate;
  absl::Duration chunk = warm_up.chunk;
  if (draft.has_value()) {
    limits.draft_estimate = draft->estimate;
    chunk = std::max(chunk, draft->chunk);
  }
  limits.timeout = given.value_or(
      std::clamp(absl::Ceil(10 * chunk, absl::Seconds(1)), kMinTimeout, kMaxTimeout));
  // Twice the time after which it is late: a slow machine is warned of first.
  if (!given.has_value()) limits.least_estimates = 2 * kLateEstimates;
  return limits;
}

int64_t WarmUpBlocks(const SchedulerLimits& limits) {
  const int tokens = limits.max_num_batched_tokens;
  const int seqs = std::min(limits.max_num_seqs, tokens);
  const int longest = std::min((tokens + seqs - 1) / seqs, limits.max_model_len);
  return (longest + limits.block_tokens - 1) / limits.block_tokens;
}

absl::StatusOr<WarmUpResult> WarmUp(StepRunner& runner, const SchedulerLimits& limits,
                                    absl::Duration patience, GroupExchange& exchange,
                                    absl::Duration timeout, int64_t (*now_ns)()) {
  const int seqs = std::min(limits.max_num_seqs, limits.max_num_batched_tokens);
  const auto run = [&](const StepKind& kind) -> absl::StatusOr<Timed> {
    const Step step =
        MakeStep(limits, std::min(seqs, kind.num_tokens), kind, exchange.topology().coordinator());
    const int64_t begin_ns = now_ns();
    // Failures of a single request, such as non-finite logits, are ignored here.
    BH_RETURN_IF_ERROR(RunStep(runner, step).status());
    BH_ASSIGN_OR_RETURN(const absl::Duration time,
                        Longest(absl::Nanoseconds(now_ns() - begin_ns), exchange, timeout));
    return Timed{ShapeOf(step.plan), absl::ToDoubleSeconds(time)};
  };
  // The first run touches memory for the first time.
  BH_ASSIGN_OR_RETURN(const Timed first, run({.num_tokens = seqs, .from_candidates = true}));
  // Fewer rows also show the cost of a row and of context.
  const double rows_in_time =
      kTimedShare * absl::ToDoubleSeconds(patience) / std::max(first.seconds, 1e-9) * seqs;
  const int timed_seqs = static_cast<int>(std::clamp<double>(rows_in_time, 1, seqs));
  // Whole rows of logits are the slowest case.
  BH_ASSIGN_OR_RETURN(const Timed rows, run({.num_tokens = timed_seqs}));
  BH_ASSIGN_OR_RETURN(const Timed no_logits, run({.num_tokens = timed_seqs, .num_logits = 0}));
  BH_ASSIGN_OR_RETURN(const Timed context, run({.num_tokens = timed_seqs,
                                                .start_position = ContextOf(limits, timed_seqs) - 1,
                                                .num_logits = 0}));
  WarmUpResult warm_up;
  StepEstimate& estimate = warm_up.estimate;
  estimate.logit_row_s = SlopeOf(no_logits.seconds, rows.seconds, timed_seqs);
  estimate.context_s =
      SlopeOf(no_logits.seconds, context.seconds, context.shape.context - no_logits.shape.context);
  estimate.least_s = no_logits.seconds;
  warm_up.chunk_tokens = LargestStep(limits, seqs);
  const auto of_tokens_s = [&](const Timed& step) {
    return step.seconds - estimate.logit_row_s * static_cast<double>(step.shape.logit_rows);
  };
  Timed last = no_logits;
  std::optional<double> token_s;
  while (true) {
    const int next =
        NextChunk(warm_up.chunk_tokens, last, token_s, absl::ToDoubleSeconds(patience));
    if (next == 0) break;
    BH_ASSIGN_OR_RETURN(
        const Timed chunk,
        run({.num_tokens = next, .num_logits = next == warm_up.chunk_tokens ? 1 : 0}));
    token_s = SlopeOf(last.seconds, of_tokens_s(chunk),
                      static_cast<double>(chunk.shape.tokens - last.shape.tokens));
    last = chunk;
  }
  const auto done = static_cast<double>(last.shape.tokens);
  estimate.token_s = token_s.value_or(last.seconds / done);
  warm_up.measured = last.shape.tokens == warm_up.chunk_tokens;
  if (last.shape.tokens * kLongestLine < warm_up.chunk_tokens) {
    // If small steps are bound by reading the weights, a line through their times is too flat.
    // Scaling their whole time is not: a step timeout may be too long, not too short.
    estimate.token_s =
        std::max(estimate.token_s, std::min(last.seconds / done, first.seconds / seqs));
  }
  estimate.fixed_s = of_tokens_s(last) - estimate.token_s * done;
  warm_up.chunk = estimate.Of({.tokens = warm_up.chunk_tokens, .logit_rows = seqs, .context = 0});
  return warm_up;
}

absl::Status WarmUpDrafts(StepRunner& runner, const SchedulerLimits& limits, bool coordinator) {
  const int seqs = std::min(limits.max_num_seqs, limits.max_num_batched_tokens);
  const int rows = 1 + limits.drafts.num_speculative_tokens;
  const int tokens =
      static_cast<int>(std::min<int64_t>(limits.max_num_batched_tokens, int64_t{seqs} * rows));
  const StepKind kind = {.num_tokens = tokens, .num_logits = rows, .from_candidates = true};
  return RunStep(runner, MakeStep(limits, seqs, kind, coordinator)).status();
}

}  // namespace bulkhead
