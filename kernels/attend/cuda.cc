#include "kernels/attend/cuda.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/launch.h"
#include "memory/kv_format_name.h"

namespace bulkhead {
namespace {

constexpr int64_t kSharedOfBlock = 1 << 10;  // reserved shared memory per block

using cuda::AttendWork;
using cuda::NumBlocks;
using cuda::OutRowsOf;
using cuda::RowsOf;

cuda::AttendLaunch LaunchOf(const KvGeometry& geometry, int column_tiles, AttendWork work) {
  const int head_dim = geometry.head_dim;
  if (geometry.latent) return cuda::AttendLatentKernel(geometry.format, column_tiles, work);
  switch (geometry.format) {
    case KvFormat::kBF16:
      return cuda::AttendBF16Kernel(head_dim, column_tiles, work);
    case KvFormat::kF16:
      return cuda::AttendF16Kernel(head_dim, column_tiles, work);
    case KvFormat::kInt8:
      return cuda::AttendInt8Kernel(head_dim, column_tiles, work);
    case KvFormat::kInt4:
      return cuda::AttendInt4Kernel(head_dim, column_tiles, work);
    case KvFormat::kFP8:
      return cuda::AttendFp8Kernel(head_dim, column_tiles, work);
    case KvFormat::kF32:
      break;
  }
  BH_CHECK(false);
}

// Whether wide.cuh has the kernel.
bool IsWide(const KvGeometry& geometry) {
  return geometry.latent || geometry.head_dim > cuda::kMaxNarrowHeadDim;
}

// As many columns as share the data read, while a block has shared memory for their queries.
int WideColumnTiles(const KvGeometry& geometry, int heads, bool decode, int64_t max_shared_bytes) {
  int tiles = 8;
  while (decode && tiles > 2 && heads <= tiles * 4) tiles /= 2;
  if (tiles == 4 && !geometry.latent) tiles = 8;  // for heads there are kernels with 2 and 8
  const cuda::AttendLaunch launch =
      LaunchOf(geometry, tiles, decode ? AttendWork::kDecode : AttendWork::kPrefill);
  return launch.shared_bytes <= max_shared_bytes ? tiles : 2;
}

// Two on GPUs that lack shared memory for the queries of four.
int PrefillColumnTiles(const KvGeometry& geometry, int64_t max_shared_bytes) {
  const int tiles = cuda::PrefillColumnTiles(geometry.format);
  const cuda::AttendLaunch launch = LaunchOf(geometry, tiles, AttendWork::kPrefill);
  return launch.shared_bytes <= max_shared_bytes ? tiles : 2;
}

// For outputs: the two kernels round the tokens' weights to 16 bits in different tiles.
constexpr float kTolerance = 3e-2F;
constexpr int kLongTokens = 256;  // in a sequence: more than its first tiles

bool HasCodes(KvFormat format) { return KvElementBits(format) <= 8; }

// How query heads and tokens are split into blocks.
struct AttentionCuts {
  int head_tiles = 1;
  int heads_of_tile = 1;
  int column_tiles = 1;
  int columns = 8;

