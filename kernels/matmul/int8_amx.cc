// Products of quantised weights and quantised inputs in AMX's tile registers: 16 rows by 16 columns
// by 64 inputs at a time. Sums of a cell are exact integers, so the bits are those of
// int8_simd.cc. Compiled with the instructions and with their emulation.
#include "kernels/matmul/int8.h"
#include "kernels/matmul/int8_cell.h"
#include "kernels/matmul/op.h"
#include "kernels/matmul/panel_tree.h"
#include "simd.h"
#include "tiles.h"

namespace bulkhead::BH_ISA {
namespace {

// Sums of both vectors of columns, inputs, weights of both; and inputs and weights of a cell's last
// words, which may be fewer than a tile's.
enum TileName {
  kSums0,
  kSums1,
  kInputs,
  kWeights0,
  kWeights1,
  kLastInputs,
  kLastWeights0,
  kLastWeights1
};

constexpr int kWordsPerTile = kTileRegisterRows;
constexpr int kWordBytes = 128;  // both vectors of columns
constexpr int kVectorBytes = 64;
constexpr int kMaxCellWords = 128 / 4;
constexpr int64_t kPrefetchBytes = 8192;
constexpr int64_t kRowFloats = kPanelColumns;

// The shapes of a tile of `rows` rows and of cells that end with `last_words` words.
class Shapes {
 public:
  void Set(int64_t rows, int last_words) {
    if (rows == rows_ && (last_words == 0 || last_words == last_words_)) return;
    rows_ = rows;
    last_words_ = last_words == 0 ? 1 : last_words;
    TileShapes shapes;
    const auto set = [&](int tile, int64_t tile_rows, int bytes) {
      shapes.rows[tile] = static_cast<uint8_t>(tile_rows);
      shapes.row_bytes[tile] = static_cast<uint16_t>(bytes);
    };
    set(kSums0, rows, kVectorBytes);
    set(kSums1, rows, kVectorBytes);
    set(kInputs, rows, 4 * kWordsPerTile);
    set(kWeights0, kWordsPerTile, kVectorBytes);
    set(kWeights1, kWordsPerTile, kVectorBytes);
    set(kLastInputs, rows, 4 * last_words_);
    set(kLastWeights0, last_words_, kVectorBytes);
    set(kLastWeights1, last_words_, kVectorBytes);
    ConfigureTiles(shapes);
  }

