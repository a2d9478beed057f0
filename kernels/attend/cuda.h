// The attention of the CUDA backend: how it is split into blocks, the list of a step's work, and
// the memory for the sums of splits.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <tuple>
#include <vector>

#include "kernels/attend/cuda_kernels.h"
#include "kernels/attend/cuda_list.h"
#include "kernels/backend.h"
#include "kernels/cuda/alike.h"
#include "kernels/cuda/cuda_sizes.h"
#include "memory/cuda_driver.h"
#include "memory/device.h"

namespace bulkhead {

class CudaAttention {
 public:
  // Both must outlive this.
  CudaAttention(Device& device, CudaDriver& driver)
      : device_(device), driver_(driver), has_warpgroups_(HasWarpgroups(driver.properties())) {}

  // `full_heads`: of layers with other heads; no heads: there are none. Call again only when idle.
  void SetScratch(const CudaAttentionScratch& scratch, const HeadLayout& heads,
                  const HeadLayout& full_heads);

  // Backend::BeginStep, Attend.
  void BeginStep(const StepIndex& host_index);
  void Attend(const StepIndex& index, const HeadLayout& heads, ConstMatrixView qkv,
              const KvLayerView& kv, const AttentionOptions& options, MatrixView out);
  // From now on the first prefill of each kind over a cache in codes is checked: of short prompts,
  // of long ones, and with a split context. A kind that the warm-up lacks is checked later.
  void BeginWarmUp() { warming_up_ = true; }
  // Of the current step.
  const AttendList& list() const { return list_; }

 private:
  // Which query heads share a KV head.
  struct KvHeads {
    HeadLayout heads;
    std::vector<int32_t> begin;  // on the host until the copy has ended
    const int32_t* on_device = nullptr;
    int max_heads_per_kv = 0;
  };
  KvHeads KvHeadsOf(const HeadLayout& heads, int32_t* on_device) const;

  void AttendDecode(const StepIndex& index, const KvHeads& kv_heads, const KvLayerView& kv,
                    cuda::AttendParameters p);
  std::optional<cuda::AttendLaunch> WarpgroupLaunchOf(const KvGeometry& geometry,
                                                      const cuda::AttendParameters& p,
                                                      cuda::AttendWork work) const;
  // Stops using warpgroups over a cache in codes if their results differ from the other kernel's.
  void CheckedPrefill(const StepIndex& index, const KvHeads& kv_heads, const KvLayerView& kv,
                      const cuda::AttendParameters& p, MatrixView out);
  void AttendPrefill(const StepIndex& index, const KvHeads& kv_heads, const KvLayerView& kv,
                     cuda::AttendParameters p);

  Device& device_;
  CudaDriver& driver_;
  const bool has_warpgroups_;
  CudaAttentionScratch scratch_;
  KvHeads kv_heads_;
  KvHeads full_kv_heads_;
  HostBuffer host_lists_[AttendList::kCopies];
  int64_t host_list_bytes_ = 0;  // per copy
  int next_list_ = 0;
  AttendList list_;  // of the current step
  bool listed_ = false;
  bool warming_up_ = false;
  bool reads_codes_by_warpgroups_ = true;
  // head_dim, whether a prompt is long, and whether a context is split.
  std::set<std::tuple<KvFormat, int, bool, bool>> checked_;
};

}  // namespace bulkhead
