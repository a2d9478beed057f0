#include "comm/shm/shm_communicator.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/arithmetic.h"
#include "base/check.h"
#include "base/exit_code.h"
#include "base/status.h"

namespace bulkhead {
namespace {

constexpr int64_t kBlock = 1024;  // floats: partial sums of a deeper tree stay in the L1 cache

void AddTwo(const float* a, const float* b, int64_t count, float* __restrict sum) {
  for (int64_t i = 0; i < count; ++i) sum[i] = a[i] + b[i];
}

void AddThree(const float* a, const float* b, const float* c, int64_t count,
              float* __restrict sum) {
  for (int64_t i = 0; i < count; ++i) sum[i] = (a[i] + b[i]) + c[i];
}

void AddFour(const float* const* t, int64_t at, int64_t count, float* __restrict sum) {
  const float* a = t[0] + at;
  const float* b = t[1] + at;
  const float* c = t[2] + at;
  const float* d = t[3] + at;
  for (int64_t i = 0; i < count; ++i) sum[i] = (a[i] + b[i]) + (c[i] + d[i]);
}

// Sums the subtree over t[0..n), elements [at, at + count), count <= kBlock, into sum[0..count).
void AddSubtree(const float* const* t, int64_t n, int64_t at, int64_t count, float* sum) {
  switch (n) {
    case 1:
      std::memcpy(sum, t[0] + at, count * sizeof(float));
      return;
    case 2:
      AddTwo(t[0] + at, t[1] + at, count, sum);
      return;
    case 3:
      AddThree(t[0] + at, t[1] + at, t[2] + at, count, sum);
      return;
    case 4:
      AddFour(t, at, count, sum);
      return;
    default:
      break;
  }
  const int64_t left = (n + 1) / 2;
  float right_sum[kBlock];
  AddSubtree(t, left, at, count, sum);
  AddSubtree(t + left, n - left, at, count, right_sum);
  for (int64_t i = 0; i < count; ++i) sum[i] += right_sum[i];
}

}  // namespace

void TreeSum(absl::Span<const float* const> partial_sums, int64_t begin, int64_t end, float* sum) {
  const auto n = static_cast<int64_t>(partial_sums.size());
  for (int64_t at = begin; at < end; at += kBlock) {
    AddSubtree(partial_sums.data(), n, at, std::min(kBlock, end - at), sum + at);
  }
}

// When may shared memory be rewritten? Operations (sums and gathers) have the same numbers on all
// ranks; operation k uses the slots of turn k % 2 and starts with barrier A(k), which a rank enters
// after writing its slot and leaves when all have entered.
//   * Slot of operation k, rewritten for k + 2: the writer has left A(k + 1); every rank that
//     entered A(k + 1) has returned from k and so finished reading the slots of k.
//     This is why a gather holds every rank at its barrier, also one that gets no rows: a rank that
//     went on would be in k + 1 without knowing that k - 1 has been read.
//   * Shared result of a large sum k, read by the callers until their next PartialSum: rewritten
//     in a later large sum k' after A(k'), which every rank enters after its PartialSum of k'.
//   * Between A(k) and B(k), the second barrier of a large sum, ranks write disjoint shares of
//     the shared result; it is read only after B(k).
//   * The private result is the rank's own; its caller is done with it at the next PartialSum.
//   * Notes of barrier b are at b % 2 and rewritten before entering b + 2, after leaving b + 1.

namespace {

constexpr int64_t kGranule = 16;  // floats, one cache line: shares never split one
constexpr int64_t kMaxElements = int64_t{1} << 48;
constexpr int64_t kFloatBytes = sizeof(float);

}  // namespace

int64_t ShareBegin(int64_t elements, int rank, int size) {
  const int64_t granules = CeilDiv(elements, kGranule);
  return std::min(elements, granules * rank / size * kGranule);
}

int64_t GatherPlan::width() const {
  return std::accumulate(cols_of_rank.begin(), cols_of_rank.end(), int64_t{0});
}

int64_t GatherPlan::RowsOf(int rank, int64_t rows) const {
  if (rank_of_row.empty()) return rank == 0 ? rows : 0;
  return std::count(rank_of_row.begin(), rank_of_row.end(), rank);
}

int64_t GatherPlan::Note(int64_t rows) const {
  auto note = static_cast<uint64_t>(rows);
  for (const int rank : rank_of_row) note = note * 0x9E3779B97F4A7C15ULL + rank + 1;
  return -1 - static_cast<int64_t>(note >> 1);
}

void PutPart(ConstMatrixView part, const GatherPlan& plan, int rank, const CommLimits& limits,
             float* slot) {
  BH_CHECK(part.cols() == plan.cols_of_rank[rank]);
  BH_CHECK(plan.rank_of_row.empty() || std::ssize(plan.rank_of_row) == part.rows());
  for (const int64_t cols : plan.cols_of_rank) {
    BH_CHECK(cols >= 0 && part.rows() * cols <= limits.max_gather_elements);
  }
  for (int r = 1; r < std::ssize(plan.cols_of_rank); ++r) {
    BH_CHECK(plan.RowsOf(r, part.rows()) * plan.width() <= limits.max_gather_elements);
  }
  for (int64_t row = 0; part.cols() > 0 && row < part.rows(); ++row) {
    if (plan.RankOf(row) == rank) continue;
    std::memcpy(slot + row * part.cols(), part.F32(row), part.cols() * kFloatBytes);
  }
}

CommunicationLayout::CommunicationLayout(const CommLimits& limits, int size) {
  BH_CHECK(limits.max_sum_elements >= 0 && limits.max_sum_elements <= kMaxElements);
  BH_CHECK(limits.max_gather_elements >= 0 && limits.max_gather_elements <= kMaxElements);
  const int64_t sum_bytes = limits.max_sum_elements * kFloatBytes;
  if (size == 1) {
    private_result_bytes = RoundUp(sum_bytes, kGranule * kFloatBytes);
    return;
  }
  slot_bytes = RoundUp(std::max(sum_bytes, limits.max_gather_elements * kFloatBytes), kPageBytes);
  private_result_bytes = RoundUp(std::min(sum_bytes, kSmallSumBytes), kGranule * kFloatBytes);
  if (sum_bytes > kSmallSumBytes) {
    shared_result_bytes = RoundUp(CeilDiv(sum_bytes, size), kPageBytes);
  }
}

ShmCommunicator::ShmCommunicator(std::shared_ptr<Region> region, const CommLimits& limits,
                                 SharedMemory tensors, Buffer result)
    : region_(std::move(region)),
      limits_(limits),
      layout_(limits, region_->size()),
      tensors_(std::move(tensors)),
      result_(std::move(result)),
      barrier_(*region_) {
  for (int turn = 0; turn < 2; ++turn) {
    for (int r = 0; r < size(); ++r) {
      partial_sums_[turn].push_back(reinterpret_cast<const float*>(slot(turn, r)));
    }
    std::memset(slot(turn, rank()), 0, layout_.slot_bytes);
  }
  std::memset(shared_result() + rank() * layout_.shared_result_bytes / kFloatBytes, 0,
              layout_.shared_result_bytes);
}

MatrixView ShmCommunicator::PartialSum(int64_t rows, int64_t cols) {
  BH_CHECK(rows >= 0 && cols >= 0 && rows * cols <= limits_.max_sum_elements);
  has_term_ = true;
  term_rows_ = rows;
  term_cols_ = cols;
  return MatrixView(slot(turn_, rank()), DType::kF32, rows, cols);
}

absl::StatusOr<ConstMatrixView> ShmCommunicator::AllReduceSum() {
  BH_CHECK(has_term_);
  has_term_ = false;
  const int64_t elements = term_rows_ * term_cols_;
  const std::vector<const float*>& partial_sums = partial_sums_[turn_];
  turn_ ^= 1;
  BH_RETURN_IF_ERROR(barrier_.Wait(elements));
  float* sum = reinterpret_cast<float*>(result_.data());
  if (elements * kFloatBytes <= kSmallSumBytes) {
    TreeSum(partial_sums, 0, elements, sum);
  } else {
    sum = shared_result();
    TreeSum(partial_sums, ShareBegin(elements, rank(), size()),
            ShareBegin(elements, rank() + 1, size()), sum);
    BH_RETURN_IF_ERROR(barrier_.Wait(elements));
  }
  return ConstMatrixView(reinterpret_cast<const std::byte*>(sum), DType::kF32, term_rows_,
                         term_cols_);
}

absl::Status ShmCommunicator::Gather(ConstMatrixView part, const GatherPlan& plan, MatrixView out) {
  BH_CHECK(!has_term_ && static_cast<int>(plan.cols_of_rank.size()) == size());
  BH_CHECK(out.rows() == plan.RowsOf(rank(), part.rows()));
  BH_CHECK(out.rows() == 0 || out.cols() == plan.width());
  const int turn = turn_;
  turn_ ^= 1;
  PutPart(part, plan, rank(), limits_, reinterpret_cast<float*>(slot(turn, rank())));
  BH_RETURN_IF_ERROR(barrier_.Wait(plan.Note(part.rows())));
  int64_t own = 0;  // rows so far
  for (int64_t row = 0; row < part.rows(); ++row) {
    if (plan.RankOf(row) != rank()) continue;
    float* to = out.F32(own++);
    for (int r = 0; r < size(); ++r) {
      const int64_t cols = plan.cols_of_rank[r];
      if (cols == 0) continue;
      const float* from = r == rank() ? part.F32(row) : partial_sums_[turn][r] + row * cols;
      std::memcpy(to, from, cols * kFloatBytes);
      to += cols;
    }
  }
  return absl::OkStatus();
}

absl::Status ShmBarrier::Wait(int64_t note) {
  const int own = region_.rank();
  const int parity = static_cast<int>(++passed_ % 2);
  region_.sums(own).notes[parity] = note;
  Raise(region_.sums(own), passed_);
  for (int r = 0; r < region_.size(); ++r) {
    BH_RETURN_IF_ERROR(region_.Wait(region_.sums(r), passed_));
    const int64_t other = region_.sums(r).notes[parity];
    if (other == note) continue;
    return WithExitCode(
        absl::InternalError(absl::StrCat("collective ", passed_, ": local rank ", own, " brings ",
                                         note, " elements, local rank ", r, " ", other)),
        ExitCode::kBug);
  }
  return absl::OkStatus();
}

}  // namespace bulkhead
