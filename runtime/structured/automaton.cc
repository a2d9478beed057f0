#include "runtime/structured/automaton.h"

#include <algorithm>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/check.h"

namespace bulkhead::structured {
namespace {

constexpr int32_t kComplete = 0;  // nodes: the end of the answer,
constexpr int32_t kLeft = 1;      // and the end of a local mask's rule
constexpr int32_t kNumEnds = 2;
constexpr int32_t kDead = 0;  // the configuration without threads

}  // namespace

Automaton::Automaton(std::shared_ptr<const Grammar> grammar, const TokenTrie* trie,
                     size_t max_bytes, std::shared_ptr<Pool> pool)
    : grammar_(std::move(grammar)),
      trie_(trie),
      mask_words_((trie->vocab_size() + 31) / 32),
      pool_(std::move(pool)),
      max_bytes_(max_bytes),
      work_bytes_(2 * max_bytes) {
  Reset();
  Threads threads;
  const Rule& root = grammar_->rule(grammar_->root());
  Close({root.start, kComplete, root.nests}, &threads);
  start_overflow_ = too_many_threads_;
  start_ = TakePlace(InternConfiguration(std::move(threads)));
  own_bytes_ = max_bytes + 3 * bytes_;
}

Automaton::~Automaton() {
  if (pool_ != nullptr) *pool_ += reserved_bytes_;
}

std::shared_ptr<Automaton> Automaton::Another(size_t max_bytes) const {
  return std::make_shared<Automaton>(grammar_, trie_, max_bytes,
                                     std::make_shared<Pool>(static_cast<int64_t>(max_bytes)));
}

void Automaton::Reset() {
  const std::vector<Node> old_nodes = std::move(nodes_);
  const std::vector<Configuration> old = std::move(configurations_);
  nodes_.clear();
  configurations_.clear();
  saturated_nodes_.clear();
  node_ids_ = {};
  configuration_ids_ = {};
  after_return_ = {};
  masks_.clear();
  local_masks_.clear();
  bytes_ = making_bytes_;
  for (int32_t end = 0; end < kNumEnds; ++end) InternNode({-1, 0, -1, end});
  InternConfiguration({});
  Copies copies;
  std::vector<int32_t> copied(old.size(), -1);  // many places may have the same configuration
  const auto copy = [&](int32_t& id) {
    if (id < 0) return;
    if (copied[id] < 0) copied[id] = CopyConfiguration(old_nodes, old[id].threads, copies);
    id = copied[id];
  };
  for (int32_t& place : places_) copy(place);
  for (const auto& [place, making] : makings_) {
    making->dropped = true;
    if (!making->in_work.has_value()) continue;
    InWork& in_work = *making->in_work;
    for (int32_t& group : in_work.groups) copy(group);
    for (int32_t& id : in_work.way) copy(id);
    copy(in_work.local);
    copy(in_work.after);
  }
}

// Copies `thread` of `nodes`, with the nodes below it that were not copied yet.
int32_t Automaton::CopyNode(const std::vector<Node>& nodes, int32_t thread, Copies& copies) {
  std::vector<int32_t> stack;
  for (; thread >= kNumEnds; thread = nodes[thread].parent) {
    if (const auto copy = copies.find(thread); copy != copies.end()) {
      thread = copy->second;
      break;
    }
    stack.push_back(thread);
  }
  work_done_ += kStepCost;
  for (; !stack.empty(); stack.pop_back()) {
    work_done_ += kStepCost;
    Node node = nodes[stack.back()];
    node.parent = thread;
    thread = copies[stack.back()] = InternNode(node);
  }
  return thread;
}

int32_t Automaton::CopyConfiguration(const std::vector<Node>& nodes, const Threads& threads,
                                     Copies& copies) {
  Threads copied;
  for (const int32_t thread : threads) copied.push_back(CopyNode(nodes, thread, copies));
  return InternConfiguration(std::move(copied));
}

void Automaton::DropKept() {
  Reset();
  places_bytes_ = kept_bytes();
  ReservePlaces();
}

// Call when only places, and configurations that a mask in progress needs, are kept.
void Automaton::ReservePlaces() {
  if (pool_ == nullptr) return;
  const size_t num_places = places_.size() - free_places_.size();
  const int64_t own = static_cast<int64_t>(own_bytes_ + num_places * kPlaceBytes);
  const int64_t more =
      std::max<int64_t>(0, 3 * static_cast<int64_t>(kept_bytes()) - own) - reserved_bytes_;
  lacks_places_ = pool_->fetch_sub(more) < more && more > 0;
  if (lacks_places_) {
    *pool_ += more;
  } else {
    reserved_bytes_ += more;
  }
}

absl::Status Automaton::NoPlaces() const {
  return absl::UnavailableError(
      absl::StrCat("the grammar's states take ", FormatBytes(static_cast<int64_t>(kept_bytes())),
                   ", more than other grammars have left; try again when there are fewer, or make "
                   "alternatives and repetitions differ earlier"));
}

absl::Status Automaton::CheckPlaces() {
  const absl::MutexLock lock(&mutex_);
  return StartWork(0);
}

// Drops everything cached except the places and these configurations, which get new ids. This work
// does not count as the grammar's.
void Automaton::KeepOnly(absl::Span<int32_t> configurations) {
  const size_t num_places = places_.size();
  places_.insert(places_.end(), configurations.begin(), configurations.end());
  const int64_t before = work_done_;
  Reset();
  max_work_ += work_done_ - before;
  std::copy(places_.begin() + static_cast<int64_t>(num_places), places_.end(),
            configurations.begin());
  places_.resize(num_places);
  ReservePlaces();
  work_bytes_ = std::max(work_bytes_, 2 * kept_bytes());
}

size_t Automaton::SetMaxBytes(size_t max_bytes) {
  const absl::MutexLock lock(&mutex_);
  max_bytes_ = max_bytes;
  if (kept_bytes() > std::max(2 * max_bytes_, 3 * places_bytes_)) DropKept();
  return bytes_;
}

size_t Automaton::bytes() const {
  const absl::MutexLock lock(&mutex_);
  return bytes_;
}

absl::Status Automaton::StartWork(int64_t max_work) {
  work_done_ = 0;
  too_many_threads_ = start_overflow_;
  if (lacks_places_ || kept_bytes() > std::max(max_bytes_, 2 * places_bytes_)) DropKept();
  work_bytes_ = std::max(2 * max_bytes_, 3 * places_bytes_);
  max_work_ = work_done_ + max_work;
  return lacks_places_ ? NoPlaces() : absl::OkStatus();
}

void Automaton::EndWork(int64_t* work) {
  *work += work_done_;
  total_work_ += work_done_;
}

int32_t Automaton::InternNode(const Node& node) {
  const auto [entry, added] = node_ids_.try_emplace(node, static_cast<int32_t>(nodes_.size()));
  if (added) {
    nodes_.push_back(node);
    saturated_nodes_.push_back({-1, -1});
    bytes_ += 2 * (2 * sizeof(Node) + 3 * sizeof(int32_t));
  }
  return entry->second;
}

int32_t Automaton::InternConfiguration(Threads threads) {
  std::sort(threads.begin(), threads.end());
  threads.erase(std::unique(threads.begin(), threads.end()), threads.end());
  const auto found = configuration_ids_.find(threads);
  if (found != configuration_ids_.end()) return found->second;
  const int32_t id = static_cast<int32_t>(configurations_.size());
  bytes_ += 2 * (sizeof(Configuration) + sizeof(Threads)) + 2 * threads.size() * sizeof(int32_t);
  configurations_.emplace_back();
  configurations_.back().threads = threads;
  configuration_ids_[std::move(threads)] = id;
  return id;
}

// Adds the states reached without a byte to `threads`.
void Automaton::Close(Work first, Threads* threads) {
  work_.push_back(first);
  while (!work_.empty() && !too_many_threads_) {
    const Work work = work_.back();
    work_.pop_back();
    work_done_ += kStepCost;
    Follow(work, threads);
    too_many_threads_ = threads->size() > kMaxThreads || seen_.size() > 8 * kMaxThreads;
  }
  work_.clear();
}

void Automaton::Follow(const Work& work, Threads* threads) {
  const State& state = grammar_->state(work.state);
  if (work.depth + state.height > kMaxDepth) return;  // no end from there
  if (state.kind == StateKind::kBytes) {
    threads->push_back(InternNode({work.state, 0, work.parent, work.depth}));
    return;
  }
  if (!seen_.insert(work).second) return;
  switch (state.kind) {
    case StateKind::kBytes:
      break;
    case StateKind::kSplit:
      for (const int32_t target : grammar_->targets(state)) {
        work_.push_back({target, work.parent, work.depth});
      }
      break;
    case StateKind::kCall: {
      const Rule& rule = grammar_->rule(state.rule);
      // Nothing follows: the caller need not be kept. It is kept below a repetition, so that a
      // local mask's rule ends there, without the count.
      const bool is_repeated =
          work.parent >= kNumEnds &&
          grammar_->state(nodes_[work.parent].state).kind == StateKind::kRepeat;
      const bool is_last = !is_repeated && grammar_->state(state.next).kind == StateKind::kReturn;
      const int32_t parent =
          is_last ? work.parent : InternNode({work.state, 0, work.parent, work.depth});
      work_.push_back({rule.start, parent, work.depth + rule.nests});
      break;
    }
    case StateKind::kRepeat:
      EnterRepeat(work.state, 0, work.parent, work.depth);
      break;
    case StateKind::kReturn: {
      if (work.parent < kNumEnds) {
        threads->push_back(work.parent);
        break;
      }
      const Node frame = nodes_[work.parent];
      const State& caller = grammar_->state(frame.state);
      if (caller.kind == StateKind::kCall) {
        work_.push_back({caller.next, frame.parent, frame.depth});
      } else {
        EnterRepeat(frame.state, frame.count + 1, frame.parent, frame.depth);
      }
      break;
    }
  }
}

// After `count` iterations.
void Automaton::EnterRepeat(int32_t id, int32_t count, int32_t parent, int32_t depth) {
  const State& state = grammar_->state(id);
  if (state.max < 0) count = std::min(count, state.min);
  if (count >= state.min) work_.push_back({state.next, parent, depth});
  if (state.max >= 0 && count >= state.max) return;
  const Rule& rule = grammar_->rule(state.rule);
  work_.push_back({rule.start, InternNode({id, count, parent, depth}), depth + rule.nests});
}

// kDead if there are too many threads: a configuration of only some of them must not be kept.
int32_t Automaton::Step(int32_t configuration, uint8_t byte) {
  Threads threads;
  seen_.clear();
  // By index: closing adds nodes, not configurations.
  const size_t size = configurations_[configuration].threads.size();
  for (size_t i = 0; i < size; ++i) {
    const int32_t thread = configurations_[configuration].threads[i];
    if (thread < kNumEnds) continue;
    work_done_ += kStepCost;
    const Node node = nodes_[thread];
    for (const ByteEdge& edge : grammar_->edges(grammar_->state(node.state))) {
      if (edge.first <= byte && byte <= edge.last) {
        Close({edge.next, node.parent, node.depth}, &threads);
      }
    }
  }
  if (too_many_threads_) return kDead;
  return InternConfiguration(std::move(threads));
}

int32_t Automaton::StepAndKeep(int32_t configuration, uint8_t byte) {
  const int32_t next = Step(configuration, byte);
  if (too_many_threads_) return kDead;
  if (configurations_[configuration].row == nullptr) {
    configurations_[configuration].row = std::make_unique<Row>();
    configurations_[configuration].row->fill(-1);
    bytes_ += sizeof(Row);
  }
  return (*configurations_[configuration].row)[byte] = next;
}

int32_t Automaton::TakePlace(int32_t configuration) {
  if (free_places_.empty()) {
    free_places_.push_back(static_cast<int32_t>(places_.size()));
    places_.push_back(-1);
  }
  const int32_t place = free_places_.back();
  free_places_.pop_back();
  places_[place] = configuration;
  return place;
}

int32_t Automaton::AddPlace() {
  const absl::MutexLock lock(&mutex_);
  return TakePlace(places_[start_]);
}

int32_t Automaton::CopyPlace(int32_t place) {
  const absl::MutexLock lock(&mutex_);
  return TakePlace(places_[place]);
}

int32_t Automaton::CopyPlace(const Automaton& another, int32_t place) {
  BH_CHECK(another.grammar_ == grammar_ && another.trie_ == trie_ && &another != this);
  const absl::MutexLock others_lock(&another.mutex_);
  const absl::MutexLock lock(&mutex_);
  const Threads& threads = another.configurations_[another.places_[place]].threads;
  Copies copies;
  return TakePlace(CopyConfiguration(another.nodes_, threads, copies));
}

void Automaton::DropPlace(int32_t place) {
  const absl::MutexLock lock(&mutex_);
  DropMaking(place);
  places_[place] = -1;
  free_places_.push_back(place);
  if (reserved_bytes_ > 0 || lacks_places_) DropKept();
}

absl::StatusOr<size_t> Automaton::Advance(int32_t place, absl::string_view bytes, int64_t max_work,
                                          int64_t* work) {
  const absl::MutexLock lock(&mutex_);
  const absl::Status started = StartWork(max_work);
  const absl::Cleanup end = [&] { EndWork(work); };
  if (!started.ok()) return started;
  int32_t at = places_[place];
  size_t done = 0;
  while (done < bytes.size() && (done == 0 || !is_too_much())) {
    const uint8_t byte = static_cast<uint8_t>(bytes[done++]);
    const Row* const row = configurations_[at].row.get();
    at = row != nullptr && (*row)[byte] >= 0 ? (*row)[byte] : Step(at, byte);
    if (too_many_threads_) return TooManyThreads();
    if (is_full()) KeepOnly(absl::MakeSpan(&at, 1));
    if (lacks_places_) return NoPlaces();
    if (at == kDead) {
      return absl::InvalidArgumentError(
          absl::StrCat("the grammar does not allow \"", absl::CHexEscape(bytes), "\" here"));
    }
  }
  DropMaking(place);
  places_[place] = at;
  return done;
}

absl::Status Automaton::Advance(int32_t place, absl::string_view bytes) {
  int64_t work = 0;
  while (!bytes.empty()) {
    absl::StatusOr<size_t> done = Advance(place, bytes, kMaxWork, &work);
    if (!done.ok()) return done.status();
    bytes.remove_prefix(*done);
  }
  return absl::OkStatus();
}

bool Automaton::is_complete(int32_t place) const {
  const absl::MutexLock lock(&mutex_);
  const Threads& threads = configurations_[places_[place]].threads;
  return !threads.empty() && threads[0] == kComplete;
}

bool Automaton::may_go_on(int32_t place) const {
  const absl::MutexLock lock(&mutex_);
  const Threads& threads = configurations_[places_[place]].threads;
  return !threads.empty() && threads.back() >= kNumEnds;
}

}  // namespace bulkhead::structured
