#!/usr/bin/python3
"""scripts/lint.py detects what it is for, in a project of two files."""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
LINT = os.path.join(ROOT, "scripts", "lint.py")
sys.path.insert(0, os.path.dirname(LINT))
import lint  # noqa: E402

HEADER = """// A counter.
#pragma once

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

class Counter {
 public:
  int Add();

 private:
  absl::Mutex mutex_;
  int count_ ABSL_GUARDED_BY(mutex_) = 0;
};
"""
SOURCE = """#include "base/counter.h"

int Counter::Add() {
  const absl::MutexLock lock(&mutex_);
  return ++count_;
}
"""


@unittest.skipIf(lint.missing_tools(), f"not there, or of another version: {lint.missing_tools()}")
class LintTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = folder.name
        for name in (".clang-format", ".clang-tidy"):
            shutil.copy(os.path.join(ROOT, name), self.root)
        self.write("base/counter.h", HEADER)
        self.write("base/counter.cc", SOURCE)
        command = f"/usr/bin/g++ -I{self.root} -std=c++20 -o counter.o -c base/counter.cc"
        self.write("build/release/compile_commands.json",
                   json.dumps([{"directory": self.root, "command": command, "file": f"{self.root}/base/counter.cc"}]))
        subprocess.run(["git", "init", "-q", self.root], check=True)

    def write(self, path, text):
        full = os.path.join(self.root, path)
        os.makedirs(os.path.dirname(full), exist_ok=True)
        with open(full, "w", encoding="utf-8") as f:
            f.write(text)

    def lint(self, *arguments):
        """Exit status and output."""
        subprocess.run(["git", "-C", self.root, "add", "base"], check=True)
        done = subprocess.run([sys.executable, LINT, "--root", self.root, "--cache", os.path.join(self.root, "cache"), *arguments],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        return done.returncode, done.stdout

    def assert_found(self, checks, word):
        code, output = self.lint("--checks", checks)
        self.assertEqual(1, code, output)
        self.assertIn(word, output)

    def test_what_is_in_order_passes_all_checks_and_is_not_checked_again(self):
        for _ in range(2):
            code, output = self.lint()
            self.assertEqual(0, code, output)

    def test_a_line_that_clang_format_would_change(self):
        self.write("base/kernel.cu", "int  a;\n")
        self.assert_found("format", "kernel.cu")

    def test_a_header_that_needs_another_before_it(self):
        self.write("base/name.h", "#pragma once\n\nextern const std::string kName;\n")
        self.write("base/counter.cc", SOURCE.replace("\n\n", '\n\n#include <string>\n\n#include "base/name.h"\n\n', 1))
        self.assert_found("headers", "base/name.h")

    def test_a_guarded_member_that_is_used_without_its_lock(self):
        self.lint("--checks", "locks")
        self.write("base/counter.cc", SOURCE.replace("  const absl::MutexLock lock(&mutex_);\n", ""))
        self.assert_found("locks", "requires holding mutex 'mutex_'")

    def test_a_function_that_is_called_without_the_lock_it_requires(self):
        self.write("base/counter.h", HEADER.replace(" private:\n", " private:\n  int Next() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);\n"))
        self.write("base/counter.cc", SOURCE.replace("  const absl::MutexLock lock(&mutex_);\n  return ++count_;", "  return Next();"))
        self.assert_found("locks", "requires holding mutex 'mutex_'")

    def test_what_clang_tidy_warns_of_after_a_change_of_a_header_alone(self):
        self.lint("--checks", "tidy")
        self.write("base/counter.h", HEADER.replace("  int Add();\n", "  Counter(int begin) : count_(begin) {}\n  int Add();\n"))
        self.assert_found("tidy", "google-explicit-constructor")

    def test_sources_that_are_compiled_together_are_checked_one_by_one(self):
        together = f"{self.root}/build/release/CMakeFiles/base.dir/Unity/unity_base_0_cxx.cxx"
        self.write(together, f'#include "{self.root}/base/counter.cc"\n')
        self.write("build/release/compile_commands.json", json.dumps(
            [{"directory": self.root, "command": f"/usr/bin/g++ -I{self.root} -std=c++20 -o x.o -c {together}", "file": together}]))
        self.assertEqual(0, self.lint("--checks", "locks,tidy")[0])
        self.write("base/counter.cc", SOURCE.replace("absl::MutexLock lock(&mutex_);", ""))
        self.assert_found("locks", "counter.cc")

    def test_only_what_differs_from_a_commit_is_checked(self):
        self.write("base/other.h", "int  a;\n")  # not formatted
        subprocess.run(["git", "-C", self.root, "add", "base"], check=True)
        subprocess.run(["git", "-C", self.root, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "All"], check=True)
        code, output = self.lint("--checks", "format", "--since", "HEAD")
        self.assertEqual((0, "format: 0 files\n"), (code, output))
        self.write("base/counter.cc", SOURCE.replace("++count_", "++  count_"))
        code, output = self.lint("--checks", "format", "--since", "HEAD")
        self.assertEqual(1, code, output)
        self.assertIn("counter.cc", output)
        self.assertNotIn("other.h", output)

    def test_without_a_build_nothing_is_checked_and_the_reason_is_told(self):
        shutil.rmtree(os.path.join(self.root, "build"))
        code, output = self.lint()
        self.assertEqual(77, code)
        self.assertRegex(output, r"(?m)^lint: skipped: build/release/compile_commands.json not found")


if __name__ == "__main__":
    unittest.main()
