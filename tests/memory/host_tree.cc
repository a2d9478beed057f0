#include "tests/memory/host_tree.h"

#include <filesystem>
#include <fstream>

namespace bulkhead {

void HostTree::SetUp() {
  const testing::TestInfo& test = *testing::UnitTest::GetInstance()->current_test_info();
  root_ = testing::TempDir() + "/" + test.test_suite_name() + "_" + test.name();
  std::filesystem::remove_all(root_);
}

void HostTree::TearDown() { std::filesystem::remove_all(root_); }

void HostTree::Write(const std::string& path, const std::string& text) {
  std::filesystem::create_directories(std::filesystem::path(root_ + path).parent_path());
  std::ofstream(root_ + path) << text;
}

}  // namespace bulkhead
