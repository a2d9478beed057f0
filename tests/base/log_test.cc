#include "base/log.h"

#include <gtest/gtest.h>

#include <thread>

namespace bulkhead {
namespace {

// A signal may end a rank that joins its group. ThreadSanitizer reports what is read unordered.
TEST(LogTest, ALineMayBeWrittenWhileTheRankIsSet) {
  std::thread other([] { BH_LOG(kVerbose) << "read by another thread"; });
  SetLogRank(0, 1);
  other.join();
}

}  // namespace
}  // namespace bulkhead
