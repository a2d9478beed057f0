// Products of quantised weights and quantised inputs in AMX's tile registers: 16 rows by 16 columns
// by 64 inputs at a time. Sums of a cell are exact integers, so the bits equal int8_simd.cc's.
// Compiled with the instructions and with their emulation.
#include "kernels/matmul/int8.h"
#include "kernels/matmul/op.h"
#include "kernels/matmul/quantized_codes.h"
#include "kernels/matmul/tile_chains.h"
#include "simd.h"
#include "tiles.h"

namespace bulkhead::BH_ISA {
namespace {

// Two sets of sums of both column vectors, which cells use alternately; inputs; weights of both
// vectors.
enum TileName { kSums00, kSums01, kSums10, kSums11, kInputs, kWeights0, kWeights1 };

constexpr int kWordsPerTile = kTileRegisterRows;
constexpr int kWordBytes = 128;  // both vectors of columns
constexpr int kVectorBytes = 64;
constexpr int kMaxCellWords = kMaxCellInputs / 4;
constexpr int kBlockCells = 4;              // whose weights stay in L1 while rows pass
constexpr int64_t kMinGroupTiles = 8;       // or weights would be read too often
constexpr int64_t kGroupBytes = 512 << 10;  // of inputs that stay in L2 while panels pass

// All tiles of inputs are configured with the rows of the largest one.
void ConfigureTilesOf(int64_t rows) {
  TileShapes shapes;
  for (int i = 0; i < kTiles; ++i) {
    const bool of_weights = i == kWeights0 || i == kWeights1;
    shapes.rows[i] = static_cast<uint8_t>(of_weights ? kWordsPerTile : rows);
    shapes.row_bytes[i] = kTileRegisterBytes;
  }
  ConfigureTiles(shapes);
}

// The weights of a cell as signed bytes q - z, padded with 0 to whole tiles.
struct Cell {
  alignas(64) char codes[kMaxCellWords * kWordBytes];  // [words][2][16][4]
  F32x16 scale[2];
  int words;
  int64_t x_offset;
};

// The byte `zero` of each column in all four bytes of its lane.
BH_INLINE I32x16 InAllBytes(I32x16 bytes) {
  const I32x16 twice = Add(bytes, ShiftLeft<8>(bytes));
  return Add(twice, ShiftLeft<16>(twice));
}

BH_INLINE void StoreWord(char* to, I32x16 word) {
  Store(reinterpret_cast<float*>(to), FromBits(word));
}

template <PanelFormat kFormat>
void LoadCell(const QuantizedPanels& weight, const char* panel, const PackedCell& packed,
              Cell& cell) {
  constexpr int kFileBytes = QuantizedWordBytes(kFormat);
  const char* at = panel + packed.offset;
  const char* scales = at + int64_t{packed.words} * kFileBytes;
  const char* zeros = scales + ScaleBytes(kFormat);
  const CellScaling scaling =
      LoadScaling<kFormat>(scales, zeros, weight.bf16_scales, FactorsOf(weight, panel));
  cell.words = packed.words;
  cell.x_offset = packed.x_offset;
  for (int v = 0; v < 2; ++v) {
    cell.scale[v] = scaling.scale[v];
    const I32x16 zero =
        kFormat == PanelFormat::kInt4
            ? InAllBytes(LoadBytes(reinterpret_cast<const uint8_t*>(zeros) + v * kLanes))
            : SetI1(static_cast<int32_t>(kZeroOf<kFormat> * 0x01010101U));
    for (int word = 0; word < packed.words; ++word) {
      const I32x16 codes = SubBytes(LoadCodes<kFormat>(at + word * kFileBytes, v), zero);
      StoreWord(cell.codes + word * kWordBytes + v * kVectorBytes, codes);
    }
  }
  for (int word = packed.words; word % kWordsPerTile != 0; ++word) {
    for (int v = 0; v < 2; ++v) {
      StoreWord(cell.codes + word * kWordBytes + v * kVectorBytes, SetI1(0));
    }
  }
}

// Dot products of a tile of words with inputs [rows][words][4].
template <int kSet>
BH_INLINE void DotWords(const char* weights, const int8_t* inputs, int64_t stride) {
  LoadPassingTile<kInputs>(inputs, stride);
  LoadTile<kWeights0>(weights, kWordBytes);
  DotTiles<kSums00 + 2 * kSet, kInputs, kWeights0>();
  LoadTile<kWeights1>(weights + kVectorBytes, kWordBytes);
  DotTiles<kSums01 + 2 * kSet, kInputs, kWeights1>();
}

template <int kSet>
BH_INLINE void StoreSums(int32_t* sums) {
  StoreTile<kSums00 + 2 * kSet>(sums, kRowFloats * 4);
  StoreTile<kSums01 + 2 * kSet>(sums + kLanes, kRowFloats * 4);
}

// Sums of set kSet = a cell's dot products; the other set's completed sums are stored in `others`:
// tiles are not renamed, so a store next to its sums would stall the following dot products.
template <int kSet>
void DotCell(const Cell& cell, const int8_t* inputs, int32_t* others) {
  const int64_t stride = int64_t{4} * cell.words;
  ZeroTile<kSums00 + 2 * kSet>();
  ZeroTile<kSums01 + 2 * kSet>();
  DotWords<kSet>(cell.codes, inputs, stride);
  StoreSums<1 - kSet>(others);
  for (int word = kWordsPerTile; word < cell.words; word += kWordsPerTile) {
    DotWords<kSet>(cell.codes + word * kWordBytes, inputs + 4 * word, stride);
  }
}

// Adjacent row tiles.
struct Group {
  SliceRows rows;
  int64_t tile_begin;
  int64_t tile_end;
  float* chains;  // [rows][32]
};

// Adjacent cells of a slice.
struct Block {
  Cell cells[kBlockCells];
  int cell_begin;
  int num_cells;
  bool begins_slice;
  bool ends_slice;
  bool in_place;        // completed chains are the product's output
  const char* ahead;    // data needed soon
  int64_t ahead_lines;  // per cell and tile
};

// A cell's sums for a row tile, not yet added to the chains.
struct Dots {
  alignas(64) int32_t sums[kAmxTileRows * kRowFloats];
  const Cell* cell;
  const float* input_scales;  // [rows]
  int64_t rows;
  const float* chains;  // [rows][32]; null at the beginning
  float* out;           // [rows], out_stride apart
  int64_t out_stride;
  int64_t ended_row;  // group row from which chains are then complete subtrees; or -1
};

// out = fma(sums, weight scale * input scale, chains)
template <bool kBegin>
void AddTo(const Dots& dots) {
  const F32x16 scale0 = dots.cell->scale[0];
  const F32x16 scale1 = dots.cell->scale[1];
  const float* const input_scales = dots.input_scales;
  const int32_t* sums = dots.sums;
  const float* chains = dots.chains;
  float* out = dots.out;
  const int64_t out_stride = dots.out_stride;
  const int64_t rows = dots.rows;
#pragma GCC unroll 4
  for (int64_t r = 0; r < rows; ++r) {
    const F32x16 input_scale = Set1(input_scales[r]);
    const F32x16 sum0 = ToF32(LoadI(sums + r * kRowFloats));
    const F32x16 sum1 = ToF32(LoadI(sums + r * kRowFloats + kLanes));
    const F32x16 chain0 = kBegin ? Zero() : Load(chains + r * kRowFloats);
    const F32x16 chain1 = kBegin ? Zero() : Load(chains + r * kRowFloats + kLanes);
    Store(out, Fma(sum0, Mul(scale0, input_scale), chain0));
    Store(out + kLanes, Fma(sum1, Mul(scale1, input_scale), chain1));
    out += out_stride;
  }
}

BH_INLINE void AddDots(const Int8Product& product, const Group& group, int64_t panel, int slice,
                       const Dots& dots) {
  dots.chains == nullptr ? AddTo<true>(dots) : AddTo<false>(dots);
  if (dots.ended_row < 0) return;
  EndSlice(product, group.rows, panel, slice, dots.ended_row, dots.ended_row + dots.rows, dots.out);
}

// Continues, or begins, all rows of the group over the block.
void AddBlock(const Int8Product& product, const Group& group, int64_t panel, int slice,
              const Block& block) {
  Dots dots[2];
  int64_t turn = 0;
  const QuantizedInputs& x = product.x;
  const bool is_slice = block.begins_slice && block.ends_slice;
  const bool in_place = block.ends_slice && block.in_place;
  const char* ahead = block.ahead;
  for (int64_t t = group.tile_begin; t < group.tile_end; ++t) {
    const InputTile rows = InputTileOf(product.rows, product.tiles, t);
    const int64_t row = rows.begin - group.rows.row_begin;
    const float* input_scales = x.scales + rows.begin * x.cells + block.cell_begin * rows.rows;
    // If a block is a whole slice, a tile's chains are complete before the next tile's begin.
    float* const chains = group.chains + (is_slice ? 0 : row * kRowFloats);
    float* const out = product.out + rows.begin * product.out_stride + panel * kPanelColumns;
    for (int64_t r = 0; in_place && r < rows.rows; ++r) {
      PrefetchToWrite(out + r * product.out_stride);
      PrefetchToWrite(out + r * product.out_stride + kLanes);
    }
    for (int i = 0; i < block.num_cells; ++i, ++turn) {
      const Cell& cell = block.cells[i];
      const int8_t* inputs = x.codes + rows.begin * x.row_bytes + cell.x_offset * rows.rows;
      Dots& before = dots[1 - turn % 2];
      (turn % 2 == 0 ? DotCell<0> : DotCell<1>)(cell, inputs, before.sums);
      for (int64_t line = 0; line < block.ahead_lines; ++line) PrefetchLater(ahead + 64 * line);
      ahead += 64 * block.ahead_lines;
      if (turn > 0) AddDots(product, group, panel, slice, before);
      const bool is_last = i + 1 == block.num_cells;
      Dots& now = dots[turn % 2];
      now.cell = &cell;
      now.input_scales = input_scales + i * rows.rows;
      now.rows = rows.rows;
      now.chains = block.begins_slice && i == 0 ? nullptr : chains;
      now.out = is_last && in_place ? out : chains;
      now.out_stride = is_last && in_place ? product.out_stride : kRowFloats;
      now.ended_row = is_last && block.ends_slice && !in_place ? row : -1;
    }
  }
  Dots& last = dots[1 - turn % 2];
  (turn % 2 == 0 ? StoreSums<1> : StoreSums<0>)(last.sums);
  AddDots(product, group, panel, slice, last);
}

template <PanelFormat kFormat>
void RunPanel(const Int8Product& product, const Group& group, int64_t panel) {
  const QuantizedPanels& weight = *product.weight;
  const char* codes = weight.panels + panel * weight.panel_bytes;
  const int64_t tiles = group.tile_end - group.tile_begin;
  Block block;
  block.in_place = product.num_slices == 1 && product.slice_sums == nullptr &&
                   (panel + 1) * kPanelColumns <= product.outputs;
  int cell = 0;
  const auto is_in = [&](int slice) {
    return cell < weight.num_cells && weight.cells[cell].slice == slice;
  };
  for (int slice = 0; slice < product.num_slices; ++slice) {
    if (!is_in(slice)) {
      EndSlice(product, group.rows, panel, slice, 0, group.rows.num_rows, nullptr);
    }
    block.begins_slice = true;
    while (is_in(slice)) {
      block.cell_begin = cell;
      block.num_cells = 0;
      const char* const begin = codes + weight.cells[cell].offset;
      while (block.num_cells < kBlockCells && is_in(slice)) {
        LoadCell<kFormat>(weight, codes, weight.cells[cell++], block.cells[block.num_cells++]);
      }
      const PackedCell& last = weight.cells[cell - 1];
      const char* const end = codes + last.offset + last.words * QuantizedWordBytes(kFormat);
      const int64_t turns = 64 * tiles * block.num_cells;
      block.ends_slice = !is_in(slice);
      block.ahead = end;
      block.ahead_lines = (end - begin + turns - 1) / turns;
      AddBlock(product, group, panel, slice, block);
      block.begins_slice = false;
    }
  }
}

using RunPanelFunction = void (*)(const Int8Product& product, const Group& group, int64_t panel);

RunPanelFunction RunPanelOf(PanelFormat format) {
  if (format == PanelFormat::kFp4) return &RunPanel<PanelFormat::kFp4>;
  return format == PanelFormat::kInt4 ? &RunPanel<PanelFormat::kInt4>
                                      : &RunPanel<PanelFormat::kInt8>;
}

}  // namespace

void MultiplyInt8InTiles(const Int8Product& product, const Int8Part& part, float* scratch) {
  const int64_t fitting = kGroupBytes / product.x.row_bytes;
  const bool joins = product.num_slices > 1 && product.slice_sums == nullptr;
  const int64_t row_floats = joins ? kAmxScratchFloatsPerRow : kRowFloats;
  const int64_t most = kAmxGroupFloats / row_floats / kAmxTileRows;
  const int64_t max_tiles = Smaller(Larger(kMinGroupTiles, fitting / kAmxTileRows), most);
  const int64_t tiles = part.tile_end - part.tile_begin;
  const int64_t group_tiles = EvenPart(tiles, max_tiles);
  const RunPanelFunction run = RunPanelOf(product.format);
  ConfigureTilesOf((product.rows + product.tiles - 1) / product.tiles);
  for (int64_t begin = part.tile_begin; begin < part.tile_end; begin += group_tiles) {
    Group group{};
    group.tile_begin = begin;
    group.tile_end = Smaller(part.tile_end, begin + group_tiles);
    group.rows.row_begin = InputTileOf(product.rows, product.tiles, begin).begin;
    const InputTile last = InputTileOf(product.rows, product.tiles, group.tile_end - 1);
    group.rows.num_rows = last.begin + last.rows - group.rows.row_begin;
    group.chains = scratch;
    group.rows.level_floats = group.rows.num_rows * kRowFloats;
    group.rows.left = scratch + group.rows.level_floats;
    for (int64_t panel = part.panel_begin; panel < part.panel_end; ++panel) {
      run(product, group, panel);
    }
  }
  ReleaseTiles();
}

}  // namespace bulkhead::BH_ISA
