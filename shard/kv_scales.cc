#include "shard/kv_scales.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/check.h"
#include "base/status.h"
#include "shard/widen.h"

namespace bulkhead {
namespace {

// Null if there is none.
const LocatedTensor* Find(const TensorIndex& index, const TensorRow& row) {
  for (const std::string& name : KvScaleNames(row)) {
    if (const LocatedTensor* found = index.FindAny(name); found != nullptr) return found;
  }
  return nullptr;
}

}  // namespace

std::vector<std::string> KvScaleNames(const TensorRow& row) {
  const std::string module = row.Module();  // with the field: "self_attn.k_scale"
  const size_t at = module.rfind('.');
  BH_CHECK(at != std::string::npos && at + 1 < module.size());
  const std::string attention = module.substr(0, at);
  const std::string scale = module.substr(at + 1);
  const std::string product = absl::StrCat(scale.substr(0, 1), "_proj");
  return {absl::StrCat(attention, ".", product, ".", scale),
          module,
          absl::StrCat(attention, ".attn.", scale),
          absl::StrCat(attention, ".qkv_proj.", scale),
          absl::StrCat(attention, ".", product, ".output_scale"),
          absl::StrCat(attention, ".kv_scale")};
}

std::vector<std::string> NamesBesideKvScales(const TensorRow& row) {
  const std::string module = row.Module();
  const std::string attention = module.substr(0, module.rfind('.'));
  // Scales of quantised queries, which are not used here.
  return {absl::StrCat(attention, ".q_scale"), absl::StrCat(attention, ".attn.q_scale"),
          absl::StrCat(attention, ".q_proj.q_scale"),
          absl::StrCat(attention, ".q_proj.output_scale")};
}

absl::Status CheckKvScales(const TensorIndex& index, const TensorRow& row) {
  const LocatedTensor* const found = Find(index, row);
  if (found == nullptr) return absl::OkStatus();
  int64_t count = 1;
  for (const int64_t dimension : found->entry->shape) count *= dimension;
  if (count != 1 && count != row.cols) {
    return absl::InvalidArgumentError(
        absl::StrCat(found->file->path(), ": tensor '", found->entry->name, "' has shape [",
                     absl::StrJoin(found->entry->shape, ", "), "]; scales of keys and values are ",
                     "one number, or one for each of ", row.cols, " KV heads"));
  }
  if (!found->entry->dtype.has_value()) {
    return absl::UnimplementedError(absl::StrCat(found->file->path(), ": tensor '",
                                                 found->entry->name, "' is ", found->entry->format,
                                                 "; supported are F32, BF16 and F16"));
  }
  return absl::OkStatus();
}

namespace {

absl::Status ReadRow(const TensorIndex& index, const TensorRow& row, Range heads,
                     absl::Span<float> scales) {
  std::fill(scales.begin(), scales.end(), 1.0F);
  const LocatedTensor* const found = Find(index, row);
  if (found == nullptr || heads.empty()) return absl::OkStatus();
  BH_RETURN_IF_ERROR(CheckKvScales(index, row));
  const DType dtype = *found->entry->dtype;
  std::vector<std::byte> bytes(found->entry->bytes);
  const absl::Status read =
      found->file->ReadAt(found->entry->begin, found->entry->bytes, bytes.data());
  const auto fail = [&](absl::string_view why) {
    return absl::DataLossError(absl::StrCat("tensor '", found->entry->name, "': ", why));
  };
  if (!read.ok()) return fail(read.message());
  std::vector<float> numbers(bytes.size() / DTypeBytes(dtype));
  WidenToF32(bytes.data(), dtype, static_cast<int64_t>(numbers.size()), numbers.data());
  for (size_t i = 0; i < scales.size(); ++i) {
    scales[i] = numbers.size() == 1 ? numbers[0] : numbers[heads.begin + i];
    if (!std::isfinite(scales[i]) || scales[i] <= 0) {
      return fail(absl::StrCat("a scale of keys or values is ", scales[i]));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ReadKvScales(const TensorIndex& index, absl::Span<const Checkpoint::Target> targets,
                          const RankShard& shard) {
  for (const Checkpoint::Target& target : targets) {
    if (!target.row.is_kv_scale) continue;
    const Range heads = SliceOf(target.row, shard).cols;
    BH_RETURN_IF_ERROR(
        ReadRow(index, target.row, heads, absl::MakeSpan(target.vector, heads.size())));
  }
  return absl::OkStatus();
}

}  // namespace bulkhead
