#include "shard/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstring>
#include <iostream>
#include <random>

#include "nlohmann/json.hpp"
#include "tests/shard/checkpoint_files.h"

namespace bulkhead {
namespace {

using nlohmann::json;
using testing::HasSubstr;

const std::vector<RawTensor>& SomeTensors() {
  static const auto* tensors = new std::vector<RawTensor>{
      {"alpha", "F32", {3, 5}, std::string(60, 'a')},
      {"beta", "BF16", {7}, std::string(14, 'b')},
      {"empty", "F16", {0, 9}, ""},
      {"gamma", "F16", {2, 2, 2}, std::string(16, 'c')},
      {"scalar", "I64", {}, std::string(8, 'd')},
  };
  return *tensors;
}

absl::StatusOr<std::unique_ptr<SafetensorsFile>> OpenBytes(const std::string& bytes) {
  static const TemporaryFolder folder;  // one file at a time is enough
  WriteFile(folder.File("x.safetensors"), bytes);
  return SafetensorsFile::Open(folder.File("x.safetensors"));
}

void ExpectRefused(const std::string& bytes, const std::vector<std::string>& words) {
  const auto file = OpenBytes(bytes);
  ASSERT_FALSE(file.ok()) << "expected a refusal that says " << words.front();
  EXPECT_EQ(file.status().code(), absl::StatusCode::kDataLoss) << file.status();
  EXPECT_THAT(std::string(file.status().message()), HasSubstr("x.safetensors"));
  for (const std::string& word : words) {
    EXPECT_THAT(std::string(file.status().message()), HasSubstr(word));
  }
}

json HeaderOf(const std::string& bytes) {
  uint64_t length = 0;
  std::memcpy(&length, bytes.data(), 8);
  return json::parse(bytes.substr(8, length));
}

std::string WithHeader(const json& header) {
  std::string data;
  for (const RawTensor& tensor : SomeTensors()) data += tensor.bytes;
  return SafetensorsBytes(header.dump(), data);
}

// The good file with one field of one tensor replaced.
std::string WithField(const char* tensor, const char* field, const json& value) {
  json header = HeaderOf(SafetensorsBytes(SomeTensors()));
  header[tensor][field] = value;
  return WithHeader(header);
}

// Whatever is accepted can be read, and lies inside the file.
void ExpectReadable(const SafetensorsFile& file) {
  int64_t end = 0;
  for (const TensorEntry& tensor : file.tensors()) {
    ASSERT_GE(tensor.begin, end);
    end = tensor.begin + tensor.bytes;
    ASSERT_LE(end, file.file().bytes());
    const auto bytes = std::make_unique<std::byte[]>(tensor.bytes);
    ASSERT_TRUE(file.file().ReadAt(tensor.begin, tensor.bytes, bytes.get()).ok());
  }
}

TEST(SafetensorsTest, AWellFormedFileIsReadWhole) {
  const auto file = OpenBytes(SafetensorsBytes(SomeTensors()));
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_EQ((*file)->tensors().size(), SomeTensors().size());
  for (size_t i = 0; i < SomeTensors().size(); ++i) {
    const TensorEntry& got = (*file)->tensors()[i];
    const RawTensor& want = SomeTensors()[i];
    EXPECT_EQ(got.name, want.name);
    EXPECT_EQ(got.format, want.format);
    EXPECT_EQ(got.shape, want.shape);
    std::string bytes(got.bytes, '\0');
    ASSERT_TRUE((*file)
                    ->file()
                    .ReadAt(got.begin, got.bytes, reinterpret_cast<std::byte*>(bytes.data()))
                    .ok());
    EXPECT_EQ(bytes, want.bytes);
  }
  EXPECT_EQ((*file)->tensors()[1].dtype, DType::kBF16);
  EXPECT_FALSE((*file)->tensors()[4].dtype.has_value());
}

TEST(SafetensorsTest, MetadataAndPaddingArePassedOver) {
  json header = HeaderOf(SafetensorsBytes(SomeTensors()));
  header["__metadata__"] = {{"format", "pt"}};
  std::string data;
  for (const RawTensor& tensor : SomeTensors()) data += tensor.bytes;
  EXPECT_TRUE(OpenBytes(SafetensorsBytes(header.dump() + "      ", data)).ok());
}

TEST(SafetensorsTest, EveryTruncationIsRefusedByFileAndTensor) {
  const std::string bytes = SafetensorsBytes(SomeTensors());
  const size_t data_begin = bytes.size() - 98;
  for (int i = 0; i < 64; ++i) {
    const size_t size = bytes.size() * i / 64;
    ExpectRefused(bytes.substr(0, size), {"truncated"});
    if (size < data_begin) continue;
    const char* cut_off = size - data_begin < 60   ? "'alpha'"
                          : size - data_begin < 74 ? "'beta'"
                          : size - data_begin < 90 ? "'gamma'"
                                                   : "'scalar'";
    ExpectRefused(bytes.substr(0, size), {"first tensor cut off", cut_off});
  }
  ExpectRefused(bytes.substr(0, bytes.size() - 1), {"'scalar'"});
  ExpectRefused(bytes + "x", {"1 bytes after its last tensor", "'scalar'"});
}

TEST(SafetensorsTest, ALengthThatLiesIsRefused) {
  const std::string bytes = SafetensorsBytes(SomeTensors());
  for (const uint64_t length :
       {uint64_t{0}, uint64_t{1}, uint64_t{bytes.size()}, uint64_t{99'999'999},
        uint64_t{100'000'001}, uint64_t{1} << 40, ~uint64_t{0}, uint64_t{1} << 63}) {
    std::string lie = bytes;
    std::memcpy(lie.data(), &length, 8);
    ExpectRefused(lie, {"header"});
  }
}

TEST(SafetensorsTest, AFieldThatLiesIsRefusedByTensor) {
  const json huge = 4611686018427387904;  // 2^62
  ExpectRefused(WithField("beta", "dtype", "BF17"), {"'beta'", "BF17"});
  ExpectRefused(WithField("beta", "dtype", "F32"), {"'beta'", "span 14 bytes", "28"});
  ExpectRefused(WithField("beta", "dtype", 3), {"'beta'", "dtype"});
  ExpectRefused(WithField("beta", "dtype", nullptr), {"'beta'", "dtype"});
  ExpectRefused(WithField("beta", "shape", {8}), {"'beta'", "16"});
  ExpectRefused(WithField("beta", "shape", {-7}), {"'beta'", "shape", "-7"});
  ExpectRefused(WithField("beta", "shape", {7.0}), {"'beta'", "shape"});
  ExpectRefused(WithField("beta", "shape", {huge, huge}), {"'beta'", "overflows"});
  ExpectRefused(WithField("beta", "shape", {4294967296, 4294967296, 4294967296}),
                {"'beta'", "overflows"});
  ExpectRefused(WithField("beta", "shape", {1, 1, 1, 1, 1, 1, 1, 1, 7}), {"'beta'", "dimensions"});
  ExpectRefused(WithField("beta", "shape", "7"), {"'beta'", "shape"});
  ExpectRefused(WithField("beta", "data_offsets", {60}), {"'beta'", "data_offsets"});
  ExpectRefused(WithField("beta", "data_offsets", {74, 60}), {"'beta'", "data_offsets"});
  ExpectRefused(WithField("beta", "data_offsets", {-14, 0}), {"'beta'", "data_offsets"});
  ExpectRefused(WithField("beta", "data_offsets", {"60", "74"}), {"'beta'", "data_offsets"});
  ExpectRefused(WithField("beta", "data_offsets", {59, 73}),
                {"'beta'", "inside the tensor before it"});
  ExpectRefused(WithField("beta", "data_offsets", {61, 75}), {"'beta'", "ends at byte"});
  ExpectRefused(WithField("beta", "data_offsets", {9223372036854775793, 9223372036854775807}),
                {"'beta'", "too large"});
  ExpectRefused(WithField("beta", "data_offsets", {9223372036854775808U, 9223372036854775822U}),
                {"'beta'", "data_offsets"});
  ExpectRefused(WithField("gamma", "data_offsets", {60, 76}), {"inside the tensor before it"});
  json header = HeaderOf(SafetensorsBytes(SomeTensors()));
  header["beta"] = json::array();
  ExpectRefused(WithHeader(header), {"'beta'"});
  header = HeaderOf(SafetensorsBytes(SomeTensors()));
  header.erase("beta");
  ExpectRefused(WithHeader(header), {"'empty'", "but the tensor before it"});
}

TEST(SafetensorsTest, AHeaderThatIsNoHeaderIsRefused) {
  ExpectRefused("", {"truncated"});
  ExpectRefused(SafetensorsBytes("[]", ""), {"not an object"});
  ExpectRefused(SafetensorsBytes("{", ""), {"not valid JSON"});
  ExpectRefused(SafetensorsBytes(std::string(100000, '{'), ""), {"header"});
  ExpectRefused(SafetensorsBytes(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                                 R"("a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
                                 "xy"),
                {"'a' twice"});
  EXPECT_TRUE(OpenBytes(SafetensorsBytes("{}", "")).ok());
}

TEST(SafetensorsTest, BitFlipsNeverEscapeTheFile) {
  const uint32_t seed = 4711;
  std::cout << "seed " << seed << "\n";
  std::mt19937 random(seed);
  const std::string good = SafetensorsBytes(SomeTensors());
  const size_t header_bytes = good.size() - 98;
  int accepted = 0;
  for (int round = 0; round < 4000; ++round) {
    std::string bytes = good;
    const int flips = 1 + static_cast<int>(random() % 3);
    for (int i = 0; i < flips; ++i) {
      bytes[random() % header_bytes] ^= static_cast<char>(1 << (random() % 8));
    }
    if (random() % 4 == 0) bytes.resize(random() % (bytes.size() + 20));
    const auto file = OpenBytes(bytes);
    if (!file.ok()) continue;
    ++accepted;  // a flip in a name
    ExpectReadable(**file);
  }
  EXPECT_GT(accepted, 0);
  EXPECT_LT(accepted, 4000);
}

// Entries made of plausible and absurd numbers: what is accepted lies inside the file.
TEST(SafetensorsTest, RandomHeadersNeverEscapeTheFile) {
  const uint32_t seed = 99;
  std::cout << "seed " << seed << "\n";
  std::mt19937 random(seed);
  const std::vector<json> numbers = {0,
                                     1,
                                     2,
                                     3,
                                     4,
                                     8,
                                     12,
                                     16,
                                     -1,
                                     2.0,
                                     1e300,
                                     4294967296,
                                     9223372036854775807,
                                     18446744073709551615U,
                                     nullptr,
                                     "4"};
  const auto number = [&](bool is_absurd) {
    return numbers[random() % (is_absurd ? numbers.size() : 8)];
  };
  const std::vector<std::string> formats = {"F32", "BF16", "U8", "F4", "I64", "what"};
  int accepted = 0;
  for (int round = 0; round < 20000; ++round) {
    json header = json::object();
    const int count = 1 + static_cast<int>(random() % 2);
    for (int i = 0; i < count; ++i) {
      const bool is_absurd = random() % 3 == 0;
      json shape = json::array();
      for (int d = static_cast<int>(random() % 3); d > 0; --d) shape.push_back(number(is_absurd));
      header[std::string(1, static_cast<char>('a' + i))] = {
          {"dtype", formats[random() % formats.size()]},
          {"shape", shape},
          {"data_offsets", {i == 0 ? json(0) : number(is_absurd), number(is_absurd)}}};
    }
    const std::string text = header.dump();
    const auto file_bytes = static_cast<int64_t>(8 + text.size() + random() % 20);
    const auto tensors = ParseSafetensorsHeader(text, file_bytes, "x");
    if (!tensors.ok()) continue;
    ++accepted;
    int64_t end = static_cast<int64_t>(8 + text.size());
    for (const TensorEntry& tensor : *tensors) {
      ASSERT_EQ(tensor.begin, end);
      ASSERT_GE(tensor.bytes, 0);
      end += tensor.bytes;
    }
    ASSERT_EQ(end, file_bytes);
  }
  EXPECT_GT(accepted, 10);
}

TEST(SafetensorsTest, WhatIsNoRegularFileIsRefused) {
  const TemporaryFolder folder;
  EXPECT_TRUE(absl::IsInvalidArgument(SafetensorsFile::Open(folder.path()).status()));
  ASSERT_EQ(mkfifo(folder.File("fifo").c_str(), 0600), 0);
  EXPECT_TRUE(absl::IsInvalidArgument(SafetensorsFile::Open(folder.File("fifo")).status()));
  EXPECT_TRUE(absl::IsNotFound(SafetensorsFile::Open(folder.File("nothing")).status()));
}

}  // namespace
}  // namespace bulkhead
