#include "absl/status/status.h"
#include "base/check.h"
#include "memory/peer_driver.h"

namespace bulkhead {

std::unique_ptr<PeerDriver> NewCudaPeerDriver() {
  BH_CHECK(false);  // there is no CudaDriver in this build
}

}  // namespace bulkhead
