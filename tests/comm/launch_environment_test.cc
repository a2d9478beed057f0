#include "comm/launch_environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include <map>
#include <utility>
#include <vector>

#include "base/exit_code.h"
#include "comm/topology.h"

namespace bulkhead {
namespace {

using testing::HasSubstr;

LaunchEnvironment Read(const std::map<std::string, std::string>& variables,
                       const std::vector<std::string>& launcher_arguments = {}) {
  const auto environment = [&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  };
  return ReadLaunchEnvironment(environment, launcher_arguments);
}

TEST(LaunchEnvironment, NothingSetIsAGroupOfOne) { EXPECT_FALSE(Read({}).by_launcher()); }

TEST(LaunchEnvironment, MpirunSaysHowManyRanksAndWhetherOnOneHost) {
  const LaunchEnvironment launch = Read({{"OMPI_COMM_WORLD_SIZE", "4"},
                                         {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
                                         {"PMIX_NAMESPACE", "x"},
                                         {"PMIX_RANK", "1"}});
  EXPECT_EQ(launch.launcher, "mpirun");
  EXPECT_EQ(launch.expected_size, 4);
  EXPECT_TRUE(launch.one_host);
  EXPECT_TRUE(CheckCanConnect(launch).ok());
  EXPECT_TRUE(CheckSize(launch, 4).ok());
  EXPECT_FALSE(Read({{"OMPI_COMM_WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}}).one_host);
}

TEST(LaunchEnvironment, LaunchersSayWhichRankOfItsHostThisIs) {
  const LaunchEnvironment mpirun = Read({{"OMPI_COMM_WORLD_SIZE", "4"},
                                         {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                                         {"OMPI_COMM_WORLD_LOCAL_RANK", "0"}});
  EXPECT_EQ(mpirun.local_size, 2);
  EXPECT_EQ(mpirun.local_rank, 0);
  for (const auto& [tasks, size] : {std::pair("2", 2), {"2(x4)", 2}, {"2,1", 0}, {"x", 0}}) {
    const LaunchEnvironment srun = Read({{"SLURM_PROCID", "2"},
                                         {"SLURM_STEP_ID", "0"},
                                         {"SLURM_STEP_NUM_TASKS", "4"},
                                         {"SLURM_LOCALID", "1"},
                                         {"SLURM_STEP_TASKS_PER_NODE", tasks}});
    EXPECT_EQ(srun.local_size, size) << tasks;
    EXPECT_EQ(srun.local_rank, 1);
  }
  EXPECT_EQ(Read({}).local_rank, -1);
}

TEST(LaunchEnvironment, MpirunsBindingIsItsDefaultUnlessItWasAskedFor) {
  const auto by_default = [](const char* name, const char* value) {
    return Read({{"OMPI_COMM_WORLD_SIZE", "2"},
                 {"OMPI_MCA_orte_bound_at_launch", "1"},
                 {name, value}})
        .bound_by_default;
  };
  EXPECT_TRUE(by_default("X", ""));
  EXPECT_TRUE(by_default("OMPI_MCA_rmaps_base_mapping_policy", "ppr:2:node"));
  EXPECT_FALSE(by_default("OMPI_MCA_rmaps_base_mapping_policy", "ppr:2:node:PE=4"));
  EXPECT_FALSE(by_default("OMPI_MCA_hwloc_base_binding_policy", "core"));
  EXPECT_FALSE(by_default("OMPI_MCA_hwloc_base_cpu_set", "0-3"));
  EXPECT_FALSE(Read({{"OMPI_COMM_WORLD_SIZE", "2"}}).bound_by_default);
}

// Which hands none of its options down.
TEST(LaunchEnvironment, TheBindingOfOpenMpi5IsItsDefaultUnlessItsCommandLineAsksForOne) {
  const auto by_default = [](const std::vector<std::string>& options) {
    std::vector<std::string> arguments = {"prterun", "-n", "2"};
    arguments.insert(arguments.end(), options.begin(), options.end());
    return Read({{"OMPI_COMM_WORLD_SIZE", "2"}, {"PRTE_LAUNCHED", "1"}}, arguments)
        .bound_by_default;
  };
  EXPECT_FALSE(Read({{"OMPI_COMM_WORLD_SIZE", "2"}, {"PRTE_LAUNCHED", "1"}}).bound_by_default)
      << "on a host without mpirun";
  EXPECT_TRUE(by_default({}));
  EXPECT_TRUE(by_default({"--map-by", "ppr:2:node"}));
  EXPECT_FALSE(by_default({"--map-by", "ppr:2:node:pe=4"}));
  EXPECT_FALSE(by_default({"--map-by", "pe-list=0,1"}));
  EXPECT_FALSE(by_default({"--bind-to", "core"}));
  EXPECT_FALSE(by_default({"-bind-to", "none"}));
  EXPECT_FALSE(by_default({"--cpu-set", "0-3"}));
  EXPECT_FALSE(by_default({"--rankfile", "file"}));
  EXPECT_FALSE(by_default({"--bind-to=core"}));
  EXPECT_FALSE(by_default({"--map-by", "rankfile:file=F"}));
  EXPECT_FALSE(by_default({"--prtemca", "hwloc_default_binding_policy", "core"}));
  EXPECT_FALSE(by_default({"PRTE_MCA_hwloc_default_binding_policy=core"}));
  EXPECT_TRUE(by_default({"--mca", "btl", "self,sm"}));
  EXPECT_TRUE(by_default({"bulkhead", "serve", "--kv-cache-dtype=int8", "PE=1"}));
}

TEST(LaunchEnvironment, AShellInAnAllocationIsNoRank) {
  // A batch script, then the interactive step of salloc, then a job step of one task.
  EXPECT_FALSE(
      Read({{"SLURM_JOB_ID", "7"}, {"SLURM_NTASKS", "8"}, {"SLURM_PROCID", "0"}}).by_launcher());
  EXPECT_FALSE(Read({{"SLURM_NTASKS", "8"},
                     {"SLURM_PROCID", "0"},
                     {"SLURM_STEP_ID", "4294967290"},
                     {"SLURM_STEP_NUM_TASKS", "1"}})
                   .by_launcher());
}

TEST(LaunchEnvironment, SrunWithoutPmixIsRefusedWithTheRightCommand) {
  const LaunchEnvironment launch = Read({{"SLURM_NTASKS", "4"},
                                         {"SLURM_PROCID", "2"},
                                         {"SLURM_STEP_ID", "0"},
                                         {"SLURM_STEP_NUM_TASKS", "4"}});
  EXPECT_TRUE(launch.by_launcher());
  const absl::Status refusal = CheckCanConnect(launch);
  EXPECT_EQ(ExitCodeOf(refusal), ExitCode::kGroupNotUp);
  EXPECT_THAT(std::string(refusal.message()), HasSubstr("mpirun -n 4, or srun --mpi=pmix -n 4"));
}

TEST(LaunchEnvironment, SrunWithPmixMayMeet) {
  const LaunchEnvironment launch = Read({{"SLURM_PROCID", "2"},
                                         {"SLURM_STEP_ID", "0"},
                                         {"SLURM_STEP_NUM_TASKS", "4"},
                                         {"SLURM_STEP_NUM_NODES", "1"},
                                         {"PMIX_NAMESPACE", "x"},
                                         {"PMIX_RANK", "2"}});
  EXPECT_TRUE(CheckCanConnect(launch).ok());
  EXPECT_TRUE(launch.one_host);
  const absl::Status alone = CheckSize(launch, 1);
  EXPECT_EQ(ExitCodeOf(alone), ExitCode::kGroupNotUp);
  EXPECT_THAT(std::string(alone.message()), HasSubstr("srun started 4 ranks"));
}

TEST(LaunchEnvironment, OtherPmiLaunchersAreRefusedWhenTheyStartSeveral) {
  EXPECT_FALSE(CheckCanConnect(Read({{"PMI_SIZE", "2"}, {"PMI_RANK", "0"}})).ok());
  EXPECT_FALSE(Read({{"PMI_SIZE", "1"}, {"PMI_RANK", "0"}}).by_launcher());
}

TEST(RankTopology, RanksShareAHostWhenNameAndBootAreEqual) {
  const std::vector<std::string> identities = {"a boot1 0011", "b boot2 1", "a boot1 0110",
                                               "a boot3 1", "a boot1 0011"};
  const auto topology = TopologyFrom(2, identities);
  ASSERT_TRUE(topology.ok());
  EXPECT_EQ(topology->rank, 2);
  EXPECT_EQ(topology->size, 5);
  EXPECT_EQ(topology->local_rank, 1);
  EXPECT_EQ(topology->local_size, 3);
  EXPECT_EQ(topology->local_cores, 3);
  EXPECT_FALSE(topology->one_host());
  EXPECT_THAT(topology->hosts, testing::ElementsAre("a", "b", "a", "a", "a"));
}

TEST(RankTopology, AMalformedIdentityIsRefusedByRank) {
  const auto topology = TopologyFrom(0, {"a boot 1", "gibberish"});
  EXPECT_THAT(std::string(topology.status().message()), HasSubstr("rank 1"));
}

TEST(RankTopology, TheOwnIdentityIsWellFormed) {
  const auto topology = TopologyFrom(0, {HostIdentity()});
  ASSERT_TRUE(topology.ok()) << topology.status();
  EXPECT_TRUE(topology->one_host());
  EXPECT_GE(topology->local_cores, 1);
}

TEST(RankTopology, NumbersNodesByTheirLowestRankAndKeepsRanksNames) {
  const std::vector<std::string> identities = {"b boot 1", "a boot 11", "b boot 1", "a boot 11"};
  const auto world = TopologyFrom(3, identities);
  ASSERT_TRUE(world.ok());
  EXPECT_EQ(world->nodes, (std::vector<int>{0, 1, 0, 1}));
  EXPECT_EQ(world->num_nodes(), 2);
  EXPECT_EQ(world->RanksOf(1), (std::vector<int>{1, 3}));
  const RankTopology node = NodeTopology(*world);
  EXPECT_EQ(node.rank, 1);
  EXPECT_EQ(node.size, 2);
  EXPECT_TRUE(node.one_host());
  EXPECT_EQ(node.NameOf(1, 7), "rank 3 (host a, pid 7)");
  EXPECT_EQ(world->NameOf(2), "rank 2 (host b)");
}

TEST(RankTopology, TheNodeNameCanBeGiven) {
  ASSERT_EQ(setenv("BULKHEAD_NODE_NAME", "left half", 1), 0);
  EXPECT_EQ(HostIdentity().substr(0, 10), "left_half ");
  ASSERT_EQ(unsetenv("BULKHEAD_NODE_NAME"), 0);
  EXPECT_NE(HostIdentity().substr(0, 10), "left_half ");
}

}  // namespace
}  // namespace bulkhead
