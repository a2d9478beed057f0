#include "launcher/model_path.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "base/exit_code.h"

namespace bulkhead {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// A fake cache in the layout of Hugging Face's tools, removed at the end.
class ModelPathTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "hubXXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    root_ = pattern;
  }
  void TearDown() override { fs::remove_all(root_); }

  fs::path AddModel(const std::string& entry, const std::string& revision) {
    const fs::path model = fs::path(root_) / entry;
    fs::create_directories(model / "refs");
    fs::create_directories(model / "blobs");
    fs::create_directories(model / "snapshots" / revision);
    std::ofstream(model / "refs" / "main") << revision;
    std::ofstream(model / "blobs" / "1234") << "{}";
    fs::create_symlink("../../blobs/1234", model / "snapshots" / revision / "config.json");
    return model / "snapshots" / revision;
  }

  absl::Status Refused(const std::string& model) {
    const absl::StatusOr<std::string> path = ResolveModelPath(model, {root_});
    EXPECT_FALSE(path.ok()) << *path;
    EXPECT_EQ(ExitCodeOf(path.status()), ExitCode::kModelRefused);
    return path.status();
  }

  std::string root_;
};

TEST_F(ModelPathTest, AFolderIsItself) { EXPECT_EQ(*ResolveModelPath(root_, {}), root_); }

TEST_F(ModelPathTest, ANameIsTheSnapshotOfItsMainBranch) {
  const fs::path snapshot = AddModel("models--org--name", "abc123");
  const absl::StatusOr<std::string> path = ResolveModelPath("org/name", {"/nowhere", root_});
  ASSERT_TRUE(path.ok()) << path.status();
  EXPECT_EQ(*path, snapshot.string());
  EXPECT_TRUE(fs::is_regular_file(*path + "/config.json"));
  AddModel("models--gpt", "def456");
  EXPECT_THAT(*ResolveModelPath("gpt", {root_}), HasSubstr("def456"));
}

TEST_F(ModelPathTest, ALineEndBehindTheRevisionIsNoPartOfIt) {
  const fs::path snapshot = AddModel("models--org--name", "abc123");
  std::ofstream(fs::path(root_) / "models--org--name/refs/main") << "abc123\n";
  EXPECT_EQ(*ResolveModelPath("org/name", {root_}), snapshot.string());
}

TEST_F(ModelPathTest, AMissingModelNamesWhereItWasAndTheCommandToGetIt) {
  EXPECT_THAT(std::string(Refused("org/name").message()),
              AllOf(HasSubstr(root_ + "/models--org--name"), HasSubstr("hf download org/name")));
}

TEST_F(ModelPathTest, WithoutACacheTheVariableThatNamesOneIsTold) {
  const std::string message(ResolveModelPath("org/name", {}).status().message());
  EXPECT_THAT(message, AllOf(HasSubstr("set HF_HOME"), Not(HasSubstr("looked for"))));
}

TEST_F(ModelPathTest, ASnapshotThatIsGoneIsNamed) {
  fs::remove_all(AddModel("models--org--name", "abc123"));
  EXPECT_THAT(std::string(Refused("org/name").message()), HasSubstr("snapshots/abc123"));
}

TEST_F(ModelPathTest, APathThatIsNotThereIsNoHubName) {
  EXPECT_THAT(std::string(Refused(root_ + "/nothing-here").message()), HasSubstr("nothing-here"));
  for (const char* name : {"./name", "../name", "a/b/c", "org/", "/name", "-x/y", "a b/c"}) {
    EXPECT_THAT(std::string(Refused(name).message()), Not(HasSubstr("download"))) << name;
  }
  EXPECT_EQ(Refused(std::string(100000, 'a')).code(), absl::StatusCode::kNotFound);
}

TEST_F(ModelPathTest, AFileIsNoModel) {
  std::ofstream(root_ + "/file") << "x";
  EXPECT_THAT(std::string(Refused(root_ + "/file").message()), HasSubstr("not a folder"));
  std::ofstream(root_ + "/q4.GGUF") << "GGUF";
  EXPECT_THAT(std::string(Refused(root_ + "/q4.GGUF").message()),
              HasSubstr("q4.GGUF is a GGUF file, which is not read; give the folder with"));
  EXPECT_THAT(std::string(Refused("absent.gguf").message()), HasSubstr("is a GGUF file"));
}

TEST_F(ModelPathTest, AFlagWithItsValueInOneArgumentIsNoModel) {
  EXPECT_THAT(std::string(Refused("--tp 2").message()),
              HasSubstr("--tp 2; a flag and its value are two arguments, or --flag=value"));
}

TEST_F(ModelPathTest, ARevisionThatLeavesTheCacheIsRefused) {
  AddModel("models--org--name", "abc123");
  std::ofstream(fs::path(root_) / "models--org--name/refs/main") << "../../..";
  EXPECT_THAT(std::string(Refused("org/name").message()), HasSubstr("refs/main"));
}

TEST_F(ModelPathTest, TheEnvironmentSaysWhichCaches) {
  setenv("HF_HUB_CACHE", "/a", 1);
  setenv("HF_HOME", "/b", 1);
  setenv("HOME", "/c", 1);
  EXPECT_THAT(HubCacheDirs(), ElementsAre("/a", "/b/hub", "/c/.cache/huggingface/hub"));
  setenv("HF_HUB_CACHE", "", 1);
  unsetenv("HF_HOME");
  EXPECT_THAT(HubCacheDirs(), ElementsAre("/c/.cache/huggingface/hub"));
}

}  // namespace
}  // namespace bulkhead
