"""The commands of docs/out-of-memory.md do what the page says."""
import os
import re
import shlex
import subprocess
import tempfile
import unittest

SOURCE = os.environ["BULKHEAD_SOURCE"]
PAGE = os.path.join(SOURCE, "docs", "out-of-memory.md")

# In the order of the page: the exit code, and a pattern of the output.
EXPECTED = [
    (4, r"lacks .* for workspace"),
    (0, r"holds [1-9]\d* sequences?"),
    (4, r"lacks .* for kv"),
    (4, r"lacks .* for kv"),
    (0, r"(?m)^ranks +1 +2$"),
    (4, r"lacks .* for workspace"),
    (0, r"change first: --max-num-batched-tokens"),
]


class OutOfMemoryPageTest(unittest.TestCase):
    def test_every_command_does_what_the_page_says(self):
        with open(PAGE, encoding="utf-8") as file:
            commands = re.findall(r"(?m)^bulkhead (?:plan|doctor) .*$", file.read())
        self.assertEqual(len(commands), len(EXPECTED))
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        os.symlink(os.path.join(SOURCE, "examples"), os.path.join(folder.name, "examples"))
        program = f"bulkhead() {{ {shlex.quote(os.environ['BULKHEAD'])} \"$@\"; }}; "
        for command, (code, pattern) in zip(commands, EXPECTED):
            done = subprocess.run(["bash", "-c", program + command], capture_output=True, text=True,
                                  cwd=folder.name, timeout=120)
            self.assertEqual(done.returncode, code, command)
            self.assertRegex(done.stdout + done.stderr, pattern, command)
            if "for kv" in pattern:
                self.assertNotIn("a group of", done.stdout, command)


if __name__ == "__main__":
    unittest.main()
