#include "tests/kernels/paged_step.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "kernels/simd/number_format.h"
#include "memory/kv_format_name.h"
#include "tests/kernels/variants.h"

namespace bulkhead {
namespace {

constexpr std::byte kPoison{0xff};  // all bits set are a NaN in every format, or scale and zero are

}  // namespace

std::vector<int32_t> AttentionCase::Groups(int num_kv_heads, int group) {
  std::vector<int32_t> head_to_kv;
  for (int i = 0; i < num_kv_heads * group; ++i) head_to_kv.push_back(i / group);
  return head_to_kv;
}

std::ostream& operator<<(std::ostream& out, const AttentionCase& c) {
  return out << c.num_heads() << "/" << c.num_kv_heads << " heads, d " << c.head_dim << ", "
             << KvFormatName(c.format) << ", blocks of " << c.block_tokens << ", window "
             << c.window << ", chunk " << c.chunk << (c.has_sinks ? ", sinks" : "")
             << ", value_dim " << c.value_dim;
}

PagedSequences::PagedSequences(Backend& backend, const AttentionCase& attention_case,
                               std::vector<int> lengths, uint32_t seed)
    : backend_(backend), case_(attention_case), lengths_(std::move(lengths)) {
  const int bt = case_.block_tokens;
  const int longest = *std::max_element(lengths_.begin(), lengths_.end());
  table_stride_ = (longest + bt - 1) / bt;
  const int num_blocks = table_stride_ * static_cast<int>(lengths_.size());
  block_tables_.resize(num_blocks);
  std::iota(block_tables_.begin(), block_tables_.end(), 1);
  std::shuffle(block_tables_.begin(), block_tables_.end(), std::mt19937(seed));
  for (size_t i = 0; i < lengths_.size(); ++i) {
    qkv_.push_back(RandomFloats(lengths_[i] * QkvWidth(), seed + static_cast<uint32_t>(i)));
  }
  if (case_.has_sinks) sinks_ = RandomFloats(case_.num_heads(), seed + 100);
  for (int i = 0; i < 2 * case_.num_kv_heads; ++i) {
    scales_.push_back(0.003F * static_cast<float>(i + 1));
  }
  arena_.resize((num_blocks + 1) * Layer().geometry.LayerBlockBytes() + 1, kPoison);
  StepLimits limits{std::accumulate(lengths_.begin(), lengths_.end(), 0),
                    static_cast<int>(lengths_.size()), longest};
  limits.attention_in_bf16 = case_.dtype != AttentionDType::kF32;
  workspace_.resize(backend_.WorkspaceBytes(limits, Heads()) + 64, kPoison);
  void* aligned = workspace_.data();
  size_t space = workspace_.size();
  std::align(64, space - 64, aligned, space);
  backend_.SetWorkspace(static_cast<std::byte*>(aligned), limits, Heads());
}

int64_t PagedSequences::QkvWidth() const { return Heads().qkv_dim(); }

HeadLayout PagedSequences::Heads() const {
  return HeadLayout{case_.num_heads(), case_.num_kv_heads, case_.head_dim, case_.head_to_kv.data(),
                    case_.value_dim};
}

KvLayerView PagedSequences::Layer() {
  const KvGeometry geometry{case_.num_kv_heads, case_.head_dim, case_.block_tokens, case_.format,
                            case_.value_dim > 0};
  KvLayerView layer{geometry, arena_.data(), geometry.LayerBlockBytes()};
  if (case_.format == KvFormat::kFP8) {
    layer.key_scales = scales_.data();
    layer.value_scales = scales_.data() + case_.num_kv_heads;
  }
  return layer;
}

PagedSequences::Step PagedSequences::MakeStep(const std::vector<Piece>& pieces) const {
  Step step;
  const int64_t width = QkvWidth();
  for (const Piece& piece : pieces) {
    step.seq_begin.push_back(static_cast<int32_t>(step.position.size()));
    step.seq_slot.push_back(piece.seq);
    for (int p = piece.begin; p < piece.end; ++p) {
      step.position.push_back(p);
      step.token_seq.push_back(static_cast<int32_t>(step.seq_slot.size()) - 1);
      const float* row = qkv_[piece.seq].data() + p * width;
      step.qkv.insert(step.qkv.end(), row, row + width);
      step.qkv.insert(step.qkv.end(), case_.row_padding, std::nanf(""));
    }
  }
  step.seq_begin.push_back(static_cast<int32_t>(step.position.size()));
  step.index = StepIndex{static_cast<int>(pieces.size()),
                         static_cast<int>(step.position.size()),
                         step.seq_begin.data(),
                         step.seq_slot.data(),
                         step.position.data(),
                         step.token_seq.data(),
                         block_tables_.data(),
                         table_stride_};
  return step;
}

ConstMatrixView PagedSequences::Qkv(const Step& step) const {
  return ConstMatrixView(reinterpret_cast<const std::byte*>(step.qkv.data()), DType::kF32,
                         step.index.num_tokens, QkvWidth(), QkvWidth() + case_.row_padding);
}

// Every position of the sequence before `position` becomes NaN.
void PagedSequences::PoisonBefore(int seq, int position) {
  const int bt = case_.block_tokens;
  const int64_t element = std::max(1, KvElementBits(case_.format) / 8);
  const KvLayerView layer = Layer();
  const int64_t token_bytes = layer.geometry.TokenBytes();
  for (int s = 0; s < position; ++s) {
    const int64_t block = block_tables_[seq * table_stride_ + s / bt];
    for (int head = 0; head < case_.num_kv_heads; ++head) {
      for (int64_t i = 0; i < token_bytes / element; ++i) {
        std::fill_n(layer.Keys(block, head) + (i * bt + s % bt) * element, element, kPoison);
      }
      const int parts = layer.geometry.num_parts();
      if (parts == 2) {
        std::fill_n(layer.Values(block, head) + s % bt * token_bytes, token_bytes, kPoison);
      }
      for (int i = 0; i < (IsQuantized(case_.format) ? 2 * parts : 0); ++i) {
        layer.Scaling(block, head)[i * bt + s % bt] = 0xffff;
      }
    }
  }
}

void PagedSequences::SetValues(int seq, int position, float x) {
  const int64_t first = int64_t{case_.num_heads() + case_.num_kv_heads} * case_.head_dim;
  float* const row = qkv_[seq].data() + position * QkvWidth();
  for (int head = 0; head < case_.num_kv_heads; ++head) row[first + head * case_.head_dim] = x;
}

void PagedSequences::ScaleValues(float factor) {
  const int64_t first = int64_t{case_.num_heads() + case_.num_kv_heads} * case_.head_dim;
  for (std::vector<float>& qkv : qkv_) {
    for (size_t i = 0; i < qkv.size(); ++i) {
      if (static_cast<int64_t>(i) % QkvWidth() >= first) qkv[i] *= factor;
    }
  }
}

void PagedSequences::Append(const std::vector<Piece>& pieces) {
  const Step step = MakeStep(pieces);
  backend_.AppendKv(step.index, Heads(), Qkv(step), Layer());
  BH_CHECK(backend_.device().Synchronize().ok());
}

std::vector<float> PagedSequences::AppendAndAttend(const std::vector<Piece>& pieces,
                                                   DType out_dtype) {
  const Step step = MakeStep(pieces);
  backend_.AppendKv(step.index, Heads(), Qkv(step), Layer());
  for (const Piece& piece : pieces) {
    if (case_.window > 0) PoisonBefore(piece.seq, piece.begin - case_.window + 1);
    if (case_.chunk > 0) PoisonBefore(piece.seq, piece.begin / case_.chunk * case_.chunk);
  }
  const int64_t width = int64_t{case_.num_heads()} * Heads().out_dim();
  const int64_t stride = width + case_.row_padding;
  std::vector<float> padded(step.index.num_tokens * stride, 7.0f);
  std::vector<uint16_t> rounded(out_dtype == DType::kF32 ? 0 : padded.size(), Bf16OfF32(7.0f));
  AttentionOptions options{.scale = 1 / std::sqrt(static_cast<float>(case_.head_dim)),
                           .window = case_.window,
                           .soft_cap = case_.soft_cap,
                           .chunk = case_.chunk};
  if (case_.has_sinks) {
    options.sinks = ConstMatrixView(reinterpret_cast<const std::byte*>(sinks_.data()), DType::kF32,
                                    1, case_.num_heads());
  }
  backend_.BeginStep(step.index);
  backend_.Attend(step.index, Heads(), Qkv(step), Layer(), options,
                  MatrixView(rounded.empty() ? reinterpret_cast<std::byte*>(padded.data())
                                             : reinterpret_cast<std::byte*>(rounded.data()),
                             out_dtype, step.index.num_tokens, width, stride));
  BH_CHECK(backend_.device().Synchronize().ok());
  std::transform(rounded.begin(), rounded.end(), padded.begin(), F32OfBf16);
  std::vector<float> out;
  for (int t = 0; t < step.index.num_tokens; ++t) {
    const float* row = padded.data() + t * stride;
    out.insert(out.end(), row, row + width);
    // Nothing is written beside the output.
    BH_CHECK(std::all_of(row + width, row + stride, [](float x) { return x == 7.0f; }));
  }
  return out;
}

std::vector<float> AttendToOneToken(Backend& backend, const std::vector<float>& value,
                                    float scale) {
  const auto d = static_cast<int>(value.size());
  const KvGeometry geometry{1, d, 16, KvFormat::kFP8};
  std::vector<std::byte> arena(2 * geometry.LayerBlockBytes(), kPoison);
  std::vector<float> qkv(2 * d, 0.5F);
  qkv.insert(qkv.end(), value.begin(), value.end());
  // What kernels read is allocated: a GPU does not see the stack.
  const std::vector<int32_t> indices = {0, 1};
  const std::vector<float> value_scales = {scale};
  const int32_t* const zero = indices.data();
  const int32_t* const one = zero + 1;
  const StepIndex index{1, 1, indices.data(), zero, zero, zero, one, 1};
  const HeadLayout heads{1, 1, d, zero};
  std::vector<std::byte> workspace(backend.WorkspaceBytes({1, 1, 16}, heads) + 64);
  void* aligned = workspace.data();
  size_t space = workspace.size();
  std::align(64, space - 64, aligned, space);
  backend.SetWorkspace(static_cast<std::byte*>(aligned), {1, 1, 16}, heads);
  KvLayerView layer{geometry, arena.data(), geometry.LayerBlockBytes()};
  layer.value_scales = value_scales.data();
  const ConstMatrixView in(reinterpret_cast<const std::byte*>(qkv.data()), DType::kF32, 1, 3 * d);
  std::vector<float> out(d);
  backend.AppendKv(index, heads, in, layer);
  backend.BeginStep(index);
  backend.Attend(index, heads, in, layer, {},
                 MatrixView(reinterpret_cast<std::byte*>(out.data()), DType::kF32, 1, d));
  BH_CHECK(backend.device().Synchronize().ok());
  return out;
}

std::vector<AttentionCase> CudaLatentCases() {
  const auto latent = [](int heads, int head_dim, int value_dim, KvFormat format,
                         int block_tokens) {
    AttentionCase c{AttentionCase::Groups(1, heads), 1, head_dim, format, block_tokens};
    c.value_dim = value_dim;
    return c;
  };
  std::vector<AttentionCase> cases;
  for (const KvFormat format : {KvFormat::kBF16, KvFormat::kF16, KvFormat::kFP8}) {
    cases.push_back(latent(8, 40, 32, format, 16));
    cases.push_back(latent(20, 24, 16, format, 64));  // of heads and dims no whole tiles
  }
  cases.push_back(latent(70, 32, 18, KvFormat::kBF16, 32));  // more heads than a block takes
  cases.push_back(latent(2, 576, 512, KvFormat::kBF16, 256));
  cases.push_back(latent(1, 576, 512, KvFormat::kFP8, 16));
  cases.push_back(latent(3, 40, 32, KvFormat::kF16, 16));
  cases.back().window = 300;
  cases.back().soft_cap = 1.5F;
  cases.push_back(latent(3, 104, 96, KvFormat::kBF16, 16));
  cases.back().chunk = 40;
  cases.back().has_sinks = true;
  return cases;
}

std::vector<AttentionCase> CudaWideCases() {
  const auto groups = AttentionCase::Groups;
  return {{groups(1, 2), 1, 512, KvFormat::kBF16, 16, 0},
          {groups(2, 1), 2, 512, KvFormat::kF16, 64, 0},
          {groups(1, 1), 1, 512, KvFormat::kInt8, 16, 0},
          {groups(1, 1), 1, 512, KvFormat::kInt4, 32, 0},
          {groups(1, 1), 1, 512, KvFormat::kFP8, 16, 0},
          {groups(1, 18), 1, 288, KvFormat::kBF16, 16, 0},
          {groups(1, 17), 1, 288, KvFormat::kInt4, 256, 300},
          {{0, 0, 1, 1, 1}, 3, 320, KvFormat::kFP8, 64, 0, 0, true},
          {groups(2, 2), 2, 288, KvFormat::kInt8, 16, 100, 0.7F},
          {groups(1, 2), 1, 384, KvFormat::kF16, 16, 0, 0, false, 40}};
}

std::vector<AttentionCase> CudaAttentionCases() {
  const auto groups = AttentionCase::Groups;
  const std::vector<int32_t> crowd(35, 0);  // more heads for one KV head than a block takes
  std::vector<AttentionCase> cases;
  for (const KvFormat format :
       {KvFormat::kBF16, KvFormat::kF16, KvFormat::kInt8, KvFormat::kInt4, KvFormat::kFP8}) {
    cases.push_back({groups(2, 2), 2, 16, format, 16, 0});
    cases.push_back({groups(1, 7), 1, 32, format, 64, 24});
    cases.push_back({{0, 0, 1, 1, 1}, 3, 24, format, 256, 0});  // nobody reads the last
  }
  cases.push_back({groups(1, 9), 1, 80, KvFormat::kF16, 16, 300});
  cases.push_back({groups(1, 4), 1, 128, KvFormat::kBF16, 32, 0});
  cases.push_back({groups(1, 2), 1, 104, KvFormat::kInt8, 16, 300});
  cases.push_back({groups(1, 4), 1, 128, KvFormat::kInt8, 16, 0});
  cases.push_back({groups(1, 4), 1, 128, KvFormat::kInt4, 16, 270});
  cases.push_back({groups(2, 9), 2, 64, KvFormat::kFP8, 32, 0});
  cases.push_back({groups(3, 1), 3, 8, KvFormat::kBF16, 128, 1});
  cases.push_back({crowd, 1, 40, KvFormat::kBF16, 16, 0});
  cases.push_back({groups(1, 1), 1, 256, KvFormat::kBF16, 16, 0});
  cases.push_back({groups(1, 1), 1, 136, KvFormat::kInt4, 16, 0});
  cases.push_back({groups(1, 2), 1, 104, KvFormat::kFP8, 16, 300});
  cases.push_back({groups(1, 1), 1, 136, KvFormat::kFP8, 16, 0});
  // Soft caps, sinks and chunks; the border of a split lies within a chunk and at one.
  cases.push_back({groups(2, 2), 2, 32, KvFormat::kBF16, 16, 0, 1.5F});
  cases.push_back({groups(1, 3), 1, 136, KvFormat::kInt8, 16, 300, 0.7F});
  cases.push_back({groups(2, 3), 2, 64, KvFormat::kBF16, 32, 0, 0, true});
  cases.push_back({groups(1, 2), 1, 24, KvFormat::kFP8, 16, 100, 0, true});
  cases.push_back({groups(2, 2), 2, 80, KvFormat::kF16, 16, 0, 0, false, 40});
  cases.push_back({groups(1, 8), 1, 128, KvFormat::kBF16, 32, 0, 2, true, 128});
  for (const AttentionCase& c : CudaLatentCases()) cases.push_back(c);
  for (const AttentionCase& c : CudaWideCases()) cases.push_back(c);
  return cases;
}

}  // namespace bulkhead
