// A lane's begun and not yet awaited part of its warpgroup's products (wgmma_intrinsics.h).
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <vector>

namespace bulkhead::emulator {

// c += a b, or c = a b, for this lane's two rows.
struct LaneProduct {
  float* c = nullptr;
  int count = 0;  // elements of c: a quarter of the columns in two rows
  bool add = false;
  bool is_f16 = false;  // else bf16
  bool a_is_shared = false;
  bool b_is_rows = false;
  uint64_t shared_a = 0;
  std::array<std::array<uint16_t, 16>, 2> a = {};
  uint64_t b = 0;
};

class LaneProducts {
 public:
  void Reset();
  bool open() const { return open_; }
  bool empty() const { return begun_.empty() && groups_.empty(); }
  int num_groups() const { return static_cast<int>(groups_.size()); }

  void Open() { open_ = true; }
  // Makes c NaN until the product is finished.
  void Begin(const LaneProduct& product);
  void Commit();
  // The oldest group, whose products are computed next.
  const std::vector<LaneProduct>& oldest() const { return groups_.front(); }
  // Computes it for lane `lane` of warp `warp`, and stores the result in c unless another group
  // uses c.
  void FinishOldest(const std::byte* shared, int warp, int lane);
  void Close() { open_ = false; }

 private:
  bool open_ = false;  // since BeginProducts
  std::vector<LaneProduct> begun_;
  std::deque<std::vector<LaneProduct>> groups_;
  std::map<float*, std::vector<float>> sums_;  // for each c in flight
};

// Offset in shared memory of element (row, column) of tiles: stored by columns side by side (b), or
// in rows of 128 bytes (a, and transposed b).
int64_t AtOfB(uint64_t tiles, int k, int column);
int64_t AtOfRows(uint64_t tiles, int row, int k);

}  // namespace bulkhead::emulator
