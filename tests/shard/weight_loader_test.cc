#include "shard/weight_loader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <mutex>

#include "absl/strings/str_cat.h"
#include "base/exit_code.h"
#include "tests/shard/checkpoint_files.h"

namespace bulkhead {
namespace {

using testing::HasSubstr;

// Keeps the bytes of every row, and how often each row came.
class RecordingSink : public WeightSink {
 public:
  RecordingSink(int64_t rows, int64_t cols) : cols_(cols), rows_(rows), times_(rows, 0) {}

  void PutRows(int64_t row_begin, ConstMatrixView rows) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    EXPECT_EQ(rows.cols(), cols_);
    ASSERT_GE(row_begin, 0);
    ASSERT_LE(row_begin + rows.rows(), static_cast<int64_t>(rows_.size()));
    for (int64_t i = 0; i < rows.rows(); ++i) {
      const char* bytes = reinterpret_cast<const char*>(rows.RowBytes(i));
      rows_[row_begin + i].assign(bytes, cols_ * DTypeBytes(rows.dtype()));
      ++times_[row_begin + i];
    }
  }
  const std::string& row(int64_t index) const { return rows_[index]; }
  bool is_begun() const { return Times(true) > 0; }
  bool is_complete() const { return Times(false) == 0; }
  void ExpectEachRowOnce() const {
    for (const int times : times_) ASSERT_EQ(times, cols_ == 0 ? 0 : 1);
  }

  void PutQuantizedRows(int64_t /*row_begin*/, const QuantizedRows& /*rows*/) override { FAIL(); }
  void PutGroupIndex(absl::Span<const int32_t> /*group_of_input*/) override { FAIL(); }

 private:
  // Rows that came, or did not.
  int64_t Times(bool came) const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return std::count_if(times_.begin(), times_.end(),
                         [came](int times) { return (times > 0) == came; });
  }

  int64_t cols_;
  std::vector<std::string> rows_;
  std::vector<int> times_;
  mutable std::mutex mutex_;
};

// One of several weights that take host memory until they are complete.
class CostlySink final : public RecordingSink {
 public:
  struct Group {
    std::vector<const RecordingSink*> sinks;
    std::mutex mutex;  // one sink at a time changes while all are counted
    int most_open = 0;
  };
  CostlySink(Group& group, int64_t host_bytes, int64_t rows, int64_t cols)
      : RecordingSink(rows, cols), group_(group), host_bytes_(host_bytes) {
    group.sinks.push_back(this);
  }
  int64_t HostBytes() const override { return host_bytes_; }
  void PutRows(int64_t row_begin, ConstMatrixView rows) override {
    const std::lock_guard<std::mutex> lock(group_.mutex);
    RecordingSink::PutRows(row_begin, rows);
    const auto open = static_cast<int>(std::count_if(
        group_.sinks.begin(), group_.sinks.end(),
        [](const RecordingSink* sink) { return sink->is_begun() && !sink->is_complete(); }));
    group_.most_open = std::max(group_.most_open, open);
  }

 private:
  Group& group_;
  int64_t host_bytes_;
};

