"""A rank is killed: every stream ends with UNAVAILABLE, the lost rank is named, no process is left. A rank that stops or is
killed while the group ends in order is named, too."""
import concurrent.futures
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import group  # noqa: E402
from group import grpc, long_request  # noqa: E402

LAST = group.RANKS - 1
# The promise is 3 s. A loaded machine is given more, and less than the minute in which MPI would be given up.
NAMED_WITHIN_S = 40


class LostRankTest(unittest.TestCase):
    def kill(self, victim, number=signal.SIGKILL):
        with group.Group() as g, concurrent.futures.ThreadPoolExecutor(4) as pool:
            pids = g.rank_pids()
            self.assertEqual(sorted(pids), list(range(group.RANKS)))
            calls = [g.generation.GenerateStream(long_request()) for _ in range(4)]
            firsts = [next(iter(call)) for call in calls]
            self.assertEqual(len(firsts), 4)
            ends = [pool.submit(self.end_of, call) for call in calls]
            os.kill(pids[victim], number)
            errors = [end.result(group.LIMIT_S) for end in ends]
            self.assertNotEqual(g.exit_code(), 0)
            # mpirun does not wait for the ranks that it killed.
            limit = time.monotonic() + group.LIMIT_S
            while any(group.is_alive(p) for p in pids.values()):
                self.assertLess(time.monotonic(), limit)
                time.sleep(0.05)
            self.assertEqual({e.code() for e in errors}, {grpc.StatusCode.UNAVAILABLE})
            return errors, g.lines

    @staticmethod
    def end_of(call):
        try:
            for _ in call:
                pass
        except grpc.RpcError as error:
            return error
        raise AssertionError("the stream ended as if nothing had happened")

    def test_another_rank_is_named_to_every_client(self):
        victim = group.RANKS - 1
        errors, lines = self.kill(victim)
        for error in errors:
            self.assertIn(f"rank {victim}", error.details())
            self.assertEqual(group.reason(error), "RANK_LOST")
        self.assertTrue(any(f"rank {victim}" in line for line in lines), lines[-10:])

    def test_a_signal_to_one_rank_is_told_with_the_rank(self):
        victim = group.RANKS - 1
        errors, lines = self.kill(victim, signal.SIGTERM)
        for text in [error.details() for error in errors] + ["\n".join(lines)]:
            self.assertRegex(text, rf"stopped by signal 15 \(TERM\), sent to rank {victim} \(host \S+, pid \d+\)")

    def test_without_the_coordinator_the_connection_ends(self):
        self.kill(0)

    def check_named(self, rank, how, code, lines, seconds):
        log = "\n".join(lines)
        self.assertEqual(code, 6, log[-2000:])
        self.assertRegex(log, rf"(?m)^bulkhead: rank {rank} \(host \S+, pid \d+\) {how}")
        self.assertNotIn("stopped by signal", log)
        self.assertLess(seconds, NAMED_WITHIN_S)

    def test_a_rank_that_stops_as_the_group_drains_is_named(self):
        with group.Group() as g:
            pids = g.rank_pids()
            begin = time.monotonic()
            os.kill(pids[LAST], signal.SIGSTOP)
            os.kill(pids[0], signal.SIGUSR1)
            self.check_named(LAST, "was silent for", g.exit_code(), g.lines, time.monotonic() - begin)

    def end_of_batch(self, fault):
        """Code, log and seconds of a batch whose last rank, or first one, has this fault at its end."""
        begin = time.monotonic()
        with tempfile.NamedTemporaryFile() as log:
            mpirun = subprocess.Popen([*group.front(), os.environ["BULKHEAD_FAULTY"], fault, "--model", group.MODEL, "--prompts",
                                       "/dev/null", "--max-num-seqs", "4", "--max-model-len", "256", "--device-memory", "80MiB"],
                                      stdout=subprocess.DEVNULL, stderr=log, env=group.ENVIRONMENT)
            while mpirun.poll() is None and time.monotonic() - begin < group.LIMIT_S:
                time.sleep(0.1)
                if self.told_code(log.name) is not None:
                    break
            try:
                code = mpirun.wait(NAMED_WITHIN_S / 2)
            except subprocess.TimeoutExpired:
                mpirun.kill()
                code = mpirun.wait()
            told = self.told_code(log.name)
            # Where ranks have ended within MPI_Finalize, mpirun (PMIx 4.2) has told the code, and then crashes or hangs in
            # PMIx_server_finalize now and then.
            if told is not None and code in (-signal.SIGSEGV, -signal.SIGKILL):
                code = told
            return code, self.text_of(log.name).splitlines(), time.monotonic() - begin

    @staticmethod
    def text_of(log):
        with open(log, encoding="utf-8", errors="replace") as file:
            return file.read()

    def told_code(self, log):
        told = re.search(r"(?m)^\s*Exit code:\s+(\d+)$", self.text_of(log))
        return None if told is None else int(told[1])

    def test_a_rank_that_stops_at_the_end_of_a_batch_is_named(self):
        self.check_named(LAST, "was silent for", *self.end_of_batch("stops-at-the-end"))

    def test_a_coordinator_that_stops_at_the_end_of_a_batch_is_named(self):
        self.check_named(0, "was silent for", *self.end_of_batch("first-stops-at-the-end"))

    def test_a_rank_that_stops_while_it_leaves_is_named(self):
        self.check_named(LAST, "was silent for", *self.end_of_batch("stops-leaving"))

    def test_a_rank_that_is_killed_while_it_leaves_is_named_instead_of_the_launchers_signal(self):
        code, lines, seconds = self.end_of_batch("dies-leaving")
        self.assertEqual(code, 137, lines)
        self.check_named(LAST, "ended", 6, lines, seconds)


if __name__ == "__main__":
    unittest.main()
