"""A rank is killed: every stream ends with UNAVAILABLE, the lost rank is named, no process is left.
"""
import concurrent.futures
import os
import signal
import sys
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import group  # noqa: E402
from group import grpc, long_request  # noqa: E402


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


if __name__ == "__main__":
    unittest.main()
