// Products of weights and inputs in bf16 in AMX's tile registers: two tiles of rows by the two
// tiles of a panel's columns, 32 inputs at a time. A block of a panel is interleaved into pairs of
// k once for all rows of a group. Compiled with the instructions and with their emulation.
#include "kernels/matmul/bf16_amx.h"

#include "kernels/matmul/panel_tree.h"
#include "simd.h"
#include "tiles.h"

namespace bulkhead::BH_ISA {
namespace {

// Sums of both tiles of rows by both tiles of columns, inputs and weights.
enum TileName { kSums00, kSums01, kSums10, kSums11, kInputs0, kInputs1, kWeights0, kWeights1 };

constexpr int64_t kStepBytes = 64;  // of one k of a panel
constexpr int64_t kRowBytes = 64;   // of a tile
constexpr int64_t kTileBytes = kTileRegisterRows * kRowBytes;
constexpr int64_t kRowFloats = kPanelColumns;
constexpr int64_t kChainBytes = kRowFloats * 4;
constexpr int64_t kBlockTiles = 8;        // of weights and as many inputs: half of the first cache
constexpr int64_t kGroupBytes = 1 << 20;  // of inputs that stay in L2 while panels pass
constexpr int64_t kTilePrefetchLines = 32;  // of the weights that a tile of inputs meets

BH_INLINE int64_t Smaller(int64_t a, int64_t b) { return a < b ? a : b; }

void ConfigureWholeTiles() {
  TileShapes shapes;
  for (int i = 0; i < kTiles; ++i) {
    shapes.rows[i] = kTileRegisterRows;
    shapes.row_bytes[i] = kTileRegisterBytes;
  }
  ConfigureTiles(shapes);
}

// Where the tiles of a slice begin in a row.
BH_INLINE int64_t FirstTile(const Product& product, int slice) {
  return product.k_borders[slice] / kBf16TileInputs + slice;
}

// Rows of some tiles that a thread takes through its panels together.
struct Group {
  int64_t row_begin;
  int64_t num_rows;
  int64_t num_tiles;       // of rows
  const uint16_t* inputs;  // of its first row
  int64_t tile_stride;     // numbers from a tile of rows to the next one
  float* chains;           // [16 num_tiles][32]
  float* left;  // [kMaxSliceLevels][16 num_tiles][32] unfinished left subtrees, smallest first
};

// Some neighbouring tiles of inputs of a slice, with the weights that they meet.
struct Block {
  const char* weights;     // [tiles][2][16][16 pairs]
  const uint16_t* inputs;  // of the group's first row
  int64_t tiles;
  bool is_first;  // of its slice
  const char* ahead;
  int64_t ahead_lines;  // that a tile of each row fetches
};

// The chains of kRowTiles tiles of rows go on by a block.
template <int kRowTiles>
void AddBlock(const Block& block, const uint16_t* inputs, int64_t tile_stride, const char* ahead,
              float* chains) {
  static_assert(kRowTiles == 1 || kRowTiles == 2);
  float* const second = chains + kBf16TileRows * kRowFloats;
  if (block.is_first) {
    ZeroTile<kSums00>();
    ZeroTile<kSums01>();
    if constexpr (kRowTiles == 2) {
      ZeroTile<kSums10>();
      ZeroTile<kSums11>();
    }
  } else {
    LoadTile<kSums00>(chains, kChainBytes);
    LoadTile<kSums01>(chains + kLanes, kChainBytes);
    if constexpr (kRowTiles == 2) {
      LoadTile<kSums10>(second, kChainBytes);
      LoadTile<kSums11>(second + kLanes, kChainBytes);
    }
  }
  const char* weights = block.weights;
  for (int64_t tile = 0; tile < block.tiles; ++tile) {
    LoadTile<kWeights0>(weights, kRowBytes);
    LoadTile<kInputs0>(inputs, kRowBytes);
    DotBf16Tiles<kSums00, kInputs0, kWeights0>();
    LoadTile<kWeights1>(weights + kTileBytes, kRowBytes);
    DotBf16Tiles<kSums01, kInputs0, kWeights1>();
    if constexpr (kRowTiles == 2) {
      LoadTile<kInputs1>(inputs + tile_stride, kRowBytes);
      DotBf16Tiles<kSums10, kInputs1, kWeights0>();
      DotBf16Tiles<kSums11, kInputs1, kWeights1>();
    }
    for (int64_t line = 0; line < block.ahead_lines; ++line) PrefetchLater(ahead + 64 * line);
    ahead += 64 * block.ahead_lines;
    weights += 2 * kTileBytes;
    inputs += kBf16TileNumbers;
  }
  StoreTile<kSums00>(chains, kChainBytes);
  StoreTile<kSums01>(chains + kLanes, kChainBytes);
  if constexpr (kRowTiles == 2) {
    StoreTile<kSums10>(second, kChainBytes);
    StoreTile<kSums11>(second + kLanes, kChainBytes);
  }
}

void AddBlockToAll(const Group& group, const Block& block) {
  const char* ahead = block.ahead;
  for (int64_t t = 0; t < group.num_tiles; t += 2) {
    const uint16_t* inputs = block.inputs + t * group.tile_stride;
    float* chains = group.chains + t * kBf16TileRows * kRowFloats;
    if (t + 1 < group.num_tiles) {
      AddBlock<2>(block, inputs, group.tile_stride, ahead, chains);
    } else {
      AddBlock<1>(block, inputs, group.tile_stride, ahead, chains);
    }
    ahead += 64 * block.ahead_lines * block.tiles;
  }
}

// The chains of a slice of a panel, of all rows of the group.
void AddSlice(const Product& product, const Group& group, const char* panel, int slice) {
  alignas(64) char interleaved[kBlockTiles * 2 * kTileBytes];
  constexpr int64_t kBlockInputs = kBlockTiles * kBf16TileInputs;
  const int64_t begin = product.k_borders[slice];
  const int64_t end = product.k_borders[slice + 1];
  for (int64_t k = begin; k < end; k += kBlockInputs) {
    const int64_t count = Smaller(end - k, kBlockInputs);
    const char* weights = panel + k * kStepBytes;
    InterleaveForTiles(weights, count, interleaved);
    const int64_t first = FirstTile(product, slice) + (k - begin) / kBf16TileInputs;
    const int64_t pairs_of_tiles = (group.num_tiles + 1) / 2;
    Block block{};
    block.weights = interleaved;
    block.inputs = group.inputs + first * kBf16TileNumbers;
    block.tiles = (count + kBf16TileInputs - 1) / kBf16TileInputs;
    block.is_first = k == begin;
    block.ahead = weights + count * kStepBytes;
    block.ahead_lines = (kTilePrefetchLines + pairs_of_tiles - 1) / pairs_of_tiles;
    AddBlockToAll(group, block);
  }
}

// What a slice's chains become: the left subtree of a join, or the product's output.
void EndSlice(const Product& product, const Group& group, int64_t panel, int slice) {
  const int64_t columns_left = product.outputs - panel * kPanelColumns;
  const int columns = static_cast<int>(Smaller(columns_left, kPanelColumns));
  const bool empty = product.k_borders[slice] == product.k_borders[slice + 1];
  const int joins = JoinsAfter(slice);
  const int64_t level_floats = group.num_tiles * kBf16TileRows * kRowFloats;
  for (int64_t r = 0; r < group.num_rows; ++r) {
    float* out = product.out + (group.row_begin + r) * product.out_stride + panel * kPanelColumns;
    for (int v = 0; v < 2; ++v) {
      const int64_t at = r * kRowFloats + v * kLanes;
      F32x16 sum = empty ? Set1(-0.0f) : Load(group.chains + at);
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

// Pairs of tiles of rows whose inputs take kGroupBytes, one at least.
int64_t GroupRows(int64_t row_tiles) {
  constexpr int64_t kPairRows = 2 * kBf16TileRows;
  const int64_t row_bytes = row_tiles * kBf16TileInputs * 2;
  const int64_t rows = kGroupBytes / row_bytes / kPairRows * kPairRows;
  return rows < kPairRows ? kPairRows : Smaller(rows, kMaxBf16GroupRows);
}

}  // namespace

void RoundRowToTiles(const Product& product, int64_t row, uint16_t* inputs) {
  const int64_t row_tiles = Bf16TilesOfRow(product.inputs, product.num_slices);
  uint16_t* const first = inputs + row / kBf16TileRows * row_tiles * kBf16TileNumbers +
                          row % kBf16TileRows * kBf16TileInputs;
  const float* x = product.x + row * product.x_stride;
  for (int slice = 0; slice < product.num_slices; ++slice) {
    const int64_t begin = product.k_borders[slice];
    const int64_t count = product.k_borders[slice + 1] - begin;
    uint16_t* to = first + FirstTile(product, slice) * kBf16TileNumbers;
    for (int64_t k = 0; k < count; k += kBf16TileInputs, to += kBf16TileNumbers) {
      for (int half = 0; half < 2; ++half) {
        const int lanes = LanesFrom(static_cast<int>(Smaller(count - k, kBf16TileInputs)), half);
        const F32x16 numbers = LoadN(x + begin + k + half * kLanes, lanes);
        StoreBf16N(to + half * kLanes, numbers, kLanes);
      }
    }
  }
}

void InterleaveForTiles(const void* panel, int64_t count, void* interleaved) {
  alignas(64) static constexpr char kNone[kStepBytes] = {};
  const char* const from = static_cast<const char*>(panel);
  const int64_t padded = (count + kBf16TileInputs - 1) / kBf16TileInputs * kBf16TileInputs;
  for (int64_t k = 0; k < padded; k += 2) {
    const char* even = k < count ? from + k * kStepBytes : kNone;
    const char* odd = k + 1 < count ? from + (k + 1) * kStepBytes : kNone;
    char* to = static_cast<char*>(interleaved) + k / kBf16TileInputs * 2 * kTileBytes +
               k % kBf16TileInputs / 2 * kRowBytes;
    InterleavePairs(even, odd, to, to + kTileBytes);
  }
}

void MultiplyBf16InTiles(const Product& product, const uint16_t* inputs, const ProductPart& part) {
  const int64_t row_tiles = Bf16TilesOfRow(product.inputs, product.num_slices);
  const int64_t group_rows = GroupRows(row_tiles);
  ConfigureWholeTiles();
  for (int64_t row = part.row_begin; row < part.row_end; row += group_rows) {
    Group group{};
    group.row_begin = row;
    group.num_rows = Smaller(part.row_end - row, group_rows);
    group.num_tiles = (group.num_rows + kBf16TileRows - 1) / kBf16TileRows;
    group.tile_stride = row_tiles * kBf16TileNumbers;
    group.inputs = inputs + row / kBf16TileRows * group.tile_stride;
    group.chains = part.scratch;
    group.left = part.scratch + group.num_tiles * kBf16TileRows * kRowFloats;
    for (int64_t panel = part.panel_begin; panel < part.panel_end; ++panel) {
      const char* weights =
          static_cast<const char*>(product.weight) + panel * product.inputs * kStepBytes;
      for (int slice = 0; slice < product.num_slices; ++slice) {
        AddSlice(product, group, weights, slice);
        EndSlice(product, group, panel, slice);
      }
    }
  }
  ReleaseTiles();
}

}  // namespace bulkhead::BH_ISA
