"""A group that serves over the hosts of hosts.py, and what becomes of its ranks."""
import os
import sys
import time

import hosts

sys.path.insert(0, os.path.join(os.path.dirname(hosts.HERE), "e2e"))
import group  # noqa: E402

group.LIMIT_S = hosts.LIMIT_S
FLAGS = ["--kv-cache-dtype", "f32", "--max-num-seqs", "8", "--max-model-len", "2048"]  # group.Group's
LONGEST_LOOK_S = 0.5  # a look that took longer did so because this process, and all others, stood still


def mpirun(ranks, *more):
    return ["mpirun", "-n", str(ranks), *more]


def srun(ranks, *more):
    return ["srun", "-N2", f"-n{ranks}", "--mpi=pmix", "--overcommit", "--kill-on-bad-exit=1", "--quiet", *more]


def keep_code():
    """A front for a rank that keeps its exit code in STATE/code.RANK, although the launcher stops the front too."""
    return ["sh", "-c", f'trap : TERM; "$@"; code=$?; echo $code > {hosts.STATE}/code.$PMIX_RANK; exit $code', "sh"]


class Served(group.Group):
    """group.Group under another launcher, on both hosts."""

    def __init__(self, front, *flags):
        for name in os.listdir(hosts.STATE):
            if name.startswith("code."):
                os.unlink(f"{hosts.STATE}/{name}")
        group.ENVIRONMENT = dict(os.environ)
        group.front = lambda: list(front)
        super().__init__(*flags)
        self.pids = hosts.ranks()
        self.first_ended = None  # when ends() saw the first rank that had ended

    def codes(self):
        """rank -> exit code, of those that have one and were started behind keep_code()."""
        found = {}
        for name in os.listdir(hosts.STATE):
            if name.startswith("code."):
                with open(f"{hosts.STATE}/{name}", encoding="ascii") as f:
                    found[int(name[5:])] = int(f.read() or -1)
        return found

    def ends(self, which, limit_s=hosts.LIMIT_S, each_look=lambda: None):
        """Seconds from now until each rank of `which` has ended, but those in which the whole machine stood still."""
        last, seconds, ended = time.monotonic(), 0.0, {}
        while len(ended) < len(which):
            time.sleep(0.05)
            each_look()
            now = time.monotonic()
            seconds += min(now - last, LONGEST_LOOK_S)
            last = now
            for rank in which:
                if rank not in ended and not hosts.alive(self.pids[rank]):
                    self.first_ended = self.first_ended or now
                    ended[rank] = round(seconds, 1)
            if seconds > limit_s:
                raise AssertionError(f"the ranks live on for {limit_s} s: ended {ended} of {which}\n" +
                                     "\n".join(self.lines[-20:]))
        return ended
