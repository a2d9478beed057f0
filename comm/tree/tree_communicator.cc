#include "comm/tree/tree_communicator.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/status.h"
#include "comm/shm/shm_communicator.h"
#include "memory/bf16.h"

// When may memory be rewritten? Every operation starts with a barrier A of the node and ends with a
// barrier E.
//   * A rank's first slot, read by others between A and E: written after E. In a gather that gives
//     rows to all ranks, second slots are written by the leader before a barrier between A and E.
//   * The sum, read by its callers until their next PartialSum: rewritten after the next A, which
//     every rank enters after its PartialSum. Subtrees and staging are read between A and E only.
//   * Subtrees of a node, including partial sums of single ranks, are only the leader's once they
//     are added up: it rounds them to bf16 in place.
// bf16 numbers that are widened in place are stored in the upper half of their f32 space, and are
// read, a block at a time, before the next ones are overwritten.

namespace bulkhead {
namespace {

constexpr int64_t kFloatBytes = sizeof(float);
constexpr int64_t kBf16Bytes = sizeof(uint16_t);
constexpr int64_t kBlock = 1024;  // floats: partial sums stay in the L1 cache

int Half(int begin, int end) { return begin + (end - begin + 1) / 2; }

void AddSubtrees(const std::vector<int>& nodes, int begin, int end,
                 std::vector<Subtree>& subtrees) {
  const bool whole = std::all_of(nodes.begin() + begin, nodes.begin() + end,
                                 [&](int node) { return node == nodes[begin]; });
  if (whole) {
    subtrees.push_back({begin, end, nodes[begin]});
    return;
  }
  AddSubtrees(nodes, begin, Half(begin, end), subtrees);
  AddSubtrees(nodes, Half(begin, end), end, subtrees);
}

// Whether `subtrees` are the leaves, all at one depth, of the tree over the ranks [begin, end).
bool IsFullTree(absl::Span<const Subtree> subtrees, int begin, int end) {
  if (subtrees.size() == 1) return subtrees[0].begin == begin && subtrees[0].end == end;
  if (subtrees.size() % 2 != 0) return false;
  const int half = Half(begin, end);
  return IsFullTree(subtrees.subspan(0, subtrees.size() / 2), begin, half) &&
         IsFullTree(subtrees.subspan(subtrees.size() / 2), half, end);
}

// `to` may be `from` or begin before it.
void RoundToBf16(const float* from, int64_t count, std::byte* to) {
  uint16_t block[kBlock];
  for (int64_t at = 0; at < count; at += kBlock) {
    const int64_t block_count = std::min(kBlock, count - at);
    for (int64_t i = 0; i < block_count; ++i) block[i] = Bf16OfF32(from[at + i]);
    std::memcpy(to + at * kBf16Bytes, block, block_count * kBf16Bytes);
  }
}

// At most kBlock numbers; `to` may overlap `from`.
void WidenBf16(const std::byte* from, int64_t count, float* to) {
  uint16_t block[kBlock];
  std::memcpy(block, from, count * kBf16Bytes);
  for (int64_t i = 0; i < count; ++i) to[i] = F32OfBf16(block[i]);
}

// sum[i] = a[i] + b[i], with a and b in bf16.
void AddBf16(const std::byte* a, const std::byte* b, int64_t count, float* sum) {
  float right[kBlock];
  for (int64_t at = 0; at < count; at += kBlock) {
    const int64_t block_count = std::min(kBlock, count - at);
    WidenBf16(b + at * kBf16Bytes, block_count, right);
    WidenBf16(a + at * kBf16Bytes, block_count, sum + at);
    for (int64_t i = 0; i < block_count; ++i) sum[at + i] += right[i];
  }
}

int LocalIndex(const std::vector<int>& local, int rank) {
  return static_cast<int>(std::lower_bound(local.begin(), local.end(), rank) - local.begin());
}

}  // namespace

std::vector<Subtree> Subtrees(const std::vector<int>& nodes) {
  std::vector<Subtree> subtrees;
  AddSubtrees(nodes, 0, static_cast<int>(nodes.size()), subtrees);
  return subtrees;
}

bool UsesRecursiveDoubling(const std::vector<int>& nodes) {
  const std::vector<Subtree> subtrees = Subtrees(nodes);
  for (size_t i = 0; i < subtrees.size(); ++i) {
    if (subtrees[i].node != static_cast<int>(i)) return false;  // a node has several
  }
  return IsFullTree(subtrees, 0, static_cast<int>(nodes.size()));
}

TreeCommunicator::TreeCommunicator(std::shared_ptr<Region> region, const RankTopology& world,
                                   LeaderLink* link, const CommLimits& limits, SharedMemory tensors,
                                   Buffer result)
    : region_(std::move(region)),
      world_(world),
      local_(world.RanksOf(world.node())),
      link_(link),
      limits_(limits),
      layout_(limits, world.size),
      tensors_(std::move(tensors)),
      result_(std::move(result)),
      subtrees_(Subtrees(world.nodes)),
      in_pairs_(UsesRecursiveDoubling(world.nodes)),
      subtree_at_(subtrees_.size()),
      barrier_(*region_) {
  BH_CHECK(world.num_nodes() > 1 && (link != nullptr) == (region_->rank() == 0));
  // First-touched by their rank, to place them on its NUMA node.
  for (int which = 0; which < 2; ++which) {
    std::memset(slot(which, region_->rank()), 0, layout_.slot_bytes);
  }
  // Only the leader uses the staging memory, but every rank has accounted for its share.
  std::memset(slot(2, 0) + region_->rank() * layout_.shared_result_bytes, 0,
              layout_.shared_result_bytes);
  if (link_ == nullptr) return;
  staging_ =
      reinterpret_cast<float*>(layout_.shared_result_bytes > 0 ? slot(2, 0) : result_.data());
  chunk_elements_ = kMaxLinkMessageBytes / kFloatBytes;
  for (int node = 0; node < world.num_nodes(); ++node) {
    chunk_elements_ = std::min(chunk_elements_, ChunkElements(node));
  }
  BH_CHECK(limits.max_sum_elements == 0 || chunk_elements_ > 0);
}

// Elements of each subtree that `node` can receive at once.
int64_t TreeCommunicator::ChunkElements(int node) const {
  auto foreign = std::count_if(subtrees_.begin(), subtrees_.end(),
                               [&](const Subtree& subtree) { return subtree.node != node; });
  if (in_pairs_)
    foreign = std::min<int64_t>(foreign, 2);  // one in staging, one in the place of
                                              // the sum
  const auto ranks = std::count(world_.nodes.begin(), world_.nodes.end(), node);
  const int64_t staging_bytes = layout_.shared_result_bytes > 0
                                    ? layout_.shared_result_bytes * ranks
                                    : layout_.private_result_bytes;
  return foreign == 1 ? kMaxLinkMessageBytes / kFloatBytes
                      : staging_bytes / kFloatBytes / (foreign - 1);
}

MatrixView TreeCommunicator::PartialSum(int64_t rows, int64_t cols) {
  BH_CHECK(rows >= 0 && cols >= 0 && rows * cols <= limits_.max_sum_elements);
  has_term_ = true;
  term_rows_ = rows;
  term_cols_ = cols;
  return MatrixView(slot(0, region_->rank()), DType::kF32, rows, cols);
}

absl::StatusOr<ConstMatrixView> TreeCommunicator::Sum(DType sent_as) {
  BH_CHECK(has_term_);
  has_term_ = false;
  sent_as_ = sent_as;
  const int64_t elements = term_rows_ * term_cols_;
  BH_RETURN_IF_ERROR(barrier_.Wait(elements));
  if (elements * kFloatBytes <= kSmallSumBytes) {
    if (link_ != nullptr) SumOwnSubtrees(0, elements);
  } else {
    SumOwnSubtrees(ShareBegin(elements, region_->rank(), region_->size()),
                   ShareBegin(elements, region_->rank() + 1, region_->size()));
    BH_RETURN_IF_ERROR(barrier_.Wait(elements));
  }
  if (link_ != nullptr) {
    BH_RETURN_IF_ERROR(in_pairs_ ? RecursiveDoubling(elements) : ExchangeAllSubtrees(elements));
  }
  BH_RETURN_IF_ERROR(barrier_.Wait(elements));
  return ConstMatrixView(slot(1, 0), DType::kF32, term_rows_, term_cols_);
}

// The sum of a subtree of this node's ranks: for a single rank, its partial sum.
float* TreeCommunicator::OwnSubtree(const Subtree& subtree) const {
  const int first = LocalIndex(local_, subtree.begin);
  return subtree.end - subtree.begin == 1 ? partial(first)
                                          : reinterpret_cast<float*>(slot(1, first + 1));
}

void TreeCommunicator::SumOwnSubtrees(int64_t begin, int64_t end) {
  for (const Subtree& subtree : subtrees_) {
    if (subtree.node != world_.node() || subtree.end - subtree.begin == 1) continue;
    std::vector<const float*> partial_sums;
    for (int rank = subtree.begin; rank < subtree.end; ++rank) {
      partial_sums.push_back(partial(LocalIndex(local_, rank)));
    }
    TreeSum(partial_sums, begin, end, OwnSubtree(subtree));
  }
}

// Leader: at distance 1, 2, 4 ... exchanges its subtotal with another leader; the two are the
// halves of a subtree.
absl::Status TreeCommunicator::RecursiveDoubling(int64_t elements) {
  const bool rounds = sent_as_ == DType::kBF16;
  const int64_t element_bytes = DTypeBytes(sent_as_);
  for (int64_t begin = 0; begin < elements; begin += chunk_elements_) {
    const int64_t count = std::min(chunk_elements_, elements - begin);
    const int64_t bytes = count * element_bytes;
    float* const total = sum() + begin;
    float* mine = OwnSubtree(subtrees_[world_.node()]) + begin;
    for (int distance = 1; distance < world_.num_nodes(); distance *= 2) {
      const int peer = world_.node() ^ distance;
      float* const space = distance == 1 ? total : staging_;
      std::byte* const theirs =
          reinterpret_cast<std::byte*>(space) + count * (kFloatBytes - element_bytes);
      auto* sent = reinterpret_cast<std::byte*>(mine);
      if (rounds) {
        // Free: the lower half of the staging memory, and our subtree's space once it is rounded.
        if (distance > 1) sent = reinterpret_cast<std::byte*>(staging_);
        RoundToBf16(mine, count, sent);
      }
      const Outgoing send{peer, sent, bytes};
      const Incoming receive{.node = peer, .data = theirs, .row_bytes = bytes};
      BH_RETURN_IF_ERROR(link_->Transfer(LinkKind::kTensors, {&send, 1}, {&receive, 1}));
      if (rounds) {
        AddBf16(sent, theirs, count, total);
      } else {
        const float* const other = distance == 1 ? mine : staging_;
        for (int64_t i = 0; i < count; ++i) total[i] += other[i];
      }
      mine = total;
    }
  }
  return absl::OkStatus();
}

// Leader: sends its subtrees to every other node, receives theirs and adds them all, in chunks that
// fit every node's staging memory.
absl::Status TreeCommunicator::ExchangeAllSubtrees(int64_t elements) {
  const int64_t element_bytes = DTypeBytes(sent_as_);
  std::vector<Outgoing> sends;
  std::vector<Incoming> receives;
  for (int64_t begin = 0; begin < elements; begin += chunk_elements_) {
    const int64_t count = std::min(chunk_elements_, elements - begin);
    const int64_t bytes = count * element_bytes;
    sends.clear();
    receives.clear();
    for (size_t i = 0; i < subtrees_.size(); ++i) {
      const Subtree& subtree = subtrees_[i];
      if (subtree.node != world_.node()) {
        std::byte* const to =
            receives.empty()
                ? reinterpret_cast<std::byte*>(sum() + begin) + count * kFloatBytes - bytes
                : reinterpret_cast<std::byte*>(staging_) +
                      (static_cast<int64_t>(receives.size()) - 1) * bytes;
        receives.push_back({.node = subtree.node, .data = to, .row_bytes = bytes});
        subtree_at_[i] = to;
        continue;
      }
      float* const own = OwnSubtree(subtree) + begin;
      auto* const sent = reinterpret_cast<std::byte*>(own);
      if (sent_as_ == DType::kBF16) RoundToBf16(own, count, sent);
      subtree_at_[i] = sent;
      for (int node = 0; node < world_.num_nodes(); ++node) {
        if (node != subtree.node) sends.push_back({node, sent, bytes});
      }
    }
    BH_RETURN_IF_ERROR(link_->Transfer(LinkKind::kTensors, sends, receives));
    for (int64_t at = 0; at < count; at += kBlock) {
      // Not directly into the sum: its space holds the first foreign subtree.
      float block[kBlock];
      size_t subtree = 0;
      const int64_t block_count = std::min(kBlock, count - at);
      AddTree(0, world_.size, subtree, at, block_count, block);
      std::memcpy(sum() + begin + at, block, block_count * kFloatBytes);
    }
  }
  return absl::OkStatus();
}

// Adds the subtree over the ranks [begin, end), starting with subtrees_[`subtree`]; advances
// `subtree`. At most kBlock numbers.
void TreeCommunicator::AddTree(int begin, int end, size_t& subtree, int64_t at, int64_t count,
                               float* sum) const {
  if (subtrees_[subtree].begin == begin && subtrees_[subtree].end == end) {
    const std::byte* const from = subtree_at_[subtree++] + at * DTypeBytes(sent_as_);
    if (sent_as_ == DType::kF32) {
      std::memcpy(sum, from, count * kFloatBytes);
    } else {
      WidenBf16(from, count, sum);
    }
    return;
  }
  float right[kBlock];
  AddTree(begin, Half(begin, end), subtree, at, count, sum);
  AddTree(Half(begin, end), end, subtree, at, count, right);
  for (int64_t i = 0; i < count; ++i) sum[i] += right[i];
}

absl::Status TreeCommunicator::Gather(ConstMatrixView part, const GatherPlan& plan,
                                      MatrixView out) {
  BH_CHECK(!has_term_ && static_cast<int>(plan.cols_of_rank.size()) == size());
  BH_CHECK(out.rows() == plan.RowsOf(rank(), part.rows()));
  BH_CHECK(out.rows() == 0 || out.cols() == plan.width());
  const int64_t note = plan.Note(part.rows());
  PutPart(part, plan, rank(), limits_, partial(region_->rank()));
  BH_RETURN_IF_ERROR(barrier_.Wait(note));
  if (link_ != nullptr) BH_RETURN_IF_ERROR(ExchangeRows(part.rows(), plan, out));
  if (!plan.rank_of_row.empty()) BH_RETURN_IF_ERROR(barrier_.Wait(note));
  const auto* const staged = reinterpret_cast<const float*>(slot(1, region_->rank()));
  int64_t own = 0;  // rows so far
  for (int64_t row = 0; row < part.rows(); ++row) {
    if (plan.RankOf(row) != rank()) continue;
    int64_t col = 0;
    for (int r = 0; r < size(); ++r) {
      const int64_t cols = plan.cols_of_rank[r];
      const float* from = nullptr;  // null: already in `out`
      if (r == rank()) {
        from = part.F32(row);
      } else if (world_.nodes[r] == world_.node()) {
        from = partial(LocalIndex(local_, r)) + row * cols;
      } else if (link_ == nullptr) {
        from = staged + own * plan.width() + col;
      }
      if (from != nullptr && cols > 0) std::memcpy(out.F32(own) + col, from, cols * kFloatBytes);
      col += cols;
    }
    ++own;
  }
  return barrier_.Wait(note);
}

// Leader: sends its ranks' parts of other nodes' rows, and receives the missing parts of its own
// ranks' rows: its own rows into `out`, the others' into their second slots. Consecutive rows to
// the same rank are one message from each rank.
absl::Status TreeCommunicator::ExchangeRows(int64_t rows, const GatherPlan& plan, MatrixView out) {
  std::vector<Outgoing> sends;
  std::vector<Incoming> receives;
  std::vector<int64_t> rows_of(local_.size());
  int64_t end = 0;  // end of the rows in a message
  for (int64_t row = 0; row < rows; row = end) {
    const int to = plan.RankOf(row);
    for (end = row + 1; end < rows && plan.RankOf(end) == to;) ++end;
    const bool here = world_.nodes[to] == world_.node();
    const int local = here ? LocalIndex(local_, to) : 0;
    const int64_t own = rows_of[local];
    if (here) rows_of[local] += end - row;
    const int64_t stride = local == 0 ? out.row_stride() : plan.width();
    int64_t col = 0;
    for (int r = 0; r < size(); ++r) {
      const int64_t cols = plan.cols_of_rank[r];
      const bool from_here = world_.nodes[r] == world_.node();
      if (cols > 0 && here && !from_here) {
        float* const row_at = local == 0
                                  ? out.F32(own)
                                  : reinterpret_cast<float*>(slot(1, local)) + own * plan.width();
        receives.push_back({.node = world_.nodes[r],
                            .data = row_at + col,
                            .row_bytes = cols * kFloatBytes,
                            .rows = end - row,
                            .stride_bytes = stride * kFloatBytes});
      } else if (cols > 0 && !here && from_here) {
        sends.push_back({world_.nodes[to], partial(LocalIndex(local_, r)) + row * cols,
                         (end - row) * cols * kFloatBytes});
      }
      col += cols;
    }
  }
  if (sends.empty() && receives.empty()) return absl::OkStatus();
  return link_->Transfer(LinkKind::kTensors, sends, receives);
}

}  // namespace bulkhead
