#include "launcher/group/step_stats.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "base/status.h"

namespace bulkhead {
namespace {

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

void AddTo(StepTotals& totals, int64_t steps, double step_s, double comm_s) {
  totals.set_steps(totals.steps() + steps);
  totals.set_total_s(totals.total_s() + step_s);
  totals.set_comm_s(totals.comm_s() + comm_s);
}

// The increase since `then`.
void PutTotals(const StepTotals& now, const StepTotals& then, float* two) {
  two[0] = static_cast<float>(now.total_s() - then.total_s());
  two[1] = static_cast<float>(now.comm_s() - then.comm_s());
}

// Bytes as two 24-bit numbers, which f32 represents exactly.
void PutBytes(int64_t bytes, float* two) {
  two[0] = static_cast<float>(bytes >> 24);
  two[1] = static_cast<float>(bytes & 0xFFFFFF);
}
int64_t BytesOf(const float* two) {
  return static_cast<int64_t>(two[0]) << 24 | static_cast<int64_t>(two[1]);
}

void PutReading(const DeviceWatchReading& reading, float* six) {
  PutBytes(reading.free_bytes, six);
  PutBytes(reading.sealed_free_bytes, six + 2);
  PutBytes(reading.least_free_bytes, six + 4);
}
DeviceWatchReading ReadingOf(const float* six) {
  return {BytesOf(six), BytesOf(six + 2), BytesOf(six + 4), 0};
}

}  // namespace

absl::StatusOr<ConstMatrixView> TimedCommunicator::AllReduceSum() {
  const Clock::time_point begin = Clock::now();
  absl::StatusOr<ConstMatrixView> sum = comm_->AllReduceSum();
  seconds_ += SecondsSince(begin);
  return sum;
}

absl::StatusOr<ConstMatrixView> TimedCommunicator::AllReduceSumF32() {
  const Clock::time_point begin = Clock::now();
  absl::StatusOr<ConstMatrixView> sum = comm_->AllReduceSumF32();
  seconds_ += SecondsSince(begin);
  return sum;
}

void TimedCommunicator::AllReduceSumNorm(const ResidualNorm& norm) {
  const Clock::time_point begin = Clock::now();
  comm_->AllReduceSumNorm(norm);
  seconds_ += SecondsSince(begin);
}

absl::Status TimedCommunicator::GatherCols(ConstMatrixView part,
                                           absl::Span<const int64_t> cols_of_rank, MatrixView out) {
  const Clock::time_point begin = Clock::now();
  absl::Status status = comm_->GatherCols(part, cols_of_rank, out);
  seconds_ += SecondsSince(begin);
  return status;
}

absl::Status TimedCommunicator::GatherRows(ConstMatrixView part,
                                           absl::Span<const int64_t> cols_of_rank,
                                           absl::Span<const int> rank_of_row, MatrixView out) {
  const Clock::time_point begin = Clock::now();
  absl::Status status = comm_->GatherRows(part, cols_of_rank, rank_of_row, out);
  seconds_ += SecondsSince(begin);
  return status;
}

absl::Status TimedCommunicator::Broadcast(int32_t* values, int64_t count) {
  const Clock::time_point begin = Clock::now();
  absl::Status status = comm_->Broadcast(values, count);
  seconds_ += SecondsSince(begin);
  return status;
}

absl::Status InstrumentedStepRunner::Submit(Step step) {
  const auto& counts = step.plan.num_tokens();
  Begun begun;
  begun.seq = step.plan.seq();
  begun.decodes =
      std::all_of(counts.begin(), counts.end(), [](int32_t count) { return count == 1; });
  begun.at = Clock::now();
  const double comm_before = comm_.seconds();
  absl::Status status = runner_.Submit(std::move(step));
  begun.comm_s = comm_.seconds() - comm_before;
  begun_.push_back(begun);
  return status;
}

absl::StatusOr<StepResult> InstrumentedStepRunner::Collect() {
  const double comm_before = comm_.seconds();
  absl::StatusOr<StepResult> result = runner_.Collect();
  const Begun begun = begun_.front();
  begun_.pop_front();
  StepTotals& totals = begun.decodes ? *figures_.mutable_decode() : *figures_.mutable_prefill();
  const double seconds = SecondsSince(std::max(begun.at, last_end_));
  totals.set_longest_s(std::max(totals.longest_s(), seconds));
  AddTo(totals, 1, seconds, begun.comm_s + comm_.seconds() - comm_before);
  last_end_ = Clock::now();
  if (!result.ok() || !shares_) return result;
  if (sum_comes_ && gpu_->cuda_driver()->Query(summed_)) BH_RETURN_IF_ERROR(TakeSum());
  if (begun.seq % kShareEverySteps == 0) BH_RETURN_IF_ERROR(Share());
  return result;
}

absl::Status InstrumentedStepRunner::Share() {
  numbers_.assign(size_t{kStepFigures} * comm_.size(), 0.0F);
  float* const mine = &numbers_[size_t{kStepFigures} * comm_.rank()];
  if (watch_ != nullptr) PutReading(watch_->reading(), mine + 4);
  if (gpu_ != nullptr) return SumOnGpu();
  PutTotals(figures_.decode(), last_shared_.decode(), mine);
  PutTotals(figures_.prefill(), last_shared_.prefill(), mine + 2);
  const auto count = static_cast<int64_t>(numbers_.size());
  const int64_t bytes = StepFiguresBytes(comm_.size());
  std::memcpy(comm_.PartialSum(1, count).data(), numbers_.data(), bytes);
  BH_ASSIGN_OR_RETURN(const ConstMatrixView sum, comm_.AllReduceSumF32());
  std::memcpy(numbers_.data(), sum.data(), bytes);
  Tell(numbers_.data());
  return absl::OkStatus();
}

// The next step may be in flight: waiting for the sum would also wait for that step.
absl::Status InstrumentedStepRunner::SumOnGpu() {
  if (sum_comes_) BH_RETURN_IF_ERROR(TakeSum());
  const auto count = static_cast<int64_t>(numbers_.size());
  const int64_t bytes = StepFiguresBytes(comm_.size());
  std::memcpy(pinned_, numbers_.data(), bytes);
  gpu_->CopyFromHost(pinned_, comm_.PartialSum(1, count).data(), bytes);
  BH_ASSIGN_OR_RETURN(const ConstMatrixView sum, comm_.AllReduceSumF32());
  gpu_->CopyToHost(sum.data(), pinned_, bytes);
  gpu_->cuda_driver()->Record(summed_);
  sum_comes_ = true;
  return absl::OkStatus();
}

absl::Status InstrumentedStepRunner::TakeSum() {
  BH_RETURN_IF_ERROR(gpu_->cuda_driver()->HostWait(summed_));
  sum_comes_ = false;
  Tell(reinterpret_cast<const float*>(pinned_));
  return absl::OkStatus();
}

void InstrumentedStepRunner::Tell(const float* sums) {
  const int size = comm_.size();
  if (board_ != nullptr) {
    std::vector<RankFigures> window(size);
    std::vector<DeviceWatchReading> devices(size);
    for (int rank = 0; rank < size; ++rank) {
      const float* one = sums + size_t{kStepFigures} * rank;
      devices[rank] = ReadingOf(one + 4);
      if (gpu_ != nullptr) continue;
      AddTo(*window[rank].mutable_decode(),
            figures_.decode().steps() - last_shared_.decode().steps(), one[0], one[1]);
      AddTo(*window[rank].mutable_prefill(),
            figures_.prefill().steps() - last_shared_.prefill().steps(), one[2], one[3]);
    }
    board_->Add(window);
    board_->SetDevices(std::move(devices));
  }
  last_shared_ = figures_;
}

std::vector<RankFigures> RankStepStats::Get() const {
  const absl::MutexLock lock(&mutex_);
  return ranks_;
}

std::vector<DeviceWatchReading> RankStepStats::Devices() const {
  const absl::MutexLock lock(&mutex_);
  return devices_;
}

void RankStepStats::SetDevices(std::vector<DeviceWatchReading> devices) {
  const absl::MutexLock lock(&mutex_);
  devices_ = std::move(devices);
}

void RankStepStats::Add(absl::Span<const RankFigures> window) {
  const absl::MutexLock lock(&mutex_);
  for (size_t rank = 0; rank < ranks_.size(); ++rank) {
    const StepTotals& decode = window[rank].decode();
    const StepTotals& prefill = window[rank].prefill();
    AddTo(*ranks_[rank].mutable_decode(), decode.steps(), decode.total_s(), decode.comm_s());
    AddTo(*ranks_[rank].mutable_prefill(), prefill.steps(), prefill.total_s(), prefill.comm_s());
  }
}

}  // namespace bulkhead
