#include "tests/support/same_bits.h"

#include <cstring>

#include "gtest/gtest.h"
#include "tests/support/golden.h"

namespace bulkhead {

void ExpectSameBits(const RigResult& got, const RigResult& want) {
  ASSERT_EQ(got.logits.size(), want.logits.size());
  for (size_t i = 0; i < want.logits.size(); ++i) {
    ASSERT_EQ(got.logits[i].size(), want.logits[i].size());
    EXPECT_EQ(std::memcmp(got.logits[i].data(), want.logits[i].data(),
                          want.logits[i].size() * sizeof(float)),
              0)
        << "prompt " << i << ", relative error " << RelativeError(got.logits[i], want.logits[i]);
  }
  EXPECT_EQ(got.greedy_ids, want.greedy_ids);
}

}  // namespace bulkhead
