// BankConflicts: the number of shared memory turns of a warp's instruction, with 32 banks of 4
// bytes: one turn per distinct word in the same bank. Accesses of 4 bytes or less are served for a
// whole warp, of 8 bytes for half a warp, of 16 bytes for a quarter (CUDA C++ Programming Guide,
// "Shared Memory"). A lane's n-th execution of an instruction since its warp last synchronised is
// matched with the other lanes' n-th, which is wrong if some lanes skip a loop iteration.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace bulkhead::emulator {

class BankConflicts {
 public:
  // Starts a new block.
  void Begin() { accesses_.clear(); }
  // `code`: the instruction's address; `meetings`: the thread's meetings with its warp so far.
  void Note(int thread, int meetings, const void* code, size_t offset, size_t bytes);

  // The maximum turns of one instruction; 1: no conflict, 0: no access.
  int Turns();

 private:
  static constexpr size_t kMaxAccesses = size_t{1} << 20;  // further accesses are ignored

  struct Access {
    const void* code = nullptr;
    int meetings = 0;
    int round = 0;  // executions of this code by the thread since then
    uint16_t thread = 0;
    uint16_t bytes = 0;
    uint32_t offset = 0;
  };

  std::vector<Access> accesses_;
};

}  // namespace bulkhead::emulator
