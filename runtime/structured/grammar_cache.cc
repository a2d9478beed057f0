#include "runtime/structured/grammar_cache.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/hash/hash.h"
#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/status.h"

namespace bulkhead::structured {
namespace {

// The places of an answer differ by some dozens of masks; configurations are much smaller.
constexpr size_t kLeastMasks = 32;
constexpr size_t kLeastStateBytes = size_t{64} << 10;
// A quarter of the uncharged bytes is shared by the automata of requests, which have twice that
// while they make masks; a quarter keeps the cache of idle ones. The rest is for the work on one
// token.
constexpr size_t kSharedPart = 4;
// Part of the bytes left by the trie, for places that need more than their own bytes.
constexpr size_t kPoolPart = 8;
// Number of refusals kept, so that a repeated request does not compile for some tenths of a second
// each time. Only the length is read of a text beyond the limit of a grammar.
constexpr size_t kMostRefusals = 64;
constexpr size_t kMaxRefusedBytes = 2 * kMaxGrammarBytes;
constexpr size_t kRefusalBytes = 512;  // in the list, the table and the status, without texts

// Texts of the client, each with its length before it.
std::string KeyOf(const GrammarSpec& spec) {
  std::string key = absl::StrCat(static_cast<int>(spec.form), ":");
  for (const std::string* text : {&spec.prefix, &spec.suffix, &spec.free_until, &spec.free_from}) {
    absl::StrAppend(&key, text->size(), ":", *text);
  }
  for (const std::string& text : spec.texts) absl::StrAppend(&key, text.size(), ":", text);
  return key;
}

}  // namespace

GrammarCache::GrammarCache(TokenBytes token_bytes, int vocab_size, size_t max_bytes,
                           Compile compile)
    : token_bytes_(std::move(token_bytes)),
      vocab_size_(vocab_size),
      max_bytes_(max_bytes),
      compile_(std::move(compile)) {}

size_t GrammarCache::least_automaton_bytes() const {
  return kLeastStateBytes + kLeastMasks * static_cast<size_t>(vocab_size_) / 8;
}

absl::Status GrammarCache::BuildTrie() {
  if (trie_ != nullptr) return absl::OkStatus();
  BH_ASSIGN_OR_RETURN(std::vector<std::string> tokens, token_bytes_());
  tokens.resize(vocab_size_);
  auto trie = std::make_shared<const TokenTrie>(tokens);
  const size_t needed = trie->bytes() + 2 * least_automaton_bytes();
  if (needed > max_bytes_) {
    return absl::FailedPreconditionError(absl::StrCat(
        "structured output needs ", FormatBytes(static_cast<int64_t>(needed)),
        " for this model's tokens, and the plan has ",
        FormatBytes(static_cast<int64_t>(max_bytes_)), "; start the server with more host memory"));
  }
  trie_ = std::move(trie);
  const size_t pool_bytes = (max_bytes_ - needed) / kPoolPart;
  pool_ = std::make_shared<Automaton::Pool>(static_cast<int64_t>(pool_bytes));
  charged_bytes_ = trie_->bytes() + pool_bytes;
  return absl::OkStatus();
}

// Drops grammars that no request uses, least recently used first; none if that is not enough.
bool GrammarCache::MakeRoom(size_t bytes) {
  size_t least = charged_bytes_;
  for (const Entry& entry : entries_) least -= entry.is_used() ? 0 : entry.bytes;
  if (least + bytes > max_bytes_) return false;
  for (auto entry = entries_.end(); entry != entries_.begin();) {
    if (charged_bytes_ + bytes <= max_bytes_) return true;
    --entry;
    if (entry->is_used()) continue;
    entry = Drop(entry);
  }
  return charged_bytes_ + bytes <= max_bytes_;
}

std::list<GrammarCache::Entry>::iterator GrammarCache::Drop(std::list<Entry>::iterator entry) {
  charged_bytes_ -= entry->bytes;
  num_refused_ -= entry->held == nullptr ? 1 : 0;
  by_key_.erase(entry->key);
  return entries_.erase(entry);
}

// No request waits for the cache of idle automata: the least recently used drop theirs first.
void GrammarCache::ShareOut() {
  const size_t part = (max_bytes_ - charged_bytes_) / kSharedPart;
  const size_t least = least_automaton_bytes();
  const auto num_used = static_cast<size_t>(
      std::count_if(entries_.begin(), entries_.end(), [](const Entry& e) { return e.is_used(); }));
  size_t unused_left = part;
  for (Entry& entry : entries_) {
    if (entry.held == nullptr) continue;
    Automaton& automaton = entry.held->automaton;
    if (entry.is_used()) {
      automaton.SetMaxBytes(least + part / num_used);
    } else {
      const size_t kept = automaton.SetMaxBytes(least + unused_left / 2);
      unused_left -= std::min(unused_left, kept - std::min(kept, 2 * least));
    }
  }
}

void GrammarCache::Keep(Entry entry) {
  charged_bytes_ += entry.bytes;
  entries_.push_front(std::move(entry));
  by_key_[entries_.front().key] = entries_.begin();
  ShareOut();
}

void GrammarCache::KeepRefusal(const std::string& key, const absl::Status& why) {
  if (key.size() > kMaxRefusedBytes) return;
  if (num_refused_ == kMostRefusals) {
    const auto is_refused = [](const Entry& entry) { return entry.held == nullptr; };
    Drop(std::prev(std::find_if(entries_.rbegin(), entries_.rend(), is_refused).base()));
  }
  const size_t bytes = kRefusalBytes + 2 * key.size() + why.message().size();
  if (!MakeRoom(bytes)) return;
  ++num_refused_;
  Keep({key, why, nullptr, bytes});
}

std::optional<absl::StatusOr<std::shared_ptr<Automaton>>> GrammarCache::FindLocked(
    const std::string& key) {
  const auto found = by_key_.find(key);
  if (found == by_key_.end()) return std::nullopt;
  entries_.splice(entries_.begin(), entries_, found->second);
  const Entry& entry = entries_.front();
  if (entry.held == nullptr) return entry.refused;
  const bool was_used = entry.is_used();
  std::shared_ptr<Automaton> automaton(entry.held, &entry.held->automaton);
  if (!was_used) ShareOut();
  return automaton;
}

std::shared_ptr<Automaton> GrammarCache::Find(const GrammarSpec& spec) {
  const std::string key = KeyOf(spec);
  const absl::MutexLock lock(&mutex_);
  const auto found = FindLocked(key);
  return found.has_value() && found->ok() ? **found : nullptr;
}

absl::StatusOr<std::shared_ptr<Automaton>> GrammarCache::Get(const GrammarSpec& spec) {
  const std::string key = KeyOf(spec);
  const size_t hash = absl::HashOf(key);
  {
    const absl::MutexLock lock(&mutex_);
    if (auto found = FindLocked(key); found.has_value()) return *std::move(found);
    BH_RETURN_IF_ERROR(BuildTrie());
    const auto needed = bytes_without_room_.find(hash);
    if (needed != bytes_without_room_.end() && !MakeRoom(needed->second)) {
      return NoRoom(needed->second);
    }
  }
  // Without the lock: other requests find their grammars.
  absl::StatusOr<std::shared_ptr<const Grammar>> grammar = compile_(spec);
  const absl::MutexLock lock(&mutex_);
  if (auto found = FindLocked(key); found.has_value()) return *std::move(found);
  if (!grammar.ok()) {
    KeepRefusal(key, grammar.status());
    return grammar.status();
  }
  const size_t grammar_bytes = (*grammar)->bytes() + 2 * key.size();
  auto held = std::make_shared<Held>(trie_, *std::move(grammar), least_automaton_bytes(), pool_);
  const size_t bytes = grammar_bytes + held->automaton.own_bytes() + least_automaton_bytes();
  if (!MakeRoom(bytes)) {
    if (bytes_without_room_.size() == kMostRefusals) bytes_without_room_.clear();
    bytes_without_room_[hash] = bytes;
    return NoRoom(bytes);
  }
  bytes_without_room_.erase(hash);
  Keep({key, absl::OkStatus(), held, bytes});
  return std::shared_ptr<Automaton>(held, &held->automaton);
}

absl::Status GrammarCache::NoRoom(size_t bytes) const {
  return absl::ResourceExhaustedError(
      absl::StrCat("the grammars of ", entries_.size(), " requests in flight take ",
                   FormatBytes(static_cast<int64_t>(charged_bytes_)), " of the limit of ",
                   FormatBytes(static_cast<int64_t>(max_bytes_)), ", and this one needs ",
                   FormatBytes(static_cast<int64_t>(bytes)),
                   "; try again later, send the same schema with each request, or a smaller one"));
}

size_t GrammarCache::charged_bytes() const {
  const absl::MutexLock lock(&mutex_);
  return charged_bytes_;
}

int GrammarCache::num_grammars() const {
  const absl::MutexLock lock(&mutex_);
  return static_cast<int>(entries_.size());
}

}  // namespace bulkhead::structured
