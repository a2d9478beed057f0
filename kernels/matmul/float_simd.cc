// MatMul. Few rows are memory-bound: each panel is one stream, read once. Many rows are
// compute-bound: register tiles over blocks that stay in the caches. Compiled per instruction set.
#include "kernels/matmul/op.h"

#include "kernels/matmul/input_rows.h"
#include "kernels/matmul/product_tile.h"
#include "kernels/matmul/quantized_tile.h"
#include "simd.h"

namespace bulkhead::BH_ISA {
namespace {

constexpr int kFewRows = kTileVectors == 2 ? 4 : 2;
static_assert(kFewRows <= kMaxFewRowsOfAnyIsa);
constexpr int64_t kPrefetchBytes = 2048;
constexpr int64_t kWidenedInputs = 256;  // of a quantised panel at a time
constexpr int64_t kMaxGroupTiles = (kGroupRows + kTileRows - 1) / kTileRows;
// Words of a group's rows that stay in L2 together; AVX2's CPUs have 256 or 512 KiB.
constexpr int64_t kGroupWords = kGroupRows * (kTileVectors == 1 ? 1024 : kMaxWordsPerRow);

struct Kernels {
  int64_t step_bytes;                 // of one k of a panel
  RunTileFunction packed[kTileRows];  // by rows - 1
  RunTileFunction in_place[kFewRows];
};

template <typename Panel>
constexpr Kernels KernelsOf() {
  Kernels kernels{};
  kernels.step_bytes = Panel::kStepBytes;
  FillTable<Panel, true, kTileRows>(kernels.packed);
  FillTable<Panel, false, kFewRows>(kernels.in_place);
  return kernels;
}

constexpr Kernels kKernels[kNumFloatPanelFormats] = {KernelsOf<F32Panel>(), KernelsOf<Bf16Panel>(),
                                                     KernelsOf<F16Panel>()};
constexpr Kernels kBf16Kernels = KernelsOf<Bf16Pairs>();

// Quantised panels are multiplied as f32.
const Kernels& KernelsFor(const Product& product) {
  if (product.in_bf16) return kBf16Kernels;
  const bool is_float = static_cast<int>(product.format) < kNumFloatPanelFormats;
  return kKernels[static_cast<int>(is_float ? product.format : PanelFormat::kF32)];
}

BH_INLINE int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }
// Begin of part `part` of `count` items, split into `parts` equal to within one.
BH_INLINE int64_t PartBegin(int64_t count, int64_t part, int64_t parts) {
  return count * part / parts;
}

BH_INLINE int ColumnsOf(const Product& product, int64_t panel) {
  return static_cast<int>(Smaller(product.outputs - panel * kPanelColumns, kPanelColumns));
}

// A panel from input `k` of a slice on; in bf16 k must begin a pair.
BH_INLINE const char* WeightAt(const Product& product, int64_t panel, int slice, int64_t k,
                               int64_t step_bytes) {
  const char* const weight = static_cast<const char*>(product.weight);
  if (product.format != PanelFormat::kBf16) {
    return weight + (panel * product.inputs + k) * step_bytes;
  }
  const int64_t* const borders = product.k_borders;
  return weight + kPairBytes * (panel * PairsBefore(borders, product.num_slices) +
                                PairsBefore(borders, slice) + (k - borders[slice]) / 2);
}

// A tile of rows read in place, over one whole slice of one panel.
Tile SliceTile(const Product& product, const ProductPart& part, int64_t panel, int slice,
               int64_t step_bytes) {
  const int64_t begin = product.k_borders[slice];
  const int64_t count = product.k_borders[slice + 1] - begin;
  Tile tile{};
  tile.x = product.x + part.row_begin * product.x_stride + XBegin(product, slice);
  tile.x_stride = product.x_stride;
  tile.weight = WeightAt(product, panel, slice, begin, step_bytes);
  tile.count = count;
  tile.fresh = count == 0 ? -0.0f : 0.0f;
  tile.columns = ColumnsOf(product, panel);
  tile.ahead = {tile.weight + kPrefetchBytes, step_bytes};
  return tile;
}

// The ranges of a slice's inputs that are processed one after the other: cells of a quantised
// weight, else at most BlockInputs.
struct SliceBlocks {
  int64_t begin;
  int64_t inputs;
  int64_t num_blocks;       // at least one, even for an empty slice
  const PackedCell* cells;  // [num_blocks], or null
};

// Inputs of a block of `rows` rows. With one slice as many as fit, less one vector that PackPairs
// may write beyond them: sums are loaded less often, and weights are one long stream.
int64_t BlockInputs(const Product& product, const ProductPart& part, int64_t rows) {
  const int64_t inputs_of_word = product.in_bf16 && kWordsPerPair == 1 ? 2 : 1;
  if (product.num_slices > 1) return inputs_of_word * kBlockInputs;
  const int64_t words = Smaller(kGroupWords, part.scratch_floats - kLanes) / rows;
  return inputs_of_word * (words / 2 * 2);  // whole pairs
}

SliceBlocks BlocksOf(const Product& product, int slice, int64_t block_inputs) {
  const int64_t begin = product.k_borders[slice];
  const int64_t inputs = product.k_borders[slice + 1] - begin;
  SliceBlocks blocks{begin, inputs, inputs == 0 ? 1 : CeilDiv(inputs, block_inputs), nullptr};
  static_assert(kBlockInputs % 2 == 0);
  if (product.quantized == nullptr || inputs == 0) return blocks;
  blocks.cells = product.quantized->cells;
  while (blocks.cells->slice < slice) ++blocks.cells;
  const PackedCell* end = product.quantized->cells + product.quantized->num_cells;
  blocks.num_blocks = 0;
  for (const PackedCell* cell = blocks.cells; cell < end && cell->slice == slice; ++cell) {
    ++blocks.num_blocks;
  }
  return blocks;
}

// For an unquantised slice. A pair of bf16 is never split.
BH_INLINE int64_t BlockBegin(const Product& product, const SliceBlocks& blocks, int64_t i) {
  if (product.format != PanelFormat::kBf16) return PartBegin(blocks.inputs, i, blocks.num_blocks);
  const int64_t pairs = CeilDiv(blocks.inputs, 2);
  return Smaller(2 * PartBegin(pairs, i, blocks.num_blocks), blocks.inputs);
}

// How many of `count` adjacent cells are widened together, at least one: with more inputs at once
// sums are stored and loaded less often.
int64_t CellsTogether(const PackedCell* cells, int64_t count) {
  int64_t inputs = cells[0].count;
  int64_t together = 1;
  while (together < count && inputs + cells[together].count <= kWidenedInputs) {
    inputs += cells[together++].count;
  }
  return together;
}

// The same for a quantised weight: `tile` says where the slice goes; its cells are processed one
// after the other.
void MultiplyCells(const Product& product, const ProductPart& part, int64_t panel, int slice,
                   Tile tile) {
  alignas(64) float weight[kMaxCellInputs * kPanelColumns];
  const Kernels& kernels = KernelsFor(product);
  const int64_t rows = part.row_end - part.row_begin;
  const int joins = tile.num_joins;
  tile.ahead = {reinterpret_cast<const char*>(weight), 0};
  tile.start_stride = tile.dest_stride;
  if (tile.count == 0) return kernels.in_place[rows - 1](tile);
  const float* x = tile.x;
  const SliceBlocks blocks = BlocksOf(product, slice, kBlockInputs);
  if (rows <= kRowsOfCells && product.quantized->group_of_input == nullptr) {
    const RunCellsFunction run = RunCellsFor(product.format, rows);
    return run(*product.quantized, panel, blocks.cells, blocks.num_blocks, tile);
  }
  for (int64_t i = 0; i < blocks.num_blocks; ++i) {
    const PackedCell& cell = blocks.cells[i];
    Dequantize(product, panel, cell, weight);
    tile.x = x + (cell.begin - product.k_borders[slice]);
    tile.weight = reinterpret_cast<const char*>(weight);
    tile.count = cell.count;
    tile.num_joins = cell.begin + cell.count == product.k_borders[slice + 1] ? joins : 0;
    kernels.in_place[rows - 1](tile);
    tile.start = tile.dest;
  }
}

// One slice of one panel, rows read in place.
void MultiplyInPlace(const Product& product, const ProductPart& part, int64_t panel, int slice,
                     const Tile& tile) {
  if (product.quantized != nullptr) return MultiplyCells(product, part, panel, slice, tile);
  KernelsFor(product).in_place[part.row_end - part.row_begin - 1](tile);
}

// Rows and panels whose blocks are cached together, and the current range of K.
struct Block {
  int64_t row_begin;
  int64_t num_rows;
  int64_t num_tiles;
  int64_t tile_begin[kMaxGroupTiles + 1];  // of the block's rows
  int64_t panel_begin;
  int64_t panel_end;
  int64_t max_inputs;  // of a block of K
  int slice;
  int64_t k_begin;
  int64_t k_end;
  const PackedCell* cells;  // the cell, for a quantised weight
  int64_t num_cells;
  bool by_panel;          // all slices of a panel before the next panel; else all panels of a slice
  const float* packed_x;  // tile by tile: [k][rows of the tile]
  // Per panel (by_panel: one panel), then per tile: [level][rows of the tile][32]
  float* subtrees;
};

// The weights that are multiplied after this panel's block.
const char* NextWeight(const Product& product, const Block& block, int64_t panel, int64_t step) {
  if (!block.by_panel) return WeightAt(product, panel + 1, block.slice, block.k_begin, step);
  const bool is_last = block.slice + 1 == product.num_slices;
  return is_last ? WeightAt(product, panel + 1, 0, 0, step)
                 : WeightAt(product, panel, block.slice + 1, block.k_end, step);
}

// One panel over the block's range of K: every tile of rows.
void MultiplyPanel(const Product& product, const Block& block, int64_t panel) {
  const Kernels& kernels = KernelsFor(product);
  const int64_t step = kernels.step_bytes;
  const int64_t count = block.k_end - block.k_begin;
  const bool is_first = block.k_begin == product.k_borders[block.slice];
  const bool is_last = block.k_end == product.k_borders[block.slice + 1];
  const bool is_left = is_last && block.slice + 1 < product.num_slices;
  const int joins = JoinsAfter(block.slice);
  alignas(64) float widened[kWidenedInputs * kPanelColumns];
  Tile tile{};
  int64_t share = 0;  // of the next block, fetched by each tile
  if (product.quantized != nullptr) {
    for (int64_t i = 0; count > 0 && i < block.num_cells; ++i) {
      const PackedCell& cell = block.cells[i];
      Dequantize(product, panel, cell, widened + (cell.begin - block.k_begin) * kPanelColumns);
    }
    tile.weight = reinterpret_cast<const char*>(widened);
    tile.ahead = {tile.weight, 0};
  } else {
    tile.weight = WeightAt(product, panel, block.slice, block.k_begin, step);
    tile.ahead = {NextWeight(product, block, panel, step), step / block.num_tiles};
    share = count / block.num_tiles * step;
  }
  tile.count = count;
  tile.fresh = count == 0 ? -0.0f : 0.0f;
  tile.columns = ColumnsOf(product, panel);
  tile.start_stride = product.out_stride;
  tile.dest_stride = is_left ? kPanelColumns : product.out_stride;
  tile.num_joins = is_last ? joins : 0;
  const int64_t subtrees_begin = block.by_panel ? 0 : (panel - block.panel_begin) * block.num_rows;
  for (int64_t t = 0; t < block.num_tiles; ++t) {
    const int64_t row = block.tile_begin[t];
    const int64_t rows = block.tile_begin[t + 1] - row;
    float* out = product.out + (block.row_begin + row) * product.out_stride + panel * kPanelColumns;
    float* subtrees = block.subtrees + (subtrees_begin + row) * kSubtreeFloatsPerRow;
    tile.x = block.packed_x + row * XWords(product, count);
    tile.start = is_first ? nullptr : out;
    tile.left = subtrees;
    tile.dest = is_left ? subtrees + joins * rows * kPanelColumns : out;
    kernels.packed[rows - 1](tile);
    tile.ahead.at += share;
  }
}

// The inputs [k_begin, k_end) of all tiles of the block.
void PackTiles(const Product& product, const Block& block, float* to) {
  const int64_t count = block.k_end - block.k_begin;
  for (int64_t t = 0; t < block.num_tiles; ++t) {
    const int64_t row = block.tile_begin[t];
    PackRows(product, block.row_begin + row, block.tile_begin[t + 1] - row, block.k_begin, count,
             to + row * XWords(product, count));
  }
}

// Whether all slices of a group of `rows` rows stay in L2 while its panels pass: they are packed
// once, and one panel's subtrees stay in L1.
bool IsByPanel(const Product& product, const ProductPart& part, int64_t rows) {
  if (product.num_slices == 1 || product.quantized != nullptr) return false;
  const int last = product.num_slices - 1;
  const int64_t* borders = product.k_borders;
  const int64_t words = XBegin(product, last) + XWords(product, borders[last + 1] - borders[last]);
  return rows * words <= Smaller(kGroupWords, part.scratch_floats - rows * kSubtreeFloatsPerRow);
}

// The block's rows and panels over all of K, panel by panel.
void MultiplyGroupByPanel(const Product& product, Block block, float* packed_x) {
  int64_t words[kMaxSlices + 1] = {};  // of the block's rows before each slice
  const auto enter = [&](int slice) {
    block.slice = slice;
    block.k_begin = product.k_borders[slice];
    block.k_end = product.k_borders[slice + 1];
    block.packed_x = packed_x + words[slice];
  };
  for (int slice = 0; slice < product.num_slices; ++slice) {
    enter(slice);
    PackTiles(product, block, packed_x + words[slice]);
    words[slice + 1] = words[slice] + block.num_rows * XWords(product, block.k_end - block.k_begin);
  }
  for (int64_t panel = block.panel_begin; panel < block.panel_end; ++panel) {
    for (int slice = 0; slice < product.num_slices; ++slice) {
      enter(slice);
      MultiplyPanel(product, block, panel);
    }
  }
}

// The block's rows and panels over all of K, slice by slice and block by block.
void MultiplyGroup(const Product& product, Block block, float* packed_x) {
  block.packed_x = packed_x;
  for (block.slice = 0; block.slice < product.num_slices; ++block.slice) {
    const SliceBlocks blocks = BlocksOf(product, block.slice, block.max_inputs);
    for (int64_t i = 0; i < blocks.num_blocks; ++i) {
      if (blocks.cells != nullptr) {
        block.cells = blocks.cells + i;
        block.num_cells = CellsTogether(block.cells, blocks.num_blocks - i);
        const PackedCell& last = block.cells[block.num_cells - 1];
        block.k_begin = block.cells->begin;
        block.k_end = last.begin + last.count;
        i += block.num_cells - 1;
      } else {
        block.k_begin = blocks.begin + BlockBegin(product, blocks, i);
        block.k_end = blocks.begin + BlockBegin(product, blocks, i + 1);
      }
      PackTiles(product, block, packed_x);
      for (int64_t panel = block.panel_begin; panel < block.panel_end; ++panel) {
        MultiplyPanel(product, block, panel);
      }
    }
  }
}

}  // namespace

