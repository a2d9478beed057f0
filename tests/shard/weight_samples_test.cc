#include "shard/weight_samples.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "base/exit_code.h"
#include "shard/weight_loader.h"
#include "tests/shard/checkpoint_files.h"

namespace bulkhead {
namespace {

std::vector<Checkpoint::FileDigest> Samples(const std::vector<RawTensor>& tensors) {
  const TemporaryFolder folder;
  WriteFile(folder.File("model.safetensors"), SafetensorsBytes(tensors));
  const auto checkpoint = Checkpoint::Open(folder.path());
  EXPECT_TRUE(checkpoint.ok()) << checkpoint.status();
  const auto samples = (*checkpoint)->SampleFiles();
  EXPECT_TRUE(samples.ok()) << samples.status();
  return *samples;
}

RawTensor TensorOf(const std::string& name, int64_t bytes) {
  return {name, "F16", {bytes / 2}, std::string(bytes, name[0])};
}

class WeightSamplesTest : public testing::Test {
 protected:
  // As large as is read whole, larger, and much larger.
  std::vector<RawTensor> tensors_ = {TensorOf("a", 2), TensorOf("b", 16384), TensorOf("c", 16386),
                                     TensorOf("d", 1'000'000)};
};

TEST_F(WeightSamplesTest, CopiesAreEqualAndCalledByTheirFilesName) {
  const auto samples = Samples(tensors_);
  ASSERT_EQ(samples.size(), 1U);
  EXPECT_EQ(samples[0].name, "model.safetensors");
  EXPECT_EQ(samples[0].digest, Samples(tensors_)[0].digest);
}

TEST_F(WeightSamplesTest, AnyOtherTensorIsNoticed) {
  const uint64_t digest = Samples(tensors_)[0].digest;
  for (size_t i = 0; i < tensors_.size(); ++i) {
    std::vector<RawTensor> other = tensors_;
    for (char& byte : other[i].bytes) byte ^= 1;
    EXPECT_NE(Samples(other)[0].digest, digest) << other[i].name;
  }
}

TEST_F(WeightSamplesTest, ARunOfAThirdOfATensorIsNoticedWhereverItLies) {
  const uint64_t digest = Samples(tensors_)[0].digest;
  const int64_t run = 1'000'000 / 3;
  for (int64_t begin = 0; begin + run <= 1'000'000; begin += 100'000) {
    std::vector<RawTensor> other = tensors_;
    other[3].bytes.replace(begin, run, std::string(run, '\0'));  // as an interrupted copy leaves it
    EXPECT_NE(Samples(other)[0].digest, digest) << begin;
  }
}

TEST_F(WeightSamplesTest, AFileThatWasCutMeanwhileIsRefused) {
  const TemporaryFolder folder;
  WriteFile(folder.File("model.safetensors"), SafetensorsBytes(tensors_));
  const auto checkpoint = Checkpoint::Open(folder.path());
  ASSERT_TRUE(checkpoint.ok());
  std::filesystem::resize_file(folder.File("model.safetensors"), 0);
  EXPECT_EQ(ExitCodeOf((*checkpoint)->SampleFiles().status()), ExitCode::kModelRefused);
}

}  // namespace
}  // namespace bulkhead
