#include "kernels/bench/attention_bench.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "memory/kv_format_name.h"

namespace bulkhead {
namespace {

constexpr int kBlockTokens = 16;
constexpr int kAppendTokens = 256;
// All layers of a cache together: large enough to be read from memory.
constexpr int64_t kCacheBytes = int64_t{256} << 20;
constexpr int64_t kQuickCacheBytes = int64_t{4} << 20;
constexpr KvFormat kFormats[] = {KvFormat::kBF16, KvFormat::kF32,  KvFormat::kF16,
                                 KvFormat::kInt8, KvFormat::kInt4, KvFormat::kFP8};

// One sequence with a context, and a step of its last `tokens`.
struct Shape {
  int heads;
  int kv_heads;
  int head_dim;
  int context;
  int tokens;

  int64_t width() const { return int64_t{heads + 2 * kv_heads} * head_dim; }
};

// A step of one sequence, positions [begin, end).
struct OneSequenceStep {
  OneSequenceStep(const std::vector<int32_t>& blocks, int begin, int end)
      : position(end - begin), token_seq(end - begin), seq_begin{0, end - begin} {
    std::iota(position.begin(), position.end(), begin);
    index = {1,
             end - begin,
             seq_begin,
             &slot,
             position.data(),
             token_seq.data(),
             blocks.data(),
             static_cast<int>(blocks.size())};
  }

  std::vector<int32_t> position, token_seq;
  int32_t seq_begin[2];
  int32_t slot = 0;
  StepIndex index;
};

ConstMatrixView View(const std::vector<float>& rows, int64_t count, int64_t cols) {
  return ConstMatrixView(reinterpret_cast<const std::byte*>(rows.data()), DType::kF32, count, cols);
}

// As many layers of one format as make the cache large, used in turn.
class Cache {
 public:
  Cache(Machine& machine, const Shape& shape, const HeadLayout& heads, KvFormat format,
        const std::vector<int32_t>& blocks, const std::vector<float>& qkv, bool quick)
      : machine_(machine), shape_(shape), heads_(heads), quick_(quick) {
    const int64_t num_blocks = static_cast<int64_t>(blocks.size());
    place_.geometry = {shape.kv_heads, shape.head_dim, kBlockTokens, format};
    const int64_t layer_block_bytes = place_.geometry.LayerBlockBytes();
    num_layers_ = std::max<int64_t>(
        1, (quick ? kQuickCacheBytes : kCacheBytes) / ((num_blocks + 1) * layer_block_bytes));
    arena_ = {num_blocks, num_layers_ * layer_block_bytes, nullptr};
    memory_ = std::move(machine.device->Allocate((num_blocks + 1) * arena_.block_bytes)).value();
    arena_.base = memory_.data();
    for (int begin = 0; begin < shape.context; begin += kAppendTokens) {
      const int end = std::min(begin + kAppendTokens, shape.context);
      const OneSequenceStep step(blocks, begin, end);
      machine.BackendOf(ActivationDType::kF32)
          .AppendKv(step.index, heads, View(qkv, end - begin, shape.width()), Layer(0));
    }
    for (int64_t block = 0; block <= num_blocks; ++block) {
      const std::byte* const first = Layer(0).Keys(block, 0);
      for (int64_t i = 1; i < num_layers_; ++i) {
        std::memcpy(Layer(i).Keys(block, 0), first, layer_block_bytes);
      }
    }
  }

  int64_t bytes_read() const {  // by one call of Attend
    return place_.geometry.LayerBlockBytes() * ((shape_.context + kBlockTokens - 1) / kBlockTokens);
  }
  KvFormat format() const { return place_.geometry.format; }

  // Seconds of one call.
  double Attend(ActivationDType activation, const OneSequenceStep& step, ConstMatrixView qkv,
                MatrixView out) {
    const int64_t turn_bytes = kTurnBytes * machine_.pool->num_threads() / shape_.tokens;
    const int64_t calls = quick_ ? 1 : std::max<int64_t>(1, turn_bytes / bytes_read());
    return Seconds([&] {
             for (int64_t i = 0; i < calls; ++i) {
               machine_.BackendOf(activation)
                   .Attend(step.index, heads_, qkv, Layer(next_layer_++ % num_layers_),
                           {.scale = 0.1f}, out);
             }
           }) /
           static_cast<double>(calls);
  }

 private:
  KvLayerView Layer(int64_t i) const {
    LayerPlace place = place_;
    place.offset_bytes = i * place.geometry.LayerBlockBytes();
    return arena_.Layer(place);
  }

