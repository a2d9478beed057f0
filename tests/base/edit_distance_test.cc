#include "base/edit_distance.h"

#include <gtest/gtest.h>

namespace bulkhead {
namespace {

TEST(EditDistanceTest, CountsLettersPutInTakenOutReplacedAndExchanged) {
  EXPECT_EQ(EditDistance("", ""), 0U);
  EXPECT_EQ(EditDistance("", "abc"), 3U);
  EXPECT_EQ(EditDistance("port", "port"), 0U);
  EXPECT_EQ(EditDistance("prot", "port"), 1U);
  EXPECT_EQ(EditDistance("max_token", "max_tokens"), 1U);
  EXPECT_EQ(EditDistance("kitten", "sitting"), 3U);
}

}  // namespace
}  // namespace bulkhead