const int kMaxFewRows = kFewRows;

void RoundRows(const Product& product, int64_t rows, float* pairs) {
  for (int64_t row = 0; row < rows; ++row) {
    for (int slice = 0; slice < product.num_slices; ++slice) {
      const int64_t begin = product.k_borders[slice];
      RoundInputs(InputsOf(product, row, begin), product.k_borders[slice + 1] - begin,
                  pairs + row * PairFloats(product.inputs) + XBegin(product, slice));
    }
  }
}

void MultiplyFew(const Product& product, const ProductPart& part) {
  const Kernels& kernels = KernelsFor(product);
  const int64_t rows = part.row_end - part.row_begin;
  float subtrees[kMaxSliceLevels * kFewRows * kPanelColumns];
  for (int64_t panel = part.panel_begin; panel < part.panel_end; ++panel) {
    for (int slice = 0; slice < product.num_slices; ++slice) {
      Tile tile = SliceTile(product, part, panel, slice, kernels.step_bytes);
      tile.left = subtrees;
      tile.num_joins = JoinsAfter(slice);
      if (slice + 1 == product.num_slices) {
        tile.dest = product.out + part.row_begin * product.out_stride + panel * kPanelColumns;
        tile.dest_stride = product.out_stride;
      } else {
        tile.dest = subtrees + tile.num_joins * rows * kPanelColumns;
        tile.dest_stride = kPanelColumns;
      }
      MultiplyInPlace(product, part, panel, slice, tile);
    }
  }
}

