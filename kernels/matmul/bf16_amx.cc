// Products of weights and inputs in bf16 in AMX's tile registers: two tiles of rows by the two
// tiles of a panel's columns, 32 inputs at a time. A block of a panel is copied into tiles once for
// all rows of a group. Compiled with the instructions and with their emulation.
#include "kernels/matmul/bf16_amx.h"

#include "kernels/matmul/tile_chains.h"
#include "simd.h"
#include "tiles.h"

namespace bulkhead::BH_ISA {
namespace {

// Sums of both row tiles by both column tiles; inputs; weights.
enum TileName { kSums00, kSums01, kSums10, kSums11, kInputs0, kInputs1, kWeights0, kWeights1 };

constexpr int64_t kStepBytes = kPairBytes / 2;  // of one k of a panel
constexpr int64_t kRowBytes = 64;               // of a tile
constexpr int64_t kTileBytes = kTileRegisterRows * kRowBytes;
constexpr int64_t kChainBytes = kRowFloats * 4;
constexpr int64_t kBlockTiles = 8;          // of weights; inputs pass through L1 beside them
constexpr int64_t kMaxBlockTiles = 12;      // if that is a whole slice
constexpr int64_t kPrefetchBytes = 8192;    // ahead of weights read from memory
constexpr int64_t kGroupBytes = 1 << 20;    // of inputs that stay in L2 while panels pass
constexpr int64_t kMinGroupRows = 128;      // or weights would be read too often
constexpr int64_t kTilePrefetchLines = 32;  // of the weights for a tile of inputs

void ConfigureWholeTiles() {
  TileShapes shapes;
  for (int i = 0; i < kTiles; ++i) {
    shapes.rows[i] = kTileRegisterRows;
    shapes.row_bytes[i] = kTileRegisterBytes;
  }
  ConfigureTiles(shapes);
}

BH_INLINE const char* SliceAt(const Product& product, int64_t panel, int slice) {
  const int64_t pairs = panel * PairsBefore(product.k_borders, product.num_slices) +
                        PairsBefore(product.k_borders, slice);
  return static_cast<const char*>(product.weight) + pairs * kPairBytes;
}

// First tile of a slice in a row.
BH_INLINE int64_t FirstTile(const Product& product, int slice) {
  return product.k_borders[slice] / kBf16TileInputs + slice;
}

// Rows of several tiles, with their inputs.
struct Group {
  SliceRows rows;
  int64_t num_tiles;       // row tiles
  const uint16_t* inputs;  // of the group's first row
  int64_t tile_stride;     // numbers from one row tile to the next
  float* chains;           // [16 num_tiles][32]
};

// tiles [tiles][2][16 pairs][16 columns] = `count` k's of a panel, padded with 0 to whole tiles;
// `prefetches`: also fetches data kPrefetchBytes later.
BH_INLINE void Copy(const char* from, int64_t count, char* tiles, bool prefetches) {
  const int64_t padded = (count + kBf16TileInputs - 1) / kBf16TileInputs * kBf16TileInputs;
  for (int64_t k = 0; k < padded; k += 2) {
    const char* const pairs = from + k * kStepBytes;
    char* const to =
        tiles + k / kBf16TileInputs * 2 * kTileBytes + k % kBf16TileInputs / 2 * kRowBytes;
    if (prefetches) {
      PrefetchLater(pairs + kPrefetchBytes);
      PrefetchLater(pairs + kStepBytes + kPrefetchBytes);
    }
    for (int64_t half = 0; half < 2; ++half) {
      const float* const line = reinterpret_cast<const float*>(pairs + half * kRowBytes);
      Store(reinterpret_cast<float*>(to + half * kTileBytes), k < count ? Load(line) : Zero());
    }
  }
}

// Adjacent tiles of inputs of a slice, with their weights.
struct Block {
  const char* weights;     // [tiles][2][16][16 pairs]
  const uint16_t* inputs;  // of the group's first row
  int64_t tiles;
  bool begins_slice;
  bool ends_slice;
  bool in_place;  // completed chains are the product's output
  const char* ahead;
  int64_t ahead_lines;  // prefetched with a tile of each row
};

// Where two row tiles by two column tiles are stored.
struct SumTiles {
  float* at[2];  // per row tile
  int64_t row_bytes[2];
};

// Stores the sums of two row tiles, whose block has been added, and begins those of the next rows.
// Stored this late because tile registers are not renamed: a store right after its sums would stall
// all others.
template <int kSums, int kRowTile, int kColumnTile>
BH_INLINE void NextSums(const SumTiles& before, const SumTiles& chains, bool begins) {
  StoreTile<kSums>(before.at[kRowTile] + kColumnTile * kLanes, before.row_bytes[kRowTile]);
  if (begins) {
    ZeroTile<kSums>();
  } else {
    LoadTile<kSums>(chains.at[kRowTile] + kColumnTile * kLanes, kChainBytes);
  }
}

BH_INLINE void PrefetchAhead(const Block& block, const char*& ahead) {
  for (int64_t line = 0; line < block.ahead_lines; ++line) PrefetchLater(ahead + 64 * line);
  ahead += 64 * block.ahead_lines;
}

// Continues the chains of two row tiles over a block. `inputs` of the second tile are `tile_stride`
// later.
void AddBlock(const Block& block, const uint16_t* inputs, int64_t tile_stride,
              const SumTiles& before, const SumTiles& chains, const char* ahead) {
  const char* weights = block.weights;
  LoadTile<kWeights0>(weights, kRowBytes);
  LoadPassingTile<kInputs0>(inputs, kRowBytes);
  NextSums<kSums00, 0, 0>(before, chains, block.begins_slice);
  DotBf16Tiles<kSums00, kInputs0, kWeights0>();
  LoadTile<kWeights1>(weights + kTileBytes, kRowBytes);
  NextSums<kSums01, 0, 1>(before, chains, block.begins_slice);
  DotBf16Tiles<kSums01, kInputs0, kWeights1>();
  LoadPassingTile<kInputs1>(inputs + tile_stride, kRowBytes);
  NextSums<kSums10, 1, 0>(before, chains, block.begins_slice);
  DotBf16Tiles<kSums10, kInputs1, kWeights0>();
  NextSums<kSums11, 1, 1>(before, chains, block.begins_slice);
  DotBf16Tiles<kSums11, kInputs1, kWeights1>();
  PrefetchAhead(block, ahead);
  for (int64_t tile = 1; tile < block.tiles; ++tile) {
    weights += 2 * kTileBytes;
    inputs += kBf16TileNumbers;
    LoadTile<kWeights0>(weights, kRowBytes);
    LoadPassingTile<kInputs0>(inputs, kRowBytes);
    DotBf16Tiles<kSums00, kInputs0, kWeights0>();
    LoadTile<kWeights1>(weights + kTileBytes, kRowBytes);
    DotBf16Tiles<kSums01, kInputs0, kWeights1>();
    LoadPassingTile<kInputs1>(inputs + tile_stride, kRowBytes);
    DotBf16Tiles<kSums10, kInputs1, kWeights0>();
    DotBf16Tiles<kSums11, kInputs1, kWeights1>();
    PrefetchAhead(block, ahead);
  }
}

// Pairs of row tiles, one after the other; one is completed while the next is summed.
void AddBlockToAll(const Product& product, const Group& group, int64_t panel, int slice,
                   const Block& block) {
  constexpr int64_t kPairRows = 2 * kBf16TileRows;
  alignas(64) float nobodys[kBf16TileRows * kRowFloats] = {};
  SumTiles sums = {{nobodys, nobodys}, {kChainBytes, kChainBytes}};
  const bool is_slice = block.begins_slice && block.ends_slice;
  const char* ahead = block.ahead;
  const float* ended = nullptr;  // chains of the previous pair
  const auto end_rows = [&](int64_t begin) {
    const int64_t end = Smaller(begin + kPairRows, group.rows.num_rows);
    if (block.in_place) {  // except for a partial tile
      const int64_t whole = end / kBf16TileRows * kBf16TileRows;
      ended += (whole - begin) * kRowFloats;
      begin = whole;
    }
    EndSlice(product, group.rows, panel, slice, begin, end, ended);
  };
  for (int64_t t = 0; t < group.num_tiles; t += 2) {
    // If a block is a whole slice, a pair's chains are complete before the next pair's are stored.
    float* const chains_at = group.chains + (is_slice ? 0 : t * kBf16TileRows * kRowFloats);
    SumTiles chains = sums;
    SumTiles next = sums;
    for (int64_t i = 0; i < 2; ++i) {
      chains.at[i] = t + i < group.num_tiles ? chains_at + i * kBf16TileRows * kRowFloats : nobodys;
      next.at[i] = chains.at[i];
      next.row_bytes[i] = kChainBytes;
      const int64_t row = (t + i) * kBf16TileRows;
      if (!block.ends_slice || !block.in_place || row + kBf16TileRows > group.rows.num_rows) {
        continue;
      }
      next.at[i] =
          product.out + (group.rows.row_begin + row) * product.out_stride + panel * kPanelColumns;
      next.row_bytes[i] = product.out_stride * 4;
      for (int64_t r = 0; r < kBf16TileRows; ++r) {
        PrefetchToWrite(next.at[i] + r * product.out_stride);
        PrefetchToWrite(next.at[i] + r * product.out_stride + kLanes);
      }
    }
    const int64_t tile_stride = t + 1 < group.num_tiles ? group.tile_stride : 0;
    AddBlock(block, block.inputs + t * group.tile_stride, tile_stride, sums, chains, ahead);
    ahead += 64 * block.ahead_lines * block.tiles;
    sums = next;
    if (block.ends_slice && t > 0) end_rows((t - 2) * kBf16TileRows);
    ended = chains_at;
  }
  StoreTile<kSums00>(sums.at[0], sums.row_bytes[0]);
  StoreTile<kSums01>(sums.at[0] + kLanes, sums.row_bytes[0]);
  StoreTile<kSums10>(sums.at[1], sums.row_bytes[1]);
  StoreTile<kSums11>(sums.at[1] + kLanes, sums.row_bytes[1]);
  if (block.ends_slice) end_rows((group.num_tiles - 1) / 2 * kPairRows);
}

// A slice of a panel, for all rows of a group of kRowTiles tiles: their sums stay in registers
// while weights are read from memory; a tile's are copied while the previous ones are multiplied.
template <int kRowTiles>
void AddSliceOfTiles(const Product& product, const Group& group, int64_t panel, int slice) {
  static_assert(kRowTiles == 1 || kRowTiles == 2);
  alignas(64) char copies[2][2 * kTileBytes];
  const int64_t begin = product.k_borders[slice];
  const int64_t end = product.k_borders[slice + 1];
  const char* const weights = SliceAt(product, panel, slice);
  const uint16_t* inputs = group.inputs + FirstTile(product, slice) * kBf16TileNumbers;
  const auto copy = [&](int64_t k, char* to) {
    Copy(weights + (k - begin) * kStepBytes, Smaller(end - k, kBf16TileInputs), to, true);
  };
  ZeroTile<kSums00>();
  ZeroTile<kSums01>();
  if constexpr (kRowTiles == 2) {
    ZeroTile<kSums10>();
    ZeroTile<kSums11>();
  }
  int turn = 0;
  copy(begin, copies[0]);
  for (int64_t k = begin; k < end; k += kBf16TileInputs, inputs += kBf16TileNumbers, turn ^= 1) {
    const int64_t next = k + kBf16TileInputs;
    if (next < end) copy(next, copies[turn ^ 1]);
    LoadTile<kWeights0>(copies[turn], kRowBytes);
    LoadTile<kInputs0>(inputs, kRowBytes);
    DotBf16Tiles<kSums00, kInputs0, kWeights0>();
    LoadTile<kWeights1>(copies[turn] + kTileBytes, kRowBytes);
    DotBf16Tiles<kSums01, kInputs0, kWeights1>();
    if constexpr (kRowTiles == 2) {
      LoadTile<kInputs1>(inputs + group.tile_stride, kRowBytes);
      DotBf16Tiles<kSums10, kInputs1, kWeights0>();
      DotBf16Tiles<kSums11, kInputs1, kWeights1>();
    }
  }
  float* const chains = group.chains;
  StoreTile<kSums00>(chains, kChainBytes);
  StoreTile<kSums01>(chains + kLanes, kChainBytes);
  if constexpr (kRowTiles == 2) {
    float* const second = chains + kBf16TileRows * kRowFloats;
    StoreTile<kSums10>(second, kChainBytes);
    StoreTile<kSums11>(second + kLanes, kChainBytes);
  }
  EndSlice(product, group.rows, panel, slice, 0, group.rows.num_rows, chains);
}

// A slice of a panel, for all rows of the group.
void AddSlice(const Product& product, const Group& group, int64_t panel, int slice) {
  alignas(64) char tiles[kMaxBlockTiles * 2 * kTileBytes];
  const int64_t begin = product.k_borders[slice];
  const int64_t end = product.k_borders[slice + 1];
  const bool is_block = end - begin <= kMaxBlockTiles * kBf16TileInputs;
  const int64_t block_inputs = is_block ? end - begin : kBlockTiles * kBf16TileInputs;
  const int64_t pairs_of_tiles = (group.num_tiles + 1) / 2;
  Block block{};
  block.weights = tiles;
  block.in_place = product.num_slices == 1 && product.slice_sums == nullptr &&
                   (panel + 1) * kPanelColumns <= product.outputs;
  block.ahead_lines = (kTilePrefetchLines + pairs_of_tiles - 1) / pairs_of_tiles;
  for (int64_t k = begin; k < end; k += block_inputs) {
    const int64_t count = Smaller(end - k, block_inputs);
    const char* weights = SliceAt(product, panel, slice) + (k - begin) * kStepBytes;
    Copy(weights, count, tiles, false);
    const int64_t first = FirstTile(product, slice) + (k - begin) / kBf16TileInputs;
    block.inputs = group.inputs + first * kBf16TileNumbers;
    block.tiles = (count + kBf16TileInputs - 1) / kBf16TileInputs;
    block.begins_slice = k == begin;
    block.ends_slice = k + count == end;
    block.ahead = weights + count * kStepBytes;
    AddBlockToAll(product, group, panel, slice, block);
  }
}

// Rows per group of a part with `tiles` tiles, in whole pairs of tiles.
int64_t GroupRows(const Product& product, int64_t tiles) {
  constexpr int64_t kPairRows = 2 * kBf16TileRows;
  const int64_t row_bytes =
      Bf16TilesOfRow(product.inputs, product.num_slices) * kBf16TileInputs * 2;
  const bool joins = product.num_slices > 1 && product.slice_sums == nullptr;
  const int64_t most = kBf16TileGroupFloats / (joins ? kBf16TileScratchPerRow : kRowFloats);
  const int64_t fitting = Larger(kMinGroupRows, kGroupBytes / row_bytes);
  const int64_t max_pairs = Smaller(fitting, most) / kPairRows;
  return EvenPart((tiles + 1) / 2, max_pairs) * kPairRows;
}

}  // namespace

void RoundRowToTiles(const Product& product, int64_t row, uint16_t* inputs) {
  const int64_t row_tiles = Bf16TilesOfRow(product.inputs, product.num_slices);
  uint16_t* const first = inputs + row / kBf16TileRows * row_tiles * kBf16TileNumbers +
                          row % kBf16TileRows * kBf16TileInputs;
  const int64_t x_row = product.x_rows == nullptr ? row : product.x_rows[row];
  const float* x = product.x + x_row * product.x_stride;
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

void MultiplyBf16InTiles(const Product& product, const uint16_t* inputs, const ProductPart& part) {
  const int64_t row_tiles = Bf16TilesOfRow(product.inputs, product.num_slices);
  const int64_t part_rows = part.row_end - part.row_begin;
  const int64_t group_rows = GroupRows(product, (part_rows + kBf16TileRows - 1) / kBf16TileRows);
  ConfigureWholeTiles();
  for (int64_t row = part.row_begin; row < part.row_end; row += group_rows) {
    Group group{};
    group.rows.row_begin = row;
    group.rows.num_rows = Smaller(part.row_end - row, group_rows);
    group.num_tiles = (group.rows.num_rows + kBf16TileRows - 1) / kBf16TileRows;
    group.tile_stride = row_tiles * kBf16TileNumbers;
    group.inputs = inputs + row / kBf16TileRows * group.tile_stride;
    group.chains = part.scratch;
    group.rows.level_floats = group.num_tiles * kBf16TileRows * kRowFloats;
    group.rows.left = part.scratch + group.rows.level_floats;
    for (int64_t panel = part.panel_begin; panel < part.panel_end; ++panel) {
      for (int slice = 0; slice < product.num_slices; ++slice) {
        if (product.k_borders[slice] == product.k_borders[slice + 1]) {
          EndSlice(product, group.rows, panel, slice, 0, group.rows.num_rows, nullptr);
        } else if (group.num_tiles == 1) {
          AddSliceOfTiles<1>(product, group, panel, slice);
        } else if (group.num_tiles == 2) {
          AddSliceOfTiles<2>(product, group, panel, slice);
        } else {
          AddSlice(product, group, panel, slice);
        }
      }
    }
  }
  ReleaseTiles();
}

}  // namespace bulkhead::BH_ISA
