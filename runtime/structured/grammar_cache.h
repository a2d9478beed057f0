// GrammarCache: the automata that answers follow, and the trie of the model's tokens, within a
// budget of bytes. Requests for the same grammar share one automaton, which stays for later ones
// until another one needs its room. Thread-safe, like the automata.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "runtime/structured/automaton.h"
#include "runtime/structured/grammar.h"
#include "runtime/structured/token_trie.h"

namespace bulkhead::structured {

class GrammarCache {
 public:
  // The bytes of each token (Tokenizer::TokenBytes). Called once, by the first Get.
  using TokenBytes = std::function<absl::StatusOr<std::vector<std::string>>()>;
  using Compile = std::function<absl::StatusOr<std::shared_ptr<const Grammar>>(const GrammarSpec&)>;

  // `vocab_size`: the model's, which may be more or less than the number of tokens. `max_bytes`:
  // for trie, grammars and automata, without the memory to compile one.
  GrammarCache(TokenBytes token_bytes, int vocab_size, size_t max_bytes,
               Compile compile = &Grammar::Of);

  // Compiles the grammar unless cached: up to some tenths of a second. Errors of Grammar::Of, the
  // last few of which are kept; of the tokenizer; FAILED_PRECONDITION if the trie alone would take
  // the budget; RESOURCE_EXHAUSTED if the grammars of requests in flight leave no room.
  absl::StatusOr<std::shared_ptr<Automaton>> Get(const GrammarSpec& spec);
  // The same if it is compiled already, else null. Waits for no compilation.
  std::shared_ptr<Automaton> Find(const GrammarSpec& spec);

  // For tests: bytes of trie, pool and grammars, with the minimum bytes of each automaton.
  size_t charged_bytes() const;
  int num_grammars() const;

 private:
  // The bytes that an automaton may always keep: masks for some dozens of places. It is charged
  // twice that, which it may use while it makes one.
  size_t least_automaton_bytes() const;
  // What Get returns for a cached entry.
  std::optional<absl::StatusOr<std::shared_ptr<Automaton>>> FindLocked(const std::string& key)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status BuildTrie() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool MakeRoom(size_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status NoRoom(size_t bytes) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ShareOut() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // An automaton with the trie that it reads.
  struct Held {
    Held(std::shared_ptr<const TokenTrie> held_trie, std::shared_ptr<const Grammar> grammar,
         size_t max_bytes, std::shared_ptr<Automaton::Pool> pool)
        : trie(std::move(held_trie)),
          automaton(std::move(grammar), trie.get(), max_bytes, std::move(pool)) {}
    const std::shared_ptr<const TokenTrie> trie;
    Automaton automaton;
  };
  struct Entry {
    std::string key;
    absl::Status refused;        // by Grammar::Of
    std::shared_ptr<Held> held;  // null: refused
    size_t bytes = 0;            // charged

    bool is_used() const { return held != nullptr && held.use_count() > 1; }  // by a request
  };
  void Keep(Entry entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void KeepRefusal(const std::string& key, const absl::Status& why)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::list<Entry>::iterator Drop(std::list<Entry>::iterator entry)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const TokenBytes token_bytes_;
  const int vocab_size_;
  const size_t max_bytes_;
  const Compile compile_;
  mutable absl::Mutex mutex_;
  std::shared_ptr<const TokenTrie> trie_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<Automaton::Pool> pool_ ABSL_GUARDED_BY(mutex_);
  std::list<Entry> entries_ ABSL_GUARDED_BY(mutex_);  // most recently used first
  absl::flat_hash_map<std::string, std::list<Entry>::iterator> by_key_ ABSL_GUARDED_BY(mutex_);
  size_t num_refused_ ABSL_GUARDED_BY(mutex_) = 0;  // refused ones in entries_
  size_t charged_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  // Bytes of grammars for which there was no room, by the hash of their key: they are not compiled
  // again before there is room.
  absl::flat_hash_map<size_t, size_t> bytes_without_room_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace bulkhead::structured
