// TreeCommunicator: sums and gathers of a group on several nodes. A node's ranks meet in shared
// memory, the nodes' leaders over a LeaderLink.
//
// The tree of a sum is the one of communicator.h, wherever the ranks are: a node adds up its
// *pieces*, the largest subtrees whose ranks it all has, and the leaders bring pieces together in
// the tree's order. Ranks in equal numbers, in order, on a power of two of nodes make one piece a
// node, and the tree over them pairs neighbours: leaders at distance 1, 2, 4 ... swap what they
// have added up so far, log2(nodes) messages each. Others work and have more to send: every node
// sends its pieces to all others, and adds them all.
//
// It takes no more memory than a group of as many ranks on one node (CommunicationBytes). Of the
// two slots of each rank the first holds its partial sum; the second of the node's first rank holds
// the sum, and that of a piece's second rank the piece. The space of the shared result takes what
// comes from other nodes beyond the first, which is put where the sum will be.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "comm/leader_link.h"
#include "comm/shm_communicator.h"

namespace bulkhead {

// Ranks [begin, end) of the world, all on `node`, a subtree of the sum's tree.
struct Subtree {
  int begin = 0;
  int end = 0;
  int node = 0;
};

// In the order of ranks.
std::vector<Subtree> Subtrees(const std::vector<int>& nodes);

// Whether the tree over the pieces is one that leaders can add up in pairs.
bool UsesRecursiveDoubling(const std::vector<int>& nodes);

class TreeCommunicator final : public Communicator {
 public:
  // `region`: this node's. `world`: with nodes. `link`: null but on the leader. `tensors` and
  // `result` as for ShmCommunicator with the layout of the whole group, for this node's ranks.
  TreeCommunicator(std::shared_ptr<Region> region, const RankTopology& world, LeaderLink* link,
                   const CommLimits& limits, SharedMemory tensors, Buffer result);
  int rank() const override { return world_.rank; }
  int size() const override { return world_.size; }
  MatrixView PartialSum(int64_t rows, int64_t cols) override;
  absl::StatusOr<ConstMatrixView> AllReduceSum() override;
  absl::Status GatherCols(ConstMatrixView part, absl::Span<const int64_t> cols_of_rank,
                          MatrixView out) override;

 private:
  std::byte* slot(int which, int local_rank) const {
    return tensors_.get() + (int64_t{which} * region_->size() + local_rank) * layout_.slot_bytes;
  }
  float* partial(int local_rank) const { return reinterpret_cast<float*>(slot(0, local_rank)); }
  float* sum() const { return reinterpret_cast<float*>(slot(1, 0)); }
  float* OwnPiece(const Subtree& piece) const;
  void SumOwnPieces(int64_t begin, int64_t end);
  int64_t ChunkElements(int node) const;
  absl::Status RecursiveDoubling(int64_t elements);
  absl::Status ExchangeAllPieces(int64_t elements);
  void AddTree(int begin, int end, size_t& piece, int64_t at, int64_t count, float* sum) const;
  absl::Status GatherFromNode(int64_t rows, absl::Span<const int64_t> cols_of_rank);
  absl::Status GatherToRank0(ConstMatrixView part, absl::Span<const int64_t> cols_of_rank,
                             MatrixView out);

  std::shared_ptr<Region> region_;
  const RankTopology world_;
  const std::vector<int> local_;  // ranks of this node
  LeaderLink* link_;
  CommLimits limits_;
  CommunicationLayout layout_;
  SharedMemory tensors_;
  Buffer result_;
  const std::vector<Subtree> pieces_;
  const bool in_pairs_;
  float* staging_ = nullptr;            // leader: for foreign pieces but the first
  int64_t chunk_elements_ = 0;          // leader: of a piece, at most; alike on all nodes
  std::vector<const float*> piece_at_;  // leader: where each piece of the current chunk begins
  ShmBarrier barrier_;
  bool has_term_ = false;
  int64_t term_rows_ = 0;
  int64_t term_cols_ = 0;
};

}  // namespace bulkhead
