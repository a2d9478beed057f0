"""A coordinator that plans beyond the sealed arenas is a bug, detected before any memory is
touched: exit code 70, never a crash."""
import os
import subprocess
import unittest

import group


class FaultyCoordinatorTest(unittest.TestCase):
    def end(self, about, blocks=40):
        return subprocess.run(
            [*group.front(), os.environ["BULKHEAD_FAULTY"], about, "--model", group.MODEL, "--prompts", "/dev/null",
             "--max-num-seqs", "4", "--max-model-len", "256", "--max-num-batched-tokens", "256",
             "--device-memory", "80MiB", "--cache-max-entry-count", str(blocks)],
            capture_output=True, text=True, timeout=group.LIMIT_S, env=group.ENVIRONMENT)

    def test_every_lie_ends_the_group_with_the_ranks_name(self):
        for about, what, blocks in (("blocks", "block", 40), ("sequences", "sequences", 200), ("tokens", "tokens", 200)):
            with self.subTest(about):
                done = self.end(about, blocks)
                self.assertEqual(done.returncode, 70, done.stderr)
                self.assertRegex(done.stderr, rf"rank \d: step \d+ oversteps the sealed arenas: .*{what}")

    def test_an_honest_one_comes_to_its_end(self):
        self.assertEqual(self.end("nothing").returncode, 0)


if __name__ == "__main__":
    unittest.main()