  Machine& machine_;
  const Shape& shape_;
  const HeadLayout& heads_;
  const bool quick_;
  Buffer memory_;
  KvArena arena_;
  LayerPlace place_;  // of the first layer
  int64_t num_layers_ = 0;
  int64_t next_layer_ = 0;
};

void MeasureShape(Machine& machine, const std::string& name, const Shape& shape, bool quick,
                  const std::function<void(const KernelResult&)>& on_result) {
  std::vector<int32_t> head_to_kv(shape.heads);
  for (int i = 0; i < shape.heads; ++i) head_to_kv[i] = i * shape.kv_heads / shape.heads;
  const HeadLayout heads{shape.heads, shape.kv_heads, shape.head_dim, head_to_kv.data()};
  machine.SetWorkspace({std::max(kAppendTokens, shape.tokens), 1, shape.context}, heads);
  std::mt19937 random(1);
  std::vector<int32_t> blocks((shape.context + kBlockTokens - 1) / kBlockTokens);
  std::iota(blocks.begin(), blocks.end(), 1);
  std::shuffle(blocks.begin(), blocks.end(), random);
  std::vector<float> qkv(std::max(kAppendTokens, shape.tokens) * shape.width());
  std::normal_distribution<float> normal;
  for (float& x : qkv) x = normal(random);
  std::vector<float> out(int64_t{shape.tokens} * shape.heads * shape.head_dim);

  std::vector<std::unique_ptr<Cache>> caches;
  std::vector<std::pair<Cache*, ActivationDType>> cases;
  for (const KvFormat format : kFormats) {
    caches.push_back(std::make_unique<Cache>(machine, shape, heads, format, blocks, qkv, quick));
    cases.emplace_back(caches.back().get(), ActivationDType::kF32);
    for (const auto activation : {ActivationDType::kBf16, ActivationDType::kBf16Amx}) {
      if (format != KvFormat::kBF16 || !machine.Has(activation)) continue;
      cases.emplace_back(caches.back().get(), activation);
    }
  }
  const OneSequenceStep step(blocks, shape.context - shape.tokens, shape.context);
  const ConstMatrixView q = View(qkv, shape.tokens, shape.width());
  const MatrixView out_view(reinterpret_cast<std::byte*>(out.data()), DType::kF32, shape.tokens,
                            int64_t{shape.heads} * shape.head_dim);
  std::vector<std::vector<double>> seconds(cases.size()), of_read(cases.size());
  double best_read = 0;
  for (int round = 0; round < (quick ? 2 : kBenchRounds); ++round) {
    const double read = machine.ReadBandwidth(round);
    best_read = std::max(best_read, read);
    for (size_t i = 0; i < cases.size(); ++i) {
      const auto [cache, activation] = cases[i];
      seconds[i].push_back(cache->Attend(activation, step, q, out_view));
      of_read[i].push_back(static_cast<double>(cache->bytes_read()) / seconds[i].back() * 1e-9 /
                           read);
    }
  }
  for (size_t i = 0; i < cases.size(); ++i) {
    const auto [cache, activation] = cases[i];
    KernelResult result;
    result.name = name;
    result.format = std::string(KvFormatName(cache->format()));
    result.activation = activation == ActivationDType::kF32    ? "f32"
                        : activation == ActivationDType::kBf16 ? "bf16"
                                                               : "bf16-amx";
    result.seconds = Median(seconds[i]);
    result.gb_per_s = static_cast<double>(cache->bytes_read()) / result.seconds * 1e-9;
    result.read_gb_per_s = best_read;
    result.share_of_read = Median(of_read[i]);
    // Scores and values: two operations each, of the mean of visible positions.
    const double visible = shape.context - (shape.tokens - 1) / 2.0;
    result.gop_per_s =
        4.0 * shape.tokens * visible * shape.heads * shape.head_dim / result.seconds * 1e-9;
    on_result(result);
  }
}

}  // namespace

void MeasureAttention(Machine& machine, const KernelsBenchOptions& options,
                      const std::function<void(const KernelResult&)>& on_result) {
  for (const int context : {512, 4096, 32768}) {
    if (options.quick && context > 512) continue;
    for (const int tokens : {1, 512}) {
      if (options.quick && tokens > 1) continue;
      for (const Shape& shape :
           {Shape{16, 8, 64, context, tokens}, Shape{32, 8, 128, context, tokens},
            Shape{32, 4, 128, context, tokens}, Shape{8, 8, 128, context, tokens}}) {
        const std::string name = absl::StrCat("attend/", context, "/", shape.heads, "x",
                                              shape.kv_heads, "x", shape.head_dim, "/", tokens);
        if (!absl::StartsWith(name, options.filter)) continue;
        MeasureShape(machine, name, shape, options.quick, on_result);
      }
    }
  }
}

}  // namespace bulkhead