  AttentionCuts(int max_heads_per_kv, const KvGeometry& geometry, bool decode,
                int64_t max_shared_bytes) {
    if (IsWide(geometry)) {
      column_tiles = WideColumnTiles(geometry, max_heads_per_kv, decode, max_shared_bytes);
    } else if (geometry.head_dim <= 128) {
      column_tiles = !decode                ? PrefillColumnTiles(geometry, max_shared_bytes)
                     : max_heads_per_kv > 8 ? 2
                                            : 1;
    }
    CutInto(8 * column_tiles * (decode || IsWide(geometry) ? 1 : cuda::kAttendWarps),
            max_heads_per_kv);
  }
  void CutInto(int columns_of_block, int max_heads_per_kv) {
    columns = columns_of_block;
    heads_of_tile = std::clamp(max_heads_per_kv, 1, columns);
    head_tiles = NumBlocks(std::max(max_heads_per_kv, 1), heads_of_tile);
  }
  int tile_tokens() const { return std::max(1, columns / heads_of_tile); }
};

// The blocks that a multiprocessor runs at once: others would begin only when these end, with their
// share of the items.
int BlocksOfSm(const cuda::AttendLaunch& launch, const CudaProperties& gpu) {
  const int64_t fit =
      (gpu.max_shared_bytes + kSharedOfBlock) / (launch.shared_bytes + kSharedOfBlock);
  return static_cast<int>(std::clamp<int64_t>(fit, 1, launch.blocks_of_sm));
}

}  // namespace

CudaAttention::KvHeads CudaAttention::KvHeadsOf(const HeadLayout& heads, int32_t* on_device) const {
  KvHeads all;
  all.heads = heads;
  all.on_device = on_device;
  all.begin.assign(heads.num_kv_heads + 1, heads.num_heads);
  for (int kv = heads.num_kv_heads - 1; kv >= 0; --kv) {
    const int32_t* const kv_of = heads.head_to_kv;
    all.begin[kv] =
        static_cast<int32_t>(std::lower_bound(kv_of, kv_of + heads.num_heads, kv) - kv_of);
    all.max_heads_per_kv = std::max(all.max_heads_per_kv, all.begin[kv + 1] - all.begin[kv]);
  }
  return all;
}

void CudaAttention::SetScratch(const CudaAttentionScratch& scratch, const HeadLayout& heads,
                               const HeadLayout& full_heads) {
  scratch_ = scratch;
  kv_heads_ = KvHeadsOf(heads, scratch_.head_begin);
  full_kv_heads_ = KvHeadsOf(full_heads, scratch_.full_head_begin);
  const auto copy = [this](const KvHeads& all, int32_t* on_device) {
    device_.CopyFromHost(all.begin.data(), reinterpret_cast<std::byte*>(on_device),
                         static_cast<int64_t>(all.begin.size()) * 4);
  };
  copy(kv_heads_, scratch_.head_begin);
  if (full_heads.num_heads > 0) copy(full_kv_heads_, scratch_.full_head_begin);
  if (scratch_.list_bytes <= host_list_bytes_) return;
  host_list_bytes_ = scratch_.list_bytes;
  for (HostBuffer& list : host_lists_) {
    absl::StatusOr<HostBuffer> memory = device_.AllocateHost(scratch_.list_bytes);
    if (!memory.ok()) return driver_.ReportFault(memory.status());
    list = *std::move(memory);
  }
}

void CudaAttention::BeginStep(const StepIndex& host_index) {
  const HostBuffer& memory = host_lists_[next_list_];
  if (memory == nullptr) return;  // the next wait reports it
  next_list_ = (next_list_ + 1) % AttendList::kCopies;
  auto* const list = reinterpret_cast<int32_t*>(memory.get());
  const int64_t bytes = list_.Fill(host_index, scratch_.splits, list);
  device_.CopyFromHost(list, reinterpret_cast<std::byte*>(scratch_.list), bytes);
  listed_ = true;
}

void CudaAttention::Attend(const StepIndex& index, const HeadLayout& heads, ConstMatrixView qkv,
                           const KvLayerView& kv, const AttentionOptions& options, MatrixView out) {
  if (out.empty()) return;
  const HeadLayout& full = full_kv_heads_.heads;
  const bool is_full = full.num_heads > 0 && heads.head_dim == full.head_dim &&
                       heads.num_kv_heads == full.num_kv_heads;
  const KvHeads& kv_heads = is_full ? full_kv_heads_ : kv_heads_;
  BH_CHECK(heads.num_heads == kv_heads.heads.num_heads &&
           heads.num_kv_heads == kv_heads.heads.num_kv_heads);
  cuda::AttendParameters p;
  p.cache = cuda::CacheOf(index, kv);
  p.qkv = RowsOf(qkv);
  p.head_begin = kv_heads.on_device;
  p.num_tokens = index.num_tokens;
  p.num_heads = heads.num_heads;
  p.splits = scratch_.splits.per_context;
  p.max_part_rows = scratch_.splits.max_part_rows;
  p.num_items = scratch_.list;
  p.items = AttendList::ItemsOf(scratch_.list);
  p.window = options.window;
  p.chunk = options.chunk;
  p.scale = options.scale;
  p.soft_cap = options.soft_cap;
  if (!options.sinks.empty()) p.sinks = options.sinks.F32(0);
  p.out_dim = heads.out_dim();
  p.parts = scratch_.parts;
  p.part_sums = scratch_.part_sums;
  p.out = OutRowsOf(out);
  const bool decodes = index.num_tokens == index.num_seqs;
  if (decodes || list_.has_decodes()) AttendDecode(index, kv_heads, kv, p);
  if (!decodes) CheckedPrefill(index, kv_heads, kv, p, out);
}

// The grid depends only on limits, so that a graph fits any step of N sequences.
void CudaAttention::AttendDecode(const StepIndex& index, const KvHeads& kv_heads,
                                 const KvLayerView& kv, cuda::AttendParameters p) {
  BH_CHECK(listed_);
  const CudaProperties& gpu = driver_.properties();
  const AttentionCuts cuts(kv_heads.max_heads_per_kv, kv.geometry, true, gpu.max_shared_bytes);
  p.head_tiles = cuts.head_tiles;
  p.heads_of_tile = cuts.heads_of_tile;
  p.tile_tokens = 1;
  p.stores_single_splits = !IsWide(kv.geometry);
  const cuda::AttendLaunch launch = LaunchOf(kv.geometry, cuts.column_tiles, AttendWork::kDecode);
  const int rows = kv_heads.heads.num_kv_heads * p.head_tiles;
  const int blocks = std::min(std::max(1, BlocksOfSm(launch, gpu) * gpu.num_sms / rows),
                              index.num_seqs * p.splits);
  Enqueue(driver_, launch.kernel,
          {.grid = {blocks, rows, 1},
           .block = {launch.threads, 1, 1},
           .shared_bytes = launch.shared_bytes},
          p);
  Enqueue(driver_, cuda::CombineKernel(),
          {.grid = {index.num_seqs, NumBlocks(kv_heads.heads.num_heads, cuda::kHeadWarps), 1},
           .block = {cuda::kHeadWarps * 32, 1, 1},
           .shared_bytes = cuda::kCombineSharedBytes},
          p);
}

// Warpgroup products for several tokens, if there is such a kernel.
std::optional<cuda::AttendLaunch> CudaAttention::WarpgroupLaunchOf(const KvGeometry& geometry,
                                                                   const cuda::AttendParameters& p,
                                                                   AttendWork work) const {
  const CudaProperties& gpu = driver_.properties();
  const bool aligned = p.qkv.stride % 4 == 0 && reinterpret_cast<uintptr_t>(p.qkv.data) % 16 == 0 &&
                       p.out.stride % 2 == 0 && reinterpret_cast<uintptr_t>(p.out.data) % 8 == 0;
  if (!has_warpgroups_ || geometry.latent || p.soft_cap != 0 || !aligned) return std::nullopt;
  if (HasCodes(geometry.format) && !reads_codes_by_warpgroups_) return std::nullopt;
  const auto launch = cuda::AttendByWarpgroupsKernel(geometry.format, geometry.head_dim, work);
  return launch.has_value() && launch->shared_bytes <= gpu.max_shared_bytes ? launch : std::nullopt;
}

void CudaAttention::CheckedPrefill(const StepIndex& index, const KvHeads& kv_heads,
                                   const KvLayerView& kv, const cuda::AttendParameters& p,
                                   MatrixView out) {
  const KvFormat format = kv.geometry.format;
  const auto attend = [&](bool by_warpgroups) {
    reads_codes_by_warpgroups_ = by_warpgroups;
    AttendPrefill(index, kv_heads, kv, p);
  };
  const bool checks = warming_up_ && reads_codes_by_warpgroups_ && HasCodes(format) &&
                      !list_.has_decodes() &&
                      WarpgroupLaunchOf(kv.geometry, p, AttendWork::kPrefill).has_value();
  const bool is_long = list_.max_whole_tokens() > kLongTokens;
  const bool is_cut = !list_.rounds().empty();
  if (!checks || !checked_.insert({format, kv.geometry.head_dim, is_long, is_cut}).second) {
    return AttendPrefill(index, kv_heads, kv, p);
  }
  // The second's output is kept: it equals that of an unchecked step.
  const absl::StatusOr<bool> alike = ComputeAlike(
      driver_, out, kTolerance, [&] { attend(false); }, [&] { attend(true); });
  if (!alike.ok()) return driver_.ReportFault(alike.status());
  if (*alike) return;
  attend(false);
  BH_LOG(kWarning) << "attention by warpgroups (wgmma) over a cache in " << KvFormatName(format)
                   << " with heads of " << kv.geometry.head_dim
                   << " is wrong on this GPU: going on without it";
}

void CudaAttention::AttendPrefill(const StepIndex& index, const KvHeads& kv_heads,
                                  const KvLayerView& kv, cuda::AttendParameters p) {
  BH_CHECK(list_.num_tokens() == index.num_tokens);
  const CudaProperties& gpu = driver_.properties();
  AttentionCuts cuts(kv_heads.max_heads_per_kv, kv.geometry, false, gpu.max_shared_bytes);
  if (WarpgroupLaunchOf(kv.geometry, p, AttendWork::kPrefill).has_value()) {
    cuts.CutInto(cuda::kWarpgroupColumns, kv_heads.max_heads_per_kv);
  }
  p.head_tiles = cuts.head_tiles;
  p.heads_of_tile = cuts.heads_of_tile;
  p.tile_tokens = cuts.tile_tokens();
  const int rows = kv_heads.heads.num_kv_heads * p.head_tiles;
  const auto attend = [&](AttendWork work, int x, int y, int z) {
    const cuda::AttendLaunch launch = WarpgroupLaunchOf(kv.geometry, p, work)
                                          .value_or(LaunchOf(kv.geometry, cuts.column_tiles, work));
    Enqueue(
        driver_, launch.kernel,
        {.grid = {x, y, z}, .block = {launch.threads, 1, 1}, .shared_bytes = launch.shared_bytes},
        p);
  };
  p.num_items = nullptr;
  for (const AttendList::Round& round : list_.rounds()) {
    p.items = AttendList::ItemsOf(scratch_.list) + round.first_item;
    p.combined = list_.CombinedOf(scratch_.list) + round.first_combined;
    attend(AttendWork::kSplitPrefill, round.num_items, rows,
           NumBlocks(round.max_tokens, p.tile_tokens));
    Enqueue(driver_, cuda::CombineTokensKernel(),
            {.grid = {round.num_combined, NumBlocks(kv_heads.heads.num_heads, cuda::kHeadWarps), 1},
             .block = {cuda::kHeadWarps * 32, 1, 1},
             .shared_bytes = cuda::kCombineSharedBytes},
            p);
  }
  if (list_.max_whole_tokens() == 0) return;
  p.tiles = NumBlocks(index.num_tokens, p.tile_tokens);
  attend(AttendWork::kPrefill, rows, std::min(p.tiles, cuda::kTilesOfLayer),
         NumBlocks(p.tiles, cuda::kTilesOfLayer));
}

void CudaBackend::BeginStep(const StepIndex& host_index) { attention_->BeginStep(host_index); }

void CudaBackend::Attend(const StepIndex& index, const HeadLayout& heads, ConstMatrixView qkv,
                         const KvLayerView& kv, const AttentionOptions& options, MatrixView out) {
  attention_->Attend(index, heads, qkv, kv, options, out);
}

}  // namespace bulkhead
