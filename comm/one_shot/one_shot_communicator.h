// Small sums between the GPUs of one host, by our own kernels in one step (memory/peer_sums.h), in
// f32; everything else by another communicator.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "comm/communicator.h"
#include "comm/group.h"
#include "comm/known_sums.h"
#include "memory/cuda_driver.h"
#include "memory/ledger.h"
#include "memory/peer_driver.h"
#include "memory/peer_sums.h"

namespace bulkhead {

// A rank's memory that the others write to; empty in groups of one or of more than kMaxPeers. Taken
// in all groups of such a size, even if the sums turn out to be impossible, so that the plan does
// not depend on it.
struct OneShotLayout {
  OneShotLayout(const CommLimits& limits, int size);
  int64_t max_elements = 0;  // of a sum
  int64_t state_offset_bytes = 0;
  int64_t check_offset_bytes = 0;  // buffers for the norm check at start
  int64_t total_bytes = 0;
};

struct OneShotOptions {
  // The kernels. Enqueues the sum of `x` [count], in place.
  std::function<void(const PeerSums& sums, float* x, int64_t count)> sum;
  // The same for the rows of `partial`, with the result in `norm`: if sums.NormsRows of them.
  std::function<void(const PeerSums& sums, ConstMatrixView partial, const ResidualNorm& norm)>
      sum_norm;
  WritePartialSumLate write_late;
  // Why this rank does not use these sums; ok: it does.
  absl::Status wanted;
  int check_rounds = 1000;  // of one to four sums, and of one to three with norms; few large ones
  absl::Duration check_limit = absl::Seconds(3);  // for each
};

// Collective, as Group::Connect; takes OneShotLayout::total_bytes from `ledger`. If all ranks are
// on one host, each on its own GPU with access to the others' and more than kPeerBlocks
// multiprocessors, and all want it, sums known numbers after kernels that write them late. If any
// of this fails on a rank, all ranks log why and sum by `inner` only. `driver`, `peers` and `group`
// outlive the communicator. RESOURCE_EXHAUSTED when a rank lacks the memory; errors of the
// exchange.
absl::StatusOr<std::unique_ptr<Communicator>> ConnectOneShot(Group& group, const CommLimits& limits,
                                                             CudaDriver& driver, PeerDriver& peers,
                                                             MemoryLedger& ledger,
                                                             absl::Duration timeout,
                                                             OneShotOptions options,
                                                             std::unique_ptr<Communicator> inner);

}  // namespace bulkhead
