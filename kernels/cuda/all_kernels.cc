#include "kernels/cuda/all_kernels.h"

#include <algorithm>
#include <utility>

#include "kernels/cuda/kernels.h"
#include "kernels/cuda/write_late.h"

namespace bulkhead::cuda {
namespace {

constexpr int kHeadDims[] = {64, 128, 256};  // one of each kind that attention has

class KernelList {
 public:
  template <typename Parameters>
  void Add(const CudaKernelOf<Parameters>& made) {
    const CudaKernel& kernel = made.kernel;
    const auto same = [&](const CudaKernel& other) { return other.function == kernel.function; };
    if (std::none_of(kernels_.begin(), kernels_.end(), same)) kernels_.push_back(kernel);
  }
  std::vector<CudaKernel> Take() { return std::move(kernels_); }

 private:
  std::vector<CudaKernel> kernels_;
};

void AddProducts(KernelList& kernels) {
  for (const WeightFormat format :
       {WeightFormat::kBF16, WeightFormat::kF16, WeightFormat::kInt8, WeightFormat::kInt4}) {
    kernels.Add(EmbedKernel(format));
    for (const int token_tiles : {1, 2, 4}) kernels.Add(LinearKernel(format, token_tiles));
    kernels.Add(GemmKernel(format));
  }
  for (const bool f16 : {false, true}) kernels.Add(GatherInputsKernel(f16));
  for (const WeightFormat format : {WeightFormat::kInt8, WeightFormat::kInt4}) {
    kernels.Add(UnpackKernel(format));
  }
}

void AddAttention(KernelList& kernels) {
  for (const int head_dim : kHeadDims) {
    for (const int column_tiles : {1, 2}) {
      for (const bool split : {false, true}) {
        kernels.Add(AttendBF16Kernel(head_dim, column_tiles, split).kernel);
        kernels.Add(AttendF16Kernel(head_dim, column_tiles, split).kernel);
        kernels.Add(AttendInt8Kernel(head_dim, column_tiles, split).kernel);
        kernels.Add(AttendInt4Kernel(head_dim, column_tiles, split).kernel);
      }
    }
  }
  for (const KvFormat format :
       {KvFormat::kBF16, KvFormat::kF16, KvFormat::kInt8, KvFormat::kInt4}) {
    kernels.Add(AppendKvKernel(format));
  }
  kernels.Add(CombineKernel());
}

}  // namespace

std::vector<CudaKernel> AllKernels() {
  KernelList kernels;
  AddProducts(kernels);
  AddAttention(kernels);
  for (const bool fours : {false, true}) {
    for (const bool adds : {false, true}) kernels.Add(RmsNormKernel(adds, fours));
    kernels.Add(SwiGluKernel(fours));
  }
  kernels.Add(AddKernel());
  kernels.Add(SelectRowsKernel());
  kernels.Add(FillKernel());
  kernels.Add(NormRopeKernel());
  kernels.Add(SelectCandidatesKernel());
  kernels.Add(SampleKernel());
  kernels.Add(FillInSampledKernel());
  kernels.Add(WriteLateKernel());
  return kernels.Take();
}

}  // namespace bulkhead::cuda
