"""What keeps ranks from meeting is named with its host, with exit code 5; and a launch that is killed leaves nothing
that the next one does not remove."""
import contextlib
import fcntl
import os
import signal
import subprocess
import sys
import threading
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import hosts  # noqa: E402
from served import Served, group, mpirun  # noqa: E402

FRONT = mpirun(4, "--map-by", "ppr:2:node")
GROUP_NOT_UP = 5


def start(front, *flags):
    """The end of a start that fails."""
    return subprocess.run([*front, group.BINARY, "serve", "--model", group.MODEL, "--port", "0", *flags],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8", check=False,
                          timeout=hosts.LIMIT_S)


class StartTest(unittest.TestCase):
    def test_too_little_shared_memory_is_told_with_its_host_and_both_sizes(self):
        for host in ("hosta", "hostb"):
            with self.subTest(host), hosts.Hosts(slots=2) as two:
                two.run(host, "mount", "-o", "remount,size=4m", "/dev/shm")
                try:
                    ended = start(FRONT)
                finally:
                    two.run(host, "mount", "-o", "remount,size=1g", "/dev/shm")
                self.assertEqual(ended.returncode, GROUP_NOT_UP, ended.stdout)
                self.assertRegex(ended.stdout, f"/dev/shm of host {host} has (3.9|4.0) MiB free, and MPI needs 4.5 MiB for 2 ranks")

    def test_a_rank_that_does_not_come_to_mpi_is_named_by_its_neighbour(self):
        stops = ["sh", "-c", '[ $OMPI_COMM_WORLD_RANK != 3 ] || kill -STOP $$; exec "$@"', "sh"]
        with hosts.Hosts(slots=2):
            ended = start([*FRONT, *stops], "--startup-timeout", "5s")
            self.assertEqual(ended.returncode, GROUP_NOT_UP, ended.stdout)
            self.assertRegex(ended.stdout,
                             r"MPI_Init did not return within 5s: rank 3 \(host hostb, pid \d+\) is stopped\n")

    def test_the_starts_that_other_groups_make_on_several_hosts_are_awaited_together(self):
        locks = []
        with hosts.Hosts(slots=1) as two, contextlib.ExitStack() as stack:
            for host in ("hosta", "hostb"):
                folder = f"{hosts.STATE}/{host}"
                os.mkdir(folder)
                os.chmod(folder, 0o1777)
                locks.append(stack.enter_context(open(folder + "/bulkhead-host.lock", "w", encoding="ascii")))
                fcntl.flock(locks[-1], fcntl.LOCK_EX)
                two.run(host, "mount", "--bind", folder, "/run/lock")
            first = min(locks, key=lambda lock: "{0.st_dev}:{0.st_ino}".format(os.fstat(lock.fileno())))
            threading.Timer(3, first.close).start()
            ended = start(["mpirun", "-n", "2"], "--startup-timeout", "15s")
            two.run("hosta", "umount", "/run/lock")
        self.assertEqual(ended.returncode, GROUP_NOT_UP, ended.stdout)
        self.assertRegex(ended.stdout, r"bulkhead: rank [01] .* has been starting on this host for more than \S+; wait")

    def test_a_killed_launch_leaves_no_segment_and_its_folder_goes_with_the_next(self):
        front = ["mpirun", "--host", "hosta:2", "-n", "2"]
        with hosts.Hosts(slots=2):
            with Served(front) as served:
                self.assertEqual(os.listdir("/dev/shm"), [])
                served.process.send_signal(signal.SIGKILL)
                served.ends([0, 1])
            self.assertEqual(os.listdir("/dev/shm"), [])
            name = f"prterun.hosta.{served.process.pid}.0" if hosts.OPEN_MPI_5 else f"ompi.hosta.0/pid.{served.process.pid}"
            folder = f"{os.environ['TMPDIR']}/{name}"
            os.utime(folder, (0, 0))
            with Served(front) as served:
                self.assertFalse(os.path.exists(folder))
                self.assertTrue(any("removed 1 files and folders that killed launches left" in line
                                    for line in served.lines), served.lines)


if __name__ == "__main__":
    hosts.contain()
    unittest.main()
