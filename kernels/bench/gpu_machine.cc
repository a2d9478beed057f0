#include "kernels/bench/gpu_machine.h"

#include <algorithm>
#include <chrono>
#include <random>
#include <utility>
#include <vector>

#include "base/status.h"
#include "kernels/bench/read_all.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/registered_kernels.h"

namespace bulkhead {
namespace {

constexpr int64_t kMaxCalls = 200;  // in a graph
constexpr int kReadBlocksPerSm = 8;
constexpr int64_t kChunkBytes = int64_t{16} << 20;

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Device memory filled with repeated copies of `host`.
template <typename T>
absl::StatusOr<Buffer> Filled(CudaDevice& device, const std::vector<T>& host, int64_t bytes) {
  BH_ASSIGN_OR_RETURN(Buffer buffer, device.Allocate(bytes));
  BH_RETURN_IF_ERROR(device.Commit(buffer));
  const auto chunk_bytes = static_cast<int64_t>(host.size() * sizeof(T));
  for (int64_t at = 0; at < bytes; at += chunk_bytes) {
    device.CopyFromHost(host.data(), buffer.data() + at, std::min(chunk_bytes, bytes - at));
  }
  BH_RETURN_IF_ERROR(device.Synchronize());
  return buffer;
}

}  // namespace

absl::StatusOr<std::unique_ptr<GpuMachine>> GpuMachine::Create(CudaDriver& driver,
                                                               std::unique_ptr<GemmLibrary> library,
                                                               const GpuBenchScale& scale) {
  std::unique_ptr<GpuMachine> machine(new GpuMachine(driver, std::move(library), scale));
  BH_RETURN_IF_ERROR(machine->SetUp());
  BH_RETURN_IF_ERROR(machine->MeasureReading());
  BH_RETURN_IF_ERROR(machine->MeasurePeak());
  return machine;
}

absl::Status GpuMachine::SetUp() {
  BH_ASSIGN_OR_RETURN(device_, CudaDevice::New(driver_, 0));
  cuda::LoadRegisteredKernels(driver_);
  driver_.Load(cuda::ReadAllKernel().kernel);
  backend_ = NewCudaBackend(*device_, driver_);
  head_to_kv_.resize(scale_.num_heads);
  for (int i = 0; i < scale_.num_heads; ++i) {
    head_to_kv_[i] = i * scale_.num_kv_heads / scale_.num_heads;
  }
  heads_ = {scale_.num_heads, scale_.num_kv_heads, scale_.head_dim, head_to_kv_.data()};
  const int64_t max_inputs = std::max(scale_.hidden, scale_.ffn);
  const StepLimits limits{.max_num_batched_tokens = scale_.context,
                          .max_num_seqs = scale_.num_seqs,
                          .max_model_len = scale_.context,
                          .max_int8_inputs = max_inputs,
                          .max_inputs = max_inputs,
                          .quantized_weights = true,
                          .num_experts = scale_.num_experts,
                          .experts_per_token = 1,
                          .max_expert_inputs = max_inputs};
  BH_ASSIGN_OR_RETURN(workspace_, device_->Allocate(backend_->WorkspaceBytes(limits, heads_)));
  BH_RETURN_IF_ERROR(device_->Commit(workspace_));
  backend_->SetWorkspace(workspace_.data(), limits, heads_);
  if (library_ != nullptr) {
    BH_ASSIGN_OR_RETURN(library_workspace_, device_->Allocate(GemmLibrary::kWorkspaceBytes));
    BH_RETURN_IF_ERROR(device_->Commit(library_workspace_));
  }
  return device_->Synchronize();
}

absl::StatusOr<double> GpuMachine::Seconds(const std::function<void(int64_t call)>& body) {
  body(0);
  BH_RETURN_IF_ERROR(driver_.Synchronize());
  double begin = Now();
  body(1);
  BH_RETURN_IF_ERROR(driver_.Synchronize());
  const double one = std::max(Now() - begin, 1e-9);
  const auto calls =
      std::clamp<int64_t>(static_cast<int64_t>(scale_.round_seconds / one), 1, kMaxCalls);
  driver_.BeginCapture();
  for (int64_t call = 0; call < calls; ++call) body(call);
  BH_ASSIGN_OR_RETURN(const CudaGraph graph, driver_.EndCapture());
  std::vector<double> seconds;
  for (int round = -1; round < scale_.rounds; ++round) {  // the first is not counted
    begin = Now();
    driver_.LaunchGraph(graph);
    BH_RETURN_IF_ERROR(driver_.Synchronize());
    if (round >= 0) seconds.push_back((Now() - begin) / static_cast<double>(calls));
  }
  driver_.FreeGraph(graph);
  std::nth_element(seconds.begin(), seconds.begin() + seconds.size() / 2, seconds.end());
  return seconds[seconds.size() / 2];
}

absl::StatusOr<Buffer> GpuMachine::Numbers(int64_t bytes) {
  std::mt19937 random(1);
  std::vector<uint16_t> chunk(std::min(kChunkBytes, bytes) / 2);
  for (uint16_t& x : chunk) x = static_cast<uint16_t>(0x3C00 | (random() & 0x3FF));
  return Filled(*device_, chunk, bytes);
}

absl::StatusOr<Buffer> GpuMachine::Floats(int64_t count) {
  std::mt19937 random(2);
  std::normal_distribution<float> normal;
  std::vector<float> chunk(std::min(kChunkBytes / 4, count));
  for (float& x : chunk) x = normal(random);
  return Filled(*device_, chunk, count * 4);
}

absl::Status GpuMachine::MeasureReading() {
  const int blocks = driver_.properties().num_sms * kReadBlocksPerSm;
  BH_ASSIGN_OR_RETURN(const Buffer from, Numbers(scale_.read_bytes));
  BH_ASSIGN_OR_RETURN(const Buffer sums, Floats(int64_t{blocks} * cuda::kRowThreads));
  const LaunchShape shape{.grid = {blocks, 1, 1}, .block = {cuda::kRowThreads, 1, 1}};
  const cuda::ReadAllParameters parameters{reinterpret_cast<const unsigned char*>(from.data()),
                                           scale_.read_bytes / 16,
                                           reinterpret_cast<uint32_t*>(sums.data())};
  BH_ASSIGN_OR_RETURN(const double seconds, Seconds([&](int64_t) {
                        Enqueue(driver_, cuda::ReadAllKernel(), shape, parameters);
                      }));
  read_gb_per_s_ = static_cast<double>(scale_.read_bytes) / seconds * 1e-9;
  return absl::OkStatus();
}

absl::Status GpuMachine::MeasurePeak() {
  if (library_ == nullptr) return absl::OkStatus();
  const int64_t n = scale_.peak_size;
  const GemmProblem problem{.tokens = n, .outputs = n, .depth = n, .out_stride = n};
  BH_RETURN_IF_ERROR(library_->Prepare(problem));
  BH_ASSIGN_OR_RETURN(const Buffer x, Numbers(n * n * 2));
  BH_ASSIGN_OR_RETURN(const Buffer weight, Numbers(n * n * 2));
  BH_ASSIGN_OR_RETURN(const Buffer out, Floats(n * n));
  BH_ASSIGN_OR_RETURN(const double seconds, Seconds([&](int64_t) {
                        library_->Multiply(problem, {x.data(), weight.data()}, out.data(),
                                           library_workspace_.data());
                      }));
  peak_gop_per_s_ = 2.0 * static_cast<double>(n * n * n) / seconds * 1e-9;
  return absl::OkStatus();
}

}  // namespace bulkhead
