#include "launcher/python_tool.h"

#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iostream>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/exit_code.h"
#include "base/status.h"

namespace bulkhead {
namespace {

constexpr char kPython[] = "/usr/bin/python3";

absl::Status Missing(const std::string& what) {
  return WithExitCode(absl::NotFoundError(absl::StrCat(
                          what,
                          "; tables and charts need python3, python3-numpy and python3-matplotlib "
                          "(apt install), or BULKHEAD_PYTHON=INTERPRETER")),
                      ExitCode::kUsage);
}

// An unnamed file that contains `text`, positioned at its start.
class UnnamedFile {
 public:
  explicit UnnamedFile(absl::string_view text) : fd_(memfd_create("bulkhead", MFD_CLOEXEC)) {
    while (!text.empty()) {
      const ssize_t written = write(fd_, text.data(), text.size());
      if (written <= 0) break;
      text.remove_prefix(written);
    }
    complete_ = fd_ >= 0 && text.empty();
    lseek(fd_, 0, SEEK_SET);
  }
  UnnamedFile(const UnnamedFile&) = delete;
  UnnamedFile& operator=(const UnnamedFile&) = delete;
  ~UnnamedFile() {
    if (fd_ >= 0) close(fd_);
  }
  int fd() const { return fd_; }
  bool complete() const { return complete_; }
  std::string Text() const {
    std::string text;
    char piece[4096];
    lseek(fd_, 0, SEEK_SET);
    for (ssize_t got = 0; (got = read(fd_, piece, sizeof(piece))) > 0;) text.append(piece, got);
    return text;
  }

 private:
  const int fd_;
  bool complete_ = false;
};

// The words of a command line, also in the form that execvp takes.
struct CommandLine {
  std::vector<std::string> words;

  std::vector<char*> argv() {
    std::vector<char*> pointers;
    for (std::string& word : words) pointers.push_back(word.data());
    pointers.push_back(nullptr);
    return pointers;
  }
};

absl::StatusOr<CommandLine> CommandLineOf(const std::vector<std::string>& args) {
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  const std::filesystem::path tool =
      program.parent_path().parent_path() / "share/bulkhead/tools/bench/__main__.py";
  if (!std::filesystem::exists(tool, error)) {
    return Missing(absl::StrCat("there is no ", tool.string(), " (cmake --install puts it there)"));
  }
  const char* const named = std::getenv("BULKHEAD_PYTHON");
  const bool has_own = access(kPython, X_OK) == 0;
  const std::string python = named != nullptr ? named : has_own ? kPython : "python3";
  CommandLine command{{python, "-B", tool.string(), program.string()}};
  command.words.insert(command.words.end(), args.begin(), args.end());
  return command;
}

}  // namespace

absl::Status BecomePythonTool(const std::vector<std::string>& args, absl::string_view input) {
  BH_ASSIGN_OR_RETURN(CommandLine command, CommandLineOf(args));
  const UnnamedFile file(input);
  if (!file.complete()) return absl::InternalError("no memory for the measured values");
  if (!input.empty()) dup2(file.fd(), STDIN_FILENO);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  for (const int signal : {SIGPIPE, SIGXFSZ}) std::signal(signal, SIG_DFL);
  const std::vector<char*> argv = command.argv();
  execvp(argv[0], argv.data());
  return Missing(absl::StrCat("cannot run ", command.words[0], ": ", std::strerror(errno)));
}

absl::Status RunPythonTool(const std::vector<std::string>& args, absl::string_view input) {
  BH_ASSIGN_OR_RETURN(CommandLine command, CommandLineOf(args));
  const UnnamedFile in(input);
  const UnnamedFile errors("");
  if (!in.complete() || !errors.complete()) return absl::InternalError("no memory for a file");
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in.fd(), STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, errors.fd(), STDERR_FILENO);
  pid_t child = 0;
  const std::vector<char*> argv = command.argv();
  const int error = posix_spawnp(&child, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) {
    return Missing(absl::StrCat("cannot run ", command.words[0], ": ", std::strerror(error)));
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  const std::string said = errors.Text();
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
    std::cerr << said << std::flush;
    return absl::OkStatus();
  }
  absl::string_view line = absl::StripAsciiWhitespace(said);
  line = absl::StripPrefix(line.substr(line.rfind('\n') + 1), "bulkhead: ");
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return WithExitCode(absl::UnavailableError(line), static_cast<ExitCode>(code));
}

absl::Status CheckPythonTool() { return RunPythonTool({"check"}); }

}  // namespace bulkhead
