#include "launcher/exit_status.h"

#include <gtest/gtest.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace bulkhead {
namespace {

// Standard output or error, with a pipe in its place.
class Captured {
 public:
  explicit Captured(int output) : output_(output), saved_(dup(output)) {
    EXPECT_EQ(pipe(ends_), 0);
    dup2(ends_[1], output_);
  }
  ~Captured() {
    dup2(saved_, output_);
    for (const int descriptor : {saved_, ends_[0], ends_[1]}) close(descriptor);
  }
  int unread() const {
    int count = 0;
    EXPECT_EQ(ioctl(ends_[0], FIONREAD, &count), 0);
    return count;
  }
  std::string Read() {
    char text[64];
    return {text, static_cast<size_t>(read(ends_[0], text, sizeof text))};
  }

 private:
  const int output_, saved_;
  int ends_[2];
};

TEST(ExitStatusTest, OpenMpi5ReadsTheLogBeforeALineIsPrinted) {
  std::fflush(stdout);
  setenv("PRTE_LAUNCHED", "1", 1);
  {
    Captured out(STDOUT_FILENO), err(STDERR_FILENO);
    ASSERT_EQ(write(STDERR_FILENO, "log\n", 4), 4);
    std::thread rank([] { EXPECT_TRUE(PrintLine("READY").ok()); });
    absl::SleepFor(absl::Milliseconds(50));
    EXPECT_EQ(out.unread(), 0);
    EXPECT_EQ(err.Read(), "log\n");
    EXPECT_EQ(out.Read(), "READY\n");
    rank.join();
  }
  unsetenv("PRTE_LAUNCHED");
}

TEST(ExitStatusTest, OtherLaunchersAreNotWaitedFor) {
  std::fflush(stdout);
  Captured out(STDOUT_FILENO), err(STDERR_FILENO);
  ASSERT_EQ(write(STDERR_FILENO, "log\n", 4), 4);
  EXPECT_TRUE(PrintLine("READY").ok());
  EXPECT_EQ(out.Read(), "READY\n");
  EXPECT_EQ(err.unread(), 4);
}

}  // namespace
}  // namespace bulkhead
