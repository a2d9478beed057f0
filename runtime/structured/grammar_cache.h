// GrammarCache: the automata that answers follow, and the trie of the model's tokens, in a budget
// of bytes. Requests for the same grammar share one automaton, which stays for later ones until
// another one needs its room. Thread-safe, as the automata are.
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

  // `vocab_size`: of the model, which may have more ids than there are tokens, or fewer.
  // `max_bytes`: of trie, grammars and automata, without the memory to compile one of them.
  GrammarCache(TokenBytes token_bytes, int vocab_size, size_t max_bytes,
               Compile compile = &Grammar::Of);

  // Compiles the grammar unless it is there: up to some tenths of a second. Errors of Grammar::Of,
  // the last few of which are kept; of the tokenizer; FAILED_PRECONDITION where the trie alone
  // would take the budget; RESOURCE_EXHAUSTED where the grammars of requests in flight leave no
  // room.
  absl::StatusOr<std::shared_ptr<Automaton>> Get(const GrammarSpec& spec);
  // The same where it is compiled already, else null. Waits for no compilation.
  std::shared_ptr<Automaton> Find(const GrammarSpec& spec);

  // For tests: bytes of trie, pool and grammars, with the least that each automaton may have.
  size_t charged_bytes() const;
  int num_grammars() const;

 private:
  // What an automaton may always keep: masks for some dozens of places. It has twice that while it
  // makes one, which is charged.
  size_t least_automaton_bytes() const;
  // What Get returns of an entry that is there.
  std::optional<absl::StatusOr<std::shared_ptr<Automaton>>> FindLocked(const std::string& key)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status BuildTrie() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool MakeRoom(size_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status NoRoom(size_t bytes) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ShareOut() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // With the trie that it reads.
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
  std::list<Entry> entries_ ABSL_GUARDED_BY(mutex_);  // used last first
  absl::flat_hash_map<std::string, std::list<Entry>::iterator> by_key_ ABSL_GUARDED_BY(mutex_);
  size_t num_refused_ ABSL_GUARDED_BY(mutex_) = 0;  // of entries_
  size_t charged_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  // What grammars need for which there was no room, by the hash of their key: they are not compiled
  // again before there is.
  absl::flat_hash_map<size_t, size_t> bytes_without_room_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace bulkhead::structured
