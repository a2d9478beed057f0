// BankConflicts: how many turns an instruction of a warp takes at shared memory, which has 32 banks
// of 4 bytes: one for each word that it touches of the same bank. Lanes of 4 bytes or less go
// together, of 8 bytes half a warp, of 16 bytes a quarter (CUDA C++ Programming Guide, "Shared
// Memory"). The n-th time that a lane comes by a place in the code since its warp last met belongs
// to the n-th of the other lanes, which is wrong where some lanes skip a round of a loop.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace bulkhead::emulator {

class BankConflicts {
 public:
  // Of one block.
  void Begin() { accesses_.clear(); }
  // `code`: the instruction's place; `meetings` of the thread with its warp so far.
  void Note(int thread, int meetings, const void* code, size_t offset, size_t bytes);

  // The most turns of one instruction; 1: no conflict, 0: no access.
  int Turns();

 private:
  static constexpr size_t kMaxAccesses = size_t{1} << 20;  // the rest is not looked at

  struct Access {
    const void* code = nullptr;
    int meetings = 0;
    int round = 0;  // of the thread at this code since then
    uint16_t thread = 0;
    uint16_t bytes = 0;
    uint32_t offset = 0;
  };

  std::vector<Access> accesses_;
};

}  // namespace bulkhead::emulator
