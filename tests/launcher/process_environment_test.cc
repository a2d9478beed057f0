#include "launcher/process_environment.h"

#include <cstdlib>

#include "gtest/gtest.h"

namespace bulkhead {
namespace {

TEST(ProcessEnvironmentTest, TellsLibrariesWhatTheUserHasNotToldThem) {
  for (const char* name : {"GRPC_VERBOSITY", "NCCL_GRAPH_MIXING_SUPPORT", "NCCL_RUNTIME_CONNECT",
                           "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "OMPI_MCA_btl",
                           "OMPI_MCA_btl_vader_single_copy_mechanism"}) {
    unsetenv(name);
  }
  setenv("NCCL_MULTI_RANK_GPU_ENABLE", "0", 1);
  SetProcessEnvironment();
  EXPECT_STREQ(std::getenv("GRPC_VERBOSITY"), "NONE");
  EXPECT_STREQ(std::getenv("NCCL_GRAPH_MIXING_SUPPORT"), "0");
  EXPECT_STREQ(std::getenv("NCCL_RUNTIME_CONNECT"), "0");
  EXPECT_STREQ(std::getenv("NCCL_MULTI_RANK_GPU_ENABLE"), "0");
  EXPECT_EQ(std::getenv("OMPI_MCA_btl"), nullptr);  // not a rank
  setenv("OMPI_COMM_WORLD_SIZE", "2", 1);
  setenv("OMPI_COMM_WORLD_LOCAL_SIZE", "1", 1);
  SetProcessEnvironment();
  EXPECT_STREQ(std::getenv("OMPI_MCA_btl_vader_single_copy_mechanism"), "none");
  EXPECT_EQ(std::getenv("OMPI_MCA_btl"), nullptr);  // several hosts
  setenv("OMPI_COMM_WORLD_LOCAL_SIZE", "2", 1);
  SetProcessEnvironment();
  EXPECT_STREQ(std::getenv("OMPI_MCA_btl"), "self,vader");
  unsetenv("OMPI_COMM_WORLD_SIZE");
  unsetenv("OMPI_COMM_WORLD_LOCAL_SIZE");
}

}  // namespace
}  // namespace bulkhead
