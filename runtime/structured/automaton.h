// Automaton: a grammar made deterministic lazily. A configuration is the set of stacks in which the
// grammar may be; equal ones have one id, and cache where each byte leads. The masks of tokens are
// also cached: what a token does before it leaves the innermost rule depends on that rule alone, so
// a mask for a new stack only walks the tokens that leave it. Shared by the matchers of all
// requests of the grammar, which may be in several threads: each call holds a lock, since all read
// and extend the cache.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "runtime/structured/grammar.h"
#include "runtime/structured/token_trie.h"

namespace bulkhead::structured {

class Automaton {
 public:
  // Maximum stacks of one configuration; beyond it RESOURCE_EXHAUSTED.
  static constexpr int kMaxThreads = 4096;
  // Maximum work of one call, in visited nodes of the trie, about 10 ns each; a step of a stack
  // counts as kStepCost. Longer work continues in later calls.
  static constexpr int64_t kMaxWork = 8'000'000;
  static constexpr int64_t kStepCost = 10;
  // Maximum work for the masks of one place, in all calls. Beyond it RESOURCE_EXHAUSTED, cached
  // like the masks; UNAVAILABLE if cached data was dropped meanwhile, so that more memory may help.
  static constexpr int64_t kMaxMaskWork = 32 * kMaxWork;
  // Memory that a place may use. Its answer is charged for it.
  static constexpr int64_t kPlaceBytes = 16 << 10;
  // Bytes left for the places of several automata that need more.
  using Pool = std::atomic<int64_t>;

  // `trie` must outlive it. Limits on what it keeps, which is dropped beyond them:
  // * between calls, the larger of `max_bytes` and twice what the places in answers took last;
  // * within a call, the larger of twice `max_bytes` and three times those places.
  // Never dropped: places, and how far a mask has come. Three times their bytes are in own_bytes(),
  // kPlaceBytes for each place and what is taken of `pool` (null: as much as needed).
  // Less memory means more work, but the same masks. Errors of a token or mask:
  // * RESOURCE_EXHAUSTED beyond kMaxThreads, whatever the memory;
  // * RESOURCE_EXHAUSTED beyond kMaxMaskWork, for a place whose masks need more with nothing kept;
  //   what is kept may avoid it;
  // * UNAVAILABLE where the pool has less than the places need.
  Automaton(std::shared_ptr<const Grammar> grammar, const TokenTrie* trie, size_t max_bytes,
            std::shared_ptr<Pool> pool = nullptr);
  ~Automaton();

  // Any thread. Drops the cache if it exceeds the limit within a call; returns the bytes kept.
  size_t SetMaxBytes(size_t max_bytes);

  // The tokens that may follow a place, a mask per part of the trie: bit i of [i / 32]; together,
  // all tokens. They live while they are held.
  using Mask = std::vector<uint32_t>;
  using Masks = std::array<std::shared_ptr<const Mask>, 2>;

  // An automaton of the same grammar and trie, which must outlive it, with an empty cache and its
  // own pool of as many bytes.
  std::shared_ptr<Automaton> Another(size_t max_bytes) const;

  // A place in an answer, kept for one matcher until Drop.
  int32_t AddPlace();
  int32_t CopyPlace(int32_t place);
  int32_t CopyPlace(const Automaton& another, int32_t place);
  void DropPlace(int32_t place);
  // UNAVAILABLE as for a token. Call after copying another automaton's place.
  absl::Status CheckPlaces();

  // Moves on by some of the token's bytes, at least one, and returns how many: all, unless that is
  // more than `max_work`. INVALID_ARGUMENT, and no move, if the grammar does not allow them. Adds
  // to `work` the work, and the work of dropping cached data, which `max_work` does not limit.
  absl::StatusOr<size_t> Advance(int32_t place, absl::string_view bytes, int64_t max_work,
                                 int64_t* work);
  absl::Status Advance(int32_t place, absl::string_view bytes);  // by all of them
  // Finds cached masks, at negligible cost; false: they must be made.
  bool FindMasks(int32_t place, Masks* masks);
  // Does up to kMaxWork, added to `work`; false: the next call for the place continues.
  absl::StatusOr<bool> MakeMasks(int32_t place, Masks* masks, int64_t* work);
  bool is_complete(int32_t place) const;  // the answer may end here
  bool may_go_on(int32_t place) const;    // a byte may follow

  const TokenTrie& trie() const { return *trie_; }
  size_t bytes() const;  // memory, without the grammar
  // The first `max_bytes`, plus three times the bytes that every answer's start needs.
  size_t own_bytes() const { return own_bytes_; }
  int64_t num_masks_made() const { return num_masks_made_; }  // for tests
  int64_t total_work() const { return total_work_; }          // for tests

 private:
  // A stack: its top, and the node below. 0 and 1 are the two bottoms of stacks.
  struct Node {
    int32_t state, count;  // count: iterations done of a repetition
    int32_t parent;
    int32_t depth;
    bool operator==(const Node& o) const {
      return state == o.state && count == o.count && parent == o.parent && depth == o.depth;
    }
    template <typename H>
    friend H AbslHashValue(H h, const Node& n) {
      return H::combine(std::move(h), n.state, n.count, n.parent, n.depth);
    }
  };
  struct Work {
    int32_t state, parent, depth;
    bool operator==(const Work& o) const {
      return state == o.state && parent == o.parent && depth == o.depth;
    }
    template <typename H>
    friend H AbslHashValue(H h, const Work& w) {
      return H::combine(std::move(h), w.state, w.parent, w.depth);
    }
  };
  using Threads = std::vector<int32_t>;  // nodes, sorted
  using Row = std::array<int32_t, 256>;
  struct Configuration {
    Threads threads;
    std::unique_ptr<Row> row;  // -1: not known
    std::array<int32_t, 2> saturated = {-1, -1};
    std::array<int32_t, 2> mask = {-1, -1};   // in masks_, of the part of the trie; or kRefused
    std::array<int32_t, 2> local = {-1, -1};  // in local_masks_
  };
  struct LocalMask {
    std::vector<uint32_t> bits;
    std::vector<uint32_t> leaving;  // bits of the trie's nodes: the rule ends there, inside a token
  };

