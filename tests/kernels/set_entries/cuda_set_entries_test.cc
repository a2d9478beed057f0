#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "tests/kernels/cuda/device_arrays.h"
#include "tests/kernels/cuda/device_under_test.h"

namespace bulkhead {
namespace {

TEST(CudaSetEntries, OnlyNamedPlacesAreWritten) {
  constexpr int kEntries = 1000;
  for (std::unique_ptr<CudaDriver>& driver : DevicesUnderTest(true)) {
    CudaUnderTest cuda(std::move(driver));
    for (const int count : {0, 1, 256, 300}) {
      std::vector<int32_t> entries(kEntries, 7), want = entries, changes;
      for (int i = 0; i < count; ++i) {
        const int place = 3 * i % kEntries;
        changes.insert(changes.end(), {place, -i});
        want[place] = -i;
      }
      changes.insert(changes.end(), {kEntries - 1, 9});  // one that is not counted
      DeviceArrays arrays(*cuda.driver);
      int32_t* const table = arrays.Put(entries);
      cuda.backend->SetEntries(arrays.Put(changes), count, table);
      EXPECT_EQ(arrays.Get(table, kEntries), want) << count;
    }
  }
}

}  // namespace
}  // namespace bulkhead
