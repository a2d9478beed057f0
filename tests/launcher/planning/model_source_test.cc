#include "launcher/planning/model_source.h"

#include <gtest/gtest.h>

namespace bulkhead {
namespace {

TEST(ModelSource, TheCacheIsInFp8WhereTheCheckpointSaysSoUnlessAFlagDoes) {
  EngineOptions options;
  options.model = BH_SOURCE_DIR "/examples/models/sample";
  auto source = ReadModelSource(options, Weights::kRequired);
  ASSERT_TRUE(source.ok()) << source.status();
  const auto format = [&] { return FormatsOf(options, *source)->kv_format; };
  EXPECT_EQ(format(), KvFormat::kBF16);
  options.kv_cache_dtype = KvFormat::kFP8;
  EXPECT_EQ(format(), KvFormat::kFP8);
  options.kv_cache_dtype.reset();
  source->config.model.quantization.fp8_kv = true;
  EXPECT_EQ(format(), KvFormat::kFP8);
  options.dtype = DType::kF32;  // of weights
  EXPECT_EQ(format(), KvFormat::kFP8);
  options.kv_cache_dtype = KvFormat::kF16;
  EXPECT_EQ(format(), KvFormat::kF16);
}

}  // namespace
}  // namespace bulkhead
