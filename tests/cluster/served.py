"""A group that serves over the hosts of hosts.py, and what becomes of its ranks."""
import os
import sys
import time

import hosts

sys.path.insert(0, os.path.join(os.path.dirname(hosts.HERE), "e2e"))
import group  # noqa: E402

group.LIMIT_S = hosts.LIMIT_S
FLAGS = ["--kv-cache-dtype", "f32", "--max-num-seqs", "8", "--max-model-len", "2048"]  # group.Group's


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

    def codes(self):
        """rank -> exit code, of those that have one and were started behind keep_code()."""
        found = {}
        for name in os.listdir(hosts.STATE):
            if name.startswith("code."):
                with open(f"{hosts.STATE}/{name}", encoding="ascii") as f:
                    found[int(name[5:])] = int(f.read() or -1)
        return found

    def ends(self, which, limit_s=hosts.LIMIT_S):
        """Seconds from now until each rank of `which` has ended."""
        begin, ended = time.monotonic(), {}

        def all_ended():
            for rank in which:
                if rank not in ended and not hosts.alive(self.pids[rank]):
                    ended[rank] = round(time.monotonic() - begin, 1)
            return len(ended) == len(which)
        try:
            hosts.until(all_ended, "the ranks live on", limit_s)
        except AssertionError as error:
            raise AssertionError(f"{error}: ended {ended} of {which}\n" + "\n".join(self.lines[-20:])) from None
        return ended