 private:
  int64_t rows_ = 0;
  int last_words_ = 0;
};

// The dots of the words that the tiles kX and kW0, kW1 are shaped for.
template <int kX, int kW0, int kW1>
void DotWords(const char* weights, const int8_t* inputs, int64_t input_stride) {
  LoadTile<kX>(inputs, input_stride);
  LoadTile<kW0>(weights, kWordBytes);
  LoadTile<kW1>(weights + kVectorBytes, kWordBytes);
  DotTiles<kSums0, kX, kW0>();
  DotTiles<kSums1, kX, kW1>();
}

// sums [rows][32] = the dots of a cell's words [words][2][16][4] with inputs [rows][words][4].
void DotCell(const char* weights, const int8_t* inputs, int words, int32_t* sums) {
  const int64_t stride = int64_t{4} * words;
  ZeroTile<kSums0>();
  ZeroTile<kSums1>();
  int word = 0;
  for (; word + kWordsPerTile <= words; word += kWordsPerTile) {
    DotWords<kInputs, kWeights0, kWeights1>(weights + word * kWordBytes, inputs + 4 * word, stride);
  }
  if (word < words) {
    DotWords<kLastInputs, kLastWeights0, kLastWeights1>(weights + word * kWordBytes,
                                                        inputs + 4 * word, stride);
  }
  StoreTile<kSums0>(sums, kRowFloats * 4);
  StoreTile<kSums1>(sums + kLanes, kRowFloats * 4);
}

// Codes of a cell as bytes, and what is wanted soon.
template <PanelFormat kFormat>
const char* CodesOf(const char* at, int words, char* bytes) {
  constexpr int kFileBytes = QuantizedWordBytes(kFormat);
  for (int64_t line = 0; line < int64_t{words} * kFileBytes; line += 64) {
    PrefetchLater(at + kPrefetchBytes + line);
  }
  if constexpr (kFileBytes == kWordBytes) return at;
  for (int word = 0; word < words; ++word) {
    for (int v = 0; v < 2; ++v) {
      const I32x16 codes = LoadCodes<kFormat>(at + word * kFileBytes, v);
      float* to = reinterpret_cast<float*>(bytes + word * kWordBytes + v * kVectorBytes);
      Store(to, FromBits(codes));
    }
  }
  return bytes;
}

// chains [rows][32] = fma(sum of (q - z) x, weight scale * input scale, chains)
template <PanelFormat kFormat>
void AddToChains(const int32_t* sums, const CellScaling& scaling, const float* input_scales,
                 const int32_t* input_sums, int64_t rows, float* chains) {
  for (int64_t r = 0; r < rows; ++r, sums += kRowFloats, chains += kRowFloats) {
    const I32x16 fresh = FreshSum<kFormat>(0, input_sums[r]);
    const F32x16 input_scale = Set1(input_scales[r]);
    for (int v = 0; v < 2; ++v) {
      const I32x16 whole = Add(LoadI(sums + v * kLanes), fresh);
      const F32x16 sum = FinishSum<kFormat>(whole, scaling.zero[v], input_sums[r]);
      float* chain = chains + v * kLanes;
      Store(chain, Fma(sum, Mul(scaling.scale[v], input_scale), Load(chain)));
    }
  }
}

// A panel of some neighbouring tiles.
struct Group {
  int64_t tile_begin;
  int64_t tile_end;
  int64_t row_begin;
  int64_t num_rows;
  float* chains;  // [num_rows][32]
  float* left;    // [kMaxSliceLevels][num_rows][32] unfinished left subtrees, the smallest first
};

template <PanelFormat kFormat>
void AddCell(const Int8Product& product, const Group& group, const char* panel, int cell,
             Shapes& shapes) {
  alignas(64) char bytes[kMaxCellWords * kWordBytes];
  alignas(64) int32_t sums[kAmxTileRows * kRowFloats];
  const QuantizedPanels& weight = *product.weight;
  const QuantizedInputs& x = product.x;
  const PackedCell& packed = weight.cells[cell];
  const char* at = panel + packed.offset;
  const char* codes = CodesOf<kFormat>(at, packed.words, bytes);
  at += int64_t{packed.words} * QuantizedWordBytes(kFormat);
  const CellScaling scaling = LoadScaling<kFormat>(at, at + ScaleBytes(kFormat), weight.bf16_scales,
                                                   FactorsOf(weight, panel));
  for (int64_t t = group.tile_begin; t < group.tile_end; ++t) {
    const InputTile tile = InputTileOf(product.rows, product.tiles, t);
    shapes.Set(tile.rows, packed.words % kWordsPerTile);
    DotCell(codes, x.codes + tile.begin * x.row_bytes + packed.x_offset * tile.rows, packed.words,
            sums);
    const int64_t first = tile.begin * x.cells + cell * tile.rows;
    AddToChains<kFormat>(sums, scaling, x.scales + first, x.sums + first, tile.rows,
                         group.chains + (tile.begin - group.row_begin) * kRowFloats);
  }
}

// What a slice's chains become: the left subtree of a join, or the product's output.
void EndSlice(const Int8Product& product, const Group& group, int64_t panel, int slice) {
  const int64_t columns_left = product.outputs - panel * kPanelColumns;
  const int columns = static_cast<int>(columns_left < kPanelColumns ? columns_left : kPanelColumns);
  const int joins = JoinsAfter(slice);
  const int64_t level_floats = group.num_rows * kRowFloats;
  for (int64_t r = 0; r < group.num_rows; ++r) {
    float* out = product.out + (group.row_begin + r) * product.out_stride + panel * kPanelColumns;
    for (int v = 0; v < 2; ++v) {
      const int64_t at = r * kRowFloats + v * kLanes;
      F32x16 sum = Load(group.chains + at);
      for (int join = 0; join < joins; ++join) {
        sum = Add(Load(group.left + join * level_floats + at), sum);
      }
      if (slice + 1 == product.num_slices) {
        StoreN(out + v * kLanes, sum, LanesFrom(columns, v));
      } else {
        Store(group.left + joins * level_floats + at, sum);
      }
    }
  }
}

template <PanelFormat kFormat>
void RunPanel(const Int8Product& product, const Group& group, int64_t panel, Shapes& shapes) {
  const QuantizedPanels& weight = *product.weight;
  const char* codes = weight.panels + panel * weight.panel_bytes;
  int cell = 0;
  for (int slice = 0; slice < product.num_slices; ++slice) {
    const bool empty = product.k_borders[slice] == product.k_borders[slice + 1];
    const F32x16 fresh = Set1(empty ? -0.0f : 0.0f);
    for (int64_t i = 0; i < group.num_rows * kRowFloats; i += kLanes)
      Store(group.chains + i, fresh);
    for (; cell < weight.num_cells && weight.cells[cell].slice == slice; ++cell) {
      AddCell<kFormat>(product, group, codes, cell, shapes);
    }
    EndSlice(product, group, panel, slice);
  }
}

using RunPanelFunction = void (*)(const Int8Product& product, const Group& group, int64_t panel,
                                  Shapes& shapes);

RunPanelFunction RunPanelOf(PanelFormat format) {
  if (format == PanelFormat::kFp4) return &RunPanel<PanelFormat::kFp4>;
  return format == PanelFormat::kInt4 ? &RunPanel<PanelFormat::kInt4>
                                      : &RunPanel<PanelFormat::kInt8>;
}

}  // namespace

void MultiplyInt8InTiles(const Int8Product& product, const Int8Part& part, float* scratch) {
  constexpr int64_t kGroupTiles = kAmxGroupRows / kAmxTileRows;
  const RunPanelFunction run = RunPanelOf(product.format);
  Shapes shapes;
  for (int64_t begin = part.tile_begin; begin < part.tile_end; begin += kGroupTiles) {
    Group group{};
    group.tile_begin = begin;
    group.tile_end = part.tile_end - begin < kGroupTiles ? part.tile_end : begin + kGroupTiles;
    group.row_begin = InputTileOf(product.rows, product.tiles, begin).begin;
    const InputTile last = InputTileOf(product.rows, product.tiles, group.tile_end - 1);
    group.num_rows = last.begin + last.rows - group.row_begin;
    group.chains = scratch;
    group.left = scratch + group.num_rows * kRowFloats;
    for (int64_t panel = part.panel_begin; panel < part.panel_end; ++panel) {
      run(product, group, panel, shapes);
    }
  }
  ReleaseTiles();
}

}  // namespace bulkhead::BH_ISA
