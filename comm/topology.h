// RankTopology: who this rank is in its group.
#pragma once

#include <string>
#include <vector>

namespace bulkhead {

struct RankTopology {
  int rank = 0;
  int size = 1;
  int local_rank = 0;   // among the ranks of this host
  int local_size = 1;
  std::vector<std::string> hosts;  // [size] host name of each rank

  bool coordinator() const { return rank == 0; }
};

}  // namespace bulkhead
