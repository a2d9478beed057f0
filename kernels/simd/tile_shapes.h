// The shapes of AMX's tile registers, as LDTILECFG reads them (palette 1). Plain C++: kernel
// sources include this.
#pragma once

#include <stdint.h>

namespace bulkhead {

inline constexpr int kTiles = 8;
inline constexpr int kTileRegisterRows = 16;
inline constexpr int kTileRegisterBytes = 64;  // per row

struct alignas(64) TileShapes {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[kTiles] = {};
  uint16_t more_row_bytes[8] = {};  // of tiles that palette 1 lacks
  uint8_t rows[kTiles] = {};
  uint8_t more_rows[8] = {};
};
static_assert(sizeof(TileShapes) == 64);

}  // namespace bulkhead