  // A mask in progress. Of the cached data it needs only the configurations named here, so that
  // each call makes progress, whatever is dropped in between.
  struct InWork {
    int part = 0;  // part of the trie
    Mask bits;
    std::vector<int32_t> groups;  // threads with the same bottom; the last group is begun or next
    bool has_group = false;       // it is begun
    int32_t local = -1;  // configurations: of its rule; -1: its stacks are walked as a whole
    int32_t after = -1;  // after the rule; -1: nothing follows
    std::shared_ptr<LocalMask> mask;  // the rule's mask
    bool has_mask = false;            // the rule's mask is complete
    uint32_t next_leaving = 0;        // a node
    std::vector<int32_t>
        way;  // configurations, from the start of a walk up to `node`, which is next
    uint32_t node = 0;
  };
  struct Making {  // the masks of a place
    Masks masks;
    std::optional<InWork> in_work;
    int64_t work = 0;
    size_t bytes = 0;
    bool dropped = false;  // cached data that it may have used was dropped
  };

  int32_t TakePlace(int32_t configuration);
  using Copies = absl::flat_hash_map<int32_t, int32_t>;  // new nodes by those that are dropped
  int32_t CopyNode(const std::vector<Node>& nodes, int32_t thread, Copies& copies);
  int32_t CopyConfiguration(const std::vector<Node>& nodes, const Threads& threads, Copies& copies);
  int32_t InternNode(const Node& node);
  int32_t InternConfiguration(Threads threads);
  void Close(Work first, Threads* threads);
  void Follow(const Work& work, Threads* threads);
  void EnterRepeat(int32_t state, int32_t count, int32_t parent, int32_t depth);
  int32_t Step(int32_t configuration, uint8_t byte);
  int32_t StepAndKeep(int32_t configuration, uint8_t byte);

  int32_t SaturatedCount(const Node& node, int max_bytes) const;
  int32_t SaturatedNode(int32_t node, int part);
  int32_t Saturated(int32_t configuration, int part);
  // The frame at which the innermost rule of a stack ends, past repetitions.
  int32_t BottomOf(int32_t thread) const;
  int32_t WithoutBottom(int32_t thread, int32_t bottom, int32_t depth);
  int32_t AfterReturnTo(int32_t bottom);
  // These return false if the work is too much for this call.
  bool MakeMask(int32_t place, int part, Making& making);
  bool AddGroup(InWork& in_work);
  bool MakeLocalMask(InWork& in_work);
  bool Walk(InWork& in_work, int32_t configuration, uint32_t begin, uint32_t end, int depth,
            uint32_t* bits, uint32_t* leaving);
  void BeginMask(int32_t configuration, InWork& in_work);
  void BeginGroup(InWork& in_work);
  int32_t KeepMask(int32_t configuration, int part, Mask bits);
  void CountBytes(Making& making);
  void DropMaking(int32_t place);
  static absl::Status TooManyThreads();
  void SetTokens(const TokenTrie::Part& part, uint32_t node, uint32_t* bits) const;

  void Reset();
  void DropKept();
  void ReservePlaces();
  absl::Status NoPlaces() const;
  void KeepOnly(absl::Span<int32_t> configurations);
  absl::Status StartWork(int64_t max_work);
  void EndWork(int64_t* work);
  size_t kept_bytes() const { return bytes_ - making_bytes_; }
  bool is_full() const { return kept_bytes() > work_bytes_; }
  bool is_too_much() const { return work_done_ > max_work_; }

  mutable absl::Mutex mutex_;  // guards everything below that is not const or atomic
  const std::shared_ptr<const Grammar> grammar_;
  const TokenTrie* const trie_;
  const size_t mask_words_;
  const std::shared_ptr<Pool> pool_;
  size_t own_bytes_ = 0;
  size_t max_bytes_;

  std::vector<Node> nodes_;
  std::vector<std::array<int32_t, 2>> saturated_nodes_;
  absl::flat_hash_map<Node, int32_t> node_ids_;
  std::vector<Configuration> configurations_;
  absl::flat_hash_map<Threads, int32_t> configuration_ids_;
  absl::flat_hash_map<int32_t, int32_t> after_return_;  // configurations by frame
  std::vector<std::shared_ptr<const Mask>> masks_;
  std::vector<std::shared_ptr<LocalMask>> local_masks_;
  absl::flat_hash_map<int32_t, std::unique_ptr<Making>> makings_;  // by place
  std::vector<int32_t> places_;                                    // configurations; -1: free
  std::vector<int32_t> free_places_;
  size_t bytes_ = 0;
  size_t making_bytes_ = 0;     // part of bytes_
  size_t places_bytes_ = 0;     // bytes left after dropping everything else
  size_t work_bytes_ = 0;       // bytes that may be kept during the work
  int64_t reserved_bytes_ = 0;  // taken from the pool
  bool lacks_places_ = false;   // the pool has too little
  int64_t work_done_ = 0, max_work_ = kMaxWork, num_masks_made_ = 0;
  std::atomic<int64_t> total_work_ = 0;
  int32_t start_ = -1;  // a place
  bool too_many_threads_ = false;
  bool start_overflow_ = false;  // already before the first byte

  std::vector<Work> work_;  // used by Close
  absl::flat_hash_set<Work> seen_;
};

}  // namespace bulkhead::structured
