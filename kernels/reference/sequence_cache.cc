#include "kernels/reference/sequence_cache.h"

#include <algorithm>
#include <vector>

#include "kernels/reference/kv_quantizer.h"
#include "kernels/reference/number_format.h"
#include "memory/fp8.h"

namespace bulkhead {
namespace {

constexpr int kInt4Group = 32;  // columns of a value whose codes share bytes

DType TypeOf(KvFormat format) {
  BH_CHECK(!IsQuantized(format));
  return format == KvFormat::kF32    ? DType::kF32
         : format == KvFormat::kBF16 ? DType::kBF16
                                     : DType::kF16;
}

int LevelsOf(KvFormat format) { return (1 << KvElementBits(format)) - 1; }

}  // namespace

float SequenceCache::Key(int head, int position, int i) const {
  return Get(Part::kKey, head, position, i);
}

float SequenceCache::Value(int head, int position, int i) const {
  return Get(kv_.geometry.latent ? Part::kKey : Part::kValue, head, position, i);
}

void SequenceCache::Put(int head, int position, const float* key, const float* value) const {
  Put(Part::kKey, head, position, key);
  if (!kv_.geometry.latent) Put(Part::kValue, head, position, value);
}

float SequenceCache::Get(Part part, int head, int position, int i) const {
  const KvGeometry& g = kv_.geometry;
  const std::byte* elements = Elements(part, head, position);
  const Place place = PlaceOf(part, position, i);
  if (g.format == KvFormat::kFP8) {
    return F32OfE4m3(std::to_integer<uint8_t>(elements[place.element]));
  }
  if (!IsQuantized(g.format)) return LoadNumber(elements, TypeOf(g.format), place.element);
  const int code = std::to_integer<int>(elements[place.element] >> place.shift);
  const uint16_t* scaling = Scaling(part, head, position);
  return DequantizeKv(code & LevelsOf(g.format), {scaling[0], scaling[g.block_tokens]});
}

void SequenceCache::Put(Part part, int head, int position, const float* numbers) const {
  const KvGeometry& g = kv_.geometry;
  std::byte* elements = Elements(part, head, position);
  if (g.format == KvFormat::kFP8) {
    const float scale = part == Part::kKey ? kv_.KeyScale(head) : kv_.ValueScale(head);
    for (int i = 0; i < g.head_dim; ++i) {
      elements[PlaceOf(part, position, i).element] = std::byte{E4m3OfF32(numbers[i], scale)};
    }
    return;
  }
  if (!IsQuantized(g.format)) {
    for (int i = 0; i < g.head_dim; ++i) {
      StoreNumber(numbers[i], elements, TypeOf(g.format), PlaceOf(part, position, i).element);
    }
    return;
  }
  const int levels = LevelsOf(g.format);
  std::vector<uint8_t> codes(g.head_dim);
  const KvScaling quantized =
      QuantizeKv(absl::MakeConstSpan(numbers, g.head_dim), levels, absl::MakeSpan(codes));
  for (int i = 0; i < g.head_dim; ++i) {
    const Place place = PlaceOf(part, position, i);
    std::byte& element = elements[place.element];
    element &= ~(std::byte(levels) << place.shift);
    element |= std::byte{codes[i]} << place.shift;
  }
  uint16_t* scaling = Scaling(part, head, position);
  scaling[0] = quantized.scale;
  scaling[g.block_tokens] = quantized.zero;
}

std::byte* SequenceCache::Elements(Part part, int head, int position) const {
  const int64_t block = blocks_[position / kv_.geometry.block_tokens];
  return part == Part::kKey ? kv_.Keys(block, head) : kv_.Values(block, head);
}

uint16_t* SequenceCache::Scaling(Part part, int head, int position) const {
  const int block_tokens = kv_.geometry.block_tokens;
  const int64_t block = blocks_[position / block_tokens];
  return kv_.Scaling(block, head) + (part == Part::kKey ? 0 : 2 * block_tokens) +
         position % block_tokens;
}

SequenceCache::Place SequenceCache::PlaceOf(Part part, int position, int i) const {
  const KvGeometry& g = kv_.geometry;
  const int64_t token = position % g.block_tokens;
  const bool two_codes = g.format == KvFormat::kInt4;
  if (part == Part::kKey) {
    return two_codes ? Place{int64_t{i} / 2 * g.block_tokens + token, i % 2 * 4}
                     : Place{int64_t{i} * g.block_tokens + token, 0};
  }
  if (!two_codes) return Place{token * g.head_dim + i, 0};
  const int group = i / kInt4Group * kInt4Group;
  const int half = std::min(kInt4Group, g.head_dim - group) / 2;
  const int j = i - group;
  return Place{token * g.head_dim / 2 + group / 2 + j % half, j / half * 4};
}

}  // namespace bulkhead