void MultiplySlice(const Product& product, const ProductPart& part, int slice, float* sums) {
  const Kernels& kernels = KernelsFor(product);
  Tile tile = SliceTile(product, part, part.panel_begin, slice, kernels.step_bytes);
  tile.dest = sums;
  tile.dest_stride = kPanelColumns;
  MultiplyInPlace(product, part, part.panel_begin, slice, tile);
}

void MultiplyMany(const Product& product, const ProductPart& part) {
  const int64_t rows = part.row_end - part.row_begin;
  if (rows == 0) return;
  const int64_t panels = part.panel_end - part.panel_begin;
  const int64_t num_groups = CeilDiv(rows, kGroupRows);
  Block block{};
  block.by_panel = IsByPanel(product, part, CeilDiv(rows, num_groups));
  block.max_inputs = BlockInputs(product, part, CeilDiv(rows, num_groups));
  // With one slice there are no unfinished subtrees.
  const bool is_whole = product.num_slices == 1 || block.by_panel;
  const int64_t chunk_panels = is_whole ? panels : kChunkPanels;
  const auto multiply = block.by_panel ? &MultiplyGroupByPanel : &MultiplyGroup;
  for (int64_t group = 0; group < num_groups; ++group) {
    block.row_begin = part.row_begin + PartBegin(rows, group, num_groups);
    block.num_rows = part.row_begin + PartBegin(rows, group + 1, num_groups) - block.row_begin;
    block.num_tiles = CeilDiv(block.num_rows, kTileRows);
    for (int64_t t = 0; t <= block.num_tiles; ++t) {
      block.tile_begin[t] = PartBegin(block.num_rows, t, block.num_tiles);
    }
    block.subtrees =
        part.scratch + (block.by_panel ? part.scratch_floats - block.num_rows * kSubtreeFloatsPerRow
                                       : block.num_rows * kBlockInputs);
    for (int64_t panel = 0; panel < panels; panel += chunk_panels) {
      block.panel_begin = part.panel_begin + panel;
      block.panel_end = part.panel_begin + Smaller(panel + chunk_panels, panels);
      multiply(product, block, part.scratch);
    }
  }
}

}  // namespace bulkhead::BH_ISA
