// The built program as a shell sees it.
#pragma once

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace bulkhead {

struct Ended {
  int exit_code = -1;  // as in a shell: 128 + n for signal n
  std::string out;
  std::string err;
};

class ProgramTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "programXXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    dir_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }

  std::string Write(const std::string& name, const std::string& text) {
    const std::string path = dir_ + "/" + name;
    std::ofstream(path) << text;
    return path;
  }
  std::string Read(const std::string& name) {
    std::ifstream file(dir_ + "/" + name);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  }

  pid_t Start(const std::vector<std::string>& args, const std::string& input = "") {
    const std::string in = in_.empty() ? Write("in", input) : in_;
    std::vector<std::string> words = {BH_PROGRAM};
    words.insert(words.end(), args.begin(), args.end());
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    const std::string out = out_.empty() ? dir_ + "/out" : out_;
    const std::string err = dir_ + "/err";
    const pid_t pid = fork();
    if (pid != 0) return pid;
    dup2(open(in.c_str(), O_RDONLY), STDIN_FILENO);
    dup2(pipe_ >= 0 ? pipe_ : open(out.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), STDOUT_FILENO);
    dup2(open(err.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), STDERR_FILENO);
    execv(argv[0], argv.data());
    _exit(127);
  }
  Ended Wait(pid_t pid) {
    int status = 0;
    EXPECT_EQ(waitpid(pid, &status, 0), pid);
    const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return {code, out_.empty() ? Read("out") : "", Read("err")};
  }
  Ended Run(const std::vector<std::string>& args, const std::string& input = "") {
    return Wait(Start(args, input));
  }

  std::string dir_;
  std::string in_, out_;  // override our own files for standard input and output
  int pipe_ = -1;         // overrides all for standard output
};

// The error is one line, the last, and nothing is on standard output.
inline void ExpectFailure(const Ended& ended, int exit_code, const std::string& says) {
  EXPECT_EQ(ended.exit_code, exit_code) << ended.err;
  EXPECT_EQ(ended.out, "");
  const std::string lines = ended.err.substr(0, ended.err.size() - 1);
  EXPECT_THAT(lines.substr(lines.rfind('\n') + 1),
              ::testing::AllOf(::testing::StartsWith("bulkhead: "), ::testing::HasSubstr(says)));
}

}  // namespace bulkhead
