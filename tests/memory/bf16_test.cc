#include "memory/bf16.h"

#include <gtest/gtest.h>

#include <limits>

namespace bulkhead {
namespace {

TEST(Bf16Test, RoundsToNearestEven) {
  EXPECT_EQ(Bf16OfF32(1.0f), 0x3F80);
  EXPECT_EQ(Bf16OfF32(F32OfBits(0x3F808000)), 0x3F80);  // a tie goes to even
  EXPECT_EQ(Bf16OfF32(F32OfBits(0x3F818000)), 0x3F82);
  EXPECT_EQ(Bf16OfF32(F32OfBits(0x3F808001)), 0x3F81);
  EXPECT_EQ(Bf16OfF32(std::numeric_limits<float>::max()), 0x7F80);
  EXPECT_EQ(Bf16OfF32(-std::numeric_limits<float>::infinity()), 0xFF80);
  EXPECT_EQ(Bf16OfF32(F32OfBits(0x7F800001)), 0x7FC0);  // a NaN may not round to infinity
  EXPECT_EQ(Bf16OfF32(F32OfBits(0x00000001)), 0x0000);
  EXPECT_EQ(Bf16OfF32(F32OfBits(0x80018000)), 0x8002);
}

}  // namespace
}  // namespace bulkhead
