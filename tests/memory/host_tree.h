// A made-up /proc and /sys.
#pragma once

#include <gtest/gtest.h>

#include <string>

namespace bulkhead {

class HostTree : public testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;
  // Writes a file of the tree, with the folders above it.
  void Write(const std::string& path, const std::string& text);

  std::string root_;
};

}  // namespace bulkhead