float Widened(const std::string& bytes, int64_t index, const std::string& format) {
  if (format == "F32") {
    float value;
    std::memcpy(&value, bytes.data() + index * 4, 4);
    return value;
  }
  uint16_t bits;
  std::memcpy(&bits, bytes.data() + index * 2, 2);
  if (format == "F16") return static_cast<float>(std::bit_cast<_Float16>(bits));
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

// All weights of one rank, loaded into recording sinks with a few rows of room before and after.
struct LoadedRank {
  static constexpr int64_t kMargin = 3;
  std::vector<TensorRow> rows;
  std::vector<std::unique_ptr<RecordingSink>> sinks;  // null for vectors
  std::vector<std::vector<float>> vectors;
  std::vector<Checkpoint::Target> targets;

  explicit LoadedRank(const RankShard& shard) : rows(TensorsOf(shard)) {
    vectors.resize(rows.size());
    for (size_t i = 0; i < rows.size(); ++i) {
      const TensorSlice slice = SliceOf(rows[i], shard);
      sinks.push_back(nullptr);
      if (rows[i].is_vector()) {
        vectors[i].assign(slice.cols.size() + 1, -7.0F);  // the last one is nobody's
        targets.push_back({.row = rows[i], .vector = vectors[i].data()});
      } else {
        sinks[i] = std::make_unique<RecordingSink>(slice.rows.size() + kMargin, slice.cols.size());
        targets.push_back({.row = rows[i], .sink = sinks[i].get(), .sink_row = kMargin});
      }
    }
  }

  // Of a number of the row's matrix in the tensor that the file holds.
  static int64_t IndexOf(const TensorRow& of, int64_t row, int64_t col, int64_t cols) {
    if (of.is_transposed) return (of.file_input_begin + col) * of.file_size + of.file_begin + row;
    const int64_t expert = of.file_experts > 0 ? of.expert * of.file_size * cols : 0;
    if (of.is_vector()) return expert + of.file_begin + col;
    return expert + (of.file_begin + row) * cols + col;
  }

  void ExpectMatrix(size_t i, const TensorSlice& slice, const RawTensor& whole,
                    int64_t full_cols) const {
    const int64_t width = whole.format == "F32" ? 4 : 2;
    for (int64_t row = 0; row < slice.rows.size(); ++row) {
      std::string want;
      for (int64_t col = slice.cols.begin; col < slice.cols.end; ++col) {
        want += whole.bytes.substr(IndexOf(rows[i], slice.rows.begin + row, col, full_cols) * width,
                                   width);
      }
      ASSERT_EQ(sinks[i]->row(kMargin + row), want) << whole.name << " row " << row;
    }
    for (int64_t row = 0; row < kMargin; ++row) ASSERT_TRUE(sinks[i]->row(row).empty());
  }
  void ExpectVector(size_t i, const TensorSlice& slice, const RawTensor& whole) const {
    for (int64_t col = 0; col < slice.cols.size(); ++col) {
      const float stored =
          Widened(whole.bytes, IndexOf(rows[i], 0, slice.cols.begin + col, 1), whole.format);
      const float want = rows[i].value_offset == 0 ? stored : stored + rows[i].value_offset;
      if (std::isnan(want)) {
        ASSERT_TRUE(std::isnan(vectors[i][col]));
      } else {
        ASSERT_EQ(std::bit_cast<uint32_t>(vectors[i][col]), std::bit_cast<uint32_t>(want))
            << whole.name;
      }
    }
    ASSERT_EQ(vectors[i].back(), -7.0F);
  }
  void ExpectSlicesOf(const std::map<std::string, RawTensor>& whole, const RankShard& shard) const {
    for (size_t i = 0; i < rows.size(); ++i) {
      const RawTensor& tensor = whole.at(rows[i].Name());
      const TensorSlice slice = SliceOf(rows[i], shard);
      if (sinks[i] == nullptr) {
        ExpectVector(i, slice, tensor);
      } else {
        ExpectMatrix(i, slice, tensor, rows[i].cols);
      }
    }
  }
};

// Loads the checkpoint on every rank of groups of these sizes, and compares with the whole tensors.
void ExpectSlicesEqualTheWhole(const std::string& dir, const ModelConfig& config,
                               const std::vector<int>& sizes, int num_threads) {
  const auto checkpoint = Checkpoint::Open(dir);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  const std::map<std::string, RawTensor> whole = ReadRawCheckpoint(dir);
  for (const int size : sizes) {
    const auto plan = ShardPlan::Create(config, size);
    ASSERT_TRUE(plan.ok()) << plan.status();
    for (int rank = 0; rank < size; ++rank) {
      SCOPED_TRACE(absl::StrCat(dir, " rank ", rank, " of ", size));
      const RankShard& shard = plan->rank(rank);
      LoadedRank loaded(shard);
      std::atomic<int64_t> bytes_done{0};
      const absl::Status status =
          (*checkpoint)->Load(loaded.targets, shard, num_threads, &bytes_done, {});
      ASSERT_TRUE(status.ok()) << status;
      EXPECT_EQ(bytes_done.load(), (*checkpoint)->BytesToRead(loaded.targets, shard));
      loaded.ExpectSlicesOf(whole, shard);
    }
  }
}

TEST(WeightLoaderTest, SlicesOfEveryFixtureEqualTheWhole) {
  for (const std::string& dir : FixtureDirs()) {
    ExpectSlicesEqualTheWhole(dir, FixtureConfig(dir), {1, 2, 3, 4, 8}, 2);
  }
}

// A checkpoint whose down_proj needs several blocks, and segments alone at two ranks.
ModelConfig WideConfig() {
  ModelConfig config = SmallConfig();
  config.num_hidden_layers = 1;
  config.hidden_size = 64;
  config.intermediate_size = 36000;
  return config;
}

constexpr char kGate[] = "model.layers.0.mlp.gate_proj.weight";
constexpr char kUp[] = "model.layers.0.mlp.up_proj.weight";
constexpr char kDown[] = "model.layers.0.mlp.down_proj.weight";

TEST(WeightLoaderTest, SlicesOfManyBlocksEqualTheWhole) {
  const TemporaryFolder folder;
  WriteFile(folder.File("model.safetensors"),
            SafetensorsBytes(RandomTensors(WideConfig(), "F32", 11)));
  ExpectSlicesEqualTheWhole(folder.path(), WideConfig(), {1, 2, 3}, 3);
}

TEST(WeightLoaderTest, OwnedBytesAloneAreReadWhereTheyAreWide) {
  const TemporaryFolder folder;
  const ModelConfig config = WideConfig();
  WriteFile(folder.File("model.safetensors"), SafetensorsBytes(RandomTensors(config, "F32", 12)));
  const auto checkpoint = Checkpoint::Open(folder.path());
  ASSERT_TRUE(checkpoint.ok());
  const auto bytes_of = [&](const char* name, int size) {
    const auto plan = ShardPlan::Create(config, size);
    RecordingSink sink(1, 1);
    const Checkpoint::Target target = {.row = RowOf(config, name), .sink = &sink};
    return (*checkpoint)->BytesToRead({&target, 1}, plan->rank(0));
  };
  EXPECT_EQ(bytes_of(kDown, 2), int64_t{64} * 18000 * 4);
  EXPECT_EQ(bytes_of(kDown, 8), int64_t{64} * 4500 * 4);
  EXPECT_EQ(bytes_of(kDown, 20), int64_t{64} * 36000 * 4);  // 7,200 bytes a row: too narrow
  EXPECT_EQ(bytes_of(kGate, 8), int64_t{4500} * 64 * 4);
  EXPECT_EQ(bytes_of("model.embed_tokens.weight", 2), int64_t{12} * 64 * 4);
}

TEST(WeightLoaderTest, EveryRowComesOnce) {
  const TemporaryFolder folder;
  const ModelConfig config = WideConfig();
  WriteFile(folder.File("model.safetensors"), SafetensorsBytes(RandomTensors(config, "BF16", 13)));
  const auto checkpoint = Checkpoint::Open(folder.path());
  const auto plan = ShardPlan::Create(config, 2);
  for (const int num_threads : {1, 4, 1000}) {
    RecordingSink gate_up(36000, 64);  // fused, as the model holds them
    const std::vector<Checkpoint::Target> targets = {
        {.row = RowOf(config, kGate), .sink = &gate_up},
        {.row = RowOf(config, kUp), .sink = &gate_up, .sink_row = plan->rank(1).mlp.size()}};
    ASSERT_TRUE((*checkpoint)->Load(targets, plan->rank(1), num_threads, nullptr, {}).ok());
    gate_up.ExpectEachRowOnce();
  }
}

TEST(WeightLoaderTest, FewWeightsThatTakeHostMemoryAreBegunAndNotComplete) {
  const TemporaryFolder folder;
  ModelConfig config = WideConfig();
  config.num_hidden_layers = 4;
  WriteFile(folder.File("model.safetensors"), SafetensorsBytes(RandomTensors(config, "BF16", 15)));
  const auto checkpoint = Checkpoint::Open(folder.path());
  const auto plan = ShardPlan::Create(config, 1);
  for (const int num_threads : {1, 64}) {
    CostlySink::Group group;
    std::vector<std::unique_ptr<CostlySink>> sinks;
    std::vector<Checkpoint::Target> targets;
    for (int layer = 0; layer < config.num_hidden_layers; ++layer) {
      for (const char* part : {"gate", "up"}) {
        const std::string name =
            absl::StrCat("model.layers.", layer, ".mlp.", part, "_proj.weight");
        // Of the bytes that may be open two have room, whatever a third takes.
        sinks.push_back(
            std::make_unique<CostlySink>(group, Checkpoint::kOpenBytes * 2 / 5, 36000, 64));
        targets.push_back({.row = RowOf(config, name), .sink = sinks.back().get()});
      }
    }
    ASSERT_TRUE((*checkpoint)->Load(targets, plan->rank(0), num_threads, nullptr, {}).ok());
    for (const auto& sink : sinks) sink->ExpectEachRowOnce();
    EXPECT_LE(group.most_open, num_threads == 1 ? 1 : 2);
    EXPECT_GE(group.most_open, 1);
  }
  EXPECT_EQ(Checkpoint::MostOpenBytes(0, 8), 0);
  EXPECT_EQ(Checkpoint::MostOpenBytes(5, 1), 10);
  EXPECT_EQ(Checkpoint::MostOpenBytes(5, 8), 40);
  EXPECT_EQ(Checkpoint::MostOpenBytes(Checkpoint::kOpenBytes / 4, 8), Checkpoint::kOpenBytes);
  EXPECT_EQ(Checkpoint::MostOpenBytes(Checkpoint::kOpenBytes, 8), 2 * Checkpoint::kOpenBytes);
}

TEST(WeightLoaderTest, EveryHalfIsWidenedExactly) {
  ModelConfig config = SmallConfig();
  config.hidden_size = 65536;
  config.num_hidden_layers = 1;
  std::vector<RawTensor> tensors = RandomTensors(config, "F16", 14);
  for (RawTensor& tensor : tensors) {
    if (tensor.name != "model.norm.weight") continue;
    for (uint32_t bits = 0; bits < 65536; ++bits)
      std::memcpy(tensor.bytes.data() + bits * 2, &bits, 2);
  }
  const TemporaryFolder folder;
  WriteFile(folder.File("model.safetensors"), SafetensorsBytes(tensors));
  ExpectSlicesEqualTheWhole(folder.path(), config, {1}, 1);
}

TEST(WeightLoaderTest, ACancelledLoadEndsEarly) {
  const TemporaryFolder folder;
  const ModelConfig config = WideConfig();
  WriteFile(folder.File("model.safetensors"), SafetensorsBytes(RandomTensors(config, "F32", 15)));
  const auto checkpoint = Checkpoint::Open(folder.path());
  const auto plan = ShardPlan::Create(config, 1);
  LoadedRank loaded(plan->rank(0));
  std::atomic<int64_t> bytes_done{0};
  int polls = 0;
  const absl::Status status =
      (*checkpoint)->Load(loaded.targets, plan->rank(0), 1, &bytes_done, [&] {
        return ++polls > 2;
      });
  EXPECT_TRUE(absl::IsCancelled(status)) << status;
  EXPECT_GT(bytes_done.load(), 0);
  EXPECT_LT(bytes_done.load(), (*checkpoint)->BytesToRead(loaded.targets, plan->rank(0)));
}

TEST(WeightLoaderTest, AFileThatShrinksAfterItWasOpenedIsDataLoss) {
  const TemporaryFolder folder;
  const ModelConfig config = SmallConfig();
  const std::string path = folder.File("model.safetensors");
  WriteFile(path, SafetensorsBytes(RandomTensors(config, "F32", 16)));
  const auto checkpoint = Checkpoint::Open(folder.path());
  const auto plan = ShardPlan::Create(config, 1);
  LoadedRank loaded(plan->rank(0));
  std::filesystem::resize_file(path, std::filesystem::file_size(path) / 2);
  const absl::Status status = (*checkpoint)->Load(loaded.targets, plan->rank(0), 2, nullptr, {});
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
  EXPECT_EQ(ExitCodeOf(status), ExitCode::kModelRefused);
  EXPECT_THAT(std::string(status.message()), HasSubstr(path));
}

// The shrinking is noticed inside the load: the last read meets the end of the file.
TEST(WeightLoaderTest, AFileThatShrinksWhileItIsReadIsDataLossByTensor) {
  const TemporaryFolder folder;
  const ModelConfig config = WideConfig();
  const std::string path = folder.File("model.safetensors");
  WriteFile(path, SafetensorsBytes(RandomTensors(config, "F32", 17)));
  const auto checkpoint = Checkpoint::Open(folder.path());
  const auto plan = ShardPlan::Create(config, 1);
  LoadedRank loaded(plan->rank(0));
  const absl::Status status = (*checkpoint)->Load(loaded.targets, plan->rank(0), 1, nullptr, [&] {
    std::filesystem::resize_file(path, 100000);
    return false;
  });
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("tensor 'model."));
  EXPECT_THAT(std::string(status.message()), HasSubstr(path));
}

TEST(WeightLoaderTest, AWeightThatDoesNotMatchTheModelIsRefusedBeforeAnyRow) {
  const TemporaryFolder folder;
  ModelConfig config = SmallConfig();
  WriteFile(folder.File("model.safetensors"), SafetensorsBytes(RandomTensors(config, "F32", 18)));
  const auto checkpoint = Checkpoint::Open(folder.path());
  config.hidden_size = 16;
  const auto plan = ShardPlan::Create(config, 1);
  LoadedRank loaded(plan->rank(0));
  const absl::Status status = (*checkpoint)->Load(loaded.targets, plan->rank(0), 1, nullptr, {});
  EXPECT_EQ(ExitCodeOf(status), ExitCode::kModelRefused);
  EXPECT_THAT(std::string(status.message()), HasSubstr("model.embed_tokens.weight"));
  EXPECT_EQ((*checkpoint)->BytesToRead(loaded.targets, plan->rank(0)), 0);
}

}  // namespace
}  // namespace bulkhead
