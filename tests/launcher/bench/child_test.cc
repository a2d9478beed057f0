#include "launcher/bench/child.h"

#include "base/exit_code.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace bulkhead {
namespace {

using ::testing::_;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(ChildTest, OutputErrorsAndExitCodeComeBack) {
  const auto end = RunChild({"sh", "-c", "echo result; echo why >&2; exit 4"});
  ASSERT_TRUE(end.ok()) << end.status();
  EXPECT_EQ(end->exit_code, 4);
  EXPECT_EQ(end->out, "result\n");
  EXPECT_EQ(end->errors, "why\n");
  const auto killed = RunChild({"sh", "-c", "kill -9 $$"});
  ASSERT_TRUE(killed.ok());
  EXPECT_EQ(killed->exit_code, 137);
}

TEST(ChildTest, AProgramThatIsMissingIsNamed) {
  const auto end = RunChild({"no-such-launcher", "-n", "2"});
  ASSERT_FALSE(end.ok());
  EXPECT_EQ(ExitCodeOf(end.status()), ExitCode::kUsage);
  EXPECT_THAT(end.status().message(), HasSubstr("no-such-launcher"));
}

TEST(ChildTest, OurLastLineIsTheCauseAndOurCodesAreKept) {
  EXPECT_TRUE(StatusOfChild("it", {0, "", "bulkhead: nothing\n"}).ok());
  const absl::Status refused =
      StatusOfChild("the group of 2", {4, "", "log\nbulkhead: does not fit\nmpirun says more\n"});
  EXPECT_EQ(ExitCodeOf(refused), ExitCode::kDoesNotFit);
  EXPECT_THAT(refused.message(), HasSubstr("the group of 2 ended with code 4: does not fit"));
  EXPECT_THAT(refused.message(), Not(HasSubstr("mpirun says more")));
  const absl::Status foreign = StatusOfChild("the group of 2", {213, "", "no slots\n"});
  EXPECT_EQ(ExitCodeOf(foreign), ExitCode::kGroupNotUp);
  EXPECT_THAT(foreign.message(), HasSubstr("no slots"));
}

TEST(ChildTest, ALaunchersPagesOfAdviceDoNotHideTheCause) {
  const std::string frame = "--------------------------------------------------------\n";
  const std::string advice = frame + "Not enough slots\nfor 2 ranks:\n\n  true\n\nEither ask for " +
                             "fewer\nor use\n--use-hwthread-cpus option.\n\nso it is\n" + frame;
  EXPECT_THAT(std::string(StatusOfChild("it", {1, "", advice}).message()),
              EndsWith("code 1: Not enough slots | for 2 ranks:"));
  EXPECT_THAT(
      std::string(StatusOfChild("it", {1, "", "ssh: no host nan\n" + advice + advice}).message()),
      EndsWith("code 1: ssh: no host nan"));
}

TEST(ChildTest, AGroupIsNamedWithItsHosts) {
  EXPECT_EQ(GroupName({"mpirun", {"nan", "b"}}, 2), "the group of 2 on hosts nan, b");
  EXPECT_EQ(GroupName({"mpirun", {"nan", "b"}}, 1), "the group of 1");
  EXPECT_EQ(GroupName({"mpirun", {}}, 2), "the group of 2");
}

TEST(ChildTest, OneRankNeedsNoLauncher) {
  EXPECT_THAT(GroupCommand({"mpirun", {"a"}}, 1, 2, {"plan"}), ElementsAre(_, "plan"));
}

TEST(ChildTest, AGroupIsSpreadEvenlyOverHosts) {
  EXPECT_THAT(
      GroupCommand({"mpirun --bind-to none", {"a", "b"}}, 5, 2, {"plan"}),
      ElementsAre("mpirun", "--bind-to", "none", "--host", "a:3,b:3", "-n", "5", _, "plan"));
}

TEST(ChildTest, MoreRanksThanCoresAreAllowedWhereMpirunAsks) {
  EXPECT_THAT(GroupCommand({"mpirun", {}}, 3, 2, {}),
              ElementsAre("mpirun", "--oversubscribe", "-n", "3", _));
  EXPECT_THAT(GroupCommand({"mpirun", {}}, 2, 2, {}), ElementsAre("mpirun", "-n", "2", _));
  EXPECT_THAT(GroupCommand({"srun --mpi=pmix", {}}, 3, 2, {}),
              ElementsAre("srun", "--mpi=pmix", "-n", "3", _));
}

}  // namespace
}  // namespace bulkhead
