// The rank loop's side of the coordinator.
#include <algorithm>
#include <iterator>
#include <memory>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "base/status.h"
#include "runtime/engine/coordinator_state.h"
#include "runtime/engine/refusal.h"

namespace bulkhead {
namespace {

// Requests are started up to this many tokens, plus one more request: some 10 ms of copies and
// prefix cache lookups, for which running requests wait.
constexpr int64_t kTokensStartedPerStep = int64_t{1} << 20;

int64_t NumTokens(const Request& request) {
  return static_cast<int64_t>(request.prompt.size() + request.emitted.size());
}

}  // namespace

absl::StatusOr<Step> Coordinator::NextStep() {
  while (true) {
    BH_ASSIGN_OR_RETURN(Arrivals arrivals, TakeArrivals());
    StartArrivals(std::move(arrivals));
    EndOverdue();
    if (DrainIsOver()) {
      if (scheduler_.num_in_flight() > 0) return scheduler_.PlanCollect();
      Publish();  // for GetLoad calls while clients read
      WaitForAnswers();
      if (state() == GroupState::kLost) continue;
      EndDrain();
      if (options_.kv_events != nullptr) options_.kv_events->Close();
      return scheduler_.PlanStop();
    }
    std::optional<Step> step = scheduler_.PlanStep();
    RecordAdmitted();
    std::vector<Emission> followed = scheduler_.TakeFollowed();
    const bool follows = !followed.empty();
    DeliverEmissions(std::move(followed));
    Publish();
    if (follows) continue;
    if (!step.has_value()) {
      if (scheduler_.num_in_flight() > 0) return scheduler_.PlanCollect();
      // With nothing in flight some request must be runnable.
      BH_CHECK(scheduler_.works_on_grammars() || scheduler_.idle());
      continue;
    }
    const uint64_t now = options_.now_ns();
    meter_.Busy(now, scheduler_.load());
    if (scheduler_.commits_draft_step()) answers_ns_ += now - std::exchange(step_begun_ns_, now);
    return *std::move(step);
  }
}

// Sleeps while there is nothing to do.
absl::StatusOr<Coordinator::Arrivals> Coordinator::TakeArrivals() {
  const bool idle = scheduler_.idle();
  if (idle) meter_.Idle();
  const absl::MutexLock lock(&mutex_);
  while (inbox_.empty() && cancels_.empty() && scheduler_.idle() &&
         state_ != GroupState::kDraining && state_ != GroupState::kLost) {
    work_.Wait(&mutex_);
  }
  if (state_ == GroupState::kLost) return failure_;
  if (idle) {
    step_begun_ns_ = options_.now_ns();
    answers_ns_ = 0;
  }
  scheduler_.SetMaxNumSeqs(live_limits_.max_num_seqs);
  auto end = inbox_.begin();
  for (int64_t tokens = 0; end != inbox_.end() && tokens < kTokensStartedPerStep; ++end) {
    tokens += NumTokens((*end)->request);
  }
  Arrivals arrivals{{std::move_iterator(inbox_.begin()), std::move_iterator(end)},
                    std::exchange(cancels_, {})};
  inbox_.erase(inbox_.begin(), end);
  return arrivals;
}

void Coordinator::StartArrivals(Arrivals arrivals) {
  std::vector<Delivery> deliveries;
  for (const std::shared_ptr<Live>& live : arrivals.requests) {
    std::optional<Delivery> end = Start(live);
    if (end.has_value()) deliveries.push_back(*std::move(end));
  }
  for (const std::shared_ptr<Live>& live : arrivals.cancels) {
    if (!active_.contains(live->sequence_id)) continue;
    absl::Status why;
    {
      const absl::MutexLock lock(&mutex_);
      why = *live->cancel;
    }
    deliveries.push_back(EndOf(live, std::move(why)));
  }
  Deliver(std::move(deliveries));
}

// Submits the request to the scheduler, unless it ends at once.
std::optional<Coordinator::Delivery> Coordinator::Start(const std::shared_ptr<Live>& live) {
  std::unique_ptr<Active> active = std::move(live->active);
  const auto end = [&live](EndCause cause) { return Delivery{live, {}, std::move(cause), 0}; };
  {
    const absl::MutexLock lock(&mutex_);
    if (live->cancel.has_value()) return end({*live->cancel, {}, {}, {}});
  }
  if (active->ended.has_value()) {
    Delivery delivery = end(*std::move(active->ended));
    if (active->text.empty()) return delivery;
    delivery.delta.emplace();
    delivery.delta->position = live->request.emitted.size();
    delivery.delta->text = std::move(active->text);
    return delivery;
  }
  Request& request = live->request;
  if (!request.logits.reached_status.ok()) {
    return end({request.logits.reached_status, {}, {}, {}});
  }
  const absl::StatusOr<SequenceId> id = scheduler_.Submit(std::move(request));
  if (!id.ok()) return end({id.status(), {}, {}, {}});
  live->sequence_id = *id;
  active->live = live;
  if (active->time_limit_ms.has_value()) {
    active->time_limit_ns = live->arrived_ns + uint64_t{*active->time_limit_ms} * 1'000'000;
    time_limits_.emplace(*active->time_limit_ns, *id);
  }
  active_.emplace(*id, std::move(active));
  return std::nullopt;
}

void Coordinator::Commit(StepResult result) {
  if (state() == GroupState::kLost) return;
  // A step begins when the previous one ends: one that could not be planned ahead, because it
  // verifies drafts, includes the host's time for its plan and for the answers before it.
  const uint64_t begun_ns = std::exchange(step_begun_ns_, options_.now_ns());
  uint64_t step_ns = step_begun_ns_ - begun_ns;
  if (!scheduler_.commits_draft_step()) step_ns += std::exchange(answers_ns_, 0);
  scheduler_.RecordStepTime(static_cast<double>(step_ns) * 1e-9);
  if (scheduler_.commits_draft_step()) {
    scheduler_.Commit(std::move(result));
    return;
  }
  DeliverEmissions(scheduler_.Commit(std::move(result)));
  RecordStep();
  Publish();
  const std::optional<std::string> line = meter_.Line(options_.now_ns(), scheduler_.load());
  if (line.has_value()) BH_LOG(kInfo) << *line;
}

void Coordinator::DeliverEmissions(std::vector<Emission> emissions) {
  if (emissions.empty()) return;
  const uint64_t begin = options_.now_ns();
  std::vector<Delivery> deliveries = DeliveriesOf(std::move(emissions));
  text_ns_ += options_.now_ns() - begin;
  Deliver(std::move(deliveries));
}

// One delivery for each sequence: tokens of accepted drafts go with the token before them.
std::vector<Coordinator::Delivery> Coordinator::DeliveriesOf(std::vector<Emission> emissions) {
  std::vector<Delivery> deliveries;
  deliveries.reserve(emissions.size());
  SequenceId last = 0;
  uint64_t surplus = 0;  // after a stop string
  for (Emission& emission : emissions) {
    if (emission.id != std::exchange(last, emission.id)) deliveries.emplace_back();
    if (!deliveries.back().end.has_value()) {
      AddTo(deliveries.back(), std::move(emission));
    } else if (emission.token.has_value()) {
      ++surplus;
    }
  }
  scheduler_.DiscountEmissions(surplus);
  return deliveries;
}

void Coordinator::AddTo(Delivery& delivery, Emission emission) {
  Active& active = *active_.at(emission.id);
  delivery.live = active.live;
  delivery.preemptions = emission.preemptions;
  if (emission.token.has_value()) {
    if (!delivery.delta.has_value()) {
      delivery.delta.emplace();
      delivery.delta->position = active.num_generated;
      delivery.delta->text = std::exchange(active.text, {});
    }
    OutputDelta& delta = *delivery.delta;
    delivery.end = active.Advance(emission.token->id, emission.finish, delta.text);
    delta.tokens.push_back(*std::move(emission.token));
  } else if (!emission.status.ok()) {
    delivery.end = EndCause{std::move(emission.status), {}, {}, {}};
  } else {
    delivery.end = EndCause{{}, emission.finish->reason, {}, {}};
  }
  if (delivery.end.has_value()) Drop(emission.id);
}

// Removes an active request from the scheduler.
Coordinator::Delivery Coordinator::EndOf(const std::shared_ptr<Live>& live, absl::Status why) {
  Delivery delivery;
  delivery.live = live;
  delivery.preemptions = scheduler_.preemptions(live->sequence_id);
  delivery.end = EndCause{std::move(why), {}, {}, {}};
  Drop(live->sequence_id);
  return delivery;
}

// Removes a request from scheduler and tables.
void Coordinator::Drop(SequenceId id) {
  scheduler_.Finish(id);
  const auto found = active_.find(id);
  if (found == active_.end()) return;
  const std::optional<uint64_t> limit_ns = found->second->time_limit_ns;
  if (limit_ns.has_value()) time_limits_.erase({*limit_ns, id});
  active_.erase(found);
}

// Ends requests whose time limit has passed, with the tokens that they have; there are no partial
// embeddings.
void Coordinator::EndOverdue() {
  if (time_limits_.empty()) return;
  const uint64_t now = options_.now_ns();
  std::vector<Delivery> deliveries;
  while (!time_limits_.empty() && time_limits_.begin()->first <= now) {
    Active& active = *active_.at(time_limits_.begin()->second);
    OutputDelta delta;
    delta.position = active.num_generated;
    absl::StatusOr<std::string> text = active.TakeText();
    Delivery delivery = EndOf(active.live, text.ok() ? active.TimeLimitStatus() : text.status());
    if (text.ok()) delta.text = *std::move(text);
    delivery.end->reason = FinishReason::kTimeLimit;
    if (!delta.text.empty()) delivery.delta = std::move(delta);
    deliveries.push_back(std::move(delivery));
  }
  Deliver(std::move(deliveries));
}

// Calls the sinks without holding the lock; `busy` keeps Fail() away from them.
void Coordinator::Deliver(std::vector<Delivery> deliveries) {
  if (deliveries.empty()) return;
  const uint64_t now = options_.now_ns();
  const StepCosts costs = Costs();
  std::vector<std::optional<RequestEnd>> ends(deliveries.size());
  {
    const absl::MutexLock lock(&mutex_);
    for (size_t i = 0; i < deliveries.size(); ++i) {
      Live& live = *deliveries[i].live;
      if (live.ended) {  // by Fail()
        deliveries[i].delta.reset();
        continue;
      }
      live.busy = true;
      RequestFigures& figures = live.figures;
      figures.timings.preemptions = deliveries[i].preemptions;
      if (deliveries[i].delta.has_value() && !deliveries[i].delta->tokens.empty()) {
        const auto tokens = static_cast<int64_t>(deliveries[i].delta->tokens.size());
        metrics_.CountTokens(figures, tokens, now - live.arrived_ns);
        if (figures.timings.first_token_ns == 0) {
          figures.timings.first_token_ns = now - live.arrived_ns;
        }
        figures.completion_tokens += tokens;
      }
      if (!deliveries[i].end.has_value()) continue;
      live.TakeCosts(costs);
      ends[i] = MakeEnd(live, *std::move(deliveries[i].end), now);
      CountLength(live);
      Forget(live);  // its id may be reused as soon as the client receives the end
    }
  }
  for (size_t i = 0; i < deliveries.size(); ++i) {
    if (deliveries[i].delta.has_value())
      deliveries[i].live->sink->OnDelta(*std::move(deliveries[i].delta));
    if (!ends[i].has_value()) continue;
    LogEnd(*deliveries[i].live, *ends[i]);
    deliveries[i].live->sink->OnEnd(*std::move(ends[i]));
  }
  std::vector<std::pair<std::shared_ptr<Live>, RequestEnd>> failed;
  {
    const absl::MutexLock lock(&mutex_);
    for (size_t i = 0; i < deliveries.size(); ++i) {
      const std::shared_ptr<Live>& live = deliveries[i].live;
      live->busy = false;
      if (ends[i].has_value()) live->ended = true;
      if (live->ended || state_ != GroupState::kLost) continue;
      live->ended = true;
      failed.emplace_back(live, MakeEnd(*live, EndCause{failure_, {}, {}, {}}, now));
      Forget(*live);
    }
  }
  for (auto& [live, end] : failed) {
    LogEnd(*live, end);
    live->sink->OnEnd(std::move(end));
  }
}

void Coordinator::EndAll(const absl::Status& why, const char* word) {
  std::vector<Delivery> deliveries;
  {
    const absl::MutexLock lock(&mutex_);
    for (const auto& [id, live] : live_) {
      deliveries.emplace_back().live = live;
      absl::Status status = WithReason(why, word, {{"request_id", id}});
      deliveries.back().end =
          EndCause{WithRetryAfter(std::move(status), kRestartRetry), {}, {}, {}};
    }
    inbox_.clear();
    cancels_.clear();
  }
  for (const Delivery& delivery : deliveries) {
    Drop(delivery.live->sequence_id);
  }
  Deliver(std::move(deliveries));
}

void Coordinator::RecordAdmitted() {
  const uint64_t now = options_.now_ns();
  const StepCosts costs = Costs();
  for (const SequenceId id : scheduler_.newly_admitted()) {
    active_.at(id)->OpenStream(scheduler_.prompt(id));
  }
  const absl::MutexLock lock(&mutex_);
  for (const SequenceId id : scheduler_.newly_admitted()) {
    Live& live = *active_.at(id)->live;
    RequestFigures& figures = live.figures;
    figures.admitted = true;
    figures.timings.queue_ns = now - live.submitted_ns;
    figures.cached_tokens = scheduler_.cached_prompt_tokens(id);
    if (scheduler_.is_long_prompt(id)) figures.lane = PromptLane::kLong;
    live.costs_before = costs;
  }
}

StepCosts Coordinator::Costs() const {
  StepCosts costs;
  if (options_.costs != nullptr) costs = options_.costs();
  costs.text_ns = text_ns_;
  return costs;
}

// Publishes the state for other threads after a plan or a commit.
void Coordinator::Publish() {
  if (options_.kv_events != nullptr) options_.kv_events->EndBatch();
  const absl::MutexLock lock(&mutex_);
  load_ = scheduler_.load();
  inbox_requests_ = static_cast<int>(inbox_.size());
  inbox_tokens_ = 0;
  for (const auto& live : inbox_) inbox_tokens_ += NumTokens(live->request);
}

}  // namespace bulkhead
