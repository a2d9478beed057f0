"""The help of the program, and what is made from it: docs/flags.md, the man page, bash completion; --version."""
import functools
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

SOURCE = os.environ["BULKHEAD_SOURCE"]
PROGRAM = os.environ["BULKHEAD"]


@functools.lru_cache(maxsize=None)
def printed(*args):
    return subprocess.run([PROGRAM, *args], capture_output=True, text=True, check=True, timeout=60).stdout


@functools.lru_cache(maxsize=None)
def made(kind):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, kind)
        subprocess.run([sys.executable, os.path.join(SOURCE, "scripts", "help_files.py"), PROGRAM, kind, path], check=True,
                       timeout=60)
        with open(path, encoding="utf-8") as file:
            return file.read()


def commands():
    """Every command by name, as two helps list them: ["serve"], ["bench", "comm"]."""
    top = printed("help").split("\nCommands:\n")[1].split("\n\n")[0]
    for name in re.findall(r"(?m)^  (\w+)", top):
        if name != "bench":
            yield [name]
    for name in re.findall(r"(?m)^  (\w+)", printed("help", "bench")):
        yield ["bench", name]


def flags(command):
    """[names] of each flag that a command's help shows."""
    for entry in re.split(r"\n  (?=--)", printed("help", *command))[1:]:
        also = re.search(r"\[also ([^]]*)\]", re.sub(r"\s+", " ", entry))
        yield [entry.split()[0]] + (also.group(1).split(", ") if also else [])


class HelpTest(unittest.TestCase):
    def test_help_command_is_command_help(self):
        for command in commands():
            text = printed("help", *command)
            self.assertEqual(text, printed(*command, "--help"))
            self.assertGreater(len(text), 40, command)

    def test_version_says_how_it_was_built_and_what_it_runs_with(self):
        text = printed("--version")
        for args in (["version"], ["serve", "--version"], ["bench", "--version"]):
            self.assertEqual(printed(*args), text)
        self.assertRegex(text, r"\Abulkhead \d+\.\d+\.\d+( \([0-9a-f]+\))?\n")
        self.assertRegex(text, r"\ncommit date: (\d{4}-\d\d-\d\d|unknown)\n")
        self.assertRegex(text, r"\ncompiler: \w+ \d+\.\d+.*-O")
        self.assertRegex(text, r"\nMPI: Open MPI v\d")
        self.assertRegex(text, r"\nCUDA: (none|\d+\.\d+.* for sm_\d+.*NCCL (none|\d+\.\d+.*), cuBLASLt (none|\d+\.\d+.*))")
        self.assertRegex(text, r"\nNVIDIA driver: (none|\d+\.\d+.*)\n")
        self.assertRegex(text, r"\ninstruction set: (plain|avx2|avx512|avx512vnni|avx512bf16|avx512amx)\n\Z")


class MarkdownTest(unittest.TestCase):
    def test_the_page_is_as_the_program_prints_it(self):
        with open(os.path.join(SOURCE, "docs", "flags.md"), encoding="utf-8") as file:
            self.assertEqual(file.read(), made("markdown"), "run scripts/help_files.py build/release/bin/bulkhead markdown docs/flags.md")

    def test_it_has_every_command_and_every_flag(self):
        text, seen = made("markdown"), 0
        for command in commands():
            self.assertIn("# bulkhead " + " ".join(command) + "\n", text)
            for names in flags(command):
                self.assertIn("| " + ", ".join(f"`{name}`" for name in names) + " |", text, command)
                seen += 1
        self.assertGreater(seen, 100)
        self.assertIn("| `--max-num-seqs`, `--max-batch-size` | N: 1 to 65536 |", text)
        self.assertIn("| `--device` | NAME: auto, cpu, cuda |", text)
        self.assertNotIn("--cpu-isa", text)


class ManPageTest(unittest.TestCase):
    def test_it_has_every_command_and_every_flag(self):
        text = made("man")
        for command in commands():
            self.assertIn(".SH BULKHEAD " + " ".join(command).upper(), text)
            for names in flags(command):
                self.assertIn(", ".join(r"\fB" + name.replace("-", r"\-") + r"\fR" for name in names), text)
        self.assertIn(".SH EXIT STATUS\n", text)

    @unittest.skipUnless(shutil.which("groff"), "there is no groff")
    def test_groff_formats_it_without_a_warning(self):
        done = subprocess.run(["groff", "-man", "-Tutf8", "-ww", "-z"], input=made("man"), capture_output=True, text=True,
                              check=True)
        self.assertEqual(done.stderr, "")


class CompletionTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.script = made("completion")

    def completed(self, *words):
        """What bash offers for the last word."""
        ask = "\nCOMP_WORDS=(\"$@\"); COMP_CWORD=$(($# - 1)); _bulkhead; printf '%s\\n' \"${COMPREPLY[@]}\""
        done = subprocess.run(["bash", "-c", self.script + ask, "bash", "bulkhead", *words], capture_output=True, text=True,
                              check=True)
        self.assertEqual(done.stderr, "")
        return done.stdout.split()

    def test_commands(self):
        self.assertEqual(self.completed("se"), ["serve"])
        self.assertEqual(self.completed("help", "pl"), ["plan"])
        self.assertEqual(self.completed("bench", "th"), ["throughput"])
        self.assertLessEqual({"serve", "generate", "bench", "--version"}, set(self.completed("")))

    def test_flags(self):
        self.assertEqual(self.completed("serve", "--max-num-s"), ["--max-num-seqs"])
        self.assertEqual(self.completed("bench", "throughput", "--batch"), ["--batch-size"])
        self.assertEqual(self.completed("drain", "--max"), [])
        for command in commands():
            self.assertLessEqual({name for names in flags(command) for name in names}, set(self.completed(*command, "-")))

    def test_values(self):
        self.assertEqual(self.completed("serve", "--device", ""), ["auto", "cpu", "cuda"])
        self.assertEqual(self.completed("serve", "--device", "=", "cu"), ["cuda"])
        self.assertEqual(self.completed("serve", "--device", "="), ["auto", "cpu", "cuda"])
        self.assertIn("h200", self.completed("plan", "--gpu", "h"))
        self.assertEqual(self.completed("serve", "--port", ""), [])  # a number: nothing to offer
        self.assertIn("--port", self.completed("serve", "--insecure", ""))  # a switch has no value


if __name__ == "__main__":
    unittest.main()
