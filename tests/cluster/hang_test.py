"""A rank that hangs inside a step while its process lives on, heartbeats and all: its threads stand still while the step
takes ten times its estimate, or else the step's time-out tells, and every rank of both hosts ends within that and 5 s, with
the rank and host that hang named."""
import itertools
import os
import re
import sys
import threading
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import hosts  # noqa: E402
from served import Served, group, keep_code, mpirun  # noqa: E402
from thread_stop import StoppedThread  # noqa: E402

STEP_TIMEOUT_S = 20
STANDSTILL_S = 5
LIMIT_S = STEP_TIMEOUT_S + 5
LOST = 6
STREAMS = 8


def long_prompt(number):
    """No two begin alike."""
    return group.pb.GenerateRequest(token_ids=group.pb.TokenIds(ids=list(range(3, 203)) * 9),
                                    cache_salt=str(number), sampling=group.pb.Sampling(temperature=0),
                                    stopping=group.pb.Stopping(max_tokens=4, ignore_eos=True))


class HangTest(unittest.TestCase):
    def setUp(self):
        self.errors = []

    def ask(self, served, first):
        """One prompt behind the other, so that the ranks are hardly ever between two steps."""
        try:
            for number in itertools.count(first, STREAMS):
                for _ in served.generation.GenerateStream(long_prompt(number)):
                    pass
        except group.grpc.RpcError as error:
            self.errors.append(error)

    def check(self, rank, named):
        """The thread of `rank` that computes stops; each rank ends in time, and clients and log are told `named`."""
        front = mpirun(4, "--map-by", "ppr:2:node", *keep_code())
        with hosts.Hosts(slots=2), Served(front, "--step-timeout", f"{STEP_TIMEOUT_S}s") as served:
            streams = [threading.Thread(target=self.ask, args=(served, n)) for n in range(STREAMS)]
            for stream in streams:
                stream.start()
            hosts.until(lambda: served.load().num_requests_running > 0, "nothing runs")
            begin = time.monotonic()
            try:
                with StoppedThread(served.pids[rank]) as stopped:
                    ended = served.ends(range(4), LIMIT_S, each_look=stopped.reap)
            except PermissionError:
                self.skipTest("this machine lets not even root stop a single thread (ptrace)")
            print(f"\n  ended after {ended} s", end=" ", flush=True)
            # No sooner than a slow rank would be. What ended() counts may be less than what passed.
            self.assertGreater(served.first_ended - begin, STANDSTILL_S - 1)
            for stream in streams:
                stream.join()
            self.assertEqual(len(self.errors), len(streams))
            for error in self.errors:
                self.assertEqual((error.code(), group.reason(error)),
                                 (group.grpc.StatusCode.UNAVAILABLE, "RANK_LOST"))
                self.assertRegex(error.details(), rf"^step \d+ did not end within \S+"
                                 rf"(, and {named}, which the others wait for, used no CPU time for the last \S+"
                                 rf"|, and {named} used no CPU time for the last \S+"
                                 rf"|( \(estimated were \S+\))?; the others wait for {named}; --step-timeout sets another limit)$")
            hosts.until(lambda: len(served.codes()) == 4, "codes are missing")
            self.assertEqual(served.codes(), dict.fromkeys(range(4), LOST))
            hosts.until(lambda: any(re.search("bulkhead: step .* " + named, line) for line in served.lines),
                        "the log does not say who hangs", 20)

    def test_a_rank_behind_its_hosts_leader(self):
        self.check(3, r"rank 3 \(host hostb, pid \d+\)")

    def test_the_leader_of_the_other_host(self):
        # Between two steps nothing tells which of its host's ranks it is.
        self.check(2, r"(rank 2 \(host hostb, pid \d+\)|ranks 2, 3 \(host hostb\))")

    def test_rank_0(self):
        self.check(0, r"rank 0 \(host hosta, pid \d+\)")


if __name__ == "__main__":
    hosts.contain()
    unittest.main()
