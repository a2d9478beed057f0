// TreeCommunicator: sums and gathers of a group on several nodes. Within a node, ranks use shared
// memory; between nodes, leaders use a LeaderLink.
//
// The sum uses the tree of communicator.h, independent of the placement of ranks: a node adds up
// the largest subtrees whose ranks are all on it, and the leaders combine subtrees in tree order.
// With equal numbers of consecutive ranks on a power of two of nodes, each node has
// one subtree, and leaders use recursive doubling: at distance 1, 2, 4 ... they exchange their
// subtotals, log2(nodes) messages each. Otherwise every node sends its subtrees to all others and
// adds them all, which is more work and traffic.
//
// If sums are in bf16 (CommLimits::sum_dtype) each node rounds a subtree's sum before it sends it,
// and itself continues with the rounded one: with recursive doubling the subtotal of every
// distance, else the subtrees of single nodes. Everything is added in f32, and the sum itself is
// not rounded: it has the same bits on all nodes.
//
// Uses as much memory as a group of the same size on one node (CommunicationBytes). The first of
// each rank's two slots holds its partial sum; the second slot of the node's first rank holds the
// sum, and the second slot of a subtree's second rank the subtree's sum. The space of the shared
// result stages subtrees from other nodes, except the first, which is stored in the sum's space. In
// a gather the second slot of every rank but the node's first holds the parts of its rows that come
// from other nodes.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "comm/shm/shm_communicator.h"
#include "comm/tree/leader_link.h"

namespace bulkhead {

// Ranks [begin, end) of the world, all on `node`, forming a subtree of the sum's tree.
struct Subtree {
  int begin = 0;
  int end = 0;
  int node = 0;
};

// Ordered by rank.
std::vector<Subtree> Subtrees(const std::vector<int>& nodes);

// Whether the leaders can combine the subtrees by recursive doubling.
bool UsesRecursiveDoubling(const std::vector<int>& nodes);

class TreeCommunicator final : public Communicator {
 public:
  // `region`: this node's. `world`: with nodes. `link`: null except on the leader. `tensors` and
  // `result` as for ShmCommunicator with the layout of the whole group, for this node's ranks.
  TreeCommunicator(std::shared_ptr<Region> region, const RankTopology& world, LeaderLink* link,
                   const CommLimits& limits, SharedMemory tensors, Buffer result);
  int rank() const override { return world_.rank; }
  int size() const override { return world_.size; }
  MatrixView PartialSum(int64_t rows, int64_t cols) override;
  absl::StatusOr<ConstMatrixView> AllReduceSum() override { return Sum(limits_.sum_dtype); }
  absl::StatusOr<ConstMatrixView> AllReduceSumF32() override { return Sum(DType::kF32); }
  absl::Status GatherCols(ConstMatrixView part, absl::Span<const int64_t> cols_of_rank,
                          MatrixView out) override {
    return Gather(part, {cols_of_rank, {}}, out);
  }
  absl::Status GatherRows(ConstMatrixView part, absl::Span<const int64_t> cols_of_rank,
                          absl::Span<const int> rank_of_row, MatrixView out) override {
    return Gather(part, {cols_of_rank, rank_of_row}, out);
  }

 private:
  absl::StatusOr<ConstMatrixView> Sum(DType sent_as);
  std::byte* slot(int which, int local_rank) const {
    return tensors_.get() + (int64_t{which} * region_->size() + local_rank) * layout_.slot_bytes;
  }
  float* partial(int local_rank) const { return reinterpret_cast<float*>(slot(0, local_rank)); }
  float* sum() const { return reinterpret_cast<float*>(slot(1, 0)); }
  float* OwnSubtree(const Subtree& subtree) const;
  void SumOwnSubtrees(int64_t begin, int64_t end);
  int64_t ChunkElements(int node) const;
  absl::Status RecursiveDoubling(int64_t elements);
  absl::Status ExchangeAllSubtrees(int64_t elements);
  void AddTree(int begin, int end, size_t& subtree, int64_t at, int64_t count, float* sum) const;
  absl::Status Gather(ConstMatrixView part, const GatherPlan& plan, MatrixView out);
  absl::Status ExchangeRows(int64_t rows, const GatherPlan& plan, MatrixView out);

  std::shared_ptr<Region> region_;
  const RankTopology world_;
  const std::vector<int> local_;  // ranks of this node
  LeaderLink* link_;
  CommLimits limits_;
  CommunicationLayout layout_;
  SharedMemory tensors_;
  Buffer result_;
  const std::vector<Subtree> subtrees_;
  const bool in_pairs_;
  float* staging_ = nullptr;     // leader: foreign subtrees except the first
  int64_t chunk_elements_ = 0;   // leader: maximum per subtree; equal on all nodes
  DType sent_as_ = DType::kF32;  // leader: subtrees of the current sum
  // leader: start of each subtree in the current chunk, in numbers of sent_as_
  std::vector<const std::byte*> subtree_at_;
  ShmBarrier barrier_;
  bool has_term_ = false;
  int64_t term_rows_ = 0;
  int64_t term_cols_ = 0;
};

}  // namespace bulkhead
