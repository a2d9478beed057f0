"""cmake/unity_groups.py puts sources together that share no names, and no others."""
import os
import subprocess
import sys
import tempfile
import unittest

SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "cmake", "unity_groups.py")


class UnityGroupsTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = folder.name

    def write(self, name, *lines, own=()):
        os.makedirs(os.path.join(self.root, "base"), exist_ok=True)
        with open(os.path.join(self.root, "base", name), "w", encoding="utf-8") as f:
            f.write("\n".join([*lines, "namespace bulkhead {", "namespace {", *own, "}  // namespace", "}  // namespace bulkhead", ""]))

    def groups(self, *names):
        """Names of files by group."""
        paths = [os.path.join(self.root, "base", name) for name in names]
        words = subprocess.run([sys.executable, "-B", SCRIPT, self.root, *paths], capture_output=True, text=True, check=True).stdout.split(";")
        found = {}
        for path, group in zip(words[::2], words[1::2]):
            found.setdefault(group, []).append(os.path.basename(path))
        return list(found.values())

    def test_sources_without_common_names_are_compiled_together(self):
        self.write("a.cc", own=["constexpr int kA = 1;", "int Sum(int x) { return x; }", "TEST(A, B) {", "}"])
        self.write("b.cc", own=["constexpr int kB = 1;", "class Row {", "};", "TEST(A, C) {", "}"])
        self.assertEqual([["a.cc", "b.cc"]], self.groups("a.cc", "b.cc"))

    def test_a_constant_a_function_a_type_and_an_enumerator_keep_sources_apart(self):
        for one, other in (("constexpr int64_t kRows = 2, kCols = 3;", "constexpr float kCols = 1;"),
                           ("int Sum(int x) {", "std::vector<int> Sum(const std::string& a,"),
                           ("struct Row {", "class Row final : public Base {"),
                           ("enum Weights { kGate, kUp };", "constexpr int kUp = 1;"),
                           ("enum Kind {", "int Kind(int x) {")):
            self.write("a.cc", own=[one, "};"])
            self.write("b.cc", own=[other, "};"])
            self.assertEqual([["a.cc"], ["b.cc"]], self.groups("a.cc", "b.cc"), other)

    def test_an_alias_keeps_sources_apart_only_where_it_means_something_else(self):
        self.write("a.cc", "using Kind = Statement::Kind;", own=["using testing::HasSubstr;"])
        self.write("b.cc", "using Kind = Statement::Kind;", own=["using testing::HasSubstr;"])
        self.write("c.cc", "using Kind = Expression::Kind;", own=["using testing::HasSubstr;"])
        self.assertEqual([["a.cc", "b.cc"], ["c.cc"]], self.groups("a.cc", "b.cc", "c.cc"))

    def test_a_name_that_anothers_header_declares_keeps_sources_apart(self):
        self.write("inner.h", "inline constexpr int kLimit = 5;")
        self.write("outer.h", '#include "base/inner.h"')
        self.write("a.cc", '#include "base/outer.h"')
        self.write("b.cc", own=["constexpr int kLimit = 6;"])
        self.write("c.cc")
        self.assertEqual([["a.cc", "c.cc"], ["b.cc"]], self.groups("a.cc", "b.cc", "c.cc"))

    def test_a_group_has_eight_sources(self):
        names = [f"{i}.cc" for i in range(11)]
        for name in names:
            self.write(name)
        self.assertEqual([8, 3], [len(group) for group in self.groups(*names)])


if __name__ == "__main__":
    unittest.main()
