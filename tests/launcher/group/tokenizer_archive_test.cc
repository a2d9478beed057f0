#include "launcher/group/tokenizer_archive.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zip.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include "launcher/planning/host_budget.h"

namespace bulkhead {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

class TokenizerArchiveTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "archiveXXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    dir_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }
  void Put(const std::string& name, const std::string& text) const {
    std::ofstream(dir_ / name, std::ios::binary) << text;
  }
  static std::map<std::string, std::string> Unpacked(const std::string& bytes) {
    zip_error_t error;
    zip_source_t* const source = zip_source_buffer_create(bytes.data(), bytes.size(), 0, &error);
    zip_t* const zip = zip_open_from_source(source, ZIP_RDONLY | ZIP_CHECKCONS, &error);
    std::map<std::string, std::string> files;
    if (zip == nullptr) return files;
    for (zip_int64_t i = 0; i < zip_get_num_entries(zip, 0); ++i) {
      zip_stat_t stat;
      EXPECT_EQ(zip_stat_index(zip, i, 0, &stat), 0);
      std::string text(stat.size, '\0');
      zip_file_t* const file = zip_fopen_index(zip, i, 0);
      EXPECT_EQ(zip_fread(file, text.data(), text.size()), static_cast<zip_int64_t>(text.size()));
      zip_fclose(file);
      files[stat.name] = text;
    }
    zip_discard(zip);
    return files;
  }

  std::filesystem::path dir_;
};

TEST_F(TokenizerArchiveTest, HasTheFilesOfTheTokenizerAndNoOthers) {
  const std::string text(100000, 'x');
  Put("tokenizer.json", text);
  Put("config.json", "{}");
  Put("chat_template.jinja", "{{ a }}");
  Put("weights.safetensors", "w");
  std::filesystem::create_directory(dir_ / "folder.jinja");
  const auto archive = MakeTokenizerArchive(dir_);
  ASSERT_TRUE(archive.ok()) << archive.status();
  EXPECT_THAT(Unpacked((*archive)->zip),
              ElementsAre(Pair("chat_template.jinja", "{{ a }}"), Pair("config.json", "{}"),
                          Pair("tokenizer.json", text)));
  EXPECT_LT((*archive)->zip.size(), 2000U);
  EXPECT_EQ((*archive)->sha256.size(), 64U);
}

TEST_F(TokenizerArchiveTest, TheSameFilesMakeTheSameBytes) {
  Put("tokenizer.json", "{}");
  const auto first = MakeTokenizerArchive(dir_);
  std::filesystem::last_write_time(
      dir_ / "tokenizer.json",
      std::filesystem::file_time_type::clock::now() - std::chrono::hours(1000));
  const auto second = MakeTokenizerArchive(dir_);
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_EQ((*first)->sha256, (*second)->sha256);
  Put("tokenizer.json", "{ }");
  EXPECT_NE((*MakeTokenizerArchive(dir_))->sha256, (*first)->sha256);
}

TEST_F(TokenizerArchiveTest, IsRefusedWithoutATokenizerAndBeyondWhatThePlanCounts) {
  EXPECT_EQ(MakeTokenizerArchive(dir_).status().code(), absl::StatusCode::kNotFound);
  Put("tokenizer.json", std::string(kMaxArchivedBesidesBytes + 1, 'x'));
  EXPECT_TRUE(MakeTokenizerArchive(dir_).ok());
  Put("config.json", std::string(kMaxArchivedBesidesBytes + 1, 'x'));
  const absl::Status refused = MakeTokenizerArchive(dir_).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("2097152"));
}

}  // namespace
}  // namespace bulkhead
