// A fake /proc and /sys.
#pragma once

#include <gtest/gtest.h>

#include <string>

namespace bulkhead {

class HostTree : public testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;
  // Writes a file of the tree, creating its folders.
  void Write(const std::string& path, const std::string& text);

  std::string root_;
};

}  // namespace bulkhead
