#include "gtest/gtest.h"
#include "memory/kv_format_name.h"

namespace bulkhead {
namespace {

TEST(KvFormatTest, NamesAreReadInEverySpellingAndBack) {
  for (const char* name : {"float32", "f32", "FP32"})
    EXPECT_EQ(*ParseKvFormat(name), KvFormat::kF32);
  for (const char* name : {"bfloat16", "BF16"}) EXPECT_EQ(*ParseKvFormat(name), KvFormat::kBF16);
  for (const char* name : {"float16", "half"}) EXPECT_EQ(*ParseKvFormat(name), KvFormat::kF16);
  for (const char* name : {"int8", "INT8"}) EXPECT_EQ(*ParseKvFormat(name), KvFormat::kInt8);
  EXPECT_EQ(*ParseKvFormat("int4"), KvFormat::kInt4);
  for (const char* name : {"fp8", "FP8", "fp8_e4m3"}) {
    EXPECT_EQ(*ParseKvFormat(name), KvFormat::kFP8);
  }
  for (const KvFormat format : {KvFormat::kF32, KvFormat::kBF16, KvFormat::kF16, KvFormat::kInt8,
                                KvFormat::kInt4, KvFormat::kFP8}) {
    EXPECT_EQ(*ParseKvFormat(KvFormatName(format)), format);
  }
  EXPECT_EQ(ParseKvFormat("fp8_e5m2").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ParseKvFormat("int3").status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(KvFormatTest, EveryNumberFormatHasItsOwn) {
  EXPECT_EQ(KvFormatOf(DType::kF32), KvFormat::kF32);
  EXPECT_EQ(KvFormatOf(DType::kBF16), KvFormat::kBF16);
  EXPECT_EQ(KvFormatOf(DType::kF16), KvFormat::kF16);
}

}  // namespace
}  // namespace bulkhead
