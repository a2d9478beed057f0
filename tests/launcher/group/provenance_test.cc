#include "launcher/group/provenance.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace bulkhead {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;
using Variables = std::map<std::string, std::string>;

std::map<std::string, std::string> Told(const Variables& variables) {
  std::vector<std::string> lines;
  for (const auto& [name, value] : variables) lines.push_back(name + "=" + value);
  std::vector<const char*> pointers;
  for (const std::string& line : lines) pointers.push_back(line.c_str());
  pointers.push_back(nullptr);
  return ProvenanceOf(
      [&](const char* name) {
        const auto found = variables.find(name);
        return found == variables.end() ? nullptr : found->second.c_str();
      },
      pointers.data());
}

TEST(Provenance, NamesTheJobAndTheLauncher) {
  EXPECT_THAT(Told({}), IsEmpty());
  EXPECT_THAT(Told({{"SLURM_JOB_ID", "17"},
                    {"SLURM_JOB_NAME", "tide"},
                    {"SLURM_JOB_NODELIST", "n[1-2]"},
                    {"OMPI_COMM_WORLD_SIZE", "4"},
                    {"OMPI_COMM_WORLD_RANK", "0"}}),
              UnorderedElementsAre(Pair("launcher", "mpirun"), Pair("job_id", "17"),
                                   Pair("job_name", "tide"), Pair("job_nodes", "n[1-2]")));
}

TEST(Provenance, KeepsWhatChangesMpiAndNoSecrets) {
  EXPECT_THAT(
      Told({{"UCX_TLS", "tcp"}, {"OMPI_MCA_btl", "self"}, {"API_TOKEN", "x"}, {"HOME", "/"}}),
      UnorderedElementsAre(Pair("mpi_environment", "OMPI_MCA_btl=self UCX_TLS=tcp")));
}

TEST(Provenance, OfThisProcessIsKnown) {
  const std::map<std::string, std::string> facts = Provenance();
  EXPECT_THAT(facts.at("command"), HasSubstr("launcher_test"));
  EXPECT_THAT(facts.at("build"), HasSubstr("GNU"));
  EXPECT_THAT(facts.at("kernel"), HasSubstr("Linux"));
  EXPECT_THAT(facts.at("mpi"), HasSubstr("MPI"));
}

}  // namespace
}  // namespace bulkhead
